"""The batch reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ticdc_source.driver.context import Knowledge, ddl_from, driver_fetcher, warn_of_missing_ddl
from ticdc_source.driver.inference import nothing_there
from ticdc_source.driver.plan import layout_of
from ticdc_source.driver.resolved import resolved_end
from ticdc_source.kafka import KafkaCluster
from ticdc_source.options.offsets import split_ranges
from ticdc_source.options.options import Options
from ticdc_source.protocols import decoder_of
from ticdc_source.spark.schema import to_arrow
from ticdc_source.spark.worker import TiCDCPartition, read_partition

__all__ = ["TiCDCReader"]


class TiCDCReader(DataSourceReader):
    """Plans on the driver, reads on the workers; holds no connection, so that it can be pickled."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self._schema = schema
        self._options = options
        layout_of(to_arrow(schema), options)  # says what is wrong with it at once

    def partitions(self) -> Sequence[InputPartition]:
        """Resolve the offsets and cut them into input partitions.

        Never empty: Spark would read a partition of its own making.
        """
        options = self._options
        with KafkaCluster(options) as cluster:
            ranges = cluster.resolve_ranges()
            knowledge = Knowledge(to_arrow(self._schema), options, cluster.earliest)
            known = knowledge.of(ranges, {one.topic_partition: one.end for one in ranges})
        known = replace(known, ddl_from=ddl_from(one.topic_partition for one in ranges if one.size))
        warn_of_missing_ddl(known, options)
        if options.ending_commit_ts == "resolved":
            if known.protocol is None:
                raise nothing_there(ranges)
            with driver_fetcher(options) as fetcher:
                end = resolved_end(ranges, fetcher.fetch, decoder_of(known.protocol, options))
            known = replace(known, commit_end=end)
        pieces = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        return [TiCDCPartition([piece], known) for piece in pieces] or [TiCDCPartition([], known)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one input partition."""
        return read_partition(partition, to_arrow(self._schema), self._options)
