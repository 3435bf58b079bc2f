"""Copies of TiDB's tables in Delta or Iceberg: `sync` for a whole database, and functions for one table.

    from ticdc_lakehouse import merge_into

    merge_into(changes, "lake.shop.orders", format="iceberg")

`merge_into` keeps the newest image of each row. `append_log` keeps all changes, which `scd2_view` shows as versions of
rows. `is_merged` tells which of the two a table needs. `sync` does this for all tables of its topics in one stream, and
the command `ticdc-lakehouse sync` runs it. `commits_of` and `resolved_ts_of` tell how complete a table is,
`purge_deleted` removes rows that were deleted long ago, and `maintain` compacts files and removes old versions. `audit`
compares a table with TiDB. `as_of` returns all tables of a sync at one commit-ts.
"""

from __future__ import annotations

import importlib
import pkgutil
import re

# The stub lists the public names with their modules, for type checkers and for `__getattr__`.
_STUB = pkgutil.get_data(__name__, "__init__.pyi").decode()
_HOMES = {name: home for home, name in re.findall(r"^from (.+) import (\w+) as", _STUB, re.MULTILINE)}

__all__ = [*_HOMES]  # noqa: PLE0604 (they are strings)


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `ticdc-lakehouse --help` does not import pyspark."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
