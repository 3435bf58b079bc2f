"""`read_arrow`: the rows of a batch read in this process, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from ticdc_source.errors import each_from_one_frame
from ticdc_source.options.options import Options, OptionValue, option_texts
from ticdc_source.planning.load import BatchPlan, batch_options, infer_schema, plan_batch
from ticdc_source.planning.partitions import Partition, read_partition


def read_arrow(options: Mapping[str, OptionValue], /) -> pa.RecordBatchReader:
    """Return the rows of `spark.read.format("ticdc")` with the same options, read in this process, without Spark.

    They come as they are read, one input partition after the other, so memory holds some batches and not all rows. A
    reader that is not read to its end holds a connection until it is deleted.

    Args:
        options: those of a batch read, such as `{"kafka.bootstrap.servers": "broker:9092", "subscribe": "tidb-shop",
            "tables": "shop.orders"}`.

    Returns:
        The record batches, with the schema of Spark's rows in Arrow's types; pandas, Polars and DuckDB read it.

    Raises:
        TiCDCSourceError: as `load()`; what is wrong with records, when their batch is read.
    """
    given = option_texts(options)
    schema, parsed = infer_schema(given), batch_options(given)
    return pa.RecordBatchReader.from_batches(schema, _Batches(_batches(plan_batch(schema, parsed), schema, parsed)))


class _Batches(Iterator[pa.RecordBatch]):
    """Record batches whose error is raised again by whoever goes on, and is not taken for the end."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._error: Exception | None = None

    def __next__(self) -> pa.RecordBatch:
        if self._error is not None:
            raise self._error
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except Exception as error:
            self._error = error
            raise


@each_from_one_frame
def _batches(plan: BatchPlan, schema: pa.Schema, options: Options) -> Iterator[pa.RecordBatch]:
    for ranges in plan.partitions:
        yield from read_partition(Partition(ranges, plan.context, plan.scope), schema, options)
