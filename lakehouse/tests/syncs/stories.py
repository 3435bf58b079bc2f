"""Random stories of a table and of the sync that copies it: changes, DDL, redelivery, kills and restores. No pytest.

A story of a seed is always the same. The table is a dict of rows, which its changes follow as TiDB would; in the end
the copy must have these rows. The lake is in memory (`lakehouse.tests.targets.memory`) or an engine's (`EngineLake`).
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from lakehouse.tests.syncs.memory_sync import MemorySync
from tests.support.messages import Message, canal
from ticdc_lakehouse.targets.opening import existing_target, open_target
from ticdc_source.errors import CheckpointError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CREATE = "CREATE TABLE `a` (`id` int PRIMARY KEY, `v` varchar(10))"
MS = 1_700_000_000_000


class Lake(Protocol):
    """What a story needs of a lake."""

    @property
    def spark(self) -> SparkSession: ...

    def state(self, *names: str) -> Mapping[str, Any]:
        """Return by what each table is put back to as it is now; only tables that exist."""

    def put_back(self, name: str, state: Any) -> None:
        """Put back a table."""

    def release(self, name: str) -> None:
        """Free the lease in a status table: its process is dead."""

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return these columns of the rows that are not deleted, sorted."""


class EngineLake:
    """Tables of Delta or Iceberg."""

    def __init__(self, spark: SparkSession, engine: str) -> None:
        self.spark, self.engine = spark, engine

    def state(self, *names: str) -> dict[str, int]:
        there = [name for name in names if existing_target(self.spark, name) is not None]
        found = {name: self._version(name) for name in there}
        return {name: version for name, version in found.items() if version is not None}

    def _version(self, name: str) -> int | None:
        if self.engine == "delta":
            newest: int = self.spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()[0]["version"]
            return newest
        snapshots = self.spark.table(f"{name}.history").orderBy(F.desc("made_current_at"))
        return next((row["snapshot_id"] for row in snapshots.take(1)), None)

    def put_back(self, name: str, state: int) -> None:
        if self.engine == "delta":
            self.spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF {state}").collect()
            return
        catalog, _, table = name.partition(".")
        self.spark.sql(f"CALL {catalog}.system.set_current_snapshot('{table}', {state})").collect()

    def release(self, name: str) -> None:
        if existing_target(self.spark, name) is not None:
            open_target(self.spark, name, self.engine).set_properties({"ticdc.lease": "{}"})

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        found = self.spark.table(name).where(~F.coalesce(F.col("_is_deleted"), F.lit(False)))
        return sorted(tuple(row) for row in found.select(*columns).collect())


class Backup:
    """A copy of the checkpoint and of the tables, all of one moment."""

    def __init__(self, sync: MemorySync, place: Path) -> None:
        self.place = place
        self.tables = sync.lake.state(sync.status_table, sync.target("a"))
        shutil.copytree(sync.folder, place)

    def checkpoint(self, sync: MemorySync) -> None:
        shutil.rmtree(sync.folder)
        shutil.copytree(self.place, sync.folder)

    def tables_of(self, sync: MemorySync, *names: str) -> None:
        for name in names:
            if name in self.tables:
                sync.lake.put_back(name, self.tables[name])
        if sync.status_table in names:
            sync.lake.release(sync.status_table)


class Story:
    """Random changes of a table, as messages and as rows of SQL; and a sync of it to which things happen.

    Some stories have a commit-ts and two partitions. The others have one, and a time that several changes share.
    """

    def __init__(self, seed: int, sync: MemorySync, path: Path) -> None:
        self.random = random.Random(seed)
        self.sync, self.path = sync, path
        self.has_commit_ts = self.random.random() < 0.5
        self.partitions = self.random.choice((1, 2)) if self.has_commit_ts else 1
        self.topic: list[tuple[int, Message]] = []
        self.rows: dict[int, dict[str, str]] = {}
        self.columns = {"id": "int", "v": "varchar(10)"}
        self.ts, self.changed = 100, set[int]()
        self.backups: list[Backup] = []
        self.told: list[str] = []  # what has happened
        self._ddl(CREATE, "CREATE")

    @property
    def target(self) -> str:
        return self.sync.target("a")

    def _time(self) -> dict[str, Any]:
        return {"_tidb": {"commitTs": self.ts}} if self.has_commit_ts else {"es": MS + self.ts // 4}

    def _ddl(self, query: str, kind: str) -> None:
        self.ts, self.changed = self.ts + 1, set()
        message = canal(kind, None, None, None, database="shop", table="a", isDdl=True, sql=query, **self._time())
        self.topic.append((0, message))
        self.told.append(f"{self.ts}: {query}")
        self.ts += 1

    def _row(self, kind: str, row: dict[str, str], old: dict[str, str] | None = None) -> None:
        number = int(row["id"])
        if number in self.changed or self.random.random() < 0.5:
            self.ts, self.changed = self.ts + 1, set()
        self.changed.add(number)
        message = canal(kind, [row], None if old is None else [old], self.columns, database="shop", table="a",
                        pkNames=["id"], **self._time())  # fmt: skip
        self.topic.append((number % self.partitions, message))
        self.told.append(f"{self.ts}: {kind} {row}")

    def change(self) -> None:
        """Change the table, as TiDB and TiCDC do it."""
        kind = self.random.choice(["row"] * 9 + ["truncate", "add", "rename", "widen", "again"])
        number = self.random.randrange(6)
        values = {name: f"{name}{self.ts}" for name in self.columns if name != "id"}
        row = {"id": str(number), **values}
        if kind == "row" and number not in self.rows:
            self._row("INSERT", row)
            self.rows[number] = row
        elif kind == "row" and self.random.random() < 0.4:
            self._row("DELETE", self.rows.pop(number))
        elif kind == "row":
            self._row("UPDATE", row, self.rows[number])
            self.rows[number] = row
        elif kind == "truncate":
            self._ddl("TRUNCATE TABLE `a`", "TRUNCATE")
            self.rows.clear()
        elif kind == "add" and len(self.columns) < 5:
            name = f"c{self.ts}"
            self._ddl(f"ALTER TABLE `a` ADD COLUMN `{name}` varchar(10) NOT NULL DEFAULT 'new'", "ALTER")
            self.columns[name] = "varchar(10)"
            for each in self.rows.values():
                each[name] = "new"
        elif kind == "rename":
            old, new = self._column(), f"r{self.ts}"
            self._ddl(f"ALTER TABLE `a` RENAME COLUMN `{old}` TO `{new}`", "ALTER")
            renamed = {old: new}
            self.columns = {renamed.get(name, name): type_ for name, type_ in self.columns.items()}
            for key, each in self.rows.items():
                self.rows[key] = {renamed.get(name, name): value for name, value in each.items()}
        elif kind == "widen":
            name = self._column()
            self.columns[name] = f"varchar({self.ts})"
            self._ddl(f"ALTER TABLE `a` MODIFY COLUMN `{name}` {self.columns[name]}", "ALTER")
        elif kind == "again":  # TiCDC has started again
            self.topic += self.topic[-self.random.randint(1, 6) :]
            self.told.append("again")

    def _column(self) -> str:
        return self.random.choice([name for name in self.columns if name != "id"])

    def read(self, *, is_last: bool = False) -> None:
        """Read on, up to some place in each partition; Spark may die before it commits."""
        folder = self.sync.folder / "planned"
        folder.mkdir(exist_ok=True)
        number = max((int(one.name) for one in (self.sync.folder / "stream" / "commits").iterdir()), default=-1) + 1
        starts = json.loads((folder / str(number - 1)).read_text()) if number else [0] * self.partitions
        plan = folder / str(number)
        if not plan.exists():
            ends = [len(self.topic) if is_last else self.random.randint(start, len(self.topic)) for start in starts]
            if ends == starts:  # Spark plans no micro-batch then
                return
            plan.write_text(json.dumps(ends))
        ends = json.loads(plan.read_text())
        records = [
            (partition, offset, message)
            for offset, (partition, message) in enumerate(self.topic)
            if starts[partition] <= offset < ends[partition]
        ]
        dies = not is_last and self.random.random() < 0.2
        self.told.append(f"micro-batch {number}: {starts} to {ends}{', not committed' if dies else ''}")
        self.sync.batch(
            number,
            *(message for _, _, message in records),
            partitions=[partition for partition, _, _ in records],
            offsets=[offset for _, offset, _ in records],
            committed=not dies,
        )
        if dies:
            self.sync.kill()
            self.sync.start()

    def back_up(self) -> None:
        self.told.append(f"backup {len(self.backups)}")
        self.backups.append(Backup(self.sync, self.path / f"backup {len(self.backups)}"))

    def put_back(self) -> None:
        """Put back one of the three states, or a target while the sync runs; and do what the sync advises then."""
        if not self.backups:
            return
        backup = self.random.choice(self.backups)
        now = Backup(self.sync, self.path / f"now {self.random.random()}")
        what = self.random.choice(["checkpoint", "status", "target", "lake", "target of a running sync"])
        self.told.append(f"put back {what} of backup {self.backups.index(backup)}")
        status = self.sync.status_table
        names = {"status": [status], "lake": [status, self.target]}.get(what, [self.target])
        if what != "target of a running sync":
            self.sync.kill()
        if what == "checkpoint":
            backup.checkpoint(self.sync)
        else:
            backup.tables_of(self.sync, *names)
        try:
            if what == "target of a running sync":  # which notices it with the next change
                self._row("INSERT", row := dict.fromkeys(self.columns, "8"))
                self.rows[8] = row
                self.read(is_last=True)
                self.read(is_last=True)
            else:
                self.sync.start()
        except CheckpointError as error:
            self.told.append(str(error))
            self.sync.kill()
            self._remedy(now, backup, names)()
            self.sync.start()
        # The reason names the target. A checkpoint that does not fit it is put back to the newest one.
        self.mend(now, now if what == "checkpoint" else backup, [self.target])

    def _remedy(
        self, now: Backup, backup: Backup, names: list[str], *, only_newest: bool = False
    ) -> Callable[[], None]:
        is_first = only_newest or self.random.random() < 0.5
        self.told.append(f"remedy: {'the newest version' if is_first else 'the checkpoint'}")
        return (lambda: now.tables_of(self.sync, *names)) if is_first else lambda: backup.checkpoint(self.sync)

    def mend(self, now: Backup, backup: Backup, names: list[str]) -> None:
        status = self.sync.statuses().get("shop.a")
        if status is not None and status.state == "set aside":
            self.told.append(str(status.reason))
            self.sync.kill()
            self._remedy(now, backup, names, only_newest="whole checkpoint" not in str(status.reason))()
            self.sync.start("shop.a")

    def run(self, rounds: int = 5) -> None:
        """Let it happen, and compare."""
        self.sync.start()
        try:
            for _ in range(rounds):
                for _ in range(self.random.randint(1, 8)):
                    self.change()
                self.read()
                self.random.choice((self.back_up, self.put_back, self.change))()
            self._compare()
        except Exception as error:
            raise AssertionError("\n".join([*self.told, f"{type(error).__name__}: {error}"])) from error
        self.sync.end()

    def _compare(self) -> None:
        last = {"id": "9", **dict.fromkeys([name for name in self.columns if name != "id"], "last")}
        self._row("INSERT", last)  # a column that only DDL has added is not in the target before a row has it
        self.rows[9] = last
        self.read(is_last=True)
        self.read(is_last=True)
        names = tuple(self.columns)
        wanted = sorted((int(row["id"]), *(row[name] for name in names if name != "id")) for row in self.rows.values())
        status = self.sync.status("a")
        assert status.state == "following", status
        found = self.sync.lake.rows(self.target, *names)
        assert found == wanted, f"{names}: expected {wanted}, found {found}"
        self._retype(names, wanted)

    def _retype(self, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        """Give a column a type of another kind, which only TiDB can apply: the table is set aside as it is."""
        name = self._column()
        query = f"ALTER TABLE `a` MODIFY COLUMN `{name}` int"
        self._ddl(query, "ALTER")
        if self.random.random() < 0.5:
            self.columns[name] = "int"
            self._row("INSERT", {**dict.fromkeys(self.columns, "7"), "id": "10"})
        self.read(is_last=True)
        status = self.sync.status("a")
        told = f"{query} of shop.a changes column {name} from varchar("
        assert status.state == "set aside", status
        assert str(status.reason).startswith(told), status
        assert f" of {self.target} is string: only TiDB knows" in str(status.reason), status
        assert self.sync.lake.rows(self.target, *names) == rows
