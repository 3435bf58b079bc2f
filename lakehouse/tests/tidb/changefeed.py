"""Writes to a real TiDB, and sends to Kafka what TiCDC would send of each write, with the commit-ts that TiDB gave it.

The rows before and after a write are asked of TiDB, as text, so the messages say what TiDB has. Each table needs a
column `n`, a number that no other row of it has and no write changes.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from examples.local_kafka import produce
from tests.encoders.canal_json import CanalJSON
from tests.encoders.tables import BLOBS, TEXTS, Column, Event, Table
from tests.tidb.sql import Session

__all__ = ["Changefeed"]

_BINARY = (*BLOBS, "binary", "varbinary")
_NUMBERED = ("enum", "set", "bit")
_CHARACTERS = (*TEXTS, "char", "varchar", "enum", "set")

Rows = dict[str, dict[str, Any]]


@dataclass
class Changefeed:
    """A database of TiDB and the topic of its changefeed, in canal-json."""

    sql: Session  # a session that uses the database
    servers: str  # the brokers
    topic: str  # the topic
    database: str  # the database
    partitions: int  # how many partitions the topic has. DDL goes to the first, and the rows of an `n` to one of them.
    encoder: CanalJSON = field(default_factory=lambda: CanalJSON(extension=True))
    sent: int = 0  # how many row events were sent
    ends: Counter[int] = field(default_factory=Counter)  # how many records each partition has
    _tables: dict[str, Table] = field(default_factory=dict)
    _outbox: list[Any] = field(default_factory=list)

    def before(self, statement: str) -> None:
        self.sql.run(statement)

    def ddl(self, table: str, statement: str, ddl_type: str, sent: Mapping[str, str] | None = None) -> None:
        """Run a DDL statement.

        Args:
            table: its table, by its new name.
            statement: the statement.
            ddl_type: TiDB's word for it.
            sent: by table, what the messages say instead: one of several tables is one message a table; {} for none.
        """
        self.sql.run(statement)
        self._tables.clear()
        commit_ts = self.sql.tso()
        queries = {table: statement} if sent is None else sent
        self._send([
            (0, {"op": "ddl", "schema": self.database, "table": name, "ddl_type": ddl_type, "ddl_query": query,
                 "commit_ts": commit_ts, "columns": []}, None)
            for name, query in queries.items()
        ])  # fmt: skip

    def unreadable(self, table: str, **values: str) -> None:
        """Send an INSERT whose values are not what their types say; the row is TiDB's already."""
        columns = [{"name": name, "after": value} for name, value in values.items()]
        event = {"op": "insert", "schema": self.database, "table": table, "commit_ts": self.sql.tso(),
                 "columns": columns}  # fmt: skip
        self._send([(0, event, self._table(table))])

    def write(self, table: str, statement: str, numbers: range, *, is_large: bool = False) -> None:
        """Run a statement that inserts, updates or deletes rows whose `n` is among some numbers.

        It is one transaction, whose messages go out with the next DDL or watermark.

        Args:
            table: its table.
            statement: the statement.
            numbers: what the rows have as `n`.
            is_large: whether the messages have only the key, as those of large rows with `handle-key-only`.
        """
        before = self._rows(table, numbers)
        self.sql.run(statement)
        commit_ts = self.sql.last_commit_ts()
        after = self._rows(table, numbers)
        events: list[tuple[int, Event, Table | None]] = []
        for number in sorted(before.keys() | after.keys(), key=int):
            if before.get(number) == after.get(number):
                continue
            op = "insert" if number not in before else "delete" if number not in after else "update"
            images = {"before": before.get(number), "after": after.get(number)}
            columns = [
                {"name": column.name, **{side: row[column.name] for side, row in images.items() if row is not None}}
                for column in self._table(table).columns
            ]
            event = {"op": op, "schema": self.database, "table": table, "commit_ts": commit_ts, "columns": columns}
            event |= {"large": None} if is_large else {}
            events.append((zlib.crc32(number.encode()) % self.partitions, event, self._table(table)))
        self.sent += len(events)
        self._send(events, now=False)

    def watermark(self) -> int:
        """Say in each partition that everything up to now has been sent; return up to when."""
        now = self.sql.tso()
        event = {"op": "watermark", "commit_ts": now, "columns": []}
        self._send([(partition, event, None) for partition in range(self.partitions)])
        return now

    def _send(self, events: Sequence[tuple[int, Event, Table | None]], *, now: bool = True) -> None:
        for partition, event, table in events:
            key, value = self.encoder.message([event], [table])
            self._outbox.append((partition, key, value, [], None))
        if now:
            produce(self.servers, self.topic, self._outbox)
            self.ends.update(record[0] for record in self._outbox)
            self._outbox = []

    def _rows(self, table: str, numbers: range) -> Rows:
        columns = self._table(table).columns
        selected = ", ".join(_as_text(column) for column in columns)
        where = f"n BETWEEN {numbers.start} AND {numbers.stop - 1}"
        found = self.sql.rows(f"SELECT n, {selected} FROM {table} WHERE {where}")  # noqa: S608 (a test's own)
        return {
            str(row[0]): {column.name: _as_value(column, value) for column, value in zip(columns, row[1:], strict=True)}
            for row in found
        }

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            where = f"table_schema = '{self.database}' AND table_name = '{name}'"
            facts = self.sql.rows(
                "SELECT column_name, column_type, is_nullable, character_set_name "  # noqa: S608 (a test's own)
                f"FROM information_schema.columns WHERE {where} ORDER BY ordinal_position"
            )
            columns = tuple(Column(str(row[0]), str(row[1]), nullable=row[2] == "YES", charset=row[3]) for row in facts)
            keys = self.sql.rows(
                "SELECT key_name, column_name FROM information_schema.tidb_indexes "  # noqa: S608 (a test's own)
                f"WHERE {where} AND non_unique = 0 ORDER BY key_name = 'PRIMARY' DESC, index_id, seq_in_index"
            )
            by_key = {
                key: tuple(str(row[1]) for row in rows) for key, rows in itertools.groupby(keys, lambda row: row[0])
            }
            primary = by_key.get("PRIMARY", ())
            handle = primary or next(iter(by_key.values()), ())
            self._tables[name] = Table(self.database, name, columns, primary, handle)
        return self._tables[name]


def _as_text(column: Column) -> str:
    name = f"`{column.name}`"
    if column.type_name in _BINARY:
        return f"HEX({name})"
    if column.type_name in _NUMBERED:
        return f"CAST(CAST({name} AS UNSIGNED) AS CHAR)"
    return name if column.type_name in _CHARACTERS else f"CAST({name} AS CHAR)"


def _as_value(column: Column, text: str | None) -> str | Mapping[str, Any] | None:
    if text is None:
        return None
    if column.type_name in _BINARY:
        return {"hex": text}
    return {"number": int(text)} if column.type_name in _NUMBERED else text
