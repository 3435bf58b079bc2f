"""`tables`: a micro-batch of records, fetched from Kafka once → the typed changes of each of its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from types import MappingProxyType, TracebackType
from typing import Any, Literal

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from ticdc_source.errors import OptionError, SchemaError, TiCDCSourceError, from_one_frame, warn
from ticdc_source.options.names import is_of_messages
from ticdc_source.options.options import Options, OptionValue, option_texts
from ticdc_source.options.topics import TopicPartition, parse_table
from ticdc_source.pipeline.packed_records import PACKED, are_packed
from ticdc_source.pipeline.record_frames import RECORD, held_back, protocols_in
from ticdc_source.planning.frame_sample import FoundTables, find_tables, frame_options, metadata_schema
from ticdc_source.planning.watermarks import Progress
from ticdc_source.protocols import PROTOCOLS, originals_of_sanitized
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.tidb.source import DEFINITION
from ticdc_source.spark.frames import (
    decode,
    decoded,
    packed,
    packed_schema,
    rows_of_packed,
    surveyed,
    telling,
    to_records,
)
from ticdc_source.spark.schema import to_spark
from ticdc_source.spark.sync_state import Leftover, SyncState

Consistency = Literal["latest", "resolved"]
OnTableError = Literal["fail", "skip", "report"]
_LONGEST_REASON = 2000  # characters of an error of Spark that are kept


class Tables(dict[str, DataFrame]):
    """The changes of each table in a micro-batch, by table name, such as `shop.orders`.

    If the micro-batch has only DDL for a table, its DataFrame is empty and has only the metadata columns.

    As a context manager, it releases the records of the micro-batch at the end. With a `SyncState`, so does the next
    call of `tables`.

    Attributes:
        ddl: the DDL events of each table, oldest first: each once per stream with a `SyncState`, else once per
            micro-batch. DDL of a database is under `database shop`.
        resolved_ts: every change of every selected table up to and including this commit-ts has been read, except those
            of tables in `errors` and dropped records. None without a `SyncState`, and while a topic partition has had
            no watermark.
        protocol: the protocol of the records; None if the option is `auto`, and `on_table_error` is not `report` or all
            records are bad.
        resolved_before: the `resolved_ts` of the previous micro-batch.
        errors: why tables cannot be read, unless `on_table_error` is and was `fail`.
        bad_record_error: the error of the first bad record of an unknown table, if it was not raised. The
            `_event_types` of such records have `corrupt`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ddl: Mapping[str, Sequence[DDLEvent]] = {}
        self.resolved_ts: int | None = None
        self.resolved_before: int | None = None
        self.protocol: str | None = None
        self.errors: dict[str, TiCDCSourceError] = {}
        self._records: DataFrame | None = None
        self.bad_record_error: TiCDCSourceError | None = None
        self._changes: Callable[..., DataFrame] = lambda name, **_: self[name]
        self._persisted: list[DataFrame] = []

    def records(self, where: Column | None = None) -> DataFrame:
        """Return the records of the micro-batch, and those held back before it, as in `outputFormat=record`.

        `where` may use `_topic`, `_partition`, `_tables`, `_event_types` and `_watermark_ts`. The column `_held` says
        whether a record was held back.
        """
        assert self._records is not None  # noqa: S101 (for mypy)
        return rows_of_packed(self._records if where is None else self._records.where(where))

    def tolerant(self, name: str, *, keys_alone: bool = False) -> DataFrame:
        """Return the changes of a table, and a row with `_corrupt_record` for each bad record, as `mode=PERMISSIVE`.

        With `keys_alone`, messages with only the key are not bad records, as with `onHandleKeyOnly=null`.
        """
        return self._changes(name, tolerant=True, keys_alone=keys_alone)

    def to_merge(self, name: str, keys: Iterable[str]) -> DataFrame:
        """Return the changes of a table without pre-images that have the values of their post-images in `keys`."""
        return self._changes(name, merged_by=tuple(keys))

    def close(self) -> None:
        """Release the records of the micro-batch; afterwards the DataFrames read Kafka again."""
        while self._persisted:
            self._persisted.pop().unpersist()

    def persist(self, frame: DataFrame) -> DataFrame:
        self._persisted.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return self._persisted[-1]

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
    on_table_error: OnTableError = "fail",
    resume: Mapping[str, int] | None = None,
    table_options: Mapping[str, Mapping[str, OptionValue]] | None = None,
    known_ddl: Mapping[str, Sequence[DDLEvent]] = MappingProxyType({}),
    **options: OptionValue,
) -> Tables:
    """Return the typed changes of each table in a micro-batch, including new tables.

    Call it in `foreachBatch` with a micro-batch of a stream with `outputFormat=record`, or of Spark's Kafka source. The
    micro-batch is fetched once and persisted. One pass over it finds tables, all their columns, and DDL; a stream with
    the schema `packed_schema()` needs no such pass, and its records come in fewer rows.

    Args:
        frame: the records, as for `decode`.
        state: what one micro-batch leaves for the next: watermarks, DDL (which determines types and labels), types of
            values, held-back records and skipped tables. Without it, each micro-batch stands alone.
        batch_id: the number of the micro-batch, which Spark passes to `foreachBatch`; required with `state`.
        consistency: `latest` returns all changes of the micro-batch. `resolved` returns only changes up to the resolved
            ts and keeps the rest for a later micro-batch, so that all changes returned so far are a state of TiDB
            across all tables. It needs `state` and a feed with watermarks, and for Spark's Kafka source
            `SyncState(…, partitions=n)`. Rows of `snapshot=initial` are not kept: together they are such a state.
        on_table_error: `fail` raises an error if a table cannot be read. `skip` leaves the table out and reports it in
            `Tables.errors`, with a warning the first time. With `state`, it stays out, even under `fail`, until
            `resume` names it. As Spark decodes lazily, `skip` decodes and persists each table before `tables` returns,
            and any error of Spark skips the table. `report` reports schema errors of tables in `Tables.errors` and
            leaves the rest to the caller: it remembers nothing, errors in values are raised when Spark decodes them,
            and bad records of unknown tables are dropped (`Tables.bad_record_error`).
        resume: skipped tables to read again, once their missed changes were loaded by other means, each with the number
            of the micro-batch in which it was skipped: `{"shop.orders": 17}`. It has no effect on a later skip.
        table_options: options of single tables, in addition to those of all, such as
            `{"shop.orders": {"schemaHints": "amount decimal(12,2)"}}`.
        known_ddl: DDL known from elsewhere, by table name. It supplies types and keys like DDL in the topic, and is not
            in `ddl` of the result. A table that the topic spells differently gets this name.
        options: the options of the source, such as `tables="shop.*"` and `timeZone="UTC"`. `protocol` is that of
            messages; rows of TiDB are recognized.

    Example:
        ```python
        import ticdc_source

        with ticdc_source.tables(records, tables="shop.*", timeZone="UTC") as changes:
            for name, frame in changes.items():
                print(name, frame.count())
        ```

    Raises:
        OptionError: an option is wrong.
        SchemaError: the frame is a stream or has no `value`.
        DecodeError: a record cannot be read, so its table is unknown.
        TiCDCSourceError: a table cannot be read, and `on_table_error` is `fail`.
        CheckpointError: the folder of `state` does not belong to this stream.
    """
    parsed = _checked(frame, state, batch_id, consistency, on_table_error, options)
    own = _own_options(options, table_options or {})
    spark, number = frame.sparkSession, batch_id or 0
    with _released_on_error() as result:
        before = Leftover(Progress(), to_records([]), None) if state is None else state.before(spark, number)
        held = None if before.held is None else _as_packed(before.held, options)
        records = _planned_as_one(result.persist(_with_held(_as_packed(frame, options), held)))
        if on_table_error == "report":
            result.protocol = _protocol_of(records, parsed)
            parsed, own = _with_protocol(result.protocol, parsed, own)
        progress, held_from = before.progress, None
        if state is not None:
            progress = _progress(records, progress, number, state.partitions)
            held_from = _held_from(records, progress, consistency)
            result.resolved_ts, result.resolved_before = progress.resolved_ts, before.progress.resolved_ts
        batch = _MicroBatch(
            records,
            parsed,
            own,
            before.progress,
            is_told=held_from is None
            and not _are_records(frame)
            and not any(each.claim_check_location for each in (parsed, *own.values())),
            held_from=held_from,
            has_held=held is not None,
            known_ddl=known_ddl,
        )
        content = batch.content(before.ddl, on_table_error)
        resumed = {name.lower(): skipped_in for name, skipped_in in (resume or {}).items()}
        skipped = {name: skip for name, skip in before.progress.skipped.items() if resumed.get(name.lower()) != skip[0]}
        batch.fill(result, content, on_table_error, skipped)
        if state is not None:
            if on_table_error != "report":
                skipped |= {name: (number, str(error)) for name, error in result.errors.items() if name not in skipped}
            progress = replace(
                progress,
                skipped=skipped,
                tables=progress.tables | result.keys() | result.errors.keys(),
                column_types=content.column_types,
            )
            state.save(spark, Leftover(progress, content.ddl_records, batch.held()))
    if state is not None:
        state.keep(result.close)
    return result


@contextmanager
def _released_on_error() -> Iterator[Tables]:
    result = Tables()
    try:
        yield result
    except BaseException:
        result.close()
        raise


@from_one_frame
def replayed(
    kept: DataFrame,
    /,
    *,
    state: SyncState,
    batch_id: int,
    resolved_before: int | None,
    held_from: int | None,
    table_options: Mapping[str, Mapping[str, OptionValue]] | None = None,
    known_ddl: Mapping[str, Sequence[DDLEvent]] = MappingProxyType({}),
    **options: OptionValue,
) -> Tables:
    """Return the changes of records kept while a table was set aside, as `tables` returned them at the time.

    They are typed by the state, which does not change.

    Args:
        kept: the records of consecutive micro-batches, as in `Tables.records`, each once; `_held` says whether the
            record was held back before its first micro-batch here.
        state: the state of the stream.
        batch_id: the number of the next micro-batch.
        resolved_before: the resolved ts before the first of them: changes of held-back records up to it were returned
            earlier.
        held_from: the commit-ts from which the last of them held changes back; None if it held none back.
        table_options, known_ddl, options: as for `tables`.
    """
    parsed = _checked(kept, state, batch_id, "latest", "report", options)
    own = _own_options(options, table_options or {})
    before = state.before(kept.sparkSession, batch_id)
    place = ("_topic", "_partition", "_offset")
    with _released_on_error() as result:
        ordered = kept.repartition(*place[:2]).sortWithinPartitions(*place)
        fresh, held = (packed(ordered.where(condition)) for condition in ("NOT _held", "_held"))
        records = result.persist(_with_held(fresh, held))
        result.protocol = _protocol_of(records, parsed)
        parsed, own = _with_protocol(result.protocol, parsed, own)
        batch = _MicroBatch(
            records, parsed, own, replace(before.progress, resolved_ts=resolved_before), held_from=held_from,
            has_held=True, known_ddl=known_ddl,
        )  # fmt: skip
        batch.fill(result, batch.content(_ddl_before(before.ddl, records), "report"), "report", {})
    return result


def _ddl_before(ddl: pa.RecordBatch, records: DataFrame) -> pa.RecordBatch:
    """Return the records with DDL that are not in the micro-batch, whose DDL is new."""
    place = ("_topic", "_partition", "_offset")
    with_ddl = rows_of_packed(records.where(sf.array_contains("_event_types", "ddl"))).select(*place).collect()
    again = {tuple(row) for row in with_ddl}
    places = zip(*(ddl.column(name[1:]).to_pylist() for name in place), strict=True)
    return ddl.filter(pa.array([one not in again for one in places], pa.bool_()))


def _held_from(records: DataFrame, progress: Progress, consistency: str) -> int | None:
    """Return the commit-ts from which changes are held back; None if none are."""
    laggard = progress.laggard()
    if laggard is not None:
        warn(laggard)
    if consistency == "latest":
        return None
    # Rows of TiDB, as of one TSO, come before all messages.
    if not progress.watermarks and not records.where(f"_partition = {DEFINITION}").isEmpty():
        return None
    if progress.resolved_ts is None:
        warn(f"consistency=resolved: {progress.without_watermark()}, so all changes are held back")
        return 0
    return progress.resolved_ts + 1


def _checked(
    frame: DataFrame,
    state: SyncState | None,
    batch_id: int | None,
    consistency: str,
    on_table_error: str,
    options: Mapping[str, OptionValue],
) -> Options:
    if frame.isStreaming:
        raise SchemaError(
            "tables() takes one micro-batch: call it in foreachBatch, "
            "stream.writeStream.foreachBatch(lambda batch, batch_id: …)"
        )
    for name, value, allowed in (
        ("consistency", consistency, ("latest", "resolved")),
        ("on_table_error", on_table_error, ("fail", "skip", "report")),
    ):
        if value not in allowed:
            raise OptionError(f"{name}={value!r}: it must be {', '.join(map(repr, allowed[:-1]))} or {allowed[-1]!r}")
    if state is None and consistency == "resolved":
        raise OptionError(
            "consistency='resolved' needs state=SyncState(folder), which keeps watermarks and held-back changes"
        )
    if state is not None and batch_id is None:
        raise OptionError("state=… needs batch_id=…, the number of the micro-batch that Spark passes to foreachBatch")
    parsed = frame_options(option_texts(options))
    if parsed.output_format != "changelog":
        raise OptionError(
            "Option 'outputFormat': tables() always returns the changelog of each table; remove the option"
        )
    if parsed.mode == "PERMISSIVE":
        raise OptionError(
            "mode=PERMISSIVE is not supported by tables(): a bad record belongs to no table. Keep the records "
            "themselves in a bronze table (outputFormat=record), and read them with FAILFAST or DROPMALFORMED"
        )
    return parsed


def _own_options(
    options: Mapping[str, OptionValue], table_options: Mapping[str, Mapping[str, OptionValue]]
) -> dict[str, Options]:
    return {
        str(parse_table(name)).lower(): frame_options(option_texts({**options, **own}))
        for name, own in table_options.items()
    }


def _protocol_of(records: DataFrame, options: Options) -> str | None:
    """Return the protocol of records; None if all are bad. A task with only bad records could not detect it."""
    if options.protocol != "auto":
        return options.protocol
    names = records.select(PACKED.names).mapInArrow(protocols_in, "protocol string").distinct().collect()
    found = sorted(row[0] for row in names)
    if len(found) > 1:
        raise OptionError(
            f"The topics hold more than one protocol: {', '.join(found)}. Copy each with a sync of its own"
        )
    return next(iter(found), None)


def _with_protocol(
    protocol: str | None, options: Options, own: Mapping[str, Options]
) -> tuple[Options, dict[str, Options]]:
    """Set the protocol in options; if all records are bad, any decoder reports them."""
    protocol = protocol or next(iter(PROTOCOLS))
    return replace(options, protocol=protocol), {name: replace(each, protocol=protocol) for name, each in own.items()}


def _are_records(frame: DataFrame) -> bool:
    return {"_tables", "_event_types", "_watermark_ts", "_partitions", "_value"} <= set(frame.columns)


def _as_packed(frame: DataFrame, options: Mapping[str, OptionValue]) -> DataFrame:
    if are_packed(frame.columns):
        return _with_original_names(frame, options)
    if _are_records(frame):
        return _with_original_names(packed(frame), options)
    own_options = {name: value for name, value in options.items() if is_of_messages(name)}
    return decode(frame, packed_schema(), outputFormat="record", **own_options)


def _with_original_names(records: DataFrame, options: Mapping[str, OptionValue]) -> DataFrame:
    """Give records of avro the names in `tableDDL`, which the read of the records may have lacked."""
    parsed = frame_options(option_texts(options))
    renamed = originals_of_sanitized(parsed.table_ddl)
    if not renamed or _protocol_of(records, parsed) != "avro":
        return records

    def original(name: Column) -> Column:
        found = name
        for short, table in renamed.items():
            if short.database:
                found = sf.when(sf.lower(name) == str(short).lower(), sf.lit(str(table))).otherwise(found)
            else:  # of any database
                matches = sf.lower(name).endswith(f".{short.table.lower()}")
                database = sf.substring_index(name, ".", 1)
                own = str(TableName("a", table.table)).removeprefix("a")
                found = sf.when(matches, sf.concat(database, sf.lit(own))).otherwise(found)
        return found

    return records.withColumn("_tables", sf.transform("_tables", original))


def _with_held(fresh: DataFrame, held: DataFrame | None) -> DataFrame:
    frames = ((fresh, False), (held, True))
    told = (frame.withColumn("_held", sf.lit(value)) for frame, value in frames if frame is not None)
    return reduce(DataFrame.unionByName, told)


def _planned_as_one(records: DataFrame) -> DataFrame:
    """Tell Spark's planner if there is only one partition, so that it does not shuffle rows to group them.

    A micro-batch with few records is one input partition, which the scan does not report.
    """
    jframe: Any = getattr(records, "_jdf", None)  # Spark Connect has none
    if jframe is None or jframe.queryExecution().toRdd().getNumPartitions() != 1:
        return records
    return records.coalesce(1)


def _progress(records: DataFrame, before: Progress, batch_id: int, partitions: int | None) -> Progress:
    marks = (
        # Held-back records were counted when they were new; one with 0 has its watermark in another record.
        records.where(~sf.col("_held") & (sf.coalesce("_partitions", sf.lit(1)) > 0))
        .groupBy("_topic", "_partition")
        .agg(sf.max("_watermark_ts").alias("mark"), sf.max("_partitions").alias("partitions"))
        .collect()
    )
    counts = [row["partitions"] for row in marks if row["partitions"] is not None]
    watermarks = [
        (TopicPartition(row["_topic"] or "", row["_partition"] if row["_partition"] is not None else -1), row["mark"])
        for row in marks
    ]
    return before.after(batch_id, watermarks, partitions if partitions is not None else max(counts, default=None))


@dataclass
class _MicroBatch:
    """The records of a micro-batch, and those that were held back before it.

    Attributes:
        records: packed records, persisted, with `_held`.
        options: the options of `tables`.
        own: the options of single tables, by lower-case name.
        before: the progress before it.
        is_told: whether the records that tell the schema are marked.
        held_from: the commit-ts from which changes are held back; None if none are.
        has_held: whether some of the records may have been held back before it.
        known_ddl: DDL known from elsewhere.
    """

    records: DataFrame
    options: Options
    own: Mapping[str, Options]
    before: Progress
    is_told: bool = False
    held_from: int | None = None
    has_held: bool = False
    known_ddl: Mapping[str, Sequence[DDLEvent]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Name the columns once, not for each of maybe hundreds of tables."""
        self.named = self.records.withColumn("_names", sf.transform("_tables", sf.lower))

    def options_of(self, name: TableName) -> Options:
        return self.own.get(str(name).lower(), self.options)

    def content(self, earlier_ddl: pa.RecordBatch, on_table_error: str) -> FoundTables:
        told = [event.table for events in self.known_ddl.values() for event in events]
        earlier_tables = [*told, *map(parse_table, [*self.known_ddl, *sorted(self.before.tables)])]
        records = (
            telling(self.named)
            if self.is_told
            else surveyed(self.named.select(PACKED.names), self.options, self.held_from)
        )
        reports = on_table_error == "report"
        # Messages with only the key at least tell the key; only their decoding fails.
        tolerant = replace(self.options, mode="DROPMALFORMED", on_handle_key_only="null")
        options = tolerant if reports else self.options
        content = find_tables(
            records, earlier_ddl, options, earlier_tables, self.before.column_types,
            options_of=self.options_of, known_ddl={name.lower(): ddl for name, ddl in self.known_ddl.items() if ddl},
        )  # fmt: skip
        if content.corrupt is not None and not reports:
            warn(f"mode=DROPMALFORMED: {content.corrupt}")
        return content

    def fill(
        self, result: Tables, content: FoundTables, on_table_error: str, skipped: Mapping[str, tuple[int, str]]
    ) -> None:
        result.ddl = {str(name): events for name, events in content.ddl.items()}
        result._records, result.bad_record_error = self.records, content.corrupt  # noqa: SLF001
        result._changes = lambda name, **how: self._changes(parse_table(name), content, **how)  # noqa: SLF001
        with_ddl = (name for name in content.ddl if name.table)
        for name in sorted({*content.schemas, *content.errors, *with_ddl}):
            skip = skipped.get(str(name))
            if skip is not None:
                msg = f"{name} has been left out since micro-batch {skip[0]}: {skip[1]}"
                result.errors[str(name)] = TiCDCSourceError(msg)
            elif name in content.errors:
                _report(result, name, content.errors[name], on_table_error)
            elif name not in content.schemas:
                nothing = self.records.sparkSession.createDataFrame([], to_spark(metadata_schema(self.options)))
                result[str(name)] = nothing
            else:
                changes = self._changes(name, content)
                error = _failure(result.persist(changes)) if on_table_error == "skip" else None
                if error is None:
                    result[str(name)] = changes
                else:
                    _report(result, name, error, on_table_error)

    def _changes(
        self,
        name: TableName,
        content: FoundTables,
        *,
        tolerant: bool = False,
        keys_alone: bool = False,
        merged_by: tuple[str, ...] = (),
    ) -> DataFrame:
        """Return the changes of a table; of held-back records, only those not returned before."""
        records = self.named.where(sf.array_contains("_names", str(name).lower()))
        options = replace(self.options_of(name), tables=((name.database, name.table),))
        schema = content.schemas[name]
        if tolerant:
            on_key_only = "null" if keys_alone else options.on_handle_key_only
            options = replace(options, mode="PERMISSIVE", on_handle_key_only=on_key_only)
            schema = schema.append(pa.field(options.column_name_of_corrupt_record, pa.string()))
        if self.held_from is not None:
            given = options.ending_commit_ts
            end = min(given, self.held_from) if isinstance(given, int) else self.held_from
            options = replace(options, ending_commit_ts=end)
        parts = [(records, options)]
        # Even if nothing is held back now: `consistency` may have been `resolved` before.
        if self.held_from is not None or self.has_held:
            resolved = self.before.resolved_ts
            start = max(options.starting_commit_ts or 0, 0 if resolved is None else resolved + 1)
            parts = [
                (records.where("not _held"), options),
                (records.where("_held"), replace(options, starting_commit_ts=start)),
            ]
        frames = (decoded(part.select(PACKED.names), schema, None, its, merged_by) for part, its in parts)
        return reduce(DataFrame.union, frames)

    def held(self) -> DataFrame | None:
        options, held_from = self.options, self.held_from
        if held_from is None:
            return None

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return held_back(batches, options, held_from)

        return self.named.select(PACKED.names).mapInArrow(run, to_spark(RECORD))


def _failure(changes: DataFrame) -> TiCDCSourceError | None:
    try:
        changes.write.format("noop").mode("overwrite").save()
    except PySparkException as error:
        changes.unpersist()
        return TiCDCSourceError(str(error)[:_LONGEST_REASON])
    return None


def _report(result: Tables, name: TableName, error: TiCDCSourceError, on_table_error: str) -> None:
    if on_table_error == "fail":
        raise type(error)(f"Table {name}: {error}. Set on_table_error='skip' to read only the other tables")
    warn(f"on_table_error='skip': table {name} is left out from now on: {error}")
    result.errors[str(name)] = error
