"""The data source: `spark.read.format("ticdc")` and `spark.readStream.format("ticdc")`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ticdc_source.errors import TiCDCSourceError, from_one_frame, once_per_query
from ticdc_source.planning import load
from ticdc_source.spark.readers import TiCDCReader, new_stream_reader
from ticdc_source.spark.schema import to_spark

ONLY_READS = 'This source only reads: use spark.read.format("ticdc") or spark.readStream.format("ticdc")'


class TiCDCDataSource(DataSource):
    """TiDB's change feed, as TiCDC writes it to Kafka.

    `spark.dataSource.register(TiCDCDataSource)` registers the format "ticdc". With the package `pyspark_ticdc` on the
    path, Spark finds it by itself.
    """

    @classmethod
    def name(cls) -> str:
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
        with once_per_query(self._shown):
            return TiCDCReader(schema, load.batch_options(self.options), self._shown)

    @from_one_frame
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        with once_per_query(self._shown):
            options = load.stream_options(self.options)
        return new_stream_reader(schema, options, self._shown)

    @from_one_frame
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002, FBT001 (Spark's)
        raise TiCDCSourceError(ONLY_READS)

    @from_one_frame
    def streamWriter(  # noqa: N802 (Spark's name)
        self,
        schema: StructType,  # noqa: ARG002
        overwrite: bool,  # noqa: ARG002, FBT001
    ) -> DataSourceStreamWriter:
        raise TiCDCSourceError(ONLY_READS)
