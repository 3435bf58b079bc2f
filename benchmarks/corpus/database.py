"""The tables of a database whose rows exist before they change, and their seeded messages in canal-json."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.corpus import canal_json
from benchmarks.corpus.tables import COLUMN_TYPES, TSO, Change, Column, Row, Table

__all__ = ["SHOP", "Database", "line_items", "narrow"]

_STEP = 1 << 14  # 16 changes per millisecond
_INSERTS, _DELETES = 0.15, 0.1  # of the changes; the others are updates

SHOP = (
    Table(
        "customers",
        (
            Column("id", "bigint"),
            Column("email", "varchar"),
            Column("name", "varchar"),
            Column("credit", "decimal"),
            Column("level", "smallint"),
            Column("created", "timestamp"),
        ),
    ),
    Table(
        "orders",
        (
            Column("id", "bigint"),
            Column("customer", "bigint"),
            Column("amount", "decimal"),
            Column("status", "int"),
            Column("created", "datetime"),
            Column("updated", "timestamp"),
            Column("note", "text"),
        ),
    ),
    Table(
        "order_items",
        (
            Column("id", "bigint"),
            Column("order_number", "bigint"),
            Column("quantity", "int"),
            Column("price", "decimal"),
            Column("info", "json"),
        ),
    ),
)


def narrow(count: int) -> tuple[Table, ...]:
    """Return small tables, each with the columns of one of `SHOP`."""
    return tuple(Table(f"t{number:03}", SHOP[number % len(SHOP)].columns) for number in range(count))


def line_items() -> Table:
    """Return a table for many rows."""
    return Table("line_items", SHOP[2].columns[:4])


class Database:
    """Tables and their rows, of which it knows the keys and how often each has changed."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = {table.name: table for table in tables}
        self._encoders = {name: canal_json.Encoder(table, 0) for name, table in self.tables.items()}
        self._versions: dict[str, dict[int, int]] = {name: {} for name in self.tables}
        self._last_ids = dict.fromkeys(self.tables, 0)
        self._chooser = random.Random(0)
        self._commits = 0

    def rows(self) -> Mapping[str, int]:
        """Return how many rows each table has now."""
        return {name: len(versions) for name, versions in self._versions.items()}

    def creates(self) -> Iterator[bytes]:
        """Create the tables."""
        for table in self.tables.values():
            yield canal_json.create_table(table, self._next_ts())

    def watermark(self) -> bytes:
        """Return a watermark after all changes so far."""
        return canal_json.watermark_at(self._next_ts())

    def inserts(self, name: str, count: int) -> Iterator[tuple[int, bytes]]:
        """Insert rows; yield the key and the message of each."""
        for _ in range(count):
            yield self._insert(name)

    def updates(self, name: str) -> Iterator[tuple[int, bytes]]:
        """Update each row once, in no order."""
        ids = list(self._versions[name])
        self._chooser.shuffle(ids)
        for id_ in ids:
            yield self._update(name, id_)

    def changes(self, name: str, count: int) -> Iterator[tuple[int, bytes]]:
        """Change rows: updates, some inserts, and fewer deletes."""
        ids = list(self._versions[name])
        for _ in range(count):
            draw = self._chooser.random()
            if draw < _INSERTS or len(ids) < 2:
                made = self._insert(name)
                ids.append(made[0])
                yield made
                continue
            place = self._chooser.randrange(len(ids))
            if draw < _INSERTS + _DELETES:
                ids[place], ids[-1] = ids[-1], ids[place]
                id_ = ids.pop()
                old = self._row(name, id_, self._versions[name].pop(id_))
                yield id_, self._message(name, old, None)
            else:
                yield self._update(name, ids[place])

    def _insert(self, name: str) -> tuple[int, bytes]:
        self._last_ids[name] += 1
        id_ = self._last_ids[name]
        self._versions[name][id_] = 0
        return id_, self._message(name, None, self._row(name, id_, 0))

    def _update(self, name: str, id_: int) -> tuple[int, bytes]:
        version = self._versions[name][id_]
        self._versions[name][id_] = version + 1
        return id_, self._message(name, self._row(name, id_, version), self._row(name, id_, version + 1))

    def _row(self, name: str, id_: int, version: int) -> Row:
        chooser = random.Random(id_ << 16 | version)
        columns = self.tables[name].columns
        return {columns[0].name: id_} | {
            column: COLUMN_TYPES[type_name].make(chooser, id_) for column, type_name in columns[1:]
        }

    def _message(self, name: str, before: Row | None, after: Row | None) -> bytes:
        self._commits += 1
        return self._encoders[name].message(Change(self._commits, self._ts(), before, after))

    def _next_ts(self) -> int:
        self._commits += 1
        return self._ts()

    def _ts(self) -> int:
        return TSO + self._commits * _STEP
