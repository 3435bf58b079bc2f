"""The source and fetchers of a read, and searches outside its offset ranges.

Searches look for table definitions that rows name, and for the row before an offset. A definition may be before the
range, after it (TiCDC repeats the BOOTSTRAP), or, with `send-bootstrap-to-all-partition=false`, in partition 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field

from ticdc_source.errors import DataLossError, DecodeError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.protocols import FORMATS, PROTOCOLS
from ticdc_source.protocols.decoding import Decoder, definitions_in, splits_of
from ticdc_source.schema.model import Definitions
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.choose import source_of
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.record_source import Fetcher, RecordSource

Fetch = Callable[[OffsetRange], Iterable[Chunk]]
# Returns the earliest and the latest offset of topic partitions; the latest is one after the last record.
Bounds = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, tuple[int, int]]]
# Returns the ranges that define a version of the table whose rows a range has; None if they must be searched.
Defining = Callable[[OffsetRange, int], Sequence[OffsetRange] | None]

# The most records in a chunk while the protocol is unknown.
_DRIVER_CHUNK_RECORDS = 4000
_LARGEST_WINDOW = 4096  # offsets
_FIRST_WINDOW = 64  # offsets, of a search
_GROW = 8
_PAUSE_S = 1.0
# The driver chooses the partition that returns each DDL event; workers of other partitions drop their copies.
_LOST_COPIES = (
    "DDL events in these records, such as TRUNCATE or DROP TABLE, are lost too, because this read drops their copies "
    "in other partitions. Compare the tables with TiDB"
)


def has_ddl_copies(protocol: str | None, options: Options) -> bool:
    """Whether the read outputs DDL events, and every partition has a copy of them."""
    if options.output_format != "event" or protocol is None:
        return False
    return PROTOCOLS[protocol].facts.ddl_partition is None


def fetch_settings(options: Options, protocol: str | None = None) -> FetchSettings:
    chunk_records = _DRIVER_CHUNK_RECORDS if protocol is None else PROTOCOLS[protocol].facts.chunk_records
    return FetchSettings(
        max_records=min(chunk_records, options.max_rows_per_batch),
        max_bytes=options.max_bytes_per_batch,
        include_headers=options.include_headers or options.output_format == "record",
        poll_timeout_ms=options.kafka_consumer_poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
        lost_too=_LOST_COPIES if has_ddl_copies(protocol, options) else "",
        max_record_bytes=options.max_message_bytes,
        native=options.native_code != "off",
    )


def record_source(options: Options) -> RecordSource:
    """Return the source that the options name; it does not connect yet."""
    return source_of(options, FORMATS)


def driver_fetcher(options: Options) -> Fetcher:
    """Return a fetcher for the driver, which reads at most `inferSchema.maxRecords` rows of each file."""
    return record_source(options).fetcher(
        fetch_settings(options),
        protocol=None if options.protocol == "auto" else options.protocol,
        max_rows=options.infer_schema_max_records,
    )


def task_fetcher(options: Options, protocol: str, *, fresh: bool) -> AbstractContextManager[Fetcher]:
    return record_source(options).task_fetcher(fetch_settings(options, protocol), protocol, fresh=fresh)


def windows_from_end(
    offset_range: OffsetRange, fetch: Fetch, first: int = _LARGEST_WINDOW
) -> Iterator[Iterable[Chunk]]:
    """Yield the chunks of the last `first` offsets, then of more offsets before them, back to the start."""
    end, size = offset_range.end, first
    while end > offset_range.start:
        start = max(offset_range.start, end - size)
        yield fetch(OffsetRange(*offset_range.topic_partition, start, end))
        end, size = start, min(_LARGEST_WINDOW, size * _GROW)


def windows_from_start(
    offset_range: OffsetRange, fetch: Fetch, first: int = _LARGEST_WINDOW
) -> Iterator[Iterable[Chunk]]:
    """Yield the chunks of the first `first` offsets, then of more offsets after them, up to the end."""
    start, size = offset_range.start, first
    while start < offset_range.end:
        end = min(offset_range.end, start + size)
        yield fetch(OffsetRange(*offset_range.topic_partition, start, end))
        start, size = end, min(_LARGEST_WINDOW, size * _GROW)


def _scanned(
    windows: Iterable[Iterable[Chunk]], limit: int, timeout_s: float, clock: Callable[[], float]
) -> Iterator[Sequence[Chunk]]:
    """Yield the chunks of each window, until there were `limit` records or `timeout_s` have passed.

    It stops at an unreadable window: if the read needs those records, it raises the error itself.
    """
    records, begun = 0, clock()
    for window in windows:
        try:
            chunks = list(window)
        except (DataLossError, DecodeError):
            return
        yield chunks
        records += sum(map(len, chunks))
        if records >= limit or clock() - begun >= timeout_s:
            return


@dataclass
class Search:
    """Looks outside a read's ranges for what its rows lack.

    A call finds the definition of a table version: in the ranges that the source names, or around an offset range.

    Attributes:
        limit: the records to scan in each part: before the range, after it and in partition 0.
        timeout_s: the time to scan each part.
        wait_s: the total time to repeat searches, because TiCDC may still write a definition.
        clock: a monotonic clock, in seconds.
        around: the offset range; None if there is none yet.
    """

    decoder: Decoder
    fetch: Fetch
    bounds: Bounds
    defining: Defining = lambda *_: None
    _: KW_ONLY
    limit: int
    timeout_s: float
    wait_s: float = 0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    around: OffsetRange | None = None
    _missing: set[tuple[TableName, int]] = field(default_factory=set)
    _waited_s: float = 0.0  # in all searches: many missing definitions do not add up

    def __call__(self, table: TableName, version: int) -> Definitions:
        """Search for one definition; return all that were found, maybe without the wanted one.

        Raises:
            DecodeError: a range that defines the version is broken.
        """
        found: Definitions = {}
        wanted = (table.folded, version)
        if self.around is None or wanted in self._missing:
            return found
        defining = self.defining(self.around, version)
        if defining is not None:
            found = self._read(defining)
            if not found:
                self._missing.add(wanted)  # not asked again: storages answer slowly
            return found
        ends: dict[TopicPartition, int] = {}
        while not self._look(self.around, wanted, found, ends):
            if self._waited_s >= self.wait_s:
                self._missing.add(wanted)
                break
            self.sleep(_PAUSE_S)
            self._waited_s += _PAUSE_S
        return found

    def last_commit_ts(self, table: TableName, topic_partition: TopicPartition, offset: int) -> int | None:
        """Return the commit-ts of a table's last row with one before an offset; None if none is found.

        Avro's deletes without a value lack it.
        """
        start, _ = self.bounds([topic_partition]).get(topic_partition, (offset, offset))
        windows = windows_from_end(_range(topic_partition, start, offset), self.fetch, _FIRST_WINDOW)
        for chunks in _scanned(windows, self.limit, self.timeout_s, self.clock):
            for chunk in reversed(chunks):
                for split in reversed(list(splits_of(self.decoder, chunk, table.is_same))):
                    for events in split.tables.values():
                        own = self.decoder.commit_versions(events).drop_null()
                        if len(own):
                            return int(own[-1].as_py())
        return None

    def _read(self, ranges: Iterable[OffsetRange]) -> Definitions:
        defined: Definitions = {}
        for chunk in (chunk for each in ranges for chunk in self.fetch(each)):
            for split in splits_of(self.decoder, chunk):
                if split.corrupt:
                    raise split.corrupt[0].error
                defined |= definitions_in(split, self.decoder)
        return defined

    def _look(
        self, here: OffsetRange, wanted: tuple[TableName, int], found: Definitions, ends: dict[TopicPartition, int]
    ) -> bool:
        """Scan what was not scanned yet, nearest to the range first; return whether the definition was found.

        `found` collects all definitions, `ends` where the scan of each topic partition ended.
        """
        for windows in self._parts(here, ends):
            for chunks in _scanned(windows, self.limit, self.timeout_s, self.clock):
                for chunk in chunks:
                    for split in splits_of(self.decoder, chunk, lambda _: False):  # no rows: they define nothing
                        found.update(definitions_in(split, self.decoder))
                if wanted in found:
                    return True
        return False

    def _parts(self, here: OffsetRange, ends: dict[TopicPartition, int]) -> list[Iterator[Iterable[Chunk]]]:
        """Return the windows before the range, from its start to the end, and of partition 0 from its end.

        Each part has its own limits. Later looks scan only new records.
        """
        own, first = here.topic_partition, TopicPartition(here.topic, 0)
        bounds = self.bounds([own] if own == first else [own, first])
        start, end = bounds.get(own, (here.start, here.end))
        parts = []
        if own not in ends:
            parts.append(windows_from_end(_range(own, start, here.start), self.fetch, _FIRST_WINDOW))
        # A worker has not read all of its range yet: the definition may be in a later chunk.
        parts.append(windows_from_start(_range(own, ends.get(own, here.start), end), self.fetch, _FIRST_WINDOW))
        ends[own] = max(end, ends.get(own, end))
        if own != first and first in bounds:
            start, end = bounds[first]
            new = _range(first, max(start, ends.get(first, start)), end)
            parts.append(windows_from_end(new, self.fetch, _FIRST_WINDOW))
            ends[first] = end
        return parts


def _range(topic_partition: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(*topic_partition, min(start, end), end)


def search_of(decoder: Decoder, options: Options, *, driver: bool = True) -> Search:
    """Return the search for what rows of the options' source lack; each look connects.

    A stream's worker repeats a search for up to `kafkaConsumer.pollTimeoutMs`, because TiCDC may still write the
    definition.
    """

    def fetch(wanted: OffsetRange) -> Iterator[Chunk]:
        source, settings = record_source(options), fetch_settings(options)
        with source.fetcher(settings, protocol=decoder.facts.name, driver=driver) as fetcher:
            yield from fetcher.fetch(wanted)

    def bounds(topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        with record_source(options) as source:
            earliest, latest = source.earliest(topic_partitions), source.latest(topic_partitions)
        return {each: (earliest[each], latest[each]) for each in earliest.keys() & latest.keys()}

    return Search(
        decoder,
        fetch,
        bounds,
        record_source(options).defining,
        limit=options.infer_schema_max_scanned_records,
        timeout_s=options.infer_schema_timeout_ms / 1000,
        wait_s=options.kafka_consumer_poll_timeout_ms / 1000 if options.is_stream and not driver else 0,
    )
