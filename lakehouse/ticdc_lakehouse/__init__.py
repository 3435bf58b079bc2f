"""A whole database kept in Delta or Iceberg, and the public functions for one table of it.

    from ticdc_lakehouse import merge_into

    merge_into(changes, "lake.shop.orders", format="iceberg")

`merge_into` keeps the newest image of each row, `append_log` all changes, which `scd2_view` shows as versions of rows.
`is_merged` says whether a table needs `merge_into` or `append_log`.
`sync` does this for all tables of its topics, in one stream. `ticdc-lakehouse sync` calls it with a `SyncConfig`.
`commits_of` and `resolved_ts_of` say how complete a table is; `purge_deleted` forgets rows that were deleted long ago,
and `maintain` tidies the files. `audit` compares a table with TiDB. `as_of` returns the tables of a sync at one
commit-ts.
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
    """Import a public name when it is first used: `ticdc-lakehouse --help` does without pyspark."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
