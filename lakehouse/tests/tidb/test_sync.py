"""`ticdc-lakehouse sync` with a real TiDB: keys of every kind, tables changed and altered while they are loaded."""

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakehouse.tests.engines.engines import ENGINES, SESSION
from lakehouse.tests.tidb.changefeed import Changefeed
from tests.fixtures import QUICK_JAVA, Kafka
from tests.spark.restarts import Program, State, forget_an_empty_checkpoint, offset_of
from tests.support.paths import PACKAGES
from tests.tidb.server import missing, running
from tests.tidb.snapshots import text_session
from tests.tidb.sql import SAFE_POINT
from tests.versions.environments import extras, interpreter

pytestmark = [
    pytest.mark.long("a JVM for each life of the command"),
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.tidb,
    pytest.mark.versions,
    pytest.mark.timeout(2400),
]
ENGINE = ENGINES["delta-4.4"]
DATABASE = "joined"
ROWS = 400
RANGE = 30  # rows of a task: 14 ranges a table, in two commits
SECONDS = 900
_GENERAL = "VARCHAR(20) COLLATE utf8mb4_general_ci"
_LETTERS = "aBcÉßж😀中_%"

# Kind of key: the columns, and the values of the key in the row with a number.
KEYS: dict[str, tuple[str, Callable[[int], str]]] = {
    "k_int": ("a INT PRIMARY KEY", lambda n: str(n - 200)),
    "k_bigint": ("a BIGINT PRIMARY KEY", lambda n: str((-1) ** n * n**5)),
    "k_unsigned": ("a BIGINT UNSIGNED PRIMARY KEY", lambda n: str(2**64 - 1 - n * 307445734561825)),
    "k_decimal": ("a DECIMAL(30,10) PRIMARY KEY CLUSTERED", lambda n: f"{(-1) ** n * n}.{n:010d}"),
    "k_double": ("a DOUBLE PRIMARY KEY CLUSTERED", lambda n: f"{n}.25e{n % 100 - 50}"),
    "k_varchar": ("a VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY CLUSTERED", lambda n: f"'{_LETTERS[n % 10]}{n}'"),
    "k_general": (f"a {_GENERAL} PRIMARY KEY CLUSTERED", lambda n: f"'{_LETTERS[n % 10]}{n}'"),
    "k_char": ("a CHAR(20) COLLATE utf8mb4_unicode_ci PRIMARY KEY CLUSTERED", lambda n: f"'{_LETTERS[n % 10]}{n}'"),
    "k_varbinary": ("a VARBINARY(9) PRIMARY KEY CLUSTERED", lambda n: f"x'{n:06X}00'"),
    "k_binary": ("a BINARY(4) PRIMARY KEY CLUSTERED", lambda n: f"x'80{n:04X}27'"),
    "k_date": ("a DATE PRIMARY KEY CLUSTERED", lambda n: f"'{1990 + n // 12:04d}-{n % 12 + 1:02d}-{n % 28 + 1:02d}'"),
    "k_datetime": ("a DATETIME(6) PRIMARY KEY CLUSTERED", lambda n: f"'2024-03-31 01:59:59.{n:06d}'"),
    "k_timestamp": (
        "a TIMESTAMP(3) PRIMARY KEY CLUSTERED",
        lambda n: f"'2024-03-31 {n // 60:02d}:{n % 60:02d}:00.125'",
    ),
    "k_year_int": ("a YEAR, b INT, PRIMARY KEY (a, b) CLUSTERED", lambda n: f"{1950 + n % 7}, {n}"),
    "k_enum_bit": ("a ENUM('z','y','x'), b BIT(16), PRIMARY KEY (a, b) CLUSTERED", lambda n: f"{n % 3 + 1}, {n}"),
    "k_tenant": ("a INT, b BIGINT UNSIGNED, PRIMARY KEY (a, b)", lambda n: f"{n % 3}, {2**63 + n}"),
    "k_mixed": (
        "a VARCHAR(9), b DECIMAL(10,2), c VARBINARY(9), PRIMARY KEY (a, b, c) CLUSTERED",
        lambda n: f"'t{n % 4}', {n % 5}.5, x'{n:06X}'",
    ),
    "k_loose": ("a VARCHAR(20) PRIMARY KEY NONCLUSTERED", lambda n: f"'{n}'"),
    "k_unique": ("a INT NOT NULL, UNIQUE KEY u (a)", str),
    "k_partitioned": ("a INT PRIMARY KEY", str),
    "k_truncated": ("a INT PRIMARY KEY", str),
    "k_dropped": ("a INT PRIMARY KEY", str),  # and created again with another type of its key
    "keyless": ("a INT", lambda n: str(n % 7)),
    "made": ("a INT PRIMARY KEY", str),  # while the others are loaded
}
MADE = "made"
MORE = {"k_partitioned": "PARTITION BY HASH (a) PARTITIONS 4"}
DATA = "v VARCHAR(30), amount DECIMAL(12,3), at DATETIME(3), kind ENUM('big','small'), raw VARBINARY(5), f FLOAT"

CONFIG = """
checkpoint = "{folder}/checkpoint"
tables = ["{database}.*"]
parallel = 3

[source]
subscribe = "{topic}"
"kafka.bootstrap.servers" = "{servers}"
protocol = "canal-json"
maxOffsetsPerTrigger = 2000

[target]
format = "delta"
path = "{folder}/lake"

[tidb]
url = "{url}"
user = "root"
password = {{ env = "TIDB_PASSWORD" }}
rows_per_range = {rows}
"""


def values(table: str, numbers: range, version: int = 0) -> str:
    key = KEYS[table][1]
    return ", ".join(
        f"({key(n)}, 'v{n}.{version}', {n}.{version:03d}, '2026-01-01 00:00:0{n % 10}.5', {n % 2 + 1}, x'{n:04X}', "
        f"{n}.5, {n})" if n % 9 else f"({key(n)}, NULL, NULL, NULL, NULL, NULL, NULL, {n})"
        for n in numbers
    )  # fmt: skip


def insert(table: str, numbers: range, version: int = 0) -> str:
    names = [*re.findall(r"(?:^|, )([abc]) ", KEYS[table][0]), "v", "amount", "at", "kind", "raw", "f", "n"]
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES {values(table, numbers, version)}"  # noqa: S608 (its own)


class Writer:
    """Changes the tables in turn, as a service would."""

    def __init__(self, feed: Changefeed) -> None:
        self.feed = feed
        self.rounds = 0
        self.tables = [table for table in KEYS if table != MADE]

    def round(self) -> None:
        """Insert, update and delete rows of every table; rows of before the load too."""
        self.rounds += 1
        first = ROWS + self.rounds * 10
        for number, table in enumerate(self.tables):
            self.feed.write(table, insert(table, range(first, first + 5), self.rounds), range(first, first + 5))
            if table == "keyless":
                continue
            old = range(number + self.rounds * 3, number + self.rounds * 3 + 3)
            where = f"WHERE n BETWEEN {old.start} AND {old.stop - 1}"
            update = f"UPDATE {table} SET amount = {self.rounds}.5, v = CONCAT('w', n) {where}"  # noqa: S608
            self.feed.write(table, update, old)
            gone = range(ROWS - self.rounds * 4, ROWS - self.rounds * 4 + 2)
            where = f"WHERE n BETWEEN {gone.start} AND {gone.stop - 1}"
            self.feed.write(table, f"DELETE FROM {table} {where}", gone)  # noqa: S608
        self.feed.watermark()


class Reads:
    """Which ranges of tables were read, by the log of all statements that TiDB keeps."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._seen = 0

    def more(self) -> Counter[tuple[str, str]]:
        text = self._log.read_text(errors="replace")
        new, self._seen = text[self._seen :], len(text)
        found: Counter[tuple[str, str]] = Counter()
        for line in new.splitlines():
            match = re.search(rf"`{DATABASE}`\.`(\w+)` AS t USE INDEX \(\) WHERE (.*) ORDER BY ", line)
            if match is not None and " LIMIT " not in line:  # which looks for a bound
                found[match[1], match[2]] += 1
        return found


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of the command: the engine's jars, and what must not be in a file."""
    settings = {**SESSION, "spark.driver.memory": "1g", "spark.master": "local[2]"}
    jars = ",".join(map(str, ENGINE.jars))
    given = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    return {"PYSPARK_SUBMIT_ARGS": f"--jars {jars} {given} pyspark-shell", "TIDB_PASSWORD": ""}


@pytest.fixture
def lives() -> Iterator[list[Program]]:
    """The processes of the test; they end with it."""
    found: list[Program] = []
    yield found
    for life in found:
        life.kill()


def compared(folder: Path, at: int, tables: list[str], environment: dict[str, str]) -> dict[str, dict[str, object]]:
    """Return how the targets differ from TiDB's tables as of a TSO."""
    python = str(interpreter(ENGINE.pyspark, *extras()["tidb"]))
    done = subprocess.run(
        [python, "-m", "lakehouse.tests.tidb.compare", str(folder / "sync.toml"), str(at), *tables],
        cwd=folder, env={**os.environ, "PYTHONPATH": PACKAGES, "PYSPARK_PYTHON": python,
                         "PYSPARK_DRIVER_PYTHON": python, **environment},
        capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, dict[str, object]] = json.loads(done.stdout.splitlines()[-1])
    return found


def audited(folder: Path, environment: dict[str, str]) -> dict[str, dict[str, object]]:
    """Return what `ticdc-lakehouse audit` finds of each table, and print what it shows a person."""
    python = str(interpreter(ENGINE.pyspark, *extras()["tidb"]))
    shown = []
    for more in (["--json"], []):
        done = subprocess.run(
            [python, "-m", "ticdc_lakehouse.cli", "audit", "sync.toml", *more],
            cwd=folder, env={**os.environ, "PYTHONPATH": PACKAGES, "PYSPARK_PYTHON": python,
                             "PYSPARK_DRIVER_PYTHON": python, **environment,
                             "JDK_JAVA_OPTIONS": QUICK_JAVA},
            capture_output=True, text=True, check=False, timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode == 2, done.stdout + done.stderr  # a log cannot be compared
        shown.append(done.stdout)
    print(shown[1])  # noqa: T201 (the evidence)
    return {each["table"]: each for each in json.loads(shown[0])}


def test_a_database_from_its_first_row(
    broker: Kafka, topic: Callable[..., str], tmp_path: Path,
    environment: dict[str, str], lives: list[Program],
) -> None:  # fmt: skip
    """Changed and altered while it loads, with a SIGKILL, each table equals TiDB's; no range is read again."""
    why = missing()
    if why is not None:
        pytest.skip(why)
    python = str(interpreter(ENGINE.pyspark, *extras()["tidb"]))
    name = topic(3)
    with running(tmp_path) as tidb, text_session(tidb) as sql:
        sql.run(SAFE_POINT.format("20200101-00:00:00 +0000"), f"CREATE DATABASE {DATABASE}", f"USE {DATABASE}")
        sql.run("SET GLOBAL tidb_gc_life_time = '24h'")
        feed = Changefeed(sql, broker.bootstrap_servers, name, DATABASE, 3)
        writer = Writer(feed)
        for table in writer.tables:
            columns = KEYS[table][0]
            feed.before(f"CREATE TABLE {table} ({columns}, {DATA}, n INT, KEY (n)) {MORE.get(table, '')}")
            feed.before(insert(table, range(ROWS)))
        writer.round()  # these are in the topic and in the load
        (tmp_path / "sync.toml").write_text(
            CONFIG.format(
                folder=tmp_path, database=DATABASE, topic=name, servers=broker.bootstrap_servers, url=tidb.url,
                rows=RANGE,
            )
        )  # fmt: skip
        sql.run("SET GLOBAL tidb_general_log = 1")
        reads = Reads(tmp_path / "tidb.log")

        def start(*more: str) -> Program:
            arguments = ["ticdc_lakehouse.cli", "sync", str(tmp_path / "sync.toml"), *more]
            lives.append(Program(python, arguments, tmp_path / f"life-{len(lives)}", environment))
            return lives[-1]

        def follow() -> None:
            while True:  # a run ends with what was in the topic when it began, or with what a killed one has left
                life = start()
                assert life.end(SECONDS) == 0, life.log
                checkpoint = tmp_path / "checkpoint" / "stream"
                read = offset_of(checkpoint, State.of(checkpoint).committed)[name]
                if read == {str(partition): end for partition, end in feed.ends.items()}:
                    return

        first = start()
        first.wait_for(lambda: first.log.count(": loaded, ") >= 3, seconds=SECONDS)
        writer.round()
        feed.ddl("k_int", "ALTER TABLE k_int ADD COLUMN extra INT DEFAULT 7", "add column")
        feed.ddl("k_loose", "ALTER TABLE k_loose MODIFY COLUMN v VARCHAR(60)", "modify column")
        feed.ddl("k_truncated", "TRUNCATE TABLE k_truncated", "truncate table")
        feed.ddl("k_dropped", "DROP TABLE k_dropped", "drop table")
        feed.ddl("k_dropped", f"CREATE TABLE k_dropped (a BIGINT PRIMARY KEY, {DATA}, n INT)", "create table")
        feed.ddl(MADE, f"CREATE TABLE {MADE} ({KEYS[MADE][0]}, {DATA}, n INT)", "create table")
        writer.tables.append(MADE)
        writer.round()
        first.wait_for(lambda: first.log.count(": loaded, ") >= 8, seconds=SECONDS)
        first.kill()
        forget_an_empty_checkpoint(tmp_path / "checkpoint" / "stream")
        loaded = set(re.findall(rf"{DATABASE}\.(\w+): loaded, ", first.log))
        before = reads.more()
        assert 8 <= len(loaded) < len(KEYS) - 1, first.log
        writer.round()
        feed.ddl("k_bigint", "ALTER TABLE k_bigint DROP COLUMN f", "drop column")

        follow()
        after = reads.more()
        again = {table for table, _ in after} & loaded
        twice = set(before.keys() & after.keys())
        print(  # noqa: T201 (the evidence)
            f"killed with {len(loaded)} of {len(KEYS) - 1} tables loaded; ranges read before {sum(before.values())}, "
            f"after {sum(after.values())}; read again {len(twice)} of tables {sorted({one for one, _ in twice})}"
        )
        assert not again
        assert set(before.values()) | set(after.values()) == {1}
        assert len(twice) <= 3 * 8  # what was under way in three tables

        writer.tables = ["k_int", "k_mixed", "keyless"]
        writer.round()
        follow()
        assert not reads.more()
        at = feed.watermark()
        found = compared(tmp_path, at, [f"{DATABASE}.{table}" for table in KEYS], environment)
        print(json.dumps(found, indent=1))  # noqa: T201 (the evidence)
        for table, its in found.items():
            if "keyless" in table:
                assert its["kind"] == "log"
            assert (its["missing"], its["wrong"], its["no columns"], its["state"]) == (0, 0, [], "following"), table
            assert its["complete_since"] is not None, table
        audits = audited(tmp_path, environment)
        print(json.dumps({name: each["seconds"] for name, each in audits.items()}))  # noqa: T201 (the evidence)
        logs = {f"{DATABASE}.keyless"}
        assert {name: each["state"] for name, each in audits.items() if name not in logs} == {
            f"{DATABASE}.{table}": "equal" for table in KEYS if table != "keyless"
        }
        assert all(each["rows_read"] == 0 for name, each in audits.items() if name not in logs)
        # A new table needs no load, but a sync that is started again cannot know that its CREATE comes.
        assert len({its["loaded_ts"] for table, its in found.items() if table != f"{DATABASE}.{MADE}"} - {None}) == 1
        print(f"{feed.sent} row events in {writer.rounds} rounds; tables {len(found)}")  # noqa: T201
