"""Which tables the option `tables` names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ticdc_source.events import TableName
from ticdc_source.options.parsers import split_names, unquote_name

__all__ = ["TableFilter", "parse_table"]


@dataclass(frozen=True, slots=True)
class TableFilter:
    """The option `tables`: (database, table) patterns in which `*` stands for anything; none matches all.

    Names are compared without case, as TiDB does.
    """

    patterns: tuple[tuple[str, str], ...] = ()

    def matches(self, table: TableName) -> bool:
        """Tell whether the table is one of those named."""
        return not self.patterns or any(
            _like(database, table.database) and _like(name, table.table) for database, name in self.patterns
        )

    def matches_database(self, database: str) -> bool:
        """Tell whether a table of the database may be one of those named."""
        return not self.patterns or any(_like(pattern, database) for pattern, _ in self.patterns)

    @property
    def exact(self) -> TableName | None:
        """The one table that is named without `*`, if it is so."""
        if len(self.patterns) == 1 and not any("*" in part for part in self.patterns[0]):
            return TableName(*self.patterns[0])
        return None


def parse_table(text: str) -> TableName:
    """Read `database.table`, each part in backticks where it needs them.

    Raises:
        ValueError: it is not of that form.
    """
    database, table = (unquote_name(part) for part in split_names(text, separators="."))
    return TableName(database, table)


@lru_cache(maxsize=4096)  # asked for each table of each chunk
def _like(pattern: str, name: str) -> bool:
    parts = (re.escape(part) for part in pattern.split("*"))
    return re.fullmatch(".*".join(parts), name, re.IGNORECASE | re.DOTALL) is not None
