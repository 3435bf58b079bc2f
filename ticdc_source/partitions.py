"""Input partitions: what the driver tells the workers, and how a worker reads one. Batch and stream share them."""

from __future__ import annotations

import difflib
import gc
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from ticdc_source.client_config import client_config
from ticdc_source.errors import OptionError, SchemaError, TiCDCSourceError
from ticdc_source.events import Chunk
from ticdc_source.inference import infer_table, take_sample
from ticdc_source.joining import joined
from ticdc_source.kafka import Fetcher, borrowed_fetcher
from ticdc_source.metrics import Counters, metrics_line, write_lines
from ticdc_source.offsets import OffsetRange
from ticdc_source.options import Options
from ticdc_source.planning import Known, known_of_schema, known_of_table, layout_of, reading_of
from ticdc_source.protocols.large_messages import small_portions
from ticdc_source.reading import read
from ticdc_source.schema import TableSchema
from ticdc_source.tables import TableFilter
from ticdc_source.topics import TopicPartition

Item = TypeVar("Item")

__all__ = [
    "TiCDCPartition",
    "ddl_from",
    "driver_fetcher",
    "known_before_reading",
    "read_partition",
    "warn_of_missing_ddl",
]

# Records a chunk: many enough to share what a call of Arrow costs, few enough that what is made of them dies young. A
# record of open-protocol holds several events.
_CHUNK_RECORDS = {"open-protocol": 500, "canal-json": 4000, "debezium": 4000}

# Record batches are joined up to this many bytes: what a record batch costs beside its rows is far less than that.
_JOINED_BYTES = 8 << 20


class TiCDCPartition(InputPartition):
    """An input partition: ranges to read one after the other, none where there is nothing, and what is known.

    `lags` says of each range how many offsets were behind its end when it was planned, where that is known.
    """

    def __init__(self, ranges: Sequence[OffsetRange], known: Known, lags: Sequence[int] = ()) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)
        self.known = known
        self.lags = tuple(lags)


def driver_fetcher(options: Options) -> Fetcher:
    """Return a fetcher for sampling."""
    return Fetcher(client_config(options, driver=True), **_fetch_settings(options))


def known_before_reading(schema: pa.Schema, options: Options, ranges: Sequence[OffsetRange]) -> Known:
    """Return what is known of the messages: from an inferred schema's metadata, else from a sample of the ranges.

    Raises:
        OptionError: the sample holds several tables, or protocols.
    """
    known = known_of_schema(schema, options)
    if known is not None:
        return known
    if options.output_format == "event":  # each message tells its types; `Knowledge` asks for no other protocol here
        return Known(options.protocol)
    with driver_fetcher(options) as fetcher:
        sample = take_sample(ranges, fetcher.fetch, options)
    if sample is None:
        return Known(None if options.protocol == "auto" else options.protocol, provisional=True)
    try:
        found = infer_table(sample)
    except TiCDCSourceError as error:
        if isinstance(error, OptionError) and sample.rows:  # several tables
            raise
        warnings.warn(str(error), stacklevel=2)
        table = TableFilter(options.tables or ()).exact
        # Of a table that is named there is no more to learn, but for debezium the types that DDL events tell.
        return Known(sample.decoder.name, table, provisional=table is None or sample.decoder.ddl_tells)
    _report_unknown(layout_of(schema, options).data_fields(), found)
    return known_of_table(found, sample.decoder.name)


def _report_unknown(fields: Sequence[pa.Field], found: TableSchema) -> None:
    """Warn of columns that the user's schema names and no message of the sample has: they are NULL."""
    there = {column.name.lower(): column.name for column in found.columns}
    for field in fields:
        if field.name.lower() not in there:
            near = difflib.get_close_matches(field.name.lower(), there, n=1)
            hint = f"; did you mean {there[near[0]]}?" if near else ""
            msg = f"The schema's column {field.name} is in no message of {found.table} that was sampled{hint}"
            warnings.warn(f"{msg} It is NULL where a message lacks it", stacklevel=2)


def ddl_from(places: Iterable[TopicPartition]) -> dict[str, int]:
    """Return the lowest partition of each topic, whose copy of a broadcast DDL event is kept."""
    lowest: dict[str, int] = {}
    for place in places:
        lowest[place.topic] = min(place.partition, lowest.get(place.topic, place.partition))
    return lowest


def warn_of_missing_ddl(known: Known, options: Options) -> None:
    """Warn where DDL is asked for and partition 0, which canal-json alone sends it to, is not read."""
    if options.output_format != "event":
        return
    without = [topic for topic, partition in known.ddl_from.items() if partition != 0]
    if without:
        what = "has its DDL in partition 0 only" if known.protocol == "canal-json" else "may have DDL in partition 0"
        warnings.warn(f"Partition 0 of {', '.join(without)} is not read; {known.protocol} {what}", stacklevel=2)


def read_partition(partition: InputPartition, schema: pa.Schema, options: Options) -> Iterator[pa.RecordBatch]:
    """Read one input partition on a worker.

    Raises:
        TiCDCSourceError: see `reading.read` and `kafka.Fetcher`.
    """
    if not isinstance(partition, TiCDCPartition) or not partition.ranges:
        return
    if partition.known.protocol is None:
        msg = "the protocol is not known, as there was no record when the read was planned; set 'protocol'"
        raise SchemaError(msg)
    reading = reading_of(schema, options, partition.known)
    context = TaskContext.get()
    again = context is not None and context.attemptNumber() > 0
    config = client_config(options, driver=False)
    lines = []
    with borrowed_fetcher(config, fresh=again, **_fetch_settings(options, partition.known.protocol)) as fetcher:
        for one, lag in zip_longest(partition.ranges, partition.lags):
            reading.counters = Counters()
            lowest = partition.known.ddl_from.get(one.topic, one.partition)
            reading.takes_ddl = not reading.decoder.broadcasts_ddl or one.partition == lowest
            chunks: Iterator[Chunk] = fetcher.fetch(one)
            if options.claim_check_location:
                chunks = small_portions(chunks, options.value_compression)
            # While a chunk is decoded thousands of parsed rows are alive, none in a cycle: looking for one is costly.
            # In between there is little to look at; and without that, what failures leave would pile up.
            batches = read(_with_gc(chunks, on=gc.isenabled()), reading)
            most_bytes = min(options.max_bytes_per_batch, _JOINED_BYTES)
            yield from _with_gc(joined(batches, options.max_rows_per_batch, most_bytes), on=False)
            lines.append(metrics_line(reading.counters, one, lag, _task(context), reading.commits.end))
    if options.metrics_path:
        write_lines(options.metrics_path, "task", lines)


def _with_gc(items: Iterator[Item], *, on: bool) -> Iterator[Item]:
    """Make each item with the garbage collector on or off; who takes them finds it as it was."""
    while True:
        with _gc(on=on):
            item = next(items, None)
        if item is None:
            return
        yield item


@contextmanager
def _gc(*, on: bool) -> Iterator[None]:
    before = gc.isenabled()
    _switch_gc(on=on)
    try:
        yield
    finally:
        _switch_gc(on=before)


def _switch_gc(*, on: bool) -> None:
    (gc.enable if on else gc.disable)()


def _task(context: TaskContext | None) -> dict[str, Any]:
    """Say which task of which micro-batch this is; a batch read has no query and no micro-batch."""
    if context is None:
        return {}
    batch = context.getLocalProperty("streaming.sql.batchId")
    return {
        "query": context.getLocalProperty("sql.streaming.queryId"),
        "batch": int(batch) if batch else None,
        "stage": context.stageId(),
        "task": context.partitionId(),
        "attempt": context.attemptNumber(),
        "time": time.time(),
    }


def _fetch_settings(options: Options, protocol: str = "canal-json") -> dict[str, Any]:
    return {
        "max_records": min(_CHUNK_RECORDS[protocol], options.max_rows_per_batch),
        "max_bytes": options.max_bytes_per_batch,
        "include_headers": options.include_headers,
        "poll_timeout_ms": options.kafka_consumer_poll_timeout_ms,
        "fail_on_data_loss": options.fail_on_data_loss,
    }
