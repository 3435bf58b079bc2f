"""Names of tables, and names in backticks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple


def quoted_name(*names: str) -> str:
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def expression_name(name: str) -> str:
    """Return a name as Spark's SQL takes it: in backticks unless it is a plain word."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else quoted_name(name)


class TableName(NamedTuple):
    """A table, named as in the messages: after TiCDC's own routing, if that is configured."""

    database: str
    table: str

    def __str__(self) -> str:
        if not self.table:
            return f"database {self.database}" if self.database else "no table"
        return ".".join(part if part.replace("_", "a").isalnum() else quoted_name(part) for part in self)

    @property
    def folded(self) -> TableName:
        """What is equal for all spellings of the name: TiDB compares names without case. It is never shown."""
        return TableName(self.database.lower(), self.table.lower())

    def is_same(self, other: TableName) -> bool:
        return self == other or self.folded == other.folded


def first_spellings(names: Iterable[TableName]) -> dict[TableName, TableName]:
    """Return how to spell each table, by its folded name: as the first of its names."""
    spelt: dict[TableName, TableName] = {}
    for name in names:
        spelt.setdefault(name.folded, name)
    return spelt


# Returns whether a table is wanted.
Wants = Callable[[TableName], bool]


def every_table(_table: TableName) -> bool:
    return True
