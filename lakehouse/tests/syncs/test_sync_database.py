"""`ticdc-lakehouse sync`, killed at random moments, keeps the tables of a database equal to TiDB's."""

import json
import os
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from examples.local_kafka import produce
from lakehouse.tests.engines.engines import ENGINES, SESSION
from lakehouse.tests.targets.feed import DATABASE, KEYED, KEYLESS, DatabaseFeed, Tables
from tests.fixtures import Kafka
from tests.spark.conftest import MakeTopic
from tests.spark.restarts import Program, State, forget_an_empty_checkpoint, offset_of
from tests.support.paths import PACKAGES
from tests.support.registry import registry_options
from tests.support.storage_sink import StorageSink
from tests.support.truth import is_true
from tests.versions.environments import extras, interpreter
from ticdc_source.options.topics import parse_table
from ticdc_source.schema.table_name import TableName

KILLS = int(os.environ.get("TICDC_KILLS", "1"))
SEED = int(os.environ.get("TICDC_SEED", "20261122"))
MORE = pytest.mark.skipif("TICDC_KILLS" not in os.environ, reason="only with TICDC_KILLS=…, as make test-sync does")
TRANSACTIONS = 150 + 20 * KILLS
LOG = f"{DATABASE}.{KEYLESS}__log"
TABLES = [str(TableName(DATABASE, name)) for name in KEYED]
SECONDS = 900  # to wait for a micro-batch, on a machine where other tests run

pytestmark = [pytest.mark.broker, pytest.mark.spark]

# Avro cannot spell this name.
ODD_NAME = "CREATE TABLE `{}`.`{}` (`id` bigint NOT NULL)".format(DATABASE, KEYED[2].replace("`", "``"))
NEWEST = {"delta": ENGINES["delta-4.4"], "iceberg": ENGINES["iceberg-1.12"]}


def python_of(engine: str, protocol: str = "") -> str:
    """Return the Python of the environment of an engine, with what the protocol needs."""
    return str(interpreter(NEWEST[engine].pyspark, *extras().get(protocol, ())))


def spark_of(engine: str, more_jars: Sequence[Path] = ()) -> dict[str, str]:
    """Return the environment variable that gives Spark an engine's jars, and settings for a small machine."""
    settings = {**SESSION, "spark.driver.memory": "1g", "spark.master": "local[2]"}
    jars = ",".join(map(str, (*NEWEST[engine].jars, *more_jars)))
    given = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    return {"PYSPARK_SUBMIT_ARGS": f"--jars {jars} {given} pyspark-shell"}


CONFIG = """
checkpoint = "{folder}/checkpoint"
consistency = "{mode}"

[source]
subscribe = "{topic}"
"kafka.bootstrap.servers" = "{servers}"
protocol = "{protocol}"
{more}

[target]
format = "{engine}"
path = "{folder}/lake"
"""


class Sync:
    """The command on a topic that gets the messages of a database in parts."""

    def __init__(
        self, broker: Kafka, topic: str, feed: DatabaseFeed, protocol: str, folder: Path, engine: str, mode: str
    ) -> None:
        self.servers, self.topic, self.feed = broker.bootstrap_servers, topic, feed
        self.folder, self.engine, self.mode, self.protocol = folder, engine, mode, protocol
        self.config = folder / "sync.toml"
        names = {
            "folder": folder,
            "mode": mode,
            "topic": topic,
            "servers": self.servers,
            "engine": engine,
            "protocol": protocol,
        }
        more = {}
        if protocol == "avro":
            more = {"schema.registry.url": registry_options({})["schema.registry.url"], "tableDDL": ODD_NAME}
        lines = "\n".join(
            f"{json.dumps(name)} = {json.dumps(value, ensure_ascii=False)}" for name, value in more.items()
        )
        self.config.write_text(CONFIG.format(**names, more=lines))
        self.more_jars: list[Path] = []
        self.environment: dict[str, str] = {}
        self._written = [0] * len(feed.records)
        self.lives: list[Program] = []
        self.states: list[dict[str, Any]] = []

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint" / "stream"

    def is_at(self, batch: int, *, committed: bool) -> bool:
        state = State.of(self.checkpoint)
        return (state.committed if committed else state.planned) >= batch

    def has_read_all(self, extra: int = 0) -> bool:
        """Return whether the last committed micro-batch ends where the topic ends, which has `extra` other messages."""
        ends = offset_of(self.checkpoint, State.of(self.checkpoint).committed)[self.topic]
        written = [self._written[0] + extra, *self._written[1:]]
        return [ends[str(partition)] for partition in range(len(written))] == written

    def write(self, shares: list[float]) -> None:
        for partition, share in enumerate(shares):
            messages = self.feed.records[partition]
            end = max(self._written[partition], int(len(messages) * share))
            new = messages[self._written[partition] : end]
            produce(self.servers, self.topic, [(partition, *message, [], None) for message in new])
            self._written[partition] = end

    def start(self, *more: str) -> Program:
        arguments = ["ticdc_lakehouse.cli", "sync", str(self.config), *more]
        life = Program(
            python_of(self.engine, self.protocol), arguments, self.folder / f"life-{len(self.lives)}", self._spark()
        )
        self.lives.append(life)
        return life

    def _spark(self) -> dict[str, str]:
        return {**spark_of(self.engine, self.more_jars), **self.environment}

    def kill_all(self) -> None:
        for life in self.lives:
            life.kill()

    def versions(self, tables: list[str], *, all_versions: bool, states: int = 0) -> dict[str, list[dict[str, Any]]]:
        """Return the versions of tables, with their rows in files; `states` gets the database as of moments."""
        folder = self.folder / "versions"
        folder.mkdir()
        request = {"config": str(self.config), "tables": tables, "folder": str(folder), "states": states}
        (folder / "request.json").write_text(json.dumps({**request, "all_versions": all_versions}))
        done = subprocess.run(
            [python_of(self.engine), "-m", "lakehouse.tests.targets.versions_of_tables", str(folder / "request.json")],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": PACKAGES, **self._spark()},
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS * 4,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        answer = json.loads((folder / "versions.json").read_text())
        versions: dict[str, list[dict[str, Any]]] = answer["tables"]
        self.states = answer["states"]
        return versions


class FilesSync(Sync):
    """The command on the folder of a changefeed with a storage sink, which gets files in parts."""

    def __init__(self, feed: DatabaseFeed, folder: Path, engine: str, mode: str, kafka: Kafka) -> None:
        super().__init__(kafka, "", feed, "storage", folder, engine, mode)
        config = self.config.read_text().replace('subscribe = ""', f'path = "{folder}/sink"')
        config = config.replace(f'"kafka.bootstrap.servers" = "{self.servers}"', "")
        self.config.write_text(config.replace('protocol = "storage"', ""))
        self.sink, self._end = StorageSink(folder / "sink", []), 0

    def write(self, shares: list[float]) -> None:
        end = max(self._end, int(len(self.feed.log) * min(shares)))
        for value in self.feed.log[self._end : end]:
            self.sink.message(value)
        self.sink.flush()
        self._end = end

    def has_read_all(self, extra: int = 0) -> bool:  # noqa: ARG002 (of topics)
        ts = json.loads((self.sink.folder / "metadata").read_text())["checkpoint-ts"]
        return bool(offset_of(self.checkpoint, State.of(self.checkpoint).committed)["metadata"]["0"] == ts + 1)


def table_of(target: str) -> str:
    """Return the name of the table whose rows, or whose log, a target has."""
    return parse_table(target.removesuffix("__log")).table


def differences(feed: DatabaseFeed, table: str, rows: list[dict[str, Any]], truth: Tables) -> Iterator[str]:
    """Yield each difference between the rows of a target and TiDB's."""
    name = table_of(table)
    wanted = truth.get(name, {})
    by_key = {str(row["id"]): row for row in rows}
    if len(by_key) < len(rows) and not table.endswith("__log"):  # a log has what TiCDC sends again twice
        yield f"{table} has {len(rows)} rows with {len(by_key)} keys"
    yield from (f"{table} lacks the row {key}" for key in wanted.keys() - by_key.keys())
    yield from (f"{table} has the row {key}, which TiDB has not" for key in by_key.keys() - wanted.keys())
    types = feed.truth.types[name]
    for key in wanted.keys() & by_key.keys():
        for column, true in wanted[key].items():
            value = by_key[key].get(column)
            if types[column].startswith("time(") or types[column] == "time":  # stored as microseconds
                value = None if value is None else timedelta(microseconds=value)
            if not is_true(value, true, types[column]):
                yield f"{table}, row {key}: {column} is {value!r}, not {true!r}"


def rows_in(file: str) -> list[dict[str, Any]]:
    rows = [row for path in Path(file).glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    return [row for row in rows if not row.get("_is_deleted")]


@pytest.fixture
def sync(broker: Kafka, topic: MakeTopic, tmp_path: Path) -> Iterator[Callable[..., Sync]]:
    """A function that returns the command on a new topic; its processes end with the test."""
    made: list[Sync] = []

    def make(protocol: str, engine: str, mode: str, transactions: int = TRANSACTIONS) -> Sync:
        feed = DatabaseFeed(SEED, "canal-json" if protocol == "storage" else protocol)
        feed.run(transactions)
        if protocol == "storage":
            made.append(FilesSync(feed, tmp_path, engine, mode, broker))
            return made[-1]
        made.append(Sync(broker, topic(len(feed.records)), feed, protocol, tmp_path, engine, mode))
        return made[-1]

    yield make
    for one in made:
        one.kill_all()


@pytest.mark.long("minutes, in a JVM for each run of the command")
@pytest.mark.xdist_group("engines")
@pytest.mark.timeout(SECONDS * 4)
@pytest.mark.parametrize("engine", ["delta", "iceberg"])
def test_what_stops_one_table_stops_no_other(sync: Callable[..., Sync], engine: str) -> None:
    """A table set aside, a bad record, a hostile name, DDL and a SIGKILL stop no other: all equal TiDB's in the end."""
    example = sync("canal-json", engine, "latest", 70)
    partitions = len(example.feed.records)
    example.config.write_text(example.config.read_text().replace('protocol = "canal-json"', ""))  # records tell it
    obstacle = example.folder / "lake" / DATABASE / KEYED[0]
    obstacle.mkdir(parents=True)
    (obstacle / {"delta": "part-0.parquet", "iceberg": "metadata"}[engine]).write_text("no table")
    produce(example.servers, example.topic, [(0, None, b'{"database": "shop", "table', [], None)])
    example.write([0.5] * partitions)

    first = example.start()
    assert first.end(SECONDS) == 1, first.log
    assert f"{DATABASE}.{KEYED[0]} is set aside: " in first.log
    assert "1 bad record in quarantine" in first.log

    example.write([0.7] * partitions)
    live = example.start("--trigger=1 second")
    live.wait_for(partial(example.has_read_all, extra=1), seconds=SECONDS)
    batch = State.of(example.checkpoint).planned + 1
    example.write([0.9] * partitions)
    live.wait_for(partial(example.is_at, batch, committed=False), seconds=SECONDS)
    time.sleep(random.Random(SEED).uniform(0, 3))
    live.kill()

    shutil.rmtree(obstacle)
    example.write([1.0] * partitions)
    resumed = example.start(f"--resume={DATABASE}.{KEYED[0]}", "--json")
    assert resumed.end(SECONDS) == 0, resumed.log
    if not example.has_read_all(extra=1):  # PySpark 4.1 ends with the micro-batch that the killed process left
        resumed = example.start()
        assert resumed.end(SECONDS) == 0, resumed.log
    assert example.has_read_all(extra=1)
    for table, its in example.versions([*TABLES, LOG], all_versions=False).items():
        wrong = list(differences(example.feed, table, rows_in(its[-1]["file"]), example.feed.truth.at()))
        assert not wrong, f"{table}: {len(wrong)} differences, {wrong[:5]}"
    own = {"_ticdc", "_ticdc_quarantine", "_ticdc_sync", "_ticdc_sync.json"}
    assert {path.name for path in (example.folder / "lake").iterdir()} <= {DATABASE, *own}


def check_states(example: Sync) -> None:
    """Compare the database as of moments with TiDB at their commit-ts, all tables at once."""
    feed = example.feed
    known = [state for state in example.states if "commit_ts" in state]
    for state in known:
        truth = feed.truth.at(state["commit_ts"])
        assert state["commit_ts"] <= state["moment"]
        for name in {*truth} - {KEYLESS}:
            table = str(TableName(DATABASE, name))
            if table not in state["files"]:
                assert not truth[name], f"{table} is not in the state of {state['commit_ts']}"
                continue
            rows = rows_in(state["files"][table])
            wrong = list(differences(feed, table, rows, truth))
            assert not wrong, f"{table} at {state['commit_ts']}: {len(wrong)} differences, {wrong[:5]}"
    print(f"states of the database equal TiDB's: {len(known)} of {len(example.states)}")  # noqa: T201 (the evidence)


@pytest.mark.long("a JVM for each run of the command, and each version of a database")
@pytest.mark.xdist_group("engines")
@pytest.mark.timeout(SECONDS * 4)
def test_as_of_is_the_database_at_one_commit_ts(sync: Callable[..., Sync]) -> None:
    """With consistency = "resolved", all tables together are TiDB's at a commit-ts; a time of a pause is an error."""
    example = sync("canal-json", "delta", "resolved", 70)
    partitions = len(example.feed.records)
    table = f"{DATABASE}.{KEYED[1]}"
    obstacle = example.folder / "lake" / DATABASE / KEYED[1]
    obstacle.mkdir(parents=True)
    (obstacle / "part-0.parquet").write_text("no table")
    example.write([0.4] * partitions)
    first = example.start("--trigger=1 second", "--conf=maxOffsetsPerTrigger=40")  # without one: one micro-batch on 4.1
    first.wait_for(partial(example.is_at, 0, committed=True), seconds=SECONDS)
    first.wait_for(example.has_read_all, seconds=SECONDS)
    first.kill()
    shutil.rmtree(obstacle)
    example.write([1.0] * partitions)
    resumed = example.start(f"--resume={table}", "--trigger=1 second", "--conf=maxOffsetsPerTrigger=60")
    resumed.wait_for(example.has_read_all, seconds=SECONDS)
    resumed.kill()

    example.versions([TABLES[0]], all_versions=True, states=8)

    check_states(example)
    refused = [state["error"] for state in example.states if "error" in state]
    assert refused, example.states
    assert all(f"{table} has no " in error or "can be read: " in error for error in refused)
    assert len(refused) < len(example.states) - 2, refused


@pytest.mark.long("a JVM for each kill")
@pytest.mark.timeout(SECONDS * (4 + KILLS))
@pytest.mark.parametrize(("engine", "mode", "protocol"), [
    ("delta", "resolved", "open-protocol"),
    ("iceberg", "resolved", "canal-json"),
    pytest.param("delta", "latest", "canal-json", marks=MORE),
    pytest.param("delta", "resolved", "simple", marks=MORE),
    pytest.param("delta", "resolved", "avro", marks=MORE),
    pytest.param("delta", "resolved", "storage", marks=MORE),
    pytest.param("iceberg", "latest", "open-protocol", marks=MORE),  # debezium changes dates before the year 100
])  # fmt: skip
def test_killed_and_equal(sync: Callable[..., Sync], engine: str, mode: str, protocol: str) -> None:
    """After SIGKILLs, repeated and late messages and ALTERs, each table is TiDB's; in resolved mode, each version."""
    chance = random.Random(SEED)
    print(f"seed {SEED} (TICDC_SEED), {KILLS} kills (TICDC_KILLS)")  # noqa: T201 (to find the case again)
    example = sync(protocol, engine, mode)
    feed = example.feed
    size = sum(map(len, feed.records)) // (2 * (KILLS + 1))
    for number in range(KILLS):
        share = (number + 1) / (KILLS + 1)
        example.write([min(1.0, share * chance.uniform(0.7, 1.1)) for _ in feed.records])
        state, within = State.of(example.checkpoint), number % 2 == 0
        life = example.start("--trigger=1 second", f"--conf=maxOffsetsPerTrigger={size}")
        batch = (state.planned if within else state.committed) + 1
        life.wait_for(partial(example.is_at, max(batch, 0), committed=not within), seconds=SECONDS)
        time.sleep(chance.uniform(0, 15 if within else 2))
        life.kill()
        forget_an_empty_checkpoint(example.checkpoint)
        print(f"kill {number}: {State.of(example.checkpoint)}", flush=True)  # noqa: T201
    example.write([1.0] * len(feed.records))
    last = example.start(f"--conf=maxOffsetsPerTrigger={size * 2}")
    assert last.end(SECONDS * 2) == 0, last.log
    if not example.has_read_all():  # PySpark 4.1 ends with the micro-batch that the killed process left
        last = example.start()
        assert last.end(SECONDS * 2) == 0, last.log
    assert example.has_read_all()

    exact = mode == "resolved"
    versions = example.versions([*TABLES, LOG], all_versions=exact, states=8 if exact else 0)
    check_states(example)
    assert exact == any("commit_ts" in state for state in example.states)
    checks = Counter[str]()
    for table, its in versions.items():
        for version in its:
            truth = feed.truth.at(version["resolved_ts"])
            wrong = list(differences(feed, table, rows_in(version["file"]), truth))
            assert not wrong, f"{table}, version {version}: {len(wrong)} differences, {wrong[:5]}"
            checks[table] += version["resolved_ts"] is not None
    rows = {table: len(feed.truth.at()[table_of(table)]) for table in versions}
    commits = {table: its[-1]["commits"] for table, its in versions.items()}
    print(f"{engine} {mode} {protocol}: rows {rows}; kills {KILLS}; micro-batches {State.of(example.checkpoint)}; "  # noqa: T201
          f"commits {commits}; versions equal at their resolved_ts {dict(checks)}; repeated messages {feed.repeated}; "
          f"DDL {feed.ddls}")  # fmt: skip
    assert all(rows.values())
    assert all(checks.values()) or mode == "latest"
    assert feed.repeated
