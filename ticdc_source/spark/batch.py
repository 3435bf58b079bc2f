"""The batch reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ticdc_source.driver.load import plan_batch
from ticdc_source.driver.read_spec import layout_of
from ticdc_source.options.options import Options
from ticdc_source.reports import from_one_frame, once_per_query
from ticdc_source.spark.schema import to_arrow
from ticdc_source.spark.worker import TiCDCPartition, read_partition

__all__ = ["TiCDCReader"]


class TiCDCReader(DataSourceReader):
    """Plans on the driver, reads on the workers. It holds no connection, so that Spark can pickle it."""

    def __init__(self, schema: StructType, options: Options, shown: Iterable[str] = ()) -> None:
        self._schema = schema
        self._options = options
        self._shown = set(shown)  # warnings of load()
        layout_of(to_arrow(schema), options)  # refuses a wrong schema at once

    @from_one_frame
    def partitions(self) -> Sequence[InputPartition]:
        """Return the input partitions: never none, because Spark would then read a partition of its own making."""
        with once_per_query(self._shown):
            pieces, context = plan_batch(to_arrow(self._schema), self._options)
        return [TiCDCPartition(ranges, context) for ranges in pieces or [[]]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one input partition."""
        return read_partition(partition, to_arrow(self._schema), self._options)
