"""Tables, and seeded changes of their rows, which each protocol encodes in its own way."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

TSO = 470_613_397_578_711_040  # 2026-11-21 07:54:00.910 UTC
DATABASE = "shop"
LABELS = ("new", "paid", "shipped", "returned")

_BEGIN = datetime(2026, 11, 21, 7, 54)  # noqa: DTZ001 (of MySQL's DATETIME, and UTC's wall clock)
_MICROSECONDS = 30 * 86_400 * 1_000_000
_UPDATES, _DELETES = 0.3, 0.05
_NULLS = 0.03  # the share of NULLs in nullable columns
_BEYOND_SIGNED = 0.01  # the share of unsigned values with another `sqlType` in canal-json
_TSO_STEP = 1 << 14  # 16 changes per millisecond

Value = int | float | str | bytes | date | datetime | None
Row = dict[str, Value]


@dataclass(frozen=True)
class ColumnType:
    """A type of column.

    Attributes:
        ddl: its type in CREATE TABLE.
        spark: its type in `ticdc`, if the precision of a decimal is known and labels are not.
        make: makes a seeded value; the second argument counts changes.
    """

    ddl: str
    spark: str
    make: Callable[[random.Random, int], Value]


class Column(NamedTuple):
    """A column, and the name of its type in `COLUMN_TYPES`."""

    name: str
    type_name: str


@dataclass(frozen=True)
class Table:
    """A table; its first column is its primary key."""

    name: str
    columns: tuple[Column, ...]

    @property
    def hints(self) -> str:
        """The `schemaHints` that the messages of canal-json and open-protocol need: the precision of decimals."""
        return ", ".join(
            f"{name} {COLUMN_TYPES[type_name].spark}" for name, type_name in self.columns if type_name == "decimal"
        )

    @property
    def ddl(self) -> str:
        """The table's CREATE TABLE."""
        columns = ", ".join(f"`{name}` {COLUMN_TYPES[type_name].ddl}" for name, type_name in self.columns[1:])
        key = self.columns[0]
        key_type = COLUMN_TYPES[key.type_name].ddl
        return f"CREATE TABLE `{self.name}` (`{key.name}` {key_type} NOT NULL PRIMARY KEY, {columns})"


class Change(NamedTuple):
    """A row that changed."""

    number: int
    commit_ts: int
    before: Row | None
    after: Row | None

    @property
    def rows(self) -> int:
        """The number of changelog rows of the change."""
        return (self.before is not None) + (self.after is not None)


def _unsigned(chooser: random.Random, _: int) -> int:
    if chooser.random() < _BEYOND_SIGNED:
        return 2**64 - 1 - chooser.randrange(2**62)
    return chooser.randrange(1_000_000)


def _instant(chooser: random.Random, _: int) -> datetime:
    return _BEGIN + timedelta(microseconds=chooser.randrange(_MICROSECONDS))


def _second(chooser: random.Random, number: int) -> datetime:
    return _instant(chooser, number).replace(microsecond=0)


def _decimal(chooser: random.Random, _: int) -> str:
    return f"{chooser.randrange(10_000_000) / 100:.2f}"


def _json(chooser: random.Random, number: int) -> str:
    return f'{{"number": {number}, "sizes": [{chooser.randrange(9)}, 2]}}'


def _name(chooser: random.Random, number: int) -> str:
    return f"c{number}.{chooser.getrandbits(16):04x}@example.com"


def _note(chooser: random.Random, number: int) -> str:
    return f"order {number} é 注文 {chooser.getrandbits(40):010x}"


COLUMN_TYPES: dict[str, ColumnType] = {
    "bigint": ColumnType("bigint", "bigint", lambda _, number: number),
    "int": ColumnType("int", "int", lambda chooser, _: chooser.randrange(-1_000_000, 1_000_000)),
    "smallint": ColumnType("smallint", "smallint", lambda chooser, _: chooser.randrange(-1_000, 1_000)),
    "unsigned": ColumnType("bigint unsigned", "decimal(20,0)", _unsigned),
    "decimal": ColumnType("decimal(12,2)", "decimal(12,2)", _decimal),
    "double": ColumnType("double", "double", lambda chooser, _: round(chooser.uniform(0, 1_000), 6)),
    "date": ColumnType("date", "date", lambda chooser, number: _instant(chooser, number).date()),
    "datetime": ColumnType("datetime(6)", "timestamp_ntz", _instant),
    "timestamp": ColumnType("timestamp", "timestamp", _second),
    "varchar": ColumnType("varchar(100)", "string", _name),
    "text": ColumnType("text", "string", _note),
    "blob": ColumnType("blob", "binary", lambda chooser, _: chooser.getrandbits(64).to_bytes(8, "big")),
    "enum": ColumnType(f"enum({','.join(map(repr, LABELS))})", "int", lambda chooser, _: chooser.randrange(1, 5)),
    "json": ColumnType("json", "string", _json),
}

ORDERS = Table(
    "orders",
    (
        Column("id", "bigint"),
        Column("visits", "unsigned"),
        Column("amount", "decimal"),
        Column("created", "datetime"),
        Column("updated", "timestamp"),
        Column("email", "varchar"),
        Column("note", "text"),
        Column("token", "blob"),
        Column("status", "enum"),
        Column("info", "json"),
    ),
)
NARROW = Table("counters", (Column("id", "bigint"), Column("quantity", "int"), Column("status", "enum")))
_CYCLE = tuple(COLUMN_TYPES)[1:]
WIDE = Table(
    "wide",
    (
        Column("id", "bigint"),
        *(Column(f"{_CYCLE[n % len(_CYCLE)]}_{n:02}", _CYCLE[n % len(_CYCLE)]) for n in range(1, 60)),
    ),
)


def changes(table: Table, seed: int = 0, note_bytes: int = 0) -> Iterator[Change]:
    """Yield changes without end: inserts, 30 % updates of a column or two, and a few deletes."""
    chooser = random.Random(seed)
    number = 0
    while True:
        number += 1
        draw = chooser.random()
        row = _row(table, chooser, number)
        if note_bytes:
            row["note"] = _long(chooser, note_bytes)
        commit_ts = TSO + number * _TSO_STEP
        if draw < _UPDATES:
            yield Change(number, commit_ts, {**row, **_changed(table, chooser, number)}, row)
        elif draw < _UPDATES + _DELETES:
            yield Change(number, commit_ts, row, None)
        else:
            yield Change(number, commit_ts, None, row)


def _row(table: Table, chooser: random.Random, number: int) -> Row:
    row = {name: COLUMN_TYPES[type_name].make(chooser, number) for name, type_name in table.columns}
    for name, _ in table.columns[1:]:
        if chooser.random() < _NULLS:
            row[name] = None
    return row


def _changed(table: Table, chooser: random.Random, number: int) -> dict[str, Any]:
    changed = chooser.sample(table.columns[1:], min(2, len(table.columns) - 1))
    return {name: COLUMN_TYPES[type_name].make(chooser, number) for name, type_name in changed if name != "note"}


def _long(chooser: random.Random, length: int) -> str:
    words = [f"{chooser.getrandbits(64):016x}" for _ in range(64)]
    return ((" ".join(words) + " ") * (length // (17 * len(words)) + 1))[:length]
