"""The stream reader, through Spark and a real broker."""

import json
import os
import signal
import subprocess
import time
from contextlib import closing

import pytest
from kafka import KafkaAdminClient
from pyspark.sql import DataFrame, SparkSession

from examples.local_kafka import create_topic, delete_topic
from tests.spark.conftest import MakeStream, MakeTopic
from tests.spark.streams import SCHEMA, TYPED, Stream, sizes, wait_for, write_rows


def test_available_now_reads_the_backlog_in_limited_batches(stream: MakeStream, servers: str, topic: MakeTopic) -> None:
    """With maxOffsetsPerTrigger below the backlog, Trigger.AvailableNow reads everything in several batches."""
    name = topic(3)
    write_rows(servers, name, *range(30), partitions=3)
    one = stream(name, startingOffsets="earliest", maxOffsetsPerTrigger=7)

    query = one.finish()

    assert one.ids() == list(range(30))
    assert len(sizes(query)) == 5
    assert max(sizes(query)) <= 7


@pytest.mark.slow("runs a stream")
def test_once_ignores_the_limit(stream: MakeStream, servers: str, topic: MakeTopic) -> None:
    """Trigger.Once reads everything in one micro-batch and ignores maxOffsetsPerTrigger."""
    name = topic()
    write_rows(servers, name, *range(20))

    query = stream(name, startingOffsets="earliest", maxOffsetsPerTrigger=7).finish(once=True)

    assert sizes(query) == [20]


def test_a_running_stream_keeps_the_limit_and_continues_after_a_restart(
    stream: MakeStream, servers: str, topic: MakeTopic
) -> None:
    """With a ProcessingTime trigger each batch is limited, and a restart reads later records once."""
    name = topic()
    write_rows(servers, name, *range(10))
    one = stream(name, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    query = one.start(processingTime="100 milliseconds")
    wait_for(query, lambda: sum(sizes(query)) == 10)
    assert sizes(query) == [4, 4, 2]
    query.stop()
    write_rows(servers, name, *range(10, 15))

    again = one.start(processingTime="100 milliseconds")
    wait_for(again, lambda: sum(sizes(again)) == 5)
    again.stop()

    assert one.ids() == list(range(15))


@pytest.mark.slow("waits for nothing to happen")
def test_a_stream_waits_for_a_minimum_of_offsets(stream: MakeStream, servers: str, topic: MakeTopic) -> None:
    """A batch below minOffsetsPerTrigger comes only after maxTriggerDelay."""
    name = topic()
    write_rows(servers, name, 0)
    given = {"startingOffsets": "earliest", "minOffsetsPerTrigger": 10, "maxOffsetsPerTrigger": 10}
    given["fetchOffset__minIntervalMs"] = 50
    one = stream(name, **given, maxTriggerDelay="1h")
    query = one.start()
    wait_for(query, lambda: sizes(query) == [1])  # the first one does not wait, so that the checkpoint has the start

    write_rows(servers, name, *range(1, 5))
    time.sleep(1)
    assert sizes(query) == [1]
    write_rows(servers, name, *range(5, 11))
    wait_for(query, lambda: sizes(query) == [1, 10])
    query.stop()

    again = Stream(one.spark, stream(name, **given, maxTriggerDelay="1s").frame, one.folder)
    query = again.start()
    for number in (11, 12):
        write_rows(servers, name, number)
        wait_for(query, lambda number=number: sum(sizes(query)) == number - 10)  # type: ignore[misc]
    query.stop()
    assert again.ids() == list(range(13))


@pytest.mark.slow("several actions per micro-batch")
def test_two_actions_in_foreach_batch_see_the_same_rows(stream: MakeStream, servers: str, topic: MakeTopic) -> None:
    """All actions on a micro-batch see the same rows, also after a LIMIT has ended a read early."""
    name = topic()
    write_rows(servers, name, *range(3000))
    seen: list[tuple[int, int, list[int], int]] = []

    def look(frame: DataFrame, batch: int) -> None:
        few = len(frame.limit(3).collect())
        seen.append((batch, few, sorted(row["id"] for row in frame.collect()), frame.count()))

    stream(name, startingOffsets="earliest", maxOffsetsPerTrigger=1500).finish(each=look, availableNow=True)

    assert seen == [(0, 3, list(range(1500)), 1500), (1, 3, list(range(1500, 3000)), 1500)]


@pytest.mark.slow("runs a stream")
def test_progress_shows_how_far_the_stream_is(stream: MakeStream, servers: str, topic: MakeTopic) -> None:
    """The progress of each batch has its end and the ends of the partitions; the difference is the lag."""
    name = topic(2)
    write_rows(servers, name, *range(20), partitions=2)

    query = stream(name, startingOffsets="earliest", maxOffsetsPerTrigger=8).finish()

    sources = [progress["sources"][0] for progress in query.recentProgress if progress["numInputRows"]]
    assert [json.loads(source["latestOffset"]) for source in sources] == [{name: {"0": 10, "1": 10}}] * 3
    assert json.loads(sources[-1]["endOffset"])[name] == {"0": 10, "1": 10}


@pytest.mark.slow("runs a stream")
def test_a_stream_may_start_before_its_topic_exists(stream: MakeStream, servers: str, topic: MakeTopic) -> None:
    """With protocol, table and schema given, a stream waits for an empty or missing topic, and misses no record."""
    empty, missing = topic(), f"{topic()}-missing"
    streams = [stream(name, SCHEMA, startingOffsets="latest", **TYPED) for name in (empty, missing)]
    queries = [one.start() for one in streams]
    for one, query in zip(streams, queries, strict=True):
        wait_for(query, lambda one=one: len(one.offsets()) == 1)  # type: ignore[misc]
    time.sleep(1)
    assert [one.offsets() for one in streams] == [[{"$init": {empty: {"0": 0}}, empty: {"0": 0}}], [{"$init": {}}]]
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        assert missing not in admin.list_topics()

    write_rows(servers, empty, 0, 1)
    create_topic(servers, missing)
    write_rows(servers, missing, 2, 3)
    try:
        for query in queries:
            wait_for(query, lambda query=query: sum(sizes(query)) == 2)  # type: ignore[misc]
    finally:
        delete_topic(servers, missing)

    assert [one.ids() for one in streams] == [[0, 1], [2, 3]]


def workers_of(spark: SparkSession) -> set[int]:
    jvm = str(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    lines = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    daemons = {pid for pid, parent, arguments in lines if parent == jvm and arguments.endswith("pyspark.worker")}
    return {int(pid) for pid, parent, _ in lines if parent in daemons}


@pytest.mark.slow("waits for new workers")
def test_workers_killed_between_batches_are_replaced(
    spark: SparkSession, stream: MakeStream, servers: str, topic: MakeTopic
) -> None:
    """After workers are killed while the stream is idle, the next batch is complete."""
    name = topic()
    write_rows(servers, name, *range(5))
    one = stream(name, startingOffsets="earliest")
    query = one.start()
    wait_for(query, lambda: sum(sizes(query)) == 5)

    killed = workers_of(spark)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    write_rows(servers, name, *range(5, 10))
    wait_for(query, lambda: sum(sizes(query)) == 10)

    assert killed
    assert one.ids() == list(range(10))
