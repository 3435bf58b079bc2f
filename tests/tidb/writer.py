"""A writer of one table of a real TiDB that tells a topic of each change, as a changefeed of canal-json would."""

import json
import random
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from examples.local_kafka import Record, produce
from tests.support.messages import canal
from tests.tidb.snapshots import TextSession
from ticdc_source.schema.tso import physical_ms

DATABASE, NAME = "first_row", "orders"
TABLE = f"{DATABASE}.{NAME}"
COLUMNS = {"id": "bigint", "name": "varchar", "amount": "decimal"}
ADDED = "note"
_AGAIN = 0.1  # how often messages are sent again
_ADDED_UNTIL = 200  # turns of a writer that does not stop

Rows = dict[int, tuple[str | None, ...]]


class Writer:
    """Changes rows by SQL, and remembers their messages until they are sent; without `extension`, with no commit-ts."""

    def __init__(self, sql: TextSession, seed: int, *, extension: bool = True, beside: str = "") -> None:
        self._sql = sql
        self._chooser = random.Random(seed)
        self._extension = extension
        self._next = 0
        self._columns = dict(COLUMNS)
        self.messages: list[Record] = []
        self._name = beside or NAME
        self.table = f"{DATABASE}.{self._name}"
        if not beside:
            sql.run(f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}")
        sql.run(f"CREATE TABLE {self.table} (id BIGINT PRIMARY KEY, name VARCHAR(20), amount DECIMAL(10,2))")

    def fill(self, count: int) -> None:
        """Insert rows that no message tells of."""
        numbers = range(self._next, self._next + count)
        self._next += count
        for first in range(0, count, 1000):
            values = ", ".join(f"({one}, 'n{one}', {one}.25)" for one in numbers[first : first + 1000])
            self._sql.run(f"INSERT INTO {self.table} VALUES {values}")  # noqa: S608 (a test's own)

    def change(self, count: int) -> None:
        """Make random changes, each a transaction of its own, and a message."""
        for _ in range(count):
            self._change()

    def send(self, servers: str, topic: str) -> None:
        """Send all messages that were not sent."""
        sent, self.messages = self.messages, []
        produce(servers, topic, sent)

    @contextmanager
    def never_stopping(self, servers: str, topic: str) -> Iterator[None]:
        """Change rows, send messages, some of them again, and add a column; the session is in use meanwhile."""
        ended = threading.Event()
        adds_at = self._chooser.randrange(_ADDED_UNTIL)

        def run() -> None:
            recent: list[Record] = []
            turn = 0
            while not ended.wait(0.05):
                if turn == adds_at:
                    self.add_column()
                turn += 1
                self.change(3)
                recent = [*recent[-20:], *self.messages]
                if self._chooser.random() < _AGAIN:  # as TiCDC does after a restart
                    self.messages = list(recent)
                self.send(servers, topic)

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(run)
            try:
                yield
            finally:
                ended.set()
            writing.result()

    def rows(self) -> Rows:
        """Return what TiDB has now, with NULL for a column that it does not have."""
        rows = [dict(zip(self._columns, row, strict=True)) for row in self._sql.rows(f"SELECT * FROM {self.table}")]  # noqa: S608
        return {int(row["id"] or 0): (row.get("name"), row["amount"], row.get(ADDED)) for row in rows}

    def drop_column(self) -> None:
        """Drop the column `name`, which is not the last one."""
        self._sql.run(f"ALTER TABLE {self.table} DROP COLUMN name")
        del self._columns["name"]

    def add_column(self) -> None:
        """Add a column."""
        self._sql.run(f"ALTER TABLE {self.table} ADD COLUMN {ADDED} VARCHAR(20)")
        self._columns[ADDED] = "varchar"

    def _change(self) -> None:
        kind = self._chooser.choice(("INSERT", "UPDATE", "UPDATE", "DELETE", "KEY"))
        key = self._chooser.randrange(max(1, self._next))
        old = self._sql.rows(f"SELECT * FROM {self.table} WHERE id = {key}")  # noqa: S608
        if kind == "INSERT" or not old:
            key, old = self._next, []
            self._next += 1
        before = dict(zip(self._columns, old[0], strict=True)) if old else None
        after = {"id": str(key), "name": f"c{self._chooser.randrange(10**6)}", "amount": f"{key}.50", ADDED: f"a{key}"}
        after = {name: after[name] for name in self._columns}
        if before is None:
            self._sql.run(f"INSERT INTO {self.table} VALUES ({', '.join(map(repr, after.values()))})")  # noqa: S608
            self._tell("INSERT", after, None)
        elif kind == "DELETE":
            self._sql.run(f"DELETE FROM {self.table} WHERE id = {key}")  # noqa: S608
            self._tell("DELETE", before, None)
        else:
            if kind == "KEY":
                after["id"], self._next = str(self._next), self._next + 1
            changed = ", ".join(f"{name} = '{value}'" for name, value in after.items())
            self._sql.run(f"UPDATE {self.table} SET {changed} WHERE id = {key}")  # noqa: S608
            self._tell("UPDATE", after, before)

    def _tell(self, kind: str, data: Mapping[str, Any], old: Mapping[str, Any] | None) -> None:
        ((info,),) = self._sql.rows("SELECT @@tidb_last_txn_info")
        ts = int(json.loads(info or "{}")["commit_ts"])
        more: dict[str, Any] = {"_tidb": {"commitTs": ts}} if self._extension else {}
        more |= {"database": DATABASE, "table": self._name, "es": physical_ms(ts)}
        message = canal(kind, [data], None if old is None else [old], self._columns, None, **more)
        self.messages.append((0, *message, [], None))


def applied(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """Return the rows that are left after changes in the order of `_sequence`."""
    found: Rows = {}
    for row in sorted(rows, key=lambda one: tuple(one["_sequence"].values())):
        if row["_change_type"] in ("delete", "update_preimage"):
            found.pop(row["id"], None)
        else:
            found[row["id"]] = row.get("name"), str(row["amount"]), row.get(ADDED)
    return found
