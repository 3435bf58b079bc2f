"""Names and values as TiDB's SQL writes them, and ranges of the key by which TiDB stores a table.

TiDB stores rows by their clustered primary key, or by `_tidb_rowid`; neither is ever NULL. TiDB finds the bounds of
ranges by counting rows, and compares them with the key by the key's type and collation. So conditions need not know the
order, only bounds as literals that mean the same value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TypeAlias

from ticdc_source.schema.model import Column
from ticdc_source.schema.table_name import TableName, quoted_name
from ticdc_source.schema.types import ColumnType

Bound: TypeAlias = tuple[str, ...]  # a literal for each column of the key

_ROW_ID = "_tidb_rowid"
_TABLE = "t"  # its alias: a qualified name cannot be taken for the alias of a result's column
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_TIME = re.compile(r"-?\d+:\d\d:\d\d(\.\d+)?")
_EXACT = 1 << 53  # up to here, doubles are all integers
_HEX = re.compile(r"([0-9A-Fa-f]{2})*")


def text_literal(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _named(column: str) -> str:
    return f"{_TABLE}.{quoted_name(column)}"


@dataclass(frozen=True, slots=True)
class _KeyColumn:
    """A column of the key, named as SQL."""

    sql: str
    type: ColumnType

    def as_text(self) -> str:
        """SQL for a value whose text `literal` turns into a literal; without a cast to text, which loses digits."""
        match self.type.family:
            case "text":  # NULL if bytes are not UTF-8: as question marks they would be another value
                text = f"CONVERT({self.sql} USING utf8mb4)"
                return f"IF({self.sql} = {text}, HEX({text}), NULL)"
            case "binary":
                return f"HEX({self.sql})"
            case "enum" | "bit":  # they are stored by their numbers
                return f"CAST({self.sql} AS UNSIGNED)"
            case "set":  # so are they, but TiDB computes with them as with doubles, and may refuse a cast
                return f"{self.sql} + 0e0"
            case "float":  # as a double, whose text is exact
                return f"{self.sql} + 0e0"
            case _:
                return self.sql

    def literal(self, text: str) -> str | None:
        """The literal of a value; None if there is no safe one, as for the zero date.

        TiDB may take an invalid date as NULL, so that no range would have a row.
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
            case "set":
                return str(int(float(text))) if _NUMBER.fullmatch(text) and float(text) <= _EXACT else None
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


class StoredRows:
    """The statements that read a table's rows, and the bounds of their ranges.

    Args:
        computed: expressions of TiDB's SQL, which follow the columns.
        condition: TiDB's SQL that selects the rows to read; "" for all.
    """

    def __init__(
        self,
        table: TableName,
        columns: Sequence[Column],
        clustered: Sequence[Column],
        computed: Sequence[str] = (),
        condition: str = "",
    ) -> None:
        # Otherwise TiDB may read an index and sort when its statistics change: slower, and maybe in another order.
        scans = " USE INDEX ()" if clustered or not condition else ""
        self._source = f"{quoted_name(*table)} AS {_TABLE}{scans}"
        self._selected = ", ".join((*map(_selected, columns), *computed))
        self._condition = condition
        self._repeats = not clustered
        self._key = [_KeyColumn(_named(one.name), one.type) for one in clustered if one.type is not None] or [
            _KeyColumn(f"{_TABLE}.{_ROW_ID}", ColumnType("bigint"))
        ]

    @property
    def _order(self) -> str:
        return ", ".join(column.sql for column in self._key)

    def select(self, low: Bound | None, high: Bound | None) -> str:
        """The statement that reads the rows in `[low, high)`, in the order of the key."""
        return f"SELECT {self._selected} FROM {self._source} WHERE {self._between(low, high)} ORDER BY {self._order}"  # noqa: S608 (quoted)

    def probe(self) -> str:
        """A statement that reads no row, but fails if the user may not read any."""
        return f"SELECT {self._selected} FROM {self._source} LIMIT 0"  # noqa: S608 (quoted)

    def next_bound(self, low: Bound | None, high: Bound | None, rows: int) -> str:
        """The query for the key of the row `rows` rows after the first of a range.

        Without a clustered key, the previous row's key comes first: see `after`.
        """
        key = ", ".join(column.as_text() for column in self._key)
        where = self._between(low, high)
        limit = f"{rows - 1}, 2" if self._repeats else f"{rows}, 1"
        return f"SELECT {key} FROM {self._source} WHERE {where} ORDER BY {self._order} LIMIT {limit}"  # noqa: S608 (quoted)

    def after(self, answer: Sequence[Sequence[str | None]]) -> Sequence[str | None] | None:
        """The key in the answer to `next_bound`; None if there is no such row.

        It is NULL if the previous row has the same: exchanged partitions may share `_tidb_rowid`s.
        """
        if not self._repeats:
            return answer[0] if answer else None
        if len(answer) < 2:  # noqa: PLR2004 (the row before, and the row)
            return None
        before, after = answer
        return after if before != after else [None] * len(after)

    def count(self, low: Bound | None, high: Bound | None) -> str:
        return f"SELECT COUNT(*) FROM {self._source} WHERE {self._between(low, high)}"  # noqa: S608 (quoted)

    def bound(self, answer: Sequence[str | None]) -> Bound | None:
        """The bound in the answer to `next_bound`; None if one of its values has no literal."""
        literals = [
            None if text is None else column.literal(text) for column, text in zip(self._key, answer, strict=True)
        ]
        return tuple(each for each in literals if each is not None) if None not in literals else None

    def _between(self, low: Bound | None, high: Bound | None) -> str:
        names = [column.sql for column in self._key]
        clauses = [f"({self._condition})"] if self._condition else []
        while low and high and len(names) > 1 and low[0] == high[0]:  # TiDB finds a range more easily so
            clauses.append(f"{names[0]} = {low[0]}")
            names, low, high = names[1:], low[1:], high[1:]
        if len(names) > 1:  # these follow from what comes below; of them TiDB makes a range if the rest is too much
            clauses += [f"{names[0]} >= {low[0]}"] if low else []
            clauses += [f"{names[0]} <= {high[0]}"] if high else []
        clauses += [_after(names, low, ">=")] if low else []
        clauses += [_after(names, high, "<")] if high else []
        return " AND ".join(clauses) or "TRUE"


def _selected(column: Column) -> str:
    """A column in SELECT. MySQL's text of a value is exact, but TiDB's text of some FLOATs has 6 digits."""
    name = _named(column.name)
    return f"{name} * 1e0" if column.type is not None and column.type.name == "float" else name


def _after(names: Sequence[str], bound: Bound, last: str) -> str:
    """The condition that the columns, compared in order, are `>=` a bound, or `<` it."""
    name, literal = names[0], bound[0]
    if len(names) == 1:
        return f"{name} {last} {literal}"
    return f"({name} {last[0]} {literal} OR ({name} = {literal} AND {_after(names[1:], bound[1:], last)}))"
