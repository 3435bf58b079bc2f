"""Streams that are killed and restarted from their checkpoints write every row exactly once."""

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from examples.data import PROTOCOLS, read_messages, read_truth
from examples.demo.added_columns import added_columns
from examples.demo.compare import compare
from examples.demo.pipeline import fill_added_columns
from examples.local_kafka import Record, produce
from tests.fixtures import Kafka
from tests.spark.conftest import MakeTopic
from tests.spark.restarts import Child, Query, State, offset_of, steps_of
from tests.support import parquet_copy
from tests.support.captured import load as load_capture
from tests.support.messages import TSO, canal
from tests.versions.environments import interpreter

KILLS = int(os.environ.get("TICDC_KILLS", "3"))
SEED = int(os.environ.get("TICDC_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)

STREAMS = ("stream.open-protocol", "stream.canal-json.tidb-extension", "stream.debezium.tidb-extension.disable-schema")
PART = 0.6  # includes the ADD COLUMN of shop.orders, and records that TiCDC sent twice
BATCHES_A_LIFE = 12  # more than a query finishes between two kills
FIRST, BETWEEN, WITHIN, ANY = "before its first commit", "between two batches", "in a batch", "at any time"
# Of a stream that keeps a copy of a table:
WRITING, MERGED = "while the next version of its table is written", "after that version is the current one"

KEYED = "shop.orders"  # a third of its rows are deleted in the end
# What parts of the messages are sent, one after the other: changes come again, also inserts of rows deleted since.
SENT = ((0.0, 0.6), (0.3, 0.9), (0.0, 0.4), (0.9, 1.0))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Child]]:
    """A function that runs queries in a child process; all children are gone after the test."""
    children: list[Child] = []

    def start(*queries: Query, python: str | Path = sys.executable) -> Child:
        children.append(Child(queries, tmp_path / f"life-{len(children)}", python=python))
        return children[-1]

    yield start
    for child in children:
        child.kill()


def write_stream(broker: Kafka, stream: str, name: str, part: float = PART) -> int:
    """Write the first part of each partition of a captured stream to a topic; return how many records it has."""
    records: list[Record] = []
    for partition, captured in load_capture(stream).partitions.items():
        some = islice(captured, int(len(captured) * part))
        records += [(partition, record.key, record.value, [], None) for record in some]
    produce(broker.bootstrap_servers, name, records)
    return len(records)


def is_at(query: Query, moment: str, since: int) -> bool:
    """Return whether a query is at a moment; what is older than `since` was left by a process that was killed."""
    state = State.of(query.checkpoint)
    if moment in (WRITING, MERGED):
        version = parquet_copy.current_version(str(query.output))
        folder = Path(parquet_copy.folder(str(query.output), version + 1))
        changed = folder / "_temporary" if moment == WRITING else query.output / "CURRENT"
        began = max(since, _changed_at(query.checkpoint / "offsets" / str(state.planned)))
        return state.in_a_batch and _changed_at(changed) > began
    return state == State(0, -1) if moment == FIRST else moment == ANY or state.in_a_batch == (moment == WITHIN)


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def live(child: Child, queries: list[Query], watched: Query, moment: str, chooser: random.Random) -> list[str]:
    """Let the queries run until one of them is at a moment, kill them, and return the state of each."""
    checkpoint, since = watched.checkpoint, time.time_ns()
    if moment != FIRST:
        child.wait_for(lambda: child.has_started)
        more = chooser.choice((1, 2)) if moment == BETWEEN else chooser.choice((0, 1, 2))
        done = State.of(checkpoint).committed + more
        child.wait_for(lambda: State.of(checkpoint).committed >= done)
        time.sleep(chooser.uniform(0, 2 if moment == ANY else 0.3))
    child.wait_for(lambda: is_at(watched, moment, since), stop=True)
    states = [str(State.of(query.checkpoint)) for query in queries]
    child.kill()
    for query in queries:
        query.forget_an_empty_checkpoint()
    return states


def rows_of(spark: SparkSession, query: Query) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    topic = spark.read.format("ticdc").options(**query.options).load()
    output = spark.read.parquet(str(query.output))
    assert output.columns == topic.columns
    expected, found = (
        frame.orderBy("_sequence.partition", "_sequence.offset", "_sequence.index", "_sequence.rank").toArrow()
        for frame in (topic, output)
    )
    return expected.to_pylist(), found.to_pylist()


def kill_and_compare(
    spark: SparkSession,
    broker: Kafka,
    run: Callable[..., Child],
    folder: Path,
    topics: dict[str, str],
    kills: int,
    seed: int = SEED,
    part: float = PART,
) -> None:
    """Kill streams several times, let them end, and compare the output of each with its topic."""
    chooser = random.Random(seed)
    print(f"seed {seed} (TICDC_SEED), {kills} kills (TICDC_KILLS)")  # noqa: T201 (to find the case again)
    queries = []
    for stream, name in topics.items():
        records = write_stream(broker, stream, name, part)
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": name,
            "tables": "shop.orders",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(records // (int(BATCHES_A_LIFE * part / PART) * (kills + 1))),
        }
        queries.append(Query(options, str(folder / stream)))

    for number in range(kills):
        # The moments and the streams take turns; the rest is random.
        watched = queries[(seed + number + number // 3) % len(queries)]
        moment = (BETWEEN, WITHIN, ANY)[(number - 1) % 3] if number else WITHIN if kills == 1 else FIRST
        states = live(run(*queries), queries, watched, moment, chooser)
        print(f"kill {number}, of {Path(watched.folder).name} {moment}: {', '.join(states)}")  # noqa: T201

    in_steps = {"maxOffsetsPerTrigger": str(records // 2)}
    for last in [query.start(spark, availableNow=True, **in_steps) for query in queries]:
        last.awaitTermination()
    for query in queries:
        expected, found = rows_of(spark, query)
        assert len(expected) > 1000
        assert [row["_sequence"] for row in found] == [row["_sequence"] for row in expected]
        assert found == expected


@pytest.mark.slow("a Spark program that is killed and started again")
def test_a_killed_stream_loses_and_repeats_nothing(
    spark: SparkSession, broker: Kafka, topic: MakeTopic, run: Callable[..., Child], tmp_path: Path
) -> None:
    """A stream that is killed with SIGKILL in a micro-batch and restarted writes each row exactly once."""
    kill_and_compare(spark, broker, run, tmp_path, {STREAMS[0]: topic(3)}, kills=1, seed=1, part=PART / 2)


@pytest.mark.long("a JVM for each kill")
def test_kills_lose_and_repeat_nothing(
    spark: SparkSession, broker: Kafka, topic: MakeTopic, run: Callable[..., Child], tmp_path: Path
) -> None:
    """Streams of all three protocols, killed with SIGKILL at any moment and restarted, write each row exactly once."""
    kill_and_compare(spark, broker, run, tmp_path, {stream: topic(3) for stream in STREAMS}, KILLS)


@pytest.mark.long("a JVM for each kill")
@pytest.mark.versions
@pytest.mark.parametrize("version", ["4.0.5", "4.1.4"])
def test_limits_hold_through_kills_before_pyspark_4_2(
    spark: SparkSession, broker: Kafka, topic: MakeTopic, run: Callable[..., Child], tmp_path: Path, version: str
) -> None:
    """Spark tells no start there: yet no micro-batch is larger than its limit, and each row is written exactly once."""
    kills = KILLS if "TICDC_KILLS" in os.environ else 2
    chooser = random.Random(SEED)
    print(f"seed {SEED} (TICDC_SEED), {kills} kills (TICDC_KILLS), PySpark {version}")  # noqa: T201
    name, python = topic(3), interpreter(version)
    records = write_stream(broker, STREAMS[1], name)
    limit = records // (BATCHES_A_LIFE * (kills + 1))
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": name,
        "tables": "shop.orders",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(limit),
    }
    query = Query(options, str(tmp_path / "stream"))
    for number in range(kills):
        moment = (FIRST, BETWEEN, WITHIN, ANY)[number % 4]
        (state,) = live(run(query, python=python), [query], query, moment, chooser)
        print(f"kill {number} {moment}: {state}")  # noqa: T201

    last = run(query, python=python)
    last.wait_for(
        lambda: sum(steps_of(query.checkpoint, name)) == records and not State.of(query.checkpoint).in_a_batch
    )
    last.kill()

    steps = steps_of(query.checkpoint, name)
    expected, found = rows_of(spark, query)
    print(f"{len(expected)} rows compared; micro-batches of {sorted(set(steps))} offsets, limit {limit}")  # noqa: T201
    assert max(steps) <= limit
    assert len(expected) > 1000
    assert [row["_sequence"] for row in found] == [row["_sequence"] for row in expected]
    assert found == expected


def numbered(first: int, count: int) -> list[Record]:
    return [
        (0, *canal("INSERT", [{"id": str(n)}], None, {"id": "int"}, _tidb={"commitTs": TSO + n}), [], None)
        for n in range(first, first + count)
    ]


def sent_again(protocol: str) -> list[Record]:
    messages = read_messages(protocol)
    parts = [messages[int(len(messages) * begin) : int(len(messages) * end)] for begin, end in SENT]
    return [(*message, [], None) for part in parts for message in part]


@pytest.mark.long("a JVM for each kill")
def test_kills_leave_a_keyed_table_equal(
    spark: SparkSession, broker: Kafka, topic: MakeTopic, run: Callable[..., Child], tmp_path: Path
) -> None:
    """A table that streams merge into by key is SQL's after SIGKILLs and after TiCDC has sent changes again.

    No key is missing, none that was deleted is back, none is there twice, and all values are SQL's.
    """
    kills = KILLS if "TICDC_KILLS" in os.environ else 2
    chooser = random.Random(SEED)
    print(f"seed {SEED} (TICDC_SEED), {kills} kills (TICDC_KILLS)")  # noqa: T201 (to find the case again)
    truth = read_truth()[KEYED]
    queries = []
    protocols = PROTOCOLS if kills > 2 else PROTOCOLS[:1]
    for protocol in protocols:
        records = sent_again(protocol)
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": topic(3),
            "tables": KEYED,
            "preimages": "false",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(len(records) // (BATCHES_A_LIFE * (kills + 1))),
        }
        produce(broker.bootstrap_servers, options["subscribe"], records)
        queries.append(Query(options, str(tmp_path / protocol), keys=truth.key))

    for number in range(kills):
        watched = queries[(SEED + number + number // 3) % len(queries)]
        moment = (MERGED, WRITING, ANY, BETWEEN)[number % 4]
        states = live(run(*queries), queries, watched, moment, chooser)
        print(f"kill {number}, of {Path(watched.folder).name} {moment}: {', '.join(states)}")  # noqa: T201

    in_steps = {"maxOffsetsPerTrigger": str(len(records) // 3)}
    for last in [query.start(spark, availableNow=True, **in_steps) for query in queries]:
        last.awaitTermination()
    for protocol, query in zip(protocols, queries, strict=True):
        added = [column for column in added_columns(protocol, read_messages(protocol)) if column.table == KEYED]
        rows = fill_added_columns(parquet_copy.rows(spark, str(query.output)), added).toArrow()
        compared = compare(truth, rows)
        print(f"{protocol}: {compared.rows} rows compared, {compared.equal} equal")  # noqa: T201
        assert (compared.rows, compared.differences) == (len(truth.rows), [])


@pytest.mark.slow("a JVM of its own")
def test_a_crash_in_the_first_batch_keeps_the_start(
    spark: SparkSession, servers: str, topic: MakeTopic, run: Callable[..., Child], tmp_path: Path
) -> None:
    """A stream that began at "latest" and is killed in batch 0, or before any data came, continues where it began."""
    queries = {}
    for name in ("still", "moving"):
        options = {"kafka.bootstrap.servers": servers, "subscribe": topic(), "startingOffsets": "latest"}
        produce(servers, options["subscribe"], numbered(0, 20))
        queries[name] = Query(options, str(tmp_path / name), alone_at_first=name == "still")
    still, moving = queries.values()
    written, ends = 20, threading.Event()

    def keep_writing() -> None:
        nonlocal written
        while not ends.is_set():
            produce(servers, moving.options["subscribe"], numbered(written, 20))
            written += 20

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        child = run(still, moving)
        child.wait_for(lambda: State.of(moving.checkpoint) == State(0, -1), stop=True)
        child.kill()
    finally:
        ends.set()
        writer.join()
    assert State.of(still.checkpoint) == State(0, 0)
    began = offset_of(moving.checkpoint, 0)["$init"][moving.options["subscribe"]]["0"]
    produce(servers, still.options["subscribe"], numbered(20, 30))

    for last in [query.start(spark, availableNow=True) for query in queries.values()]:
        last.awaitTermination()

    assert began >= 20
    assert [row["id"] for row in spark.read.parquet(str(still.output)).orderBy("id").collect()] == list(range(20, 50))
    assert [row["id"] for row in spark.read.parquet(str(moving.output)).orderBy("id").collect()] == list(
        range(began, written)
    )
