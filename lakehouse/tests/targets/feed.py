"""A database that changes in a known order of commits, and its changefeed with repeated and late messages.

feed = DatabaseFeed(seed=7, protocol="canal-json")
feed.run(300)                       # 300 transactions and DDL statements of all tables
feed.records                        # what each partition of the topic gets
feed.truth.at(commit_ts)            # the rows of each table, as TiDB had them
"""

import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.encoders.avro import Avro
from tests.encoders.canal_json import CanalJSON
from tests.encoders.debezium import Debezium
from tests.encoders.open_protocol import OpenProtocol
from tests.encoders.random_tables import Changes, RandomTable, _Column, _quoted
from tests.encoders.random_values import ColumnType, choose
from tests.encoders.simple import Simple
from tests.encoders.tables import Event, Table, table_of

__all__ = ["DATABASE", "KEYED", "KEYLESS", "DatabaseFeed", "Tables"]

Values: TypeAlias = dict[str, Any]
Tables: TypeAlias = dict[str, dict[str, Values]]

DATABASE = "shop"
PARTITIONS = 3
KEYED = ("orders", "stock", "../ca`rt's.é")
KEYLESS = "notes"
EMPTIED = KEYED[2]  # this one is truncated at times
_FIRST_TSO = 470_613_397_578_711_040
_STEPS = (1, 1 << 18, 5 << 18)
_FAMILIES = ("decimal", "string", "text", "datetime", "timestamp", "time", "date", "binary", "double", "json", "enum")
_ROWS = 1500  # about as many rows does a table have
_MOST_ROWS = 5  # of a transaction
_INT = 2**31

# What columns are added: the type, the default of the statement, and the value of the rows that are there.
_ADDED = (
    ("int(11)", "DEFAULT 7", "7"),
    ("int(11)", "NOT NULL", "0"),
    ("decimal(10,2)", "NOT NULL DEFAULT '1.5'", "1.50"),
    ("varchar(20)", "DEFAULT 'it''s new'", "it's new"),
    ("datetime(3)", "DEFAULT '2024-02-29 01:02:03.45'", "2024-02-29 01:02:03.450"),
    ("varchar(20)", "", None),
)


@dataclass
class Clock:
    """The commit-ts of one TiDB: each is given once."""

    chance: random.Random
    now: int = _FIRST_TSO

    def tick(self) -> int:
        self.now += self.chance.choice(_STEPS)
        return self.now


@dataclass(frozen=True)
class Step:
    """What one commit did to a table: rows that it set or removed, a column that it added, or that it emptied it."""

    commit_ts: int
    table: str
    rows: Mapping[str, Values | None] = field(default_factory=dict)
    column: str = ""
    value: Any = None
    empties: bool = False


@dataclass
class Truth:
    """All commits of a database, in order."""

    steps: list[Step] = field(default_factory=list)  # the commits
    types: dict[str, dict[str, str]] = field(default_factory=dict)  # the newest MySQL type of each column, by table

    def at(self, commit_ts: int | None = None) -> Tables:
        """Return the rows of each table by key, after all commits up to a commit-ts; after all without one."""
        tables: Tables = {}
        for step in self.steps:
            if commit_ts is not None and step.commit_ts > commit_ts:
                break
            rows = tables.setdefault(step.table, {})
            if step.empties:
                rows.clear()
            for key, row in step.rows.items():
                if row is None:
                    del rows[key]
                else:
                    rows[key] = row
            if step.column:
                tables[step.table] = {key: {**row, step.column: step.value} for key, row in rows.items()}
        return tables


@dataclass(frozen=True)
class Message:
    """A message to write."""

    partition: int
    key: bytes | None
    value: bytes


class DatabaseTable(Changes):
    """One table of the database."""

    def __init__(self, seed: int, name: str, clock: Clock, truth: Truth, *, keyless: bool = False) -> None:
        self.clock, self.truth, self.keyless = clock, truth, keyless
        super().__init__(seed, defaults=False)
        whole = ColumnType("int(11)", lambda: str(self.chance.randrange(-_INT, _INT)))
        columns = [_Column("id", ColumnType("bigint(20)", str), nullable=False), _Column("quantity", whole)]
        columns += [_Column(family, choose(self.chance, (family,))) for family in _FAMILIES]
        self.table = RandomTable(DATABASE, name, columns, "primary", ["id"])
        self.tables.append(self.table)
        self.current: dict[str, dict[str, Any]] = {}
        self._keys: list[str] = []
        self._next = 1
        if keyless:
            self.table.keys, self.table.handle_key = "none", []

    def _tick(self) -> int:
        return self.clock.tick()

    def transaction(self) -> list[Event]:
        """Change some rows, and keep what changed."""
        events = [event for event in self._changes() if event["op"] == "insert" or not self.keyless]
        rows: dict[str, Values | None] = {}
        for event in events:
            after = {column["name"]: column.get("after") for column in event["columns"]}
            before = {column["name"]: column.get("before") for column in event["columns"]}
            if event["op"] == "delete":
                rows[before["id"]] = None
            else:
                rows[after["id"]] = after
        if events:
            self.truth.steps.append(Step(events[0]["commit_ts"], self.table.name, rows))
        return events

    def _changes(self) -> list[Event]:
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

    def created(self) -> Event:
        """Create the table."""
        event = self._ddl(self.table, "create table", 3)
        self._keep(event["commit_ts"])
        return event

    def column_added(self) -> Event:
        """Add a column with a default; the rows that are there have it."""
        mysql_type, definition, value = self.chance.choice(_ADDED)
        values = {
            "i": lambda: str(self.chance.randrange(1000)),
            "d": lambda: f"{self.chance.randrange(10**6) / 100:.2f}",
        }
        maker = values.get("" if mysql_type.startswith("datetime") else mysql_type[0], lambda: value)
        column = _Column(
            f"added_{len(self.table.versions)}", ColumnType(mysql_type, maker), "NOT NULL" not in definition
        )
        self.table.columns.append(column)
        for row in self.current.values():
            row[column.name] = value
        change = f"ADD COLUMN `{column.name}` {mysql_type} {definition}".rstrip()
        event = self._ddl(self.table, "add column", 5, change)
        self._keep(event["commit_ts"], column=column.name, value=value)
        return event

    def widened(self) -> Event:
        """Change `quantity` from int to bigint; later values use it."""
        (column,) = (column for column in self.table.columns if column.name == "quantity")
        column.column_type = ColumnType("bigint(20)", lambda: str(self.chance.randrange(-(2**63), 2**63)))
        event = self._ddl(self.table, "modify column", 12, "MODIFY COLUMN `quantity` bigint(20)")
        self._keep(event["commit_ts"])
        return event

    def truncated(self) -> Event:
        """Remove all rows."""
        self.current.clear()
        self._keys.clear()
        event = {**self._ddl(self.table, "truncate table", 11)}
        query = f"TRUNCATE TABLE {_quoted(self.table.name)}"
        event |= {"ddl_query": query, "executed_sql": query}
        self._keep(event["commit_ts"], empties=True)
        return event

    def _keep(self, commit_ts: int, **what: Any) -> None:
        self.truth.steps.append(Step(commit_ts, self.table.name, **what))
        self.truth.types[self.table.name] = {
            column.name: column.column_type.mysql_type for column in self.table.columns
        }


class DatabaseFeed:
    """The changefeed of a database in one topic: what each partition gets, in order.

    Args:
        seed: of all randomness.
        protocol: of the messages.
        repeats: the share of transactions after which TiCDC restarts, and sends earlier messages again.
    """

    def __init__(self, seed: int, protocol: str, repeats: float = 0.02) -> None:
        self.chance = random.Random(seed)
        self.truth = Truth()
        self.repeats = repeats
        self.repeated = self.ddls = self.marks = 0
        self._clock = Clock(random.Random(seed + 1))
        self.tables = {
            name: DatabaseTable(seed * 1000 + number, name, self._clock, self.truth, keyless=name == KEYLESS)
            for number, name in enumerate((*KEYED, KEYLESS))
        }
        encoders: dict[str, tuple[OpenProtocol | CanalJSON | Debezium | Simple | Avro, int, int]] = {
            "avro": (Avro(extension=True, before=True, watermarks=True), 1, PARTITIONS),
            "open-protocol": (OpenProtocol(), 8, PARTITIONS),
            "canal-json": (CanalJSON(extension=True), 1, 1),
            "debezium": (Debezium(extension=True), 1, PARTITIONS),
            "simple": (Simple(), 1, PARTITIONS),
        }
        self._encoder, self._batch, self._ddl_partitions = encoders[protocol]
        self._versions: dict[tuple[str, int], Table] = {}
        self.records: list[list[tuple[bytes | None, bytes]]] = [[] for _ in range(PARTITIONS)]
        self.log: list[bytes] = []  # all messages, in the order of all partitions
        self._sent: list[Message] = []

    def run(self, transactions: int) -> None:
        """Create the tables, and change them; a watermark comes last."""
        for table in self.tables.values():
            self._write(self._ddl(table, table.created()))
        for number in range(transactions):
            table = self.chance.choices(list(self.tables.values()), (4, 2, 2, 1))[0]
            self._write(self._rows(table.transaction()))
            if self.chance.random() < 0.15:
                self._write(self._watermarks(), new=False)
                self.marks += 1
            if self.chance.random() < self.repeats:
                self._repeat()
            if number % 40 == 25:
                self._alter(number)
        self._write(self._watermarks(), new=False)

    def _alter(self, number: int) -> None:
        self.ddls += 1
        orders, emptied = self.tables["orders"], self.tables[EMPTIED]
        if number % 120 == 25:
            self._write(self._ddl(orders, orders.column_added()))
        elif number % 120 == 65:
            self._write(self._ddl(emptied, emptied.truncated()))
        elif self.truth.types["stock"]["quantity"].startswith("int"):
            self._write(self._ddl(self.tables["stock"], self.tables["stock"].widened()))
        else:
            self._write(self._ddl(self.tables["stock"], self.tables["stock"].column_added()))

    def _write(self, messages: Sequence[Message], *, new: bool = True) -> None:
        for message in messages:
            self.records[message.partition].append((message.key, message.value))
            self.log.append(message.value)
        self._sent += messages if new else ()

    def _repeat(self) -> None:
        """Send the last messages again, in order, as TiCDC does when it restarts from a checkpoint."""
        again = self._sent[-self.chance.choice((5, 20, 60)) :]
        self.repeated += len(again)
        self._write(again, new=False)

    def _ddl(self, table: DatabaseTable, event: Event) -> list[Message]:
        entry = table.table.versions[-1]
        self._versions[entry["table"], entry["table_version"]] = version = table_of(entry)
        return [self._message(partition, [event], [version]) for partition in range(self._ddl_partitions)]

    def _watermarks(self) -> list[Message]:
        event: Event = {"op": "watermark", "commit_ts": self._clock.tick()}
        return [self._message(partition, [event], [None]) for partition in range(PARTITIONS)]

    def _rows(self, events: Sequence[Event]) -> list[Message]:
        """Return the messages of row events, those of a key always for the same partition."""
        parted: dict[int, list[Event]] = {}
        for event in events:
            (key,) = (column for column in event["columns"] if column["name"] == "id")
            number = zlib.crc32(str(key.get("after", key.get("before"))).encode()) % PARTITIONS
            parted.setdefault(number, []).append(event)
        return [
            self._message(partition, part, [self._versions[event["table"], event["table_version"]] for event in part])
            for partition, its in parted.items()
            for part in (its[start : start + self._batch] for start in range(0, len(its), self._batch))
        ]

    def _message(self, partition: int, events: Sequence[Event], tables: Sequence[Table | None]) -> Message:
        key, value = self._encoder.message(events, tables)
        assert value is not None
        return Message(partition, key, value)
