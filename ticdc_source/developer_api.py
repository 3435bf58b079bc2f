"""What those need who build on the package: records and their types, DDL events, options, times, and commands.

`ticdc_source` itself has the names for users: `decode`, `tables`, `SyncState` and others; `ticdc_source.errors` the
errors. Whoever builds on the package imports those and the names of this module, which is kept for them, and nothing
deeper. The stub beside it lists them. A name is imported when it is first used: some need pyspark, and some do not.
"""

from __future__ import annotations

import importlib
import pkgutil
import re

_STUB = pkgutil.get_data("ticdc_source", "developer_api.pyi").decode()
_HOMES = {name: home for home, name in re.findall(r"^from (.+) import (\w+) as", _STUB, re.MULTILINE)}

__all__ = [*_HOMES]  # noqa: PLE0604 (they are strings)


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
