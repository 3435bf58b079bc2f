"""Which tables to read: the option `tables`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from ticdc_source.errors import nearest
from ticdc_source.options.parsers import split_names, unquote_name
from ticdc_source.schema.table_name import TableName

__all__ = ["TableFilter", "parse_table"]


@dataclass(frozen=True, slots=True)
class TableFilter:
    """Patterns of (database, table), in which `*` stands for any text; without patterns, all tables match.

    Names are compared without case, as in TiDB.
    """

    patterns: tuple[tuple[str, str], ...] = ()

    def matches(self, table: TableName) -> bool:
        """Return whether a pattern matches the table."""
        return not self.patterns or any(
            _like(database, table.database) and _like(name, table.table) for database, name in self.patterns
        )

    def matches_database(self, database: str) -> bool:
        """Return whether a pattern may match a table of the database."""
        return not self.patterns or any(_like(pattern, database) for pattern, _ in self.patterns)

    def matches_ddl(self, table: TableName) -> bool:
        """Return whether DDL of the table may concern a table that matches; without a name it is DDL of a database."""
        return self.matches(table) if table.table else self.matches_database(table.database)

    def without_row(self, there: Iterable[TableName], among: str) -> str:
        """Return what to say of records without a row of these tables, `among` so many records."""
        # By its parts: what the names of one database have in common says nothing.
        near = [
            str(table)
            for pattern in self.patterns
            for table in sorted(there)
            if all("*" in part or nearest(part, [name]) for part, name in zip(pattern, table, strict=True))
        ]
        hint = f" Did you mean {', '.join(dict.fromkeys(near))}?" if near else ""
        patterns = ", ".join(map(".".join, self.patterns))
        listed = ", ".join({str(table).lower(): str(table) for table in sorted(there, key=str)}.values())
        return f"No row of {patterns} among {among}; the tables there are: {listed}.{hint}"

    @property
    def exact(self) -> TableName | None:
        """The table, if there is one pattern and it has no `*`."""
        if len(self.patterns) == 1 and not any("*" in part for part in self.patterns[0]):
            return TableName(*self.patterns[0])
        return None


def parse_table(text: str) -> TableName:
    """Parse `database.table`, in which names may be in backticks.

    Raises:
        ValueError: The text does not have this form.
    """
    database, table = (unquote_name(part) for part in split_names(text, separators="."))
    return TableName(database, table)


@lru_cache(maxsize=4096)  # called for each table of each chunk
def _like(pattern: str, name: str) -> bool:
    parts = (re.escape(part) for part in pattern.lower().split("*"))
    return re.fullmatch(".*".join(parts), name.lower(), re.DOTALL) is not None
