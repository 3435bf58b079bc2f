"""The door: `spark.read.format("ticdc")` and `spark.readStream.format("ticdc")`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ticdc_source.driver.context import driver_fetcher
from ticdc_source.driver.inference import infer_table, nothing_there, take_sample
from ticdc_source.driver.read_schema import check_types, format_schema, read_schema
from ticdc_source.errors import OptionError
from ticdc_source.kafka import KafkaCluster
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.ranges import validate
from ticdc_source.protocols import checked_protocol
from ticdc_source.spark.batch import TiCDCReader
from ticdc_source.spark.schema import to_spark
from ticdc_source.spark.stream import new_stream_reader

__all__ = ["TiCDCDataSource"]


class TiCDCDataSource(DataSource):
    """TiDB's change feed, as TiCDC writes it to Kafka.

    `spark.dataSource.register(TiCDCDataSource)` makes the format "ticdc" known; with the package
    `pyspark_ticdc` on the path Spark finds it by itself.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "ticdc"

    def schema(self) -> StructType:
        """Infer the schema from the messages.

        Raises:
            TiCDCSourceError: the options are wrong, the brokers silent, or the messages do not tell a schema.
        """
        options = Options.of(self.options)
        checked_protocol(options)
        check_types(options)
        if options.output_format == "event":  # the same columns, whatever the tables are
            return to_spark(format_schema(options))
        ranges = _ranges_to_sample(options)
        with driver_fetcher(options) as fetcher:
            sample = take_sample(ranges, fetcher.fetch, options)
        if sample is None or not sample.scanned:
            raise nothing_there(ranges)
        return to_spark(read_schema(infer_table(sample), sample.decoder.name, options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader."""
        options = Options.of(self.options)
        validate(options, streaming=False)
        checked_protocol(options)
        check_types(options)
        return TiCDCReader(schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Return the stream reader."""
        options = Options.of(self.options)
        validate(options, streaming=True)
        checked_protocol(options)
        check_types(options)
        if options.ending_commit_ts == "resolved":
            msg = "endingCommitTs=resolved is of batch reads only: a stream has no end"
            raise OptionError(msg)
        return new_stream_reader(schema, options)


def _ranges_to_sample(options: Options) -> list[OffsetRange]:
    """Return where to look for a schema: the range of a batch read, or all there is where only a stream fits.

    Spark does not tell at load() whether it is to be a batch or a stream: what neither allows is refused here, the
    rest by the reader.
    """
    try:
        validate(options, streaming=False)
    except OptionError:
        validate(options, streaming=True)
        batch = False
    else:
        batch = True
    with KafkaCluster(options) as cluster:
        return cluster.resolve_ranges() if batch else cluster.everything()
