"""The API for packages built on this one: records and their types, DDL events, options, times, and commands.

Such packages import the user API (`ticdc_source`), the errors (`ticdc_source.errors`) and the names of this module,
and nothing deeper. The stub beside it lists them. Each name is imported at its first use: only some need pyspark.
"""

from __future__ import annotations

import importlib
import pkgutil
import re

_STUB = pkgutil.get_data("ticdc_source", "developer_api.pyi").decode()
_HOMES = {name: home for home, name in re.findall(r"^from (.+) import (\w+) as", _STUB, re.MULTILINE)}

__all__ = [*_HOMES]  # noqa: PLE0604 (they are strings)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
