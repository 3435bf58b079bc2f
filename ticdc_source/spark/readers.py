"""The data source's batch and stream readers, for each PySpark version.

Since PySpark 4.2, `latestOffset` has a start offset and a limit, and there are a default limit, `reportLatestOffset`
and `SupportsTriggerAvailableNow`. Before, `latestOffset` has no arguments, so the reader remembers the end of the last
micro-batch and applies the limits itself (docs/design/0005-streams.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ticdc_source.errors import OptionError, each_from_one_frame, from_one_frame, once_per_query, warn
from ticdc_source.kernels.native import warn_of_missing
from ticdc_source.options.names import warn_of_unknown
from ticdc_source.options.options import Options
from ticdc_source.pipeline.context import BatchScope
from ticdc_source.pipeline.metrics import TaskFacts
from ticdc_source.pipeline.read import leave_out_modules
from ticdc_source.pipeline.spec import layout_of
from ticdc_source.planning import load, partitions
from ticdc_source.planning.ddl_copies import StreamCoverage, by_topic, coverage_of
from ticdc_source.planning.fetchers import record_source
from ticdc_source.planning.partitions import Partition
from ticdc_source.planning.read_context import ContextFinder, warn_of_missing_ddl
from ticdc_source.sources.record_source import RecordSource, StreamPlanner
from ticdc_source.sources.stream_offsets import OffsetJSON, StreamLimits, offsets_of, topic_ids_of
from ticdc_source.spark.schema import to_arrow

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


class TiCDCPartition(InputPartition):
    """Spark's input partition, which the driver sends to a worker."""

    def __init__(self, content: Partition) -> None:
        super().__init__(tuple(content.ranges))
        self.content = content


@each_from_one_frame
def read_in_task(partition: InputPartition, schema: pa.Schema, options: Options) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, TiCDCPartition):
        return
    task = TaskContext.get()
    if task is not None:
        leave_out_modules()
    fresh = task is not None and task.attemptNumber() > 0
    yield from partitions.read_partition(
        partition.content, schema, options, facts=partial(_task_facts, task), fresh=fresh
    )


def _task_facts(task: TaskContext | None) -> TaskFacts:
    if task is None:
        return {}
    batch = task.getLocalProperty("streaming.sql.batchId")
    return {
        "query": task.getLocalProperty("sql.streaming.queryId"),
        "batch": int(batch) if batch else None,
        "stage": task.stageId(),
        "task": task.partitionId(),
        "attempt": task.attemptNumber(),
        "time": time.time(),
    }


class _Reader:
    """The common part of both readers. A reader is pickled and sent to the workers."""

    def __init__(self, schema: StructType, options: Options, shown: Iterable[str] = ()) -> None:
        self._schema = schema
        self._options = options
        self._shown = set(shown)  # warnings of load()
        layout_of(to_arrow(schema), options)  # refuses a wrong schema at once

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_in_task(partition, to_arrow(self._schema), self._options)


class TiCDCReader(_Reader, DataSourceReader):
    """Plans a batch on the driver, and reads on the workers. It has no connection."""

    @from_one_frame
    def partitions(self) -> Sequence[InputPartition]:
        with once_per_query(self._shown):
            return list(map(TiCDCPartition, load.plan_batch(to_arrow(self._schema), self._options)))


Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
Self = TypeVar("Self", bound="StreamReader")


def _planning(
    method: Callable[Concatenate[Self, Parameters], Result],
) -> Callable[Concatenate[Self, Parameters], Result]:
    """Let a method show each warning once per query, and raise the package's errors from one frame."""

    @wraps(method)
    def once(self: Self, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with once_per_query(self._shown):
            return method(self, *args, **kwargs)

    return from_one_frame(once)


class StreamReader(_Reader, DataSourceStreamReader):
    """Plans in one long-lived process of the driver, and reads on the workers. It connects at first use."""

    def __init__(self, schema: StructType, options: Options, shown: Iterable[str] = ()) -> None:
        super().__init__(schema, options, shown)
        self._source: RecordSource | None = None
        self._planner: StreamPlanner | None = None
        self._contexts: ContextFinder | None = None
        self._read_last: RecordSource | None = None  # what `_contexts` is of
        self._warned = False

    def __getstate__(self) -> dict[str, object]:
        """Leave out connections, because Spark sends the reader to the workers."""
        return {**self.__dict__, "_source": None, "_planner": None, "_contexts": None, "_read_last": None}

    @property
    def source(self) -> RecordSource:
        if self._source is None:
            self._source = record_source(self._options)
        return self._source

    @property
    def planner(self) -> StreamPlanner:
        if self._planner is None:
            options = self._options
            warn_of_unknown(options)
            warn_of_missing(options.native_code)
            self._warn_of_limits()
            limits = StreamLimits(options.max_trigger_delay / 1000, options.fetch_offset_min_interval_ms / 1000)
            members = None if self.source.is_one_log else StreamCoverage(self.source, options)
            self._planner = self.source.stream(limits, members)
        return self._planner

    def _warn_of_limits(self) -> None:
        """Warn about the effect of limits on this PySpark."""

    @_planning
    def initialOffset(self) -> OffsetJSON:  # noqa: N802 (Spark's name)
        return self.planner.initial()

    @_planning
    def partitions(self, start: OffsetJSON, end: OffsetJSON) -> Sequence[InputPartition]:
        """Cut the range between two offsets into input partitions; small ranges share one."""
        planner = self.planner
        ranges = planner.ranges(start, end)
        if not ranges:
            return []
        (source, options), ends = self.source.reading(), offsets_of(end)
        if self._contexts is None or source is not self._read_last:
            protocol = source.protocol(ends)
            known = options if protocol is None else replace(options, protocol=protocol)
            self._contexts, self._read_last = ContextFinder(to_arrow(self._schema), known, source.earliest), source
        covered = set(ends)
        if self._options.output_format == "record":
            # Listed after the look-up of the ends, so that topics created before a watermark of this micro-batch are
            # included, though their rows come with the next one.
            covered.update(source.existing())
        context = self._contexts.find(ranges, ends)
        self.source.check_detected(context.protocol)
        scope = BatchScope(
            ddl_copies={} if source.is_one_log else by_topic(ends, coverage_of(end)),
            partitions=1 if source.is_one_log else len(covered),
            topic_ids=topic_ids_of(end),
            one_watermark=source.is_one_log,
        )
        if not self._warned:
            warn_of_missing_ddl(context, scope, self._options)
            self._warned = True
        own = None if options == self._options else options
        return [
            TiCDCPartition(Partition(piece, context, scope, list(map(planner.behind, piece)), own))
            for piece in source.pieces(ranges)
        ]

    def commit(self, end: OffsetJSON) -> None:
        """Publish what Spark has finished, if the options ask for it. Never fails the query."""
        if self._source is not None:
            self._source.commit(offsets_of(end))

    def stop(self) -> None:
        if self._source is not None:
            self._source.close()
        self._source = self._planner = None


class RememberingStreamReader(StreamReader):
    """For PySpark 4.0 and 4.1, whose `latestOffset` has neither a start nor a limit.

    A new stream starts at `initial()`. When a query restarts, Spark first asks for the partitions between its last
    planned offset and the same offset (`setLatestSeenOffset` in Spark's PythonMicroBatchStream), which tells the reader
    where the next micro-batch begins. With Spark's wrapper for Trigger.AvailableNow, Spark asks for an end first, and
    `partitions` may raise an error.
    """

    def __init__(self, schema: StructType, options: Options, shown: Iterable[str] = ()) -> None:
        super().__init__(schema, options, shown)
        self._last: OffsetJSON | None = None  # the end of the last planned micro-batch
        self._has_planned = False

    def _warn_of_limits(self) -> None:
        if self._options.max_offsets_per_trigger is not None:
            warn(
                "Before PySpark 4.2, a query with Trigger.AvailableNow or Trigger.Once is one micro-batch: with "
                "'maxOffsetsPerTrigger' it ends after that many offsets, and its next run continues from there. Leave "
                "the option out of such a query"
            )

    @_planning
    def latestOffset(self) -> OffsetJSON:  # type: ignore[override]  # noqa: N802
        """Return the end of the next micro-batch; that of the last one if nothing is new."""
        start = self.planner.initial() if self._last is None else self._last
        # As in Spark's Kafka source, the first micro-batch of a process does not wait: it may be the only one.
        least = self._options.min_offsets_per_trigger if self._has_planned else None
        self._last = self.planner.next(start, self._options.max_offsets_per_trigger, least)
        self._has_planned = True
        return self._last

    @_planning
    def partitions(self, start: OffsetJSON, end: OffsetJSON) -> Sequence[InputPartition]:
        """Learn the stream's position after a restart; then as in `StreamReader`."""
        if start == end and not self._has_planned:
            self._last = end
        elif start == end and self._options.max_offsets_per_trigger is not None:
            raise OptionError(
                "Spark asked for a new end before it passed on the query's position, so rows could be read twice. Set "
                "spark.sql.streaming.triggerAvailableNowWrapper.enabled to false, or use PySpark 4.2"
            )
        return super().partitions(start, end)


if HAS_ADMISSION_CONTROL:

    class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
        """For PySpark 4.2 and newer: with admission control and Trigger.AvailableNow."""

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            if self._options.max_offsets_per_trigger is not None:
                return ReadMaxRows(self._options.max_offsets_per_trigger)
            if self._options.min_offsets_per_trigger is not None:
                return ReadMinRows(self._options.min_offsets_per_trigger)
            return ReadAllAvailable()

        @_planning
        def latestOffset(self, start: OffsetJSON, limit: ReadLimit) -> OffsetJSON:  # noqa: N802
            """Return the end of the micro-batch that begins at `start`; `start` itself if nothing is new.

            Spark's limits cannot be combined: if both options are set, the maximum includes the minimum.
            """
            if isinstance(limit, ReadMaxRows):
                return self.planner.next(start, limit.max_rows, self._options.min_offsets_per_trigger)
            if isinstance(limit, ReadMinRows):
                return self.planner.next(start, None, limit.min_rows)
            return self.planner.next(start)

        @_planning
        def reportLatestOffset(self) -> OffsetJSON | None:  # noqa: N802
            return self.planner.newest() or None

        @_planning
        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self.planner.stop_at_latest()


def new_stream_reader(schema: StructType, options: Options, shown: Iterable[str] = ()) -> DataSourceStreamReader:
    return (LimitedStreamReader if HAS_ADMISSION_CONTROL else RememberingStreamReader)(schema, options, shown)
