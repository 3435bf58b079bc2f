"""The door: `spark.read.format("ticdc")`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ticdc_source.assembly import Layout
from ticdc_source.bounds import validate
from ticdc_source.client_config import client_config
from ticdc_source.errors import SchemaError, TiCDCSourceError
from ticdc_source.inference import infer_table, nothing_there, take_sample
from ticdc_source.kafka import Fetcher, KafkaCluster
from ticdc_source.offsets import OffsetRange, split_ranges
from ticdc_source.options import Options
from ticdc_source.planning import Known, known_of_schema, known_of_table, reading_of
from ticdc_source.read_schema import read_schema
from ticdc_source.reading import read
from ticdc_source.spark_schema import to_arrow, to_spark
from ticdc_source.tables import TableFilter

__all__ = ["TiCDCDataSource"]

# Records a chunk: few enough that the parsed rows of one die young (models.md §5: 500 to 2,000 is best).
_CHUNK_RECORDS = 1000


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
        options = Options(self.options)
        validate(options, streaming=False)
        with KafkaCluster(options) as cluster:
            ranges = cluster.resolve_ranges()
        with _fetcher(options) as fetcher:
            sample = take_sample(ranges, fetcher.fetch, options)
        if sample is None or not sample.scanned:
            raise nothing_there(ranges)
        return to_spark(read_schema(infer_table(sample), sample.decoder.name, options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader."""
        options = Options(self.options)
        validate(options, streaming=False)
        return TiCDCReader(schema, options)


class TiCDCPartition(InputPartition):
    """An input partition: a range of one topic partition, None for nothing to read, and what is known."""

    def __init__(self, range_: OffsetRange | None, known: Known) -> None:
        super().__init__(range_)
        self.range = range_
        self.known = known


class TiCDCReader(DataSourceReader):
    """Plans on the driver, reads on the workers; holds no connection, so that it can be pickled."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self._schema = schema
        self._options = options
        Layout.of(to_arrow(schema), options.metadata_column_prefix, options.column_name_of_corrupt_record)

    def partitions(self) -> Sequence[InputPartition]:
        """Resolve the offsets and cut them into input partitions.

        Never empty: Spark would read a partition of its own making.
        """
        options = self._options
        with KafkaCluster(options) as cluster:
            ranges = cluster.resolve_ranges()
        known = known_of_schema(to_arrow(self._schema), options) or self._look(ranges)
        pieces = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        return [TiCDCPartition(piece, known) for piece in pieces] or [TiCDCPartition(None, known)]

    def _look(self, ranges: Sequence[OffsetRange]) -> Known:
        """Find out, for a schema that the user wrote, what the messages say."""
        options = self._options
        with _fetcher(options) as fetcher:
            sample = take_sample(ranges, fetcher.fetch, options)
        if sample is None:
            return Known(None if options.protocol == "auto" else options.protocol)
        table = TableFilter(options.tables or ()).exact
        try:
            found = infer_table(sample)
        except TiCDCSourceError as error:
            if isinstance(error, ValueError) and sample.rows:  # several tables
                raise
            return Known(sample.decoder.name, table)
        return known_of_table(found, sample.decoder.name)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one input partition."""
        if not isinstance(partition, TiCDCPartition) or partition.range is None:
            return
        options, known = self._options, partition.known
        if known.protocol is None:
            msg = "the protocol is not known, as there was no record when the read was planned; set 'protocol'"
            raise SchemaError(msg)
        reading = reading_of(to_arrow(self._schema), options, known)
        with _fetcher(options, driver=False) as fetcher:
            yield from read(fetcher.fetch(partition.range), reading)


def _fetcher(options: Options, *, driver: bool = True) -> Fetcher:
    return Fetcher(
        client_config(options, driver=driver),
        max_records=min(_CHUNK_RECORDS, options.max_rows_per_batch),
        max_bytes=options.max_bytes_per_batch,
        include_headers=options.include_headers,
        poll_timeout_ms=options.kafka_consumer_poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
    )
