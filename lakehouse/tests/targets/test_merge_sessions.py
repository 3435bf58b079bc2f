"""Sessions that merges have of their own, and what a process remembers of its commits."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

from lakehouse.tests.targets.changes import frame_of
from ticdc_lakehouse.targets.delta import DeltaTarget
from ticdc_lakehouse.targets.sessions import frame_in, in_thread, own_session, shuffling
from ticdc_lakehouse.targets.target import CommitFacts, LastBatch

SETTING = "spark.databricks.delta.commitInfo.userMetadata"


def test_merges_that_run_at_once_have_a_session_each(spark: SparkSession) -> None:
    """What one sets is not set in another nor in the user's; sessions are used again while the user's is the same."""
    with own_session(spark) as one, own_session(spark) as other:
        one.conf.set(SETTING, "one")
        assert [session.conf.get(SETTING, None) for session in (one, other, spark)] == ["one", None, None]
        one.conf.unset(SETTING)
    with own_session(spark) as again:
        assert again in (one, other)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with own_session(spark) as changed:
            assert changed.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def test_a_frame_keeps_its_rows_and_field_metadata_in_another_session(spark: SparkSession) -> None:
    """Changes are those of the user's session, also if they come from a view that was made after the clone."""
    with own_session(spark):
        pass
    frame = frame_of(spark, [("insert", 10, 1, "a")])
    frame.createOrReplaceTempView("made_later")
    with own_session(spark) as own:
        moved = frame_in(spark.table("made_later"), own)

        assert (moved.sparkSession, moved.schema) == (own, frame.schema)
        assert moved.collect() == frame.collect()
    spark.catalog.dropTempView("made_later")


def test_a_stream_merges_with_adaptive_execution(spark: SparkSession) -> None:
    """A stream's session has adaptive execution off; what a merge computes may have any size, so it is on there."""
    stream = spark.newSession()
    for name in ("spark.sql.adaptive.enabled", "spark.sql.cbo.enabled"):
        stream.conf.set(name, "false")

    with own_session(stream) as own:
        assert own.conf.get("spark.sql.adaptive.enabled") == "true"


def test_few_rows_have_few_tasks(spark: SparkSession) -> None:
    """The number of partitions follows the number of rows, up to what the user has set."""
    name = "spark.sql.shuffle.partitions"
    session = spark.newSession()
    session.conf.set(name, "200")
    found = []
    for rows in (0, 20, 1_000_000):
        with shuffling(session, rows):
            found.append(session.conf.get(name))

    assert (found, session.conf.get(name)) == (["1", "3", "200"], "200")


def test_threads_do_not_share_what_they_tell_spark(spark: SparkSession) -> None:
    """Each begins with the properties of the thread that starts it: also the numbers of Spark's queries are such."""
    both = threading.Barrier(2)

    def run(number: int) -> tuple[str | None, str | None]:
        spark.sparkContext.setLocalProperty("told", str(number))
        both.wait(timeout=60)
        return spark.sparkContext.getLocalProperty("given"), spark.sparkContext.getLocalProperty("told")

    spark.sparkContext.setLocalProperty("given", "before")
    try:
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(in_thread(spark, run), (1, 2))) == [("before", "1"), ("before", "2")]
    finally:
        spark.sparkContext.setLocalProperty("given", None)  # type: ignore[arg-type]  # it removes it


def test_a_committed_number_is_remembered_with_the_version(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history is read unless the table is in the version that this process has made: somebody may restore it."""
    read: list[str] = []
    versions = ["id 7"]
    monkeypatch.setattr(DeltaTarget, "recorded_batch", lambda _self, app_id: read.append(app_id))
    monkeypatch.setattr(DeltaTarget, "commit", lambda _self, _statement, _facts: versions.append(next_version()))
    monkeypatch.setattr(DeltaTarget, "version", lambda _self: versions[-1])
    steps = [1]

    def next_version() -> str:
        return f"id {int(versions[-1].split()[1]) + steps[0]}"

    target, rows = DeltaTarget(spark, "lake.shop.remembered"), spark.range(1)
    facts = CommitFacts(app_id="me", batch_id=4)

    target.append(rows, facts)
    assert (target.last_batch("me"), read) == (LastBatch(facts), [])
    assert (target.last_batch("me"), read) == (None, ["me"])  # a micro-batch began, and did not commit
    target.append(rows, facts)
    versions.append("id 9")  # somebody else's commit
    versions.append("id 10")
    assert (target.last_batch("me"), read) == (None, ["me", "me"])
    steps[0] = 2
    target.append(rows, facts)  # between its reading of the version and the commit there was another one
    assert (target.last_batch("me"), read) == (None, ["me", "me", "me"])
