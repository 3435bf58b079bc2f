"""`tables`: one micro-batch of records → the typed changes of each of its tables, fetched from Kafka once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Literal

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from ticdc_source.driver.frames import FrameSample, held_back
from ticdc_source.driver.progress import Progress
from ticdc_source.driver.tables import FoundTables, find_tables, metadata_schema
from ticdc_source.errors import OptionError, SchemaError, TiCDCSourceError
from ticdc_source.events import DDLEvent, TableName
from ticdc_source.options.frames import frame_options
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.pipeline.rows import RECORD
from ticdc_source.reports import from_one_frame, warn
from ticdc_source.spark.frames import OptionValue, decode, decoded, option_texts, records_of, surveyed
from ticdc_source.spark.schema import to_spark
from ticdc_source.spark.sync_state import Leftover, SyncState

__all__ = ["Tables", "tables"]

Consistency = Literal["latest", "resolved"]
# Options of `decode` that decide how records are told apart, and not how rows are decoded.
_OF_RECORDS = ("protocol", "valueCompression", "maxMessageBytes")
_LONGEST_REASON = 2000  # characters of an error of Spark that are kept


class Tables(dict[str, DataFrame]):
    """The changes of each table of a micro-batch, by the table's name, such as `shop.orders`.

    A table of which the micro-batch has DDL only has an empty DataFrame with the metadata columns alone.

    As a context manager it releases the records of the micro-batch at the end. With a `SyncState` the next call of
    `tables` does that too.

    Attributes:
        ddl: the DDL events of each table, oldest first; each event once in the stream. DDL of a database is under
            `database shop`.
        resolved_ts: the commit-ts up to which the stream has every event of every table; None without a `SyncState`, or
            while a topic partition has had no watermark.
        errors: the tables that cannot be read, with the reason, if `onTableError` is `skip`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ddl: Mapping[str, Sequence[DDLEvent]] = {}
        self.resolved_ts: int | None = None
        self.errors: dict[str, TiCDCSourceError] = {}
        self._persisted: list[DataFrame] = []

    def close(self) -> None:
        """Release the records of the micro-batch. The DataFrames read Kafka again from then on."""
        while self._persisted:
            self._persisted.pop().unpersist()

    def __enter__(self) -> Tables:  # noqa: PYI034 (typing.Self is Python 3.11's)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@from_one_frame
def tables(
    frame: DataFrame,
    /,
    *,
    state: SyncState | None = None,
    batch_id: int | None = None,
    consistency: Consistency = "latest",
    onTableError: Literal["fail", "skip"] = "fail",  # noqa: N803 (an option's name)
    resume: Collection[str] = (),
    **options: OptionValue,
) -> Tables:
    """Return the typed changes of each table that a micro-batch has, new tables included.

    Call it in `foreachBatch`, with the micro-batch of a stream with `outputFormat=record`, or of Spark's Kafka source.
    The micro-batch is fetched once and persisted; one pass over it finds the tables, every column of each, and DDL.

    Args:
        frame: the records, as for `decode`.
        state: what must be leftover from one micro-batch to the next: watermarks, and the DDL that tells types and
            labels. Without it each micro-batch stands alone.
        batch_id: the number of the micro-batch, which Spark passes to `foreachBatch`; required with `state`.
        consistency: `latest` returns all changes of the micro-batch. `resolved` returns all changes up to the resolved
            ts, and holds later ones back until the watermarks have passed them, so that the changes returned so far
            are a state that TiDB was in. It needs `state`, and a feed with watermarks.
        onTableError: `fail` raises if a table cannot be read. `skip` leaves the table out, from then on, and reports it
            in `Tables.errors` and by a warning; to find values that cannot be read, it decodes each table at once.
        resume: the names of skipped tables to read again.
        options: the options of the source, such as `tables="shop.*"` and `timeZone="UTC"`.

    Raises:
        OptionError: an option is wrong.
        SchemaError: the frame has no `value`, or a table's columns contradict one another.
        DecodeError: a record cannot be read, so that its table is unknown.
        CheckpointError: the folder of `state` does not belong to this stream.
    """
    parsed = _checked(frame, state, batch_id, consistency, onTableError, options)
    spark = frame.sparkSession
    leftover = state.before(spark, batch_id) if state is not None and batch_id is not None else None
    fresh = frame if _is_record_output(frame) else decode(frame, outputFormat="record", **_some(options, _OF_RECORDS))
    fresh = fresh.withColumn("_held", sf.lit(False))  # noqa: FBT003 (Spark's)
    everything = fresh if leftover is None else _with_held(fresh, leftover, options)
    everything = everything.persist(StorageLevel.MEMORY_AND_DISK)
    found = Tables()
    found._persisted.append(everything)  # noqa: SLF001 (its own module)
    try:
        _find(found, everything, state, batch_id, consistency, onTableError, resume, parsed, leftover)
    except BaseException:
        found.close()
        raise
    if state is not None:
        state.keep(found)
    return found


def _checked(
    frame: DataFrame,
    state: SyncState | None,
    batch_id: int | None,
    consistency: str,
    on_table_error: str,
    options: Mapping[str, OptionValue],
) -> Options:
    if frame.isStreaming:
        msg = (
            "tables() takes one micro-batch: call it in foreachBatch, "
            "stream.writeStream.foreachBatch(lambda batch, batch_id: …)"
        )
        raise SchemaError(msg)
    for name, value, allowed in (
        ("consistency", consistency, ("latest", "resolved")),
        ("onTableError", on_table_error, ("fail", "skip")),
    ):
        if value not in allowed:
            msg = f"Option '{name}': expected {' or '.join(allowed)}, got '{value}'"
            raise OptionError(msg)
    if state is None and consistency == "resolved":
        msg = "consistency='resolved' needs state=SyncState(folder): it remembers watermarks, and what is held back"
        raise OptionError(msg)
    if state is not None and batch_id is None:
        msg = "state=… needs batch_id=…, the number of the micro-batch that Spark passes to foreachBatch"
        raise OptionError(msg)
    parsed = frame_options(option_texts(options))
    if parsed.output_format != "changelog":
        msg = "Option 'outputFormat': tables() returns the changelog of each table: leave it out"
        raise OptionError(msg)
    if parsed.mode == "PERMISSIVE":
        msg = (
            "mode=PERMISSIVE is not supported by tables(): a record that cannot be read belongs to no table. Keep the "
            "records themselves in a bronze table (outputFormat=record), and read them with FAILFAST or DROPMALFORMED"
        )
        raise OptionError(msg)
    return parsed


def _is_record_output(frame: DataFrame) -> bool:
    return {"_tables", "_event_types", "_watermark_ts", "_value"} <= set(frame.columns)


def _some(options: Mapping[str, OptionValue], names: Iterable[str]) -> dict[str, OptionValue]:
    wanted = {name.lower() for name in names}
    return {name: value for name, value in options.items() if name.lower() in wanted}


def _with_held(fresh: DataFrame, leftover: Leftover, options: Mapping[str, OptionValue]) -> DataFrame:
    held = decode(leftover.held, outputFormat="record", **_some(options, _OF_RECORDS))
    return fresh.unionByName(held.withColumn("_held", sf.lit(True)))  # noqa: FBT003 (Spark's)


def _find(
    found: Tables,
    everything: DataFrame,
    state: SyncState | None,
    batch_id: int | None,
    consistency: str,
    on_table_error: str,
    resume: Collection[str],
    options: Options,
    leftover: Leftover | None,
) -> None:
    before = Progress() if leftover is None else leftover.progress
    progress = before
    if state is not None and batch_id is not None:
        progress = _progress(everything, before, batch_id, state.partitions)
        found.resolved_ts = progress.resolved_ts
    held_from = None  # the commit-ts from which changes are held back
    if consistency == "resolved":
        held_from = 0 if progress.resolved_ts is None else progress.resolved_ts + 1
        if progress.resolved_ts is None:
            warn(f"consistency=resolved: {progress.without_watermark()}, so that all changes are held back")
    records, _ = records_of(everything, options)
    there = find_tables(
        surveyed(records, options, held_from), _no_records() if leftover is None else leftover.ddl, options
    )
    if there.corrupt is not None:
        warn(f"mode=DROPMALFORMED: {there.corrupt}")
    found.ddl = {str(name): events for name, events in there.ddl.items()}
    skipped = {name: reason for name, reason in before.skipped.items() if name not in resume}
    for name in sorted({*there.schemas, *there.errors, *(name for name in there.ddl if name.table)}):
        reason = skipped.get(str(name))
        if reason is not None:
            found.errors[str(name)] = TiCDCSourceError(f"{name} is left out since an earlier micro-batch: {reason}")
        elif name in there.errors:
            _report(found, name, there.errors[name], on_table_error)
        elif name in there.schemas:
            changes = _changes(everything, name, there, options, before, held_from)
            _add(found, name, changes, on_table_error)
        else:
            found[str(name)] = everything.sparkSession.createDataFrame([], to_spark(metadata_schema(options)))
    if state is not None:
        skipped |= {name: str(error) for name, error in found.errors.items() if name not in skipped}
        held = _held(records, options, held_from)
        state.save(everything.sparkSession, Leftover(replace(progress, skipped=skipped), there.ddl_records, held))


def _no_records() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=RECORD)


def _progress(everything: DataFrame, before: Progress, batch_id: int, partitions: int | None) -> Progress:
    marks = (
        everything.groupBy("_topic", "_partition")
        .agg(sf.max("_watermark_ts").alias("mark"), sf.max("_partitions").alias("partitions"))
        .collect()
    )
    counts = [row["partitions"] for row in marks if row["partitions"] is not None]
    watermarks = [
        (TopicPartition(row["_topic"] or "", row["_partition"] if row["_partition"] is not None else -1), row["mark"])
        for row in marks
        if row["mark"] is not None
    ]
    return before.after(batch_id, watermarks, partitions if partitions is not None else max(counts, default=None))


def _held(records: DataFrame, options: Options, held_from: int | None) -> DataFrame:
    if held_from is None:
        return records.limit(0)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return held_back(batches, options, held_from)

    return records.mapInArrow(run, to_spark(RECORD))


def _changes(
    everything: DataFrame,
    name: TableName,
    there: FoundTables,
    options: Options,
    before: Progress,
    held_from: int | None,
) -> DataFrame:
    """Return the changes of a table: of a record that was held back, only those that were not returned before."""
    mine = everything.where(sf.exists("_tables", lambda table: sf.lower(table) == str(name).lower()))
    options = replace(options, tables=((name.database, name.table),))
    found = FrameSample(None, there.ddl_partitions)
    parts = [(mine, options)]
    if held_from is not None:
        options = replace(options, ending_commit_ts=held_from)
        first = None if before.resolved_ts is None else before.resolved_ts + 1
        parts = [(mine.where("not _held"), options), (mine.where("_held"), replace(options, starting_commit_ts=first))]
    frames = []
    for part, its_options in parts:
        records, unknown = records_of(part, its_options)
        frames.append(decoded(records, there.schemas[name], found, its_options, unknown))
    return frames[0] if len(frames) == 1 else frames[0].union(frames[1])


def _add(found: Tables, name: TableName, changes: DataFrame, on_table_error: str) -> None:
    if on_table_error == "skip":
        changes = changes.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            changes.write.format("noop").mode("overwrite").save()
        except PySparkException as error:
            changes.unpersist()
            _report(found, name, TiCDCSourceError(str(error)[:_LONGEST_REASON]), on_table_error)
            return
        found._persisted.append(changes)  # noqa: SLF001 (its own module)
    found[str(name)] = changes


def _report(found: Tables, name: TableName, error: TiCDCSourceError, on_table_error: str) -> None:
    if on_table_error == "fail":
        msg = f"Table {name}: {error}. onTableError=skip leaves the table out, and reads the others"
        raise type(error)(msg)
    warn(f"onTableError=skip: table {name} is left out from now on: {error}")
    found.errors[str(name)] = error
