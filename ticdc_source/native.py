"""The extension module `ticdc_source._native`, if it is there. Nothing else imports it: without it, all reads work.

`make native` builds it in a clone, and so does `pip install .` where there is cargo. Without it, the general path gives
the same rows.
"""

from __future__ import annotations

from types import ModuleType

__all__ = ["missing", "native"]


def _load() -> tuple[ModuleType | None, str | None]:
    """Return the module; if it cannot be loaded, why."""
    try:
        from ticdc_source import _native as module  # noqa: PLC0415 (it may be absent)
    except ImportError as error:  # it was not built, or this system cannot load it: an older glibc, say
        return None, str(error)
    return module, None


native, missing = _load()
