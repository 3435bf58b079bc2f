"""Changes of tables as TiDB would allow them, in messages as TiCDC writes them, with the truth of each message."""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.encoders.avro import Avro
from tests.encoders.canal_json import CanalJSON
from tests.encoders.debezium import Debezium
from tests.encoders.open_protocol import OpenProtocol
from tests.encoders.random_tables import Changes, RandomTable, _Column
from tests.encoders.random_values import ColumnType, choose
from tests.encoders.simple import Simple
from tests.encoders.tables import Event, Table, table_of

DATABASE = "shop"
PARTITIONS = 3
_FAMILIES = ("decimal", "string", "text", "datetime", "timestamp", "time", "date", "binary", "double", "json", "enum")
_ADDED = ("integer", "decimal", "string", "datetime", "binary")  # an added column may be read from the rescued column
_ROWS = 1500  # about as many rows does a table have
_MOST_ROWS = 5  # of a transaction
_INT = 2**31


class TableChanges(Changes):
    """Changes of one table with a primary key."""

    def __init__(self, seed: int, name: str) -> None:
        super().__init__(seed, defaults=False)
        whole = ColumnType("int(11)", lambda: str(self.chance.randrange(-_INT, _INT)))
        columns = [_Column("id", ColumnType("bigint(20)", str), nullable=False), _Column("quantity", whole)]
        columns += [_Column(family, choose(self.chance, (family,))) for family in _FAMILIES]
        self.table = RandomTable(DATABASE, name, columns, "primary", ["id"])
        self.tables.append(self.table)
        self.current: dict[str, dict[str, Any]] = {}
        self._keys: list[str] = []
        self._next = 1

    def created(self) -> Event:
        """Create the table."""
        return self._ddl(self.table, "create table", 3)

    def column_added(self) -> Event:
        """Add a column, which is NULL in the rows that are there."""
        column = _Column(f"added_{len(self.table.versions)}", choose(self.chance, _ADDED))
        self.table.columns.append(column)
        for row in self.current.values():
            row[column.name] = None
        return self._altered_by(f"ADD COLUMN `{column.name}` {column.column_type.mysql_type}", "add column", 5)

    def widened(self) -> Event:
        """Change `quantity` from int to bigint; later values use it."""
        (column,) = (column for column in self.table.columns if column.name == "quantity")
        column.column_type = ColumnType("bigint(20)", lambda: str(self.chance.randrange(-(2**63), 2**63)))
        return self._altered_by("MODIFY COLUMN `quantity` bigint(20)", "modify column", 12)

    def watermark(self) -> Event:
        """Say that all changes so far have been sent."""
        return {"op": "watermark", "commit_ts": self._tick()}

    def transaction(self) -> list[Event]:
        """Change some rows, each once, at one commit-ts; a change of a key is a delete and an insert."""
        tso, touched = self._tick(), set[str]()
        events: list[Event] = []
        for _ in range(self.chance.randint(1, _MOST_ROWS)):
            share = self.chance.random()
            if not self._keys or share < (0.45 if len(self._keys) < _ROWS else 0.2):
                events.append(self._event(self.table, "insert", tso, None, self._new(self._key(), touched)))
                continue
            index = self.chance.randrange(len(self._keys))
            key = self._keys[index]
            if key in touched:
                continue
            touched.add(key)
            before = self.current[key]
            if share < 0.7:
                self.current[key] = after = self._changed(before)
                events.append(self._event(self.table, "update", tso, before, after))
                continue
            del self.current[key]
            self._keys[index] = self._keys[-1]
            self._keys.pop()
            events.append(self._event(self.table, "delete", tso, before, None))
            if share > 0.95:
                after = {**self._new(self._key(), touched), **self._changed(before), "id": self._keys[-1]}
                self.current[after["id"]] = after
                events.append(self._event(self.table, "insert", tso, None, after))
        return events

    def _altered_by(self, change: str, ddl_type: str, code: int) -> Event:
        return self._ddl(self.table, ddl_type, code, change)

    def _key(self) -> str:
        self._next += self.chance.choice((1, 1, 7))
        return str(self._next)

    def _new(self, key: str, touched: set[str]) -> dict[str, Any]:
        self.current[key] = row = {**self._row(self.table), "id": key}
        self._keys.append(key)
        touched.add(key)
        return row

    def _changed(self, before: Mapping[str, Any]) -> dict[str, Any]:
        return {
            column.name: before[column.name]
            if column.name == "id" or self.chance.random() < 0.6
            else self._value(column)
            for column in self.table.columns
        }


@dataclass(frozen=True)
class Message:
    """A message to write."""

    partition: int
    key: bytes | None
    value: bytes


class Truths:
    """What each message says, in a file, for who looks into a failure."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("wb")

    def add(self, truth: Mapping[str, Any]) -> None:
        """Write what a message says."""
        self._file.write(json.dumps(truth).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass
class Feed:
    """A changefeed: the messages of some tables in one topic."""

    encoder: OpenProtocol | CanalJSON | Debezium | Simple | Avro
    batch: int
    ddl_partitions: int
    truths: Truths
    tables: Sequence[TableChanges]
    _versions: dict[tuple[str, int], Table] = field(default_factory=dict)

    def ddl(self, table: TableChanges, event: Event) -> list[Message]:
        """Write a DDL event."""
        entry = table.table.versions[-1]
        self._versions[entry["table"], entry["table_version"]] = version = table_of(entry)
        return [self._message(partition, [event], [version]) for partition in range(self.ddl_partitions)]

    def watermarks(self) -> list[Message]:
        """Write a watermark to each partition."""
        event = self.tables[0].watermark()
        return [self._message(partition, [event], [None]) for partition in range(PARTITIONS)]

    def rows(self, events: Sequence[Event]) -> list[Message]:
        """Write row events, those of a key always to the same partition."""
        parted: dict[int, list[Event]] = {}
        for event in events:
            (key,) = (column for column in event["columns"] if column["name"] == "id")
            parted.setdefault(zlib.crc32(str(key.get("after", key.get("before"))).encode()) % PARTITIONS, []).append(
                event
            )
        return [
            self._message(partition, part, [self._versions[event["table"], event["table_version"]] for event in part])
            for partition, its in parted.items()
            for part in _cut(its, self.batch)
        ]

    def _message(self, partition: int, events: Sequence[Event], tables: Sequence[Table | None]) -> Message:
        key, value = self.encoder.message(events, tables)
        assert value is not None
        self.truths.add(events[0] if len(events) == 1 else {"op": "batch", "events": list(events)})
        return Message(partition, key, value)


def _cut(events: Sequence[Event], size: int) -> Iterator[Sequence[Event]]:
    yield from (events[start : start + size] for start in range(0, len(events), size))
