"""Names of tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class TableName(NamedTuple):
    """A table, named as in the messages: after TiCDC's own routing, if that is configured."""

    database: str
    table: str

    def __str__(self) -> str:
        if not self.table:
            return f"database {self.database}" if self.database else "no table"
        return ".".join(part if part.replace("_", "a").isalnum() else f"`{part.replace('`', '``')}`" for part in self)

    @property
    def folded(self) -> TableName:
        """What is equal for all spellings of the name: TiDB compares names without case. It is never shown."""
        return TableName(self.database.lower(), self.table.lower())

    def is_same(self, other: TableName) -> bool:
        return self == other or self.folded == other.folded


# Returns whether a table is wanted.
Wants = Callable[[TableName], bool]


def every_table(_table: TableName) -> bool:
    return True
