"""What is known of messages before they are read; a stream learns more of it with each micro-batch."""

from __future__ import annotations

import difflib
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from ticdc_source.driver.inference import Sample, infer_table, lacks_types, take_sample
from ticdc_source.driver.plan import Known, known_of_schema, known_of_table, known_of_tables, layout_of
from ticdc_source.errors import OptionError, TiCDCSourceError
from ticdc_source.kafka import Fetcher, FetchSettings, KafkaFetcher
from ticdc_source.options.kafka_client import client_config
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.tables import TableFilter
from ticdc_source.options.topics import TopicPartition
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.schema.model import TableSchema

__all__ = ["Knowledge", "ddl_from", "driver_fetcher", "fetch_settings", "known_before_reading", "warn_of_missing_ddl"]

_WINDOW = 4096  # records to look at together

_SAMPLE_RECORDS = 4000  # records of a chunk to sample, of which the protocol may not be known


class Knowledge:
    """Lives in the driver's Python process, and is never pickled.

    With `outputFormat=event` the types of tables may be in DDL events alone: those before a batch's
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
        if options.output_format != "event" or (name != "auto" and not PROTOCOLS[name].types_in_ddl):
            return known_before_reading(self._schema, options, ranges)
        with driver_fetcher(options) as fetcher:
            sample = take_sample(ranges, fetcher.fetch, options)
            if sample is None:
                return Known(None if name == "auto" else name, provisional=True)
            if sample.decoder.types_in_ddl and (not sample.rows or lacks_types(sample)):
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


def driver_fetcher(options: Options) -> Fetcher:
    """Return a fetcher for sampling."""
    return KafkaFetcher(client_config(options, driver=True), fetch_settings(options))


def known_before_reading(schema: pa.Schema, options: Options, ranges: Sequence[OffsetRange]) -> Known:
    """Return what is known of the messages: from an inferred schema's metadata, else from a sample of the ranges.

    Raises:
        OptionError: the sample holds several tables, or protocols.
    """
    known = known_of_schema(schema, options)
    if known is not None:
        return known
    if options.output_format == "event":  # each message tells its types; `Knowledge` asks for no other protocol here
        return Known(options.protocol)
    with driver_fetcher(options) as fetcher:
        sample = take_sample(ranges, fetcher.fetch, options)
    if sample is None:
        return Known(None if options.protocol == "auto" else options.protocol, provisional=True)
    try:
        found = infer_table(sample)
    except TiCDCSourceError as error:
        if isinstance(error, OptionError) and sample.rows:  # several tables
            raise
        warnings.warn(str(error), stacklevel=2)
        table = TableFilter(options.tables or ()).exact
        # Of a table that is named there is no more to learn, but the types that DDL events may tell.
        return Known(sample.decoder.name, table, provisional=table is None or sample.decoder.types_in_ddl)
    _report_unknown(layout_of(schema, options).data_fields(), found)
    return known_of_table(found, sample.decoder.name)


def _report_unknown(fields: Sequence[pa.Field], found: TableSchema) -> None:
    """Warn of columns that the user's schema names and no message of the sample has: they are NULL."""
    there = {column.name.lower(): column.name for column in found.columns}
    for field in fields:
        if field.name.lower() not in there:
            near = difflib.get_close_matches(field.name.lower(), there, n=1)
            hint = f"; did you mean {there[near[0]]}?" if near else ""
            msg = f"The schema's column {field.name} is in no message of {found.table} that was sampled{hint}"
            warnings.warn(f"{msg} It is NULL where a message lacks it", stacklevel=2)


def ddl_from(places: Iterable[TopicPartition]) -> dict[str, int]:
    """Return the lowest partition of each topic, whose copy of a broadcast DDL event is kept."""
    lowest: dict[str, int] = {}
    for place in places:
        lowest[place.topic] = min(place.partition, lowest.get(place.topic, place.partition))
    return lowest


def warn_of_missing_ddl(known: Known, options: Options) -> None:
    """Warn where DDL is asked for and partition 0, which alone may get it, is not read."""
    if options.output_format != "event":
        return
    without = [topic for topic, partition in known.ddl_from.items() if partition != 0]
    if without:
        decoder = PROTOCOLS.get(known.protocol or "")
        alone = decoder is not None and decoder.ddl_partition == 0
        what = "has its DDL in partition 0 only" if alone else "may have DDL in partition 0"
        warnings.warn(f"Partition 0 of {', '.join(without)} is not read; {known.protocol} {what}", stacklevel=2)


def fetch_settings(options: Options, protocol: str | None = None) -> FetchSettings:
    """Return how to fetch with these options."""
    records = _SAMPLE_RECORDS if protocol is None else PROTOCOLS[protocol].chunk_records
    return FetchSettings(
        max_records=min(records, options.max_rows_per_batch),
        max_bytes=options.max_bytes_per_batch,
        include_headers=options.include_headers,
        poll_timeout_ms=options.kafka_consumer_poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
    )
