"""`snapshot=initial`: a stream begins with the rows of a real TiDB, and goes on with the changes of a topic."""

import itertools
import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import ticdc_source
from tests.fixtures import Kafka
from tests.spark.conftest import MakeStream, MakeTopic
from tests.spark.restarts import Child, Query, State, offset_of
from tests.spark.streams import Stream, failure_of, wait_for, write, written_files
from tests.spark.test_restarts import KILLS, SEED
from tests.support.messages import watermark
from tests.tidb.server import TiDB
from tests.tidb.snapshots import TextSession, text_session
from tests.tidb.sql import SAFE_POINT
from tests.tidb.writer import DATABASE, TABLE, Writer, applied
from ticdc_source import StreamProgress, progress_listener

pytestmark = [pytest.mark.slow("starts a TiDB"), pytest.mark.usefixtures("native_path")]


Begun: TypeAlias = tuple[Stream, StreamingQuery, Writer, str]
# Of a stream: rows of TiDB are read, the last of them are, and then changes.
STAGES = ROWS, HAND_OVER, CHANGES = "rows", "hand-over", "changes"
DRIFT = "SchemaError: the messages have columns that the schema lacks"  # the query has ended


@pytest.fixture
def sql(tidb: TiDB) -> Iterator[TextSession]:
    """A session of root, in a TiDB whose past may be read."""
    with text_session(tidb) as opened:
        opened.run(SAFE_POINT.format("20200101-00:00:00 +0000"))
        yield opened


def given(tidb: TiDB, **others: object) -> dict[str, object]:
    """Return the options of a stream that begins with a snapshot; `__` stands for a dot."""
    own = {"snapshot": "initial", "tidb__url": f"{tidb.host}:{tidb.port}", "tidb__user": "root", "tables": TABLE}
    return {**own, "snapshot__rowsPerRange": 50, "snapshot__maxRangesPerTrigger": 3, **others}


def rows_in(output: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(written_files(output)) for row in pq.read_table(path).to_pylist()]


def output_of(stream: Stream) -> list[dict[str, Any]]:
    return rows_in(stream.folder / "output")


def stage_of(checkpoint: Path) -> str | None:
    planned = State.of(checkpoint).planned
    if planned < 0:
        return None
    tables = offset_of(checkpoint, planned)["$snapshot"].get("tables")
    if tables is None:
        return CHANGES
    return HAND_OVER if all(table.get("done") for table in tables.values()) else ROWS


def is_at(checkpoint: Path, stage: str, least: int) -> bool:
    """Return whether a stream is at a stage, or behind it, and has planned micro-batches up to this number."""
    reached = stage_of(checkpoint)
    return (
        reached is not None and STAGES.index(reached) >= STAGES.index(stage) and State.of(checkpoint).planned >= least
    )


@pytest.mark.parametrize("extension", [True, False])
def test_rows_then_changes(
    tidb: TiDB, sql: TextSession, broker: Kafka, topic: MakeTopic, stream: MakeStream, extension: bool
) -> None:
    """Each row of before comes once, a change once; changes that the snapshot has do not come at all."""
    name, writer = topic(), Writer(sql, random.SystemRandom().randrange(1 << 32), extension=extension)
    writer.fill(500)
    writer.change(40)
    writer.send(broker.bootstrap_servers, name)
    writer.change(20)  # the snapshot has these, and their messages come late
    at_start = len(writer.rows())
    reading = stream(name, **given(tidb, protocol="canal-json"))

    reading.finish()

    first = output_of(reading)
    assert applied(first) == writer.rows()
    assert len(first) == at_start
    assert len({row["_commit_version"] for row in first}) == 1
    writer.change(60)
    writer.send(broker.bootstrap_servers, name)
    reading.finish()
    rows = output_of(reading)
    assert applied(rows) == writer.rows()
    assert len({tuple(row["_sequence"].values()) for row in rows}) == len(rows)
    moment = first[0]["_commit_version"]
    assert all(row["_commit_version"] >= moment for row in rows)
    assert [row["_commit_version"] for row in rows].count(moment) == at_start
    assert reading.offsets()[-1]["$snapshot"] == {"tso": moment}


def test_tidb_tells_the_types_of_messages(
    spark: SparkSession, tidb: TiDB, sql: TextSession, broker: Kafka, topic: MakeTopic
) -> None:
    """Also of a topic without a message, and without a snapshot: types, keys and columns are those of TiDB now."""
    name, writer = topic(), Writer(sql, 7)
    sql.run(f"ALTER TABLE {TABLE} MODIFY COLUMN amount DECIMAL(31,7)")
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name, "tables": TABLE}
    told = {"tidb.url": f"{tidb.host}:{tidb.port}", "tidb.user": "root"}
    reader = spark.read.format("ticdc").options(**options, **told)

    empty = reader.load()
    nothing = empty.collect()
    writer.change(20)
    writer.send(broker.bootstrap_servers, name)
    rows = reader.load()

    assert nothing == []
    assert empty.dtypes == rows.dtypes
    assert empty.schema["amount"].dataType.simpleString() == "decimal(31,7)"
    assert empty.schema["id"].metadata["ticdc.key"] == "true"
    assert applied([row.asDict(recursive=True) for row in rows.collect()]) == writer.rows()


def test_events_of_all_tables(
    tidb: TiDB, sql: TextSession, broker: Kafka, topic: MakeTopic, stream: MakeStream
) -> None:
    """With `outputFormat=event`, the tables come one after the other, then the changes of all; one has no row."""
    name, writer = topic(), Writer(sql, 7)
    writer.fill(120)
    sql.run(f"CREATE TABLE {DATABASE}.empty (id INT PRIMARY KEY)", f"CREATE TABLE {DATABASE}.more (a INT, b DATE)")
    sql.run(f"INSERT INTO {DATABASE}.more VALUES (1, '2026-11-28'), (2, NULL)")  # noqa: S608 (a test's own)
    wanted = given(tidb, tables=f"{DATABASE}.*", outputFormat="event", protocol="canal-json")
    reading = stream(name, **wanted)

    reading.finish()
    writer.change(30)
    writer.send(broker.bootstrap_servers, name)
    reading.finish()

    rows = [row for row in output_of(reading) if row["_table"] == "more"]
    assert [json.loads(row["after"]) for row in rows] == [{"a": 1, "b": "2026-11-28"}, {"a": 2, "b": None}]
    orders = [row for row in output_of(reading) if row["_table"] == "orders"]
    assert len(orders) == 150


@pytest.mark.filterwarnings("ignore:consistency=resolved. 0 of 1 topic partitions:UserWarning")
@pytest.mark.parametrize("consistency", ["latest", "resolved"])
def test_records_of_all_tables(
    tidb: TiDB, sql: TextSession, broker: Kafka, topic: MakeTopic, stream: MakeStream, tmp_path: Path, consistency: Any
) -> None:
    """`tables` gives the rows and the changes of two tables, each equal to TiDB's, and no change that the rows have."""
    name, writers = topic(), [Writer(sql, 7), Writer(sql, 8, extension=False, beside="more")]
    for writer in writers:
        writer.fill(200)
        writer.change(20)  # the snapshot has these, and their messages come late
    state = ticdc_source.SyncState(str(tmp_path / "state"))
    how: dict[str, Any] = {"tables": f"{DATABASE}.*", "protocol": {"latest": "auto"}.get(consistency, "canal-json")}
    found: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {writer.table: {} for writer in writers}
    at_start = [len(writer.rows()) for writer in writers]
    taken: list[tuple[int | None, bool]] = []
    fails = [1]

    def take(batch: DataFrame, number: int) -> None:
        changes = ticdc_source.tables(batch, state=state, batch_id=number, consistency=consistency, **how)
        new = {table: frame.collect() for table, frame in changes.items() if "id" in frame.columns}
        for table, rows in new.items():
            found[table] |= {tuple(row["_sequence"]): row.asDict(recursive=True) for row in rows}
        taken.append((changes.resolved_ts, any(new.values())))
        for writer in writers:
            writer.change(10)
            writer.send(broker.bootstrap_servers, name)
        if number in fails:
            fails.clear()
            raise RuntimeError("on purpose")

    reading = stream(name, **given(tidb, tables=f"{DATABASE}.*", outputFormat="record"))
    assert "on purpose" in failure_of(reading.start(take, availableNow=True))
    reading.finish(each=take, availableNow=True)
    *of_rows, of_changes = taken
    sql.run("BEGIN")
    ((now,),) = sql.rows("SELECT @@tidb_current_ts")
    sql.run("ROLLBACK")
    write(broker.bootstrap_servers, name, watermark(int(now or 0)))
    at_mark = [writer.rows() for writer in writers]
    reading.finish(each=take, availableNow=True)

    assert set(of_rows) == {(None, True)}  # resolved_ts, and whether there were rows
    assert of_changes == (None, consistency == "latest")
    assert taken[-1] == (int(now or 0), True)
    assert [applied(found[writer.table].values()) for writer in writers] == at_mark
    commits = [[row["_commit_version"] for row in found[writer.table].values()] for writer in writers]
    (moment,) = set(map(min, commits))
    assert [of_table.count(moment) for of_table in commits] == at_start


def test_the_listener_says_how_far_the_rows_are(
    spark: SparkSession, tidb: TiDB, sql: TextSession, broker: Kafka, topic: MakeTopic, stream: MakeStream
) -> None:
    """It counts ranges until the first changes come."""
    name, writer = topic(), Writer(sql, 7)
    writer.fill(500)
    reports: list[StreamProgress] = []
    listener = progress_listener(on_progress=reports.append, spark=spark)
    spark.streams.addListener(listener)
    try:
        query = stream(name, **given(tidb)).start(processingTime="0 seconds")
        wait_for(query, lambda: any(each.snapshot_ranges == 10 for each in reports))
        writer.change(1)
        writer.send(broker.bootstrap_servers, name)
        wait_for(query, lambda: reports[-1].snapshot_ranges is None)
    finally:
        spark.streams.removeListener(listener)
        listener.close()

    told = dict.fromkeys(each.snapshot_ranges for each in reports if each.batch is not None)
    assert list(told) == [3, 6, 9, 10, None]
    assert all((each.snapshot_ranges or 0) < (each.snapshot_ranges_expected or 1) for each in reports[:3])


@pytest.fixture
def begun(tidb: TiDB, sql: TextSession, broker: Kafka, topic: MakeTopic, stream: MakeStream) -> Begun:
    """A stream of `row_reader` that runs and has read some rows, its query, what changes rows, and the topic."""
    name, writer = topic(), Writer(sql, 7)
    writer.fill(400)
    writer.change(5)
    writer.send(broker.bootstrap_servers, name)
    sql.run("CREATE USER IF NOT EXISTS row_reader", f"GRANT SELECT ON {TABLE} TO row_reader")
    own = {"tidb__user": "row_reader", "snapshot__maxRangesPerTrigger": 1, "snapshot__rowsPerRange": 10}
    reading = stream(name, **given(tidb, failOnDataLoss="false", **own))
    query = reading.start(processingTime="1 second")
    wait_for(query, lambda: bool(query.recentProgress))
    return reading, query, writer, name


def test_a_topic_that_is_created_again_is_an_error(broker: Kafka, begun: Begun) -> None:
    """If that happens before all rows are read, the query fails, even with failOnDataLoss=false."""
    from examples.local_kafka import create_topic, delete_topic

    _, query, _, name = begun

    delete_topic(broker.bootstrap_servers, name)
    create_topic(broker.bootstrap_servers, name, 1)

    assert "Nothing has been skipped. Start again with a new checkpoint" in failure_of(query)


def test_garbage_collection_that_overtakes_the_snapshot_is_an_error(sql: TextSession, begun: Begun) -> None:
    """The error names the table and the setting; a restart says that the stream must begin again."""
    reading, query, *_ = begun

    sql.run(SAFE_POINT.format(time.strftime("%Y%m%d-%H:%M:%S +0000", time.gmtime(time.time() + 60))))
    try:
        first = failure_of(query)
        again = failure_of(reading.start())
    finally:
        sql.run(SAFE_POINT.format("20200101-00:00:00 +0000"))

    for failure in (first, again):
        assert re.search(rf"no longer has the rows of {TABLE} as of TSO \d+ .*tidb_gc_life_time = '24h'", failure)
    assert "Nothing has been skipped. Start again with a new checkpoint" in again


def test_a_lost_privilege_can_be_given_back(sql: TextSession, begun: Begun) -> None:
    """The error names the table and the statement that mends it; the query then goes on where it was."""
    reading, query, writer, _ = begun

    sql.run(f"REVOKE SELECT ON {TABLE} FROM row_reader")  # noqa: S608 (a test's own)
    failure = failure_of(query)
    sql.run(f"GRANT SELECT ON {TABLE} TO row_reader")
    reading.finish()

    assert f"GRANT SELECT ON {TABLE}" in failure
    assert applied(output_of(reading)) == writer.rows()
    assert len(output_of(reading)) == len(writer.rows())


def test_columns_change_in_the_middle_of_the_rows(
    spark: SparkSession, tidb: TiDB, sql: TextSession, broker: Kafka, topic: MakeTopic, tmp_path: Path
) -> None:
    """A restart has TiDB's columns of now: rows as of the snapshot, and changes before the DDL, have what is left."""
    name, writer = topic(), Writer(sql, 7)
    writer.fill(400)
    writer.change(5)
    writer.send(broker.bootstrap_servers, name)
    own = given(tidb, protocol="canal-json", snapshot__maxRangesPerTrigger=1)
    options = {one.replace("__", "."): str(value) for one, value in own.items()}
    options |= {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name}
    query = Query(options, str(tmp_path / "query"))
    first = query.start(spark, processingTime="2 seconds")
    wait_for(first, lambda: State.of(query.checkpoint).planned >= 1)
    writer.change(40)  # their messages have the column that is dropped
    first.stop()
    assert stage_of(query.checkpoint) == ROWS
    before = rows_in(query.output)
    writer.drop_column()
    writer.change(20)
    writer.add_column()
    writer.change(40)
    writer.send(broker.bootstrap_servers, name)

    assert query.start(spark, availableNow=True).awaitTermination(120)

    rows = rows_in(query.output)
    assert {key: row[1:] for key, row in applied(rows).items()} == {key: row[1:] for key, row in writer.rows().items()}
    assert len({tuple(row["_sequence"].values()) for row in rows}) == len(rows)
    moment = offset_of(query.checkpoint, 0)["$snapshot"]["tso"]
    assert [row["_commit_version"] for row in rows].count(moment) > len(before)
    assert sum("name" in row for row in rows) == len(before)


def killed_at(child: Child, query: Query, stage: str, least: int, after: float) -> bool:
    """Kill a stream so many seconds after it has reached a stage; return whether it was still running."""
    try:
        child.wait_for(lambda: DRIFT in child.log or is_at(query.checkpoint, stage, least))
        time.sleep(after)
        return DRIFT not in child.log
    finally:
        child.kill()


@pytest.mark.long("a JVM for each kill")
@pytest.mark.parametrize("run", range(max(2, KILLS // len(STAGES))))
def test_killed_in_each_stage(
    spark: SparkSession, tidb: TiDB, sql: TextSession, broker: Kafka, topic: MakeTopic, tmp_path: Path, run: int
) -> None:
    """A stream that is killed in each stage, while rows and columns change, ends equal to TiDB, no row twice."""
    seed = SEED + run
    chooser = random.Random(seed)
    print(f"seed {seed} (TICDC_SEED), {KILLS} kills (TICDC_KILLS)")  # noqa: T201 (to find the case again)
    name, writer = topic(), Writer(sql, seed, extension=run % 2 == 0)
    writer.fill(1500)
    writer.change(20)
    writer.send(broker.bootstrap_servers, name)
    options = {one.replace("__", "."): str(value) for one, value in given(tidb).items()}
    options |= {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name}
    query = Query(options, str(tmp_path / "query"))
    batches = {ROWS: chooser.randrange(6), HAND_OVER: 0, CHANGES: chooser.randrange(10, 15)}
    with writer.never_stopping(broker.bootstrap_servers, name):
        for stage, least in batches.items():
            after = chooser.uniform(0, 2)
            for attempt in itertools.count():  # a column was added after load(): the error says to start it again
                if killed_at(Child([query], tmp_path / f"{stage}-{attempt}"), query, stage, least, after):
                    break
            print(f"killed {State.of(query.checkpoint)}, {stage_of(query.checkpoint)}")  # noqa: T201
            query.forget_an_empty_checkpoint()
    writer.send(broker.bootstrap_servers, name)
    last = query.start(spark, availableNow=True)
    assert last.awaitTermination(240)

    rows = rows_in(query.output)

    assert applied(rows) == writer.rows()
    assert len({tuple(row["_sequence"].values()) for row in rows}) == len(rows)
    moment = offset_of(query.checkpoint, 0)["$snapshot"]["tso"]
    first = [row["id"] for row in rows if row["_commit_version"] == moment]
    assert len(first) == len(set(first)) >= 1000
