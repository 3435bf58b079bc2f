"""The data source: `spark.read.format("ticdc")` and `spark.readStream.format("ticdc")`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from ticdc_source.errors import TiCDCSourceError, from_one_frame, once_per_query
from ticdc_source.options.options import Options
from ticdc_source.pipeline.metadata import Layout
from ticdc_source.planning import load
from ticdc_source.spark.schema import to_arrow, to_spark
from ticdc_source.spark.stream import new_stream_reader
from ticdc_source.spark.worker import TiCDCPartition, read_in_task

ONLY_READS = 'This source only reads: use spark.read.format("ticdc") or spark.readStream.format("ticdc")'


class TiCDCReader(DataSourceReader):
    """Plans on the driver, reads on the workers. It holds no connection, so that Spark can pickle it."""

    def __init__(self, schema: StructType, options: Options, shown: Iterable[str] = ()) -> None:
        self._schema = schema
        self._options = options
        self._shown = set(shown)  # warnings of load()
        Layout.of(to_arrow(schema), options)  # refuses a wrong schema at once

    @from_one_frame
    def partitions(self) -> Sequence[InputPartition]:
        with once_per_query(self._shown):
            return list(map(TiCDCPartition, load.plan_batch(to_arrow(self._schema), self._options)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_in_task(partition, to_arrow(self._schema), self._options)


class TiCDCDataSource(DataSource):
    """TiDB's change feed, as TiCDC writes it to Kafka.

    `spark.dataSource.register(TiCDCDataSource)` registers the format "ticdc". If the package `pyspark_ticdc` is on the
    path, Spark finds the format by itself.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "ticdc"

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._shown: set[str] = set()  # warnings: Spark pickles this object after schema(), and readers know them

    @from_one_frame
    def schema(self) -> StructType:
        """Infer the schema from the messages.

        Raises:
            TiCDCSourceError: an option is wrong, the brokers do not answer, or the messages do not determine a schema.
        """
        with once_per_query(self._shown):
            return to_spark(load.load_schema(self.options))

    @from_one_frame
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader."""
        with once_per_query(self._shown):
            return TiCDCReader(schema, load.batch_options(self.options), self._shown)

    @from_one_frame
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Return the stream reader."""
        with once_per_query(self._shown):
            options = load.stream_options(self.options)
        return new_stream_reader(schema, options, self._shown)

    @from_one_frame
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002, FBT001 (Spark's)
        """Refuse to write."""
        raise TiCDCSourceError(ONLY_READS)

    @from_one_frame
    def streamWriter(  # noqa: N802 (Spark's name)
        self,
        schema: StructType,  # noqa: ARG002
        overwrite: bool,  # noqa: ARG002, FBT001
    ) -> DataSourceStreamWriter:
        """Refuse to write."""
        raise TiCDCSourceError(ONLY_READS)
