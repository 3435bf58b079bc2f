"""The data source: `spark.read.format("ticdc")` and `spark.readStream.format("ticdc")`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ticdc_source.driver import load
from ticdc_source.spark.batch import TiCDCReader
from ticdc_source.spark.schema import to_spark
from ticdc_source.spark.stream import new_stream_reader

__all__ = ["TiCDCDataSource"]


class TiCDCDataSource(DataSource):
    """TiDB's change feed, as TiCDC writes it to Kafka.

    `spark.dataSource.register(TiCDCDataSource)` registers the format "ticdc". If the package `pyspark_ticdc` is on the
    path, Spark finds the format by itself.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "ticdc"

    def schema(self) -> StructType:
        """Infer the schema from the messages.

        Raises:
            TiCDCSourceError: an option is wrong, the brokers do not answer, or the messages do not determine a schema.
        """
        return to_spark(load.infer_schema(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader."""
        return TiCDCReader(schema, load.batch_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Return the stream reader."""
        return new_stream_reader(schema, load.stream_options(self.options))
