"""Input partitions: what the driver tells the workers, and how a worker reads one. Batch and stream share them."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from ticdc_source.driver.context import fetch_settings
from ticdc_source.driver.plan import Known, reading_of
from ticdc_source.errors import SchemaError
from ticdc_source.events import Chunk
from ticdc_source.kafka import FETCHERS
from ticdc_source.options.kafka_client import client_config
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.pipeline.coalesce import joined
from ticdc_source.pipeline.metrics import Counters, metrics_line, write_lines
from ticdc_source.pipeline.read import read
from ticdc_source.protocols.large_messages import small_portions

Item = TypeVar("Item")

__all__ = [
    "TiCDCPartition",
    "read_partition",
]

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


def read_partition(partition: InputPartition, schema: pa.Schema, options: Options) -> Iterator[pa.RecordBatch]:
    """Read one input partition on a worker.

    Raises:
        TiCDCSourceError: see `reading.read` and `kafka.Fetcher.fetch`.
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
    with FETCHERS.borrow(config, fetch_settings(options, partition.known.protocol), fresh=again) as fetcher:
        for one, lag in zip_longest(partition.ranges, partition.lags):
            reading.counters = Counters()
            lowest = partition.known.ddl_from.get(one.topic, one.partition)
            reading.takes_ddl = reading.decoder.ddl_partition is not None or one.partition == lowest
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
