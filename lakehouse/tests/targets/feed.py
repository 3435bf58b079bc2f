"""A database that changes in a known order of commits, and its changefeed with repeated and late messages.

feed = DatabaseFeed(seed=7, protocol="canal-json", folder=folder)
feed.run(300)                       # 300 transactions and DDL statements of all tables
feed.records                        # what each partition of the topic gets
feed.truth.at(commit_ts)            # the rows of each table, as TiDB had them
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tests.encoders.avro import Avro
from tests.encoders.canal_json import CanalJSON
from tests.encoders.debezium import Debezium
from tests.encoders.open_protocol import OpenProtocol
from tests.encoders.random_tables import _Column, _quoted
from tests.encoders.random_values import ColumnType
from tests.encoders.simple import Simple
from tests.encoders.tables import Event
from tests.support.changes import DATABASE, PARTITIONS, Feed, Message, TableChanges, Truths

__all__ = ["DATABASE", "KEYED", "KEYLESS", "DatabaseFeed", "Tables"]

Values: TypeAlias = dict[str, Any]
Tables: TypeAlias = dict[str, dict[str, Values]]

KEYED = ("orders", "stock", "../ca`rt's.é")
KEYLESS = "notes"
EMPTIED = KEYED[2]  # this one is truncated at times
_FIRST_TSO = 470_613_397_578_711_040
_STEPS = (1, 1 << 18, 5 << 18)

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
        """Return the next commit-ts."""
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
    """All commits of a database, in order.

    Attributes:
        steps: the commits.
        types: the newest MySQL type of each column, by table.
    """

    steps: list[Step] = field(default_factory=list)
    types: dict[str, dict[str, str]] = field(default_factory=dict)

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


class DatabaseTable(TableChanges):
    """One table of the database.

    Args:
        seed: of all randomness.
        name: its name.
        clock: of the database.
        truth: where its commits are kept.
        keyless: whether it has no key; rows are only inserted then.
    """

    def __init__(self, seed: int, name: str, clock: Clock, truth: Truth, *, keyless: bool = False) -> None:
        self.clock, self.truth, self.keyless = clock, truth, keyless
        super().__init__(seed, name)
        if keyless:
            self.table.keys, self.table.handle_key = "none", []

    def _tick(self) -> int:
        return self.clock.tick()

    def transaction(self) -> list[Event]:
        """Change some rows, and keep what changed."""
        events = [event for event in super().transaction() if event["op"] == "insert" or not self.keyless]
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

    def created(self) -> Event:
        """Create the table."""
        event = super().created()
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
        event = self._altered_by(f"ADD COLUMN `{column.name}` {mysql_type} {definition}".rstrip(), "add column", 5)
        self._keep(event["commit_ts"], column=column.name, value=value)
        return event

    def widened(self) -> Event:
        """Change `quantity` from int to bigint."""
        event = super().widened()
        self._keep(event["commit_ts"])
        return event

    def truncated(self) -> Event:
        """Remove all rows."""
        self.current.clear()
        self._keys.clear()
        event = {**self._altered_by("", "truncate table", 11)}
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
        folder: for what the messages say.
        repeats: the share of transactions after which TiCDC restarts, and sends earlier messages again.
    """

    def __init__(self, seed: int, protocol: str, folder: Path, repeats: float = 0.02) -> None:
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
        encoder, batch, ddl_partitions = encoders[protocol]
        truths = Truths(folder / f"{protocol}.truths")
        self._feed = Feed(encoder, batch, ddl_partitions, truths, list(self.tables.values()))
        self.records: list[list[tuple[bytes | None, bytes]]] = [[] for _ in range(PARTITIONS)]
        self.log: list[bytes] = []  # all messages, in the order of all partitions
        self._sent: list[Message] = []

    def run(self, transactions: int) -> None:
        """Create the tables, and change them; a watermark comes last."""
        for table in self.tables.values():
            self._write(self._feed.ddl(table, table.created()))
        for number in range(transactions):
            table = self.chance.choices(list(self.tables.values()), (4, 2, 2, 1))[0]
            self._write(self._feed.rows(table.transaction()))
            if self.chance.random() < 0.15:
                self._write(self._feed.watermarks(), new=False)
                self.marks += 1
            if self.chance.random() < self.repeats:
                self._repeat()
            if number % 40 == 25:
                self._alter(number)
        self._write(self._feed.watermarks(), new=False)

    def close(self) -> None:
        """Close the file of what the messages say."""
        self._feed.truths.close()

    def _alter(self, number: int) -> None:
        self.ddls += 1
        orders, emptied = self.tables["orders"], self.tables[EMPTIED]
        if number % 120 == 25:
            self._write(self._feed.ddl(orders, orders.column_added()))
        elif number % 120 == 65:
            self._write(self._feed.ddl(emptied, emptied.truncated()))
        elif self.truth.types["stock"]["quantity"].startswith("int"):
            self._write(self._feed.ddl(self.tables["stock"], self.tables["stock"].widened()))
        else:
            self._write(self._feed.ddl(self.tables["stock"], self.tables["stock"].column_added()))

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
