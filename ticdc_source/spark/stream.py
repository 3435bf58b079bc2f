"""The stream reader, on what each PySpark version offers.

PySpark 4.2 brought start offset and limit to `latestOffset`, the default limit, `reportLatestOffset` and
`SupportsTriggerAvailableNow`; before, `latestOffset` has no arguments and there is no admission control.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ticdc_source.driver.context import Knowledge, ddl_from, warn_of_missing_ddl
from ticdc_source.driver.plan import layout_of
from ticdc_source.driver.streaming import Limits, StreamPlanner, pack, places_of
from ticdc_source.errors import DataLossError, OptionError
from ticdc_source.kafka import KafkaCluster, report_loss
from ticdc_source.options.options import Options
from ticdc_source.spark.schema import to_arrow
from ticdc_source.spark.worker import TiCDCPartition, read_partition

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.0 and 4.1
    HAS_ADMISSION_CONTROL = False
else:
    HAS_ADMISSION_CONTROL = True

__all__ = ["HAS_ADMISSION_CONTROL", "new_stream_reader"]


class StreamReader(DataSourceStreamReader):
    """Plans in one long-lived process of the driver, reads on the workers; connects at first use."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self._schema = schema
        self._options = options
        self._cluster: KafkaCluster | None = None
        self._planner: StreamPlanner | None = None
        self._knowledge: Knowledge | None = None
        self._warned = False
        layout_of(to_arrow(schema), options)  # says what is wrong with it at once

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what holds connections: Spark ships the reader to the workers."""
        return {**self.__dict__, "_cluster": None, "_planner": None, "_knowledge": None}

    @property
    def planner(self) -> StreamPlanner:
        """The planner; made at first use."""
        if self._planner is None:
            options = self._options
            self._cluster = KafkaCluster(options)
            self._planner = StreamPlanner(
                self._cluster,
                Limits(options.max_trigger_delay / 1000, options.fetch_offset_min_interval_ms / 1000),
                lambda reason: report_loss(reason, fail=options.fail_on_data_loss),
            )
        return self._planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Return where a new stream starts."""
        return self.planner.initial()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Cut what lies between two offsets into input partitions; small ranges share one."""
        ranges = self.planner.ranges(start, end)
        if not ranges:
            return []
        if self._knowledge is None:
            self._knowledge = Knowledge(to_arrow(self._schema), self._options, self.planner.lookup.earliest)
        known = self._knowledge.of(ranges, places_of(end))
        known = replace(known, ddl_from=ddl_from(places_of(end)))
        if not self._warned:
            warn_of_missing_ddl(known, self._options)
            self._warned = True
        pieces = pack(ranges, self._options.min_partitions, self._options.max_records_per_partition)
        newest = self.planner.ends()
        return [
            TiCDCPartition(piece, known, [max(0, newest.get(one.topic_partition, one.end) - one.end) for one in piece])
            for piece in pieces
        ]

    def commit(self, end: Mapping[str, Any]) -> None:
        """Tell the consumer group, if asked to, what Spark has finished; never fails the query."""
        group = self._options.kafka.get("group.id")
        if self._options.commit_group_offsets and group and self._cluster is not None:
            self._cluster.commit_group(group, places_of(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one input partition."""
        return read_partition(partition, to_arrow(self._schema), self._options)

    def stop(self) -> None:
        """Close the driver's connections."""
        if self._cluster is not None:
            self._cluster.close()
        self._cluster = self._planner = None


class UnlimitedStreamReader(StreamReader):
    """For PySpark 4.0 and 4.1: every micro-batch reads all there is."""

    def __init__(self, schema: StructType, options: Options) -> None:
        super().__init__(schema, options)
        self._last: dict[str, Any] | None = None
        for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger"):
            if options.is_given(name):
                warnings.warn(f"Option '{name}' is ignored: it needs PySpark 4.2 or newer", stacklevel=2)

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Return where the next micro-batch ends.

        Spark says neither where it begins nor whether the stream is new, and asks for a new stream's start only
        afterwards. So the first answer always carries that start; `partitions` does not look at it after a restart.
        """
        if self._last is None:
            try:
                self._last = self.planner.initial()
            except (DataLossError, OptionError):  # to be met again by a new stream; none of a restart's business
                self._last = self.planner.newest()
                return self._last
        self._last = self.planner.next(self._last)
        return self._last


if HAS_ADMISSION_CONTROL:

    class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
        """For PySpark 4.2 and newer: with admission control and Trigger.AvailableNow."""

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            """Return the limit that the options ask for."""
            if self._options.max_offsets_per_trigger is not None:
                return ReadMaxRows(self._options.max_offsets_per_trigger)
            if self._options.min_offsets_per_trigger is not None:
                return ReadMinRows(self._options.min_offsets_per_trigger)
            return ReadAllAvailable()

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
            """Return where the micro-batch that begins at `start` ends; `start` itself where nothing is new.

            Spark's limits cannot be combined: with both options given, the one for the maximum brings the other along.
            """
            if isinstance(limit, ReadMaxRows):
                return self.planner.next(start, limit.max_rows, self._options.min_offsets_per_trigger)
            if isinstance(limit, ReadMinRows):
                return self.planner.next(start, None, limit.min_rows)
            return self.planner.next(start)

        def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
            """Return the ends of all partitions, for the query's progress."""
            return self.planner.newest() or None

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            """Fix the end of the stream."""
            self.planner.stop_at_latest()


def new_stream_reader(schema: StructType, options: Options) -> DataSourceStreamReader:
    """Return the reader for the PySpark that runs."""
    return (LimitedStreamReader if HAS_ADMISSION_CONTROL else UnlimitedStreamReader)(schema, options)
