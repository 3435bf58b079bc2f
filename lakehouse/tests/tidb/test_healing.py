"""`heal = true` with a real TiDB: after each cause that a stream cannot answer, the tables equal TiDB's again."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaTopicPartition

from lakehouse.tests.engines.engines import ENGINES, SESSION
from lakehouse.tests.tidb.changefeed import Changefeed
from tests.fixtures import QUICK_JAVA, Kafka
from tests.support.paths import PACKAGES
from tests.tidb.server import missing, running
from tests.tidb.snapshots import text_session
from tests.tidb.sql import SAFE_POINT
from tests.versions.environments import extras, interpreter

pytestmark = [
    pytest.mark.long("a sync of its own, which heals a dozen times"),
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.tidb,
    pytest.mark.versions,
    pytest.mark.timeout(2400),
]
ENGINE = ENGINES["delta-4.4"]
DATABASE = "healed"
SECONDS = 240
PARTITIONS = "PARTITION BY RANGE (n) (PARTITION p0 VALUES LESS THAN (50), PARTITION p1 VALUES LESS THAN (100000))"
COLUMNS = "n INT PRIMARY KEY, v VARCHAR(30), amount DECIMAL(12,3), at DATETIME(3)"
TABLES = {
    "truncated": f"({COLUMNS}) {PARTITIONS}",
    "dropped": f"({COLUMNS}) {PARTITIONS}",
    "exchanged": f"({COLUMNS}) {PARTITIONS}",
    "other": f"({COLUMNS})",
    "recovered": f"({COLUMNS})",
    "one": f"({COLUMNS})",
    "two": f"({COLUMNS})",
    "old_name": f"({COLUMNS})",
    "added": f"({COLUMNS})",
    "rounded": f"({COLUMNS})",
    "retyped": f"({COLUMNS})",
    "rekeyed": "(n INT NOT NULL, v VARCHAR(30), amount DECIMAL(12,3), at DATETIME(3), PRIMARY KEY (n) NONCLUSTERED)",
    "unreadable": f"({COLUMNS})",
    "unexplained": f"({COLUMNS})",
    "gone": f"({COLUMNS})",
}
CONFIG = """
checkpoint = "{folder}/checkpoint"
tables = ["{database}.*"]
heal = true
trigger = "1 second"

[source]
subscribe = "{topic}"
"kafka.bootstrap.servers" = "{servers}"
protocol = "canal-json"

[target]
format = "delta"
path = "{folder}/lake"

[tidb]
url = "{url}"
user = "root"
"""


@dataclass
class Sync:
    """A sync in a process of its own, which answers questions."""

    questions: IO[str]
    answers: IO[str]
    feed: Changefeed

    def ask(self, **asked: object) -> Any:
        self.questions.write(f"{json.dumps(asked)}\n")
        self.questions.flush()
        answer = json.loads(self.answers.readline())
        assert not isinstance(answer, dict) or "ended" not in answer, answer
        return answer

    def statuses(self) -> dict[str, Any]:
        return {name.partition(".")[2]: each for name, each in self.ask().items()}

    def wait(self, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the tables are so; a watermark lets the stream go on."""
        end = time.monotonic() + SECONDS
        while True:
            self.feed.watermark()
            statuses = self.statuses()
            if until(statuses):
                return statuses
            told = {name: (each["state"], each["reason"], len(each["pauses"])) for name, each in statuses.items()}
            assert time.monotonic() < end, told
            time.sleep(1)

    def audited(self, tables: list[str], at: int) -> list[dict[str, Any]]:
        end = time.monotonic() + SECONDS
        while True:
            found: list[dict[str, Any]] = self.ask(tables=[f"{DATABASE}.{table}" for table in tables])
            if all((each["at"] or 0) >= at for each in found):
                return found
            assert time.monotonic() < end, found
            self.feed.watermark()
            time.sleep(1)


@contextmanager
def started(folder: Path, feed: Changefeed) -> Iterator[Sync]:
    python = str(interpreter(ENGINE.pyspark, *extras()["tidb"]))
    settings = {**SESSION, "spark.driver.memory": "2g", "spark.master": "local[2]"}
    jars = ",".join(map(str, ENGINE.jars))
    given = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    environment = {**os.environ, "PYTHONPATH": PACKAGES, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python,
                   "PYSPARK_SUBMIT_ARGS": f"--jars {jars} {given} pyspark-shell",
                   "JDK_JAVA_OPTIONS": QUICK_JAVA}  # fmt: skip
    with (
        (folder / "sync.log").open("w") as log,
        subprocess.Popen(
            [python, "-m", "lakehouse.tests.tidb.heal", str(folder / "sync.toml")], cwd=folder, env=environment,
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
        ) as process,
    ):  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Sync(process.stdin, process.stdout, feed)
        finally:
            process.kill()


def rows(table: str, first: int, count: int = 5) -> str:
    values = ", ".join(f"({n}, '{n}', {n}.125, '2026-01-01 00:00:0{n % 10}.5')" for n in range(first, first + count))
    return f"INSERT INTO {table} (n, v, amount, at) VALUES {values}"  # noqa: S608 (its own)


def healed_at(status: dict[str, Any]) -> int:
    """Return the commit-ts up to which the last pause of a table was; 0 without one."""
    return int(status["pauses"][-1]["to_ts"]) if status["pauses"] else 0


def causes(feed: Changefeed, lake: Path) -> Iterator[tuple[str, list[str], Callable[[], object]]]:
    """Yield what only TiDB can answer: its name, the tables that it heals, and what does it."""
    ddl = feed.ddl
    alter = "ALTER TABLE {} "

    def swap() -> None:
        renames = {"tmp": "RENAME TABLE one TO tmp", "one": "RENAME TABLE two TO one", "two": "RENAME TABLE tmp TO two"}
        ddl("one", "RENAME TABLE one TO tmp, two TO one, tmp TO two", "rename table", renames)

    def recover() -> None:
        ddl("recovered", "DROP TABLE recovered", "drop table")
        ddl("recovered", "RECOVER TABLE recovered", "recover table")

    def rekey() -> None:
        ddl("rekeyed", f"{alter.format('rekeyed')}DROP PRIMARY KEY", "drop primary key", {})
        feed.sql.run("UPDATE rekeyed SET v = CONCAT('k', n)", "ALTER TABLE rekeyed MODIFY v VARCHAR(30) NOT NULL")
        ddl("rekeyed", f"{alter.format('rekeyed')}ADD PRIMARY KEY (v) NONCLUSTERED", "add primary key")

    def corrupt() -> None:
        feed.sql.run(rows("unreadable", 700, 1))
        feed.unreadable("unreadable", n="700", v="700", amount="no number", at="2026-01-01 00:00:00.500")

    def retype(table: str, type_: str, sent: dict[str, str] | None) -> None:
        ddl(table, f"{alter.format(table)}MODIFY COLUMN amount {type_}", "modify column", sent)

    yield (
        "TRUNCATE PARTITION",
        ["truncated"],
        lambda: ddl("truncated", f"{alter.format('truncated')}TRUNCATE PARTITION p0", "truncate partition"),
    )
    yield (
        "DROP PARTITION",
        ["dropped"],
        lambda: ddl("dropped", f"{alter.format('dropped')}DROP PARTITION p0", "drop partition"),
    )
    yield (
        "EXCHANGE PARTITION",
        ["exchanged", "other"],
        lambda: ddl(
            "other", f"{alter.format('exchanged')}EXCHANGE PARTITION p1 WITH TABLE other", "exchange partition"
        ),
    )
    yield "RECOVER TABLE", ["recovered"], recover
    yield "RENAME TABLE, a swap", ["one", "two"], swap
    yield (
        "RENAME TABLE to a new name",
        ["old_name", "new_name"],
        lambda: ddl("new_name", "RENAME TABLE old_name TO new_name", "rename table"),
    )
    yield (
        "ADD COLUMN with a default that TiDB computes",
        ["added"],
        lambda: ddl(
            "added", f"{alter.format('added')}ADD COLUMN since DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)", "add column"
        ),
    )
    yield (
        "MODIFY COLUMN that rounds",
        ["rounded"],
        lambda: ddl("rounded", f"{alter.format('rounded')}MODIFY COLUMN amount DECIMAL(8,1)", "modify column"),
    )
    yield "MODIFY COLUMN to another kind of type", ["retyped"], lambda: retype("retyped", "INT", None)
    yield "another PRIMARY KEY", ["rekeyed"], rekey
    yield "a record that cannot be read", ["unreadable"], corrupt
    yield "a type that no DDL explains", ["unexplained"], lambda: retype("unexplained", "VARCHAR(20)", {})
    yield "a target that somebody has removed", ["gone"], lambda: shutil.rmtree(lake / DATABASE / "gone")


@contextmanager
def changefeed(servers: str, topic: str, folder: Path) -> Iterator[Changefeed]:
    """Start a TiDB with a changefeed, and write the configuration of a sync of it."""
    why = missing()
    if why is not None:
        pytest.skip(why)
    with running(folder) as tidb, text_session(tidb) as sql:
        sql.run(SAFE_POINT.format("20200101-00:00:00 +0000"), f"CREATE DATABASE {DATABASE}", f"USE {DATABASE}")
        sql.run("SET GLOBAL tidb_gc_life_time = '24h'")
        (folder / "sync.toml").write_text(
            CONFIG.format(folder=folder, database=DATABASE, topic=topic, servers=servers, url=tidb.url)
        )
        yield Changefeed(sql, servers, topic, DATABASE, 3)


def wait_for_loads(sync: Sync, tables: int) -> None:
    """Wait until all tables follow."""
    sync.wait(lambda all_: len(all_) == tables and {one["state"] for one in all_.values()} == {"following"})


def test_a_sync_heals_after_each_cause(broker: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
    """Whatever DDL, a bad record or a person does to a copy, it is read again, and an audit finds it equal."""
    name = topic(3)
    with changefeed(broker.bootstrap_servers, name, tmp_path) as feed:
        sql = feed.sql
        for table, columns in TABLES.items():
            feed.before(f"CREATE TABLE {table} {columns}")
            first = 100 if table == "other" else 0
            feed.before(rows(table, first, 100))
        feed.watermark()
        with started(tmp_path, feed) as sync:
            wait_for_loads(sync, len(TABLES))
            for number, (cause, tables, act) in enumerate(causes(feed, tmp_path / "lake")):
                new = 200 + number * 20
                for table in tables:
                    if table in TABLES:
                        feed.write(table, rows(table, new), range(new, new + 5))
                feed.watermark()
                before = sync.statuses()
                began = time.monotonic()
                act()
                there = {row[0] or "" for row in sql.rows("SHOW TABLES")}
                for table in there & {*tables}:
                    update = f"UPDATE {table} SET at = '2026-02-02' WHERE n BETWEEN {new} AND {new + 2}"  # noqa: S608
                    feed.write(table, update, range(new, new + 5))
                    feed.write(table, rows(table, new + 10), range(new + 10, new + 15))
                at = feed.watermark()

                def has_healed(
                    now: dict[str, Any], tables: list[str] = tables, before: dict[str, Any] = before
                ) -> bool:
                    return all(
                        now.get(table, {}).get("state") == "following"
                        and (table not in before or healed_at(now[table]) > healed_at(before[table]))
                        for table in tables
                    )

                statuses = sync.wait(has_healed)
                seconds = time.monotonic() - began
                found = sync.audited(sorted(there & {*tables}), at)
                rows_read = [
                    one["pauses"][-1]["rows"] for name, one in statuses.items() if name in tables and one["pauses"]
                ]
                told = {each["table"]: f"{each['state']}, {each['rows']} rows" for each in found}
                print(f"{cause}: {seconds:.0f} s, rows read {rows_read}, {told}")  # noqa: T201 (the evidence)
                assert {each["state"] for each in found} == {"equal"}, found
                assert all(each["rows"] for each in found), found
            print(json.dumps(sync.statuses()["one"]["pauses"]))  # noqa: T201 (the evidence)
            every = [row[0] or "" for row in sql.rows("SHOW TABLES")]
            before = sync.statuses()
        for table in every:
            feed.write(table, rows(table, 900), range(900, 905))
        feed.watermark()
        with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as admin:
            admin.delete_records({KafkaTopicPartition(name, number): feed.ends[number] for number in range(3)})
        for table in every:
            feed.write(table, f"DELETE FROM {table} WHERE n IN (3, 4, 120)", range(150))  # noqa: S608 (its own)
        at = feed.watermark()
        with started(tmp_path, feed) as sync:
            statuses = sync.wait(
                lambda all_: all(
                    all_[table]["state"] == "following" and healed_at(all_[table]) > healed_at(before[table])
                    for table in every
                )
            )
            found = sync.audited(every, at)
            rows_read = sum(statuses[table]["pauses"][-1]["rows"] for table in every)
            states = sorted({each["state"] for each in found})
            print(f"records that Kafka has removed: {len(every)} tables, rows read {rows_read}, {states}")  # noqa: T201
            assert states == ["equal"], found


# Keys of messages with nothing else, and whether those rows alone are read.
LARGE = {
    "by_number": ("n INT PRIMARY KEY", True),
    "by_text": ("n INT, k VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY", True),
    "by_several": ("n INT UNSIGNED, k DECIMAL(50,2), d DATE, b VARBINARY(20), PRIMARY KEY (k, d, b)", True),
    "by_moment": ("n INT, k DATETIME(6) PRIMARY KEY", False),
}
KEYS = {
    "by_number": {},
    "by_text": {"k": "CONCAT(x'5c', 'o''', {n}, 'é')"},
    "by_several": {"k": "{n} + 0.25", "d": "'2026-01-01' + INTERVAL {n} DAY", "b": "CONCAT(X'00FF', {n})"},
    "by_moment": {"k": "'2026-01-01 00:00:00.000001' + INTERVAL {n} SECOND"},
}


def test_of_messages_with_only_the_key_those_rows_are_read(
    broker: Kafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Of messages with only the key, TiDB is asked for those rows, and the whole table if SQL cannot write the key."""
    name = topic(3)

    def inserted(table: str, numbers: range) -> str:
        columns = ["n", *KEYS[table], "v"]
        values = [", ".join([str(n), *(one.format(n=n) for one in KEYS[table].values()), f"'{n}'"]) for n in numbers]
        return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join(f'({one})' for one in values)}"  # noqa: S608

    with changefeed(broker.bootstrap_servers, name, tmp_path) as feed:
        for table, (columns, _) in LARGE.items():
            feed.before(f"CREATE TABLE {table} ({columns}, v LONGTEXT)")
            feed.before(inserted(table, range(100)))
        feed.watermark()
        with started(tmp_path, feed) as sync:
            wait_for_loads(sync, len(LARGE))
            for is_mixed in (False, True):
                for table in LARGE:
                    if is_mixed:  # with changes that can be read, before and after
                        feed.write(table, f"UPDATE {table} SET v = 'a' WHERE n < 20", range(20))  # noqa: S608 (its own)
                    first = 200 + 10 * is_mixed
                    feed.write(table, f"UPDATE {table} SET v = 'b' WHERE n < 7", range(7), is_large=True)  # noqa: S608
                    feed.write(table, f"DELETE FROM {table} WHERE n = 4", range(4, 5), is_large=True)  # noqa: S608
                    feed.write(table, inserted(table, range(first, first + 3)), range(first, first + 3), is_large=True)
                    if is_mixed:
                        feed.write(table, f"UPDATE {table} SET v = 'c' WHERE n > 5", range(5, 210))  # noqa: S608
                at = feed.watermark()
                found = sync.audited([f"{table}" for table in LARGE], at)
                print({each["table"]: f"{each['state']}, {each['rows']} rows" for each in found})  # noqa: T201
                assert {each["state"] for each in found} == {"equal"}, found
            statuses = sync.statuses()
            told = {table: [each["rows"] for each in statuses[table]["pauses"]] for table in LARGE}
            print(f"whole tables read: {told}")  # noqa: T201 (the evidence)
            assert {table: not rows for table, rows in told.items()} == {
                table: alone for table, (_, alone) in LARGE.items()
            }
