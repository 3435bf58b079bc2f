"""Ranges of the key by which TiDB stores a table: WHERE clauses that have each row exactly once, whatever the key.

TiDB stores rows by their clustered primary key, or by `_tidb_rowid`; neither is ever NULL. It chooses the bounds, from
one row of each region or by counting rows, and compares them with the key by the key's own type and collation. So a
clause need not know the order: it only needs bounds in TiDB's order, as literals that mean the same value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import pairwise

from ticdc_lakehouse.snapshots.queries import Fact, SnapshotTable, quote, text_literal
from ticdc_source.developer_api import ColumnType, TableName
from ticdc_source.errors import OptionError

Bound = tuple[str, ...]  # a literal for each column of the key

_ROW_ID = "_tidb_rowid"
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_TIME = re.compile(r"-?\d+:\d\d:\d\d(\.\d+)?")
_HEX = re.compile(r"([0-9A-Fa-f]{2})*")


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the key."""

    sql: str
    type: ColumnType

    def as_text(self, alias: str) -> str:
        """Return SQL for the text of a value, from which `literal` makes a literal."""
        match self.type.family:
            case "text":
                return f"HEX(CONVERT({alias} USING utf8mb4))"
            case "binary":
                return f"HEX({alias})"
            case "enum" | "set" | "bit":  # they are stored by their numbers
                return f"CAST(CAST({alias} AS UNSIGNED) AS CHAR)"
            case "float":  # as a double, whose text is exact
                return f"CAST({alias} + 0e0 AS CHAR)"
            case _:
                return f"CAST({alias} AS CHAR)"

    def literal(self, text: str) -> str | None:
        """Return the literal of a value; None if there is none that is safe, as for the zero date.

        TiDB may take an invalid date as NULL, and then no row would be in any range.
        """
        match self.type.family:
            case "text":
                return f"_utf8mb4 x'{text}'" if _HEX.fullmatch(text) else None
            case "binary":
                return f"x'{text}'" if _HEX.fullmatch(text) else None
            case "datetime" | "timestamp":
                return f"'{text}'" if _is_moment(text) else None
            case "time":
                return f"'{text}'" if _TIME.fullmatch(text) else None
            case "float" if _NUMBER.fullmatch(text):  # as a DECIMAL, TiDB would round it to 30 digits after the point
                digits = repr(float(text))
                return digits if "e" in digits else f"{digits}e0"
            case _:
                return text if _NUMBER.fullmatch(text) else None


def _is_moment(text: str) -> bool:
    day, _, time = text.partition(" ")
    try:
        date.fromisoformat(day)
        datetime.strptime(time.partition(".")[0] or "00:00:00", "%H:%M:%S")  # noqa: DTZ007 (only checked)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class RowKey:
    """The key by which TiDB stores the rows of a table, and the questions that find bounds of its ranges.

    `rows` is how many the table has, by TiDB's statistics.
    """

    table: str
    columns: tuple[KeyColumn, ...]
    rows: int

    @property
    def aliases(self) -> tuple[str, ...]:
        """The names of the columns in the SQL of a snapshot."""
        return tuple(f"k{number}" for number in range(len(self.columns)))

    def selected(self) -> str:
        named = zip(self.columns, self.aliases, strict=True)
        return ", ".join(f"{column.sql} AS {alias}" for column, alias in named)

    def sample_sql(self) -> str:
        """Return the `dbtable` with the first row of each region: TiDB reads one row of each, however large."""
        rows = f"(SELECT {self.selected()} FROM {self.table} TABLESAMPLE REGIONS()) AS sampled"  # noqa: S608
        return f"(SELECT {self._texts()} FROM {rows} ORDER BY {', '.join(self.aliases)}) AS bounds"  # noqa: S608

    def count_sql(self) -> str:
        return f"(SELECT COUNT(*) AS n FROM {self.table}) AS counted"  # noqa: S608

    def every_sql(self, step: int) -> str:
        """Return the `dbtable` with every `step`-th row, but for the first: it reads the key of each row, in order."""
        keys = ", ".join(self.aliases)
        rows = f"(SELECT {self.selected()} FROM {self.table}) AS every_key"  # noqa: S608
        numbered = f"(SELECT {keys}, ROW_NUMBER() OVER (ORDER BY {keys}) AS place FROM {rows}) AS numbered"  # noqa: S608
        chosen = f"place > 1 AND MOD(place - 1, {step}) = 0"
        return f"(SELECT {self._texts()} FROM {numbered} WHERE {chosen} ORDER BY {keys}) AS bounds"  # noqa: S608

    def _texts(self) -> str:
        named = zip(self.columns, self.aliases, strict=True)
        return ", ".join(f"{column.as_text(alias)} AS t{number}" for number, (column, alias) in enumerate(named))

    def bounds(self, rows: Sequence[Sequence[str | None]]) -> list[Bound]:
        """Return the bounds in an answer, in TiDB's order, without those that have no literal."""
        found: list[Bound] = []
        for row in rows:
            literals = [
                None if text is None else column.literal(text) for column, text in zip(self.columns, row, strict=True)
            ]
            bound = tuple(one for one in literals if one is not None)
            if len(bound) == len(self.columns) and (not found or found[-1] != bound):
                found.append(bound)
        return found

    def clauses(self, bounds: Sequence[Bound]) -> list[str]:
        """Return a WHERE clause for each range: below the first bound, between two, and from the last bound on."""
        return [self._between(low, high) for low, high in pairwise([None, *bounds, None])]

    def _between(self, low: Bound | None, high: Bound | None) -> str:
        """Return the clause of the keys from `low` on, and below `high`."""
        names = self.aliases
        clauses = []
        while low and high and len(names) > 1 and low[0] == high[0]:  # TiDB finds a range more easily so
            clauses.append(f"{names[0]} = {low[0]}")
            names, low, high = names[1:], low[1:], high[1:]
        if len(names) > 1:  # these follow from what comes below; of them TiDB makes a range if the rest is too much
            clauses += [f"{names[0]} >= {low[0]}"] if low else []
            clauses += [f"{names[0]} <= {high[0]}"] if high else []
        clauses += [_after(names, low, ">=")] if low else []
        clauses += [_after(names, high, "<")] if high else []
        return " AND ".join(clauses) or "TRUE"


def _after(names: Sequence[str], bound: Bound, last: str) -> str:
    """Return what says that the columns, compared one after the other, are `>=` a bound or `<` it."""
    name, literal = names[0], bound[0]
    if len(names) == 1:
        return f"{name} {last} {literal}"
    return f"({name} {last[0]} {literal} OR ({name} = {literal} AND {_after(names[1:], bound[1:], last)}))"


def spread(bounds: Sequence[Bound], ranges: int) -> list[Bound]:
    """Return the bounds of at most so many ranges, evenly chosen; the first of the bounds begins the first range."""
    if len(bounds) <= ranges:
        return list(bounds[1:])
    return [bounds[len(bounds) * number // ranges] for number in range(1, ranges)]


def key_question(table: TableName) -> str:
    """Return the `dbtable` that asks TiDB for the kind of a table, its rows, and the columns of its clustered key."""
    source = (
        "information_schema.tables t LEFT JOIN information_schema.tidb_indexes k ON k.table_schema = t.table_schema "
        "AND k.table_name = t.table_name AND k.key_name = 'PRIMARY' AND k.clustered = 'YES'"
    )
    wanted = f"t.table_schema = {text_literal(table.database)} AND t.table_name = {text_literal(table.table)}"
    facts = "t.table_type AS table_type, t.table_rows AS table_rows, k.column_name AS column_name"
    return f"(SELECT {facts}, k.seq_in_index AS place FROM {source} WHERE {wanted}) AS row_key"  # noqa: S608


def key_of(table: SnapshotTable, rows: Sequence[Mapping[str, Fact]]) -> RowKey:
    """Return what the answer to `key_question` says; a view is an error, because it has no key."""
    if not rows or rows[0]["table_type"] != "BASE TABLE":
        msg = (
            f"{table.name} is a view, whose rows have no key to split them by: give partition_column, an integer "
            "column, with num_partitions; or leave num_partitions out"
        )
        raise OptionError(msg)
    by_name = {column.name.lower(): column for column in table.columns}
    ordered = sorted((row for row in rows if row["column_name"] is not None), key=lambda row: int(row["place"] or 0))
    named = [by_name[str(row["column_name"]).lower()] for row in ordered]
    columns = tuple(KeyColumn(quote(column.name), column.type) for column in named)
    row_id = (KeyColumn(_ROW_ID, ColumnType("bigint")),)
    return RowKey(table.quoted, columns or row_id, int(rows[0]["table_rows"] or 0))
