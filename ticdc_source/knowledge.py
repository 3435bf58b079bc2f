"""What is known of messages before they are read; a stream learns more of it with each micro-batch."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from ticdc_source.inference import Sample, lacks_types, take_sample
from ticdc_source.kafka import Fetcher
from ticdc_source.offsets import OffsetRange
from ticdc_source.options import Options
from ticdc_source.partitions import driver_fetcher, known_before_reading
from ticdc_source.planning import Known, known_of_tables
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.topics import TopicPartition

__all__ = ["Knowledge"]

_WINDOW = 4096  # records to look at together


class Knowledge:
    """Lives in the driver's Python process, and is never pickled.

    With `outputFormat=event` the types of debezium's tables may be in DDL events alone: those before a batch's
    range, or a stream's first micro-batch, are looked for, and those of every micro-batch, so that a row reads the same
    in a batch, in a stream and after its restart.

    Args:
        schema: the read schema.
        options: the options.
        earliest: looks the log starts of topic partitions up.
    """

    def __init__(
        self,
        schema: pa.Schema,
        options: Options,
        earliest: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, int]],
    ) -> None:
        self._schema = schema
        self._options = options
        self._earliest = earliest
        self._known: Known | None = None
        self._sample: Sample | None = None  # where DDL tells types: what was seen of it so far

    def of(self, ranges: Sequence[OffsetRange], ends: Mapping[TopicPartition, int]) -> Known:
        """Return what is known for a batch, or the next micro-batch.

        Args:
            ranges: what it reads.
            ends: where all topic partitions end with it.

        Raises:
            OptionError: as `known_before_reading`.
        """
        if self._sample is not None:
            before = len(self._sample.ddl)
            with driver_fetcher(self._options) as fetcher:
                _add_ddl(self._sample, ranges, fetcher)
            if len(self._sample.ddl) > before:
                self._known = known_of_tables(self._sample)
        elif self._known is None:
            self._known = self._first(ranges, ends)
        elif self._known.provisional:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the first micro-batch has given them
                self._known = self._first(ranges, ends)
        assert self._known is not None  # noqa: S101 (for mypy)
        return self._known

    def _first(self, ranges: Sequence[OffsetRange], ends: Mapping[TopicPartition, int]) -> Known:
        options = self._options
        name = options.protocol
        if options.output_format != "event" or (name != "auto" and not PROTOCOLS[name].ddl_tells):
            return known_before_reading(self._schema, options, ranges)
        with driver_fetcher(options) as fetcher:
            sample = take_sample(ranges, fetcher.fetch, options)
            if sample is None:
                return Known(None if name == "auto" else name, provisional=True)
            if sample.decoder.ddl_tells and (not sample.rows or lacks_types(sample)):
                self._sample = sample
                if not self._add_history(sample, ranges, ends, fetcher) or not sample.whole:
                    warnings.warn(
                        "Not all DDL events were looked at (inferSchema.maxScannedRecords, inferSchema.timeoutMs): "
                        "columns whose types only those tell are shown as the messages have them",
                        stacklevel=2,
                    )
            return known_of_tables(sample)

    def _add_history(
        self, sample: Sample, ranges: Sequence[OffsetRange], ends: Mapping[TopicPartition, int], fetcher: Fetcher
    ) -> bool:
        """Add the DDL events before a batch, or a stream's first micro-batch; tell whether that was all there is.

        They are sent to all partitions of a topic: one is enough.
        """
        lowest = {place.topic: place for place in sorted(ends, reverse=True)}.values()
        begins = {**ends, **{one.topic_partition: one.start for one in ranges}}
        deadline = time.monotonic() + self._options.infer_schema_timeout_ms / 1000
        limit = self._options.infer_schema_max_scanned_records
        for place, earliest in self._earliest(lowest).items():
            at = begins[place]
            while at > earliest:  # backwards: the newest tell most
                if limit <= 0 or time.monotonic() >= deadline:
                    return False
                start = max(earliest, at - min(limit, _WINDOW))
                _add_ddl(sample, [OffsetRange(*place, start, at)], fetcher)
                limit -= at - start
                at = start
        return True


def _add_ddl(sample: Sample, ranges: Iterable[OffsetRange], fetcher: Fetcher) -> None:
    for wanted in ranges:
        for chunk in fetcher.fetch(wanted):
            sample.add(chunk, rows=False)
