"""Names of tables, and names in backticks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple


def quoted_name(*names: str) -> str:
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def expression_name(name: str) -> str:
    """Return a name for Spark's SQL: in backticks unless it is a plain word."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else quoted_name(name)


class TableName(NamedTuple):
    """A table's name in the messages, after TiCDC's routing, if configured."""

    database: str
    table: str

    def __str__(self) -> str:
        if not self.table:
            return f"database {self.database}" if self.database else "no table"
        return ".".join(part if part.replace("_", "a").isalnum() else quoted_name(part) for part in self)

    @property
    def folded(self) -> TableName:
        """The same for all spellings of the name, as TiDB ignores case. It is never shown."""
        return TableName(self.database.lower(), self.table.lower())

    def is_same(self, other: TableName) -> bool:
        return self == other or self.folded == other.folded


def first_spellings(names: Iterable[TableName]) -> dict[TableName, TableName]:
    """Return each table's first spelling, by its folded name."""
    spelt: dict[TableName, TableName] = {}
    for name in names:
        spelt.setdefault(name.folded, name)
    return spelt


# Returns whether a table is wanted.
Wants = Callable[[TableName], bool]


def every_table(_table: TableName) -> bool:
    return True
