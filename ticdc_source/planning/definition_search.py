"""Searches outside a read's ranges: for definitions that its records lack, and for the row before an offset.

The message that defines a version of a table may be before the range, after it (TiCDC repeats the BOOTSTRAP), or, with
`send-bootstrap-to-all-partition=false`, in partition 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.planning.resolved_ts import Fetch, scanned, windows_from_end, windows_from_start
from ticdc_source.protocols.decoding import Decoder, definitions_in, splits_of
from ticdc_source.schema.model import Definitions
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import Chunk

# Returns the earliest and the latest offset of topic partitions; the latest is one after the last record.
Bounds = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, tuple[int, int]]]

# Returns the ranges that define a version of the table whose rows a range has; None if they must be searched.
Defining = Callable[[OffsetRange, int], Sequence[OffsetRange] | None]

_FIRST_WINDOW = 64  # offsets; later windows are larger
_PAUSE_S = 1.0
_MOST_KNOWN = 10_000  # definitions per topic


@dataclass
class DefinitionSearch:
    """Reads the ranges that define a version, if the source tells them. Else searches around an offset range.

    That is before the range, after it, and in partition 0 of its topic.

    Attributes:
        fetch: yields the records of a range.
        limit: how many records to scan in each of the three parts.
        timeout_s: for how long to scan a part.
        wait_s: for how long to repeat searches, all together, because TiCDC may still write a definition.
        clock: a monotonic clock, in seconds.
        sleep: waits for so many seconds.
        around: the offset range; None as long as there is none.
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
        """Search for one definition; return all that were found on the way. The wanted one may be missing.

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
        while not self._look(wanted, found, ends):
            if self._waited_s >= self.wait_s:
                self._missing.add(wanted)
                break
            self.sleep(_PAUSE_S)
            self._waited_s += _PAUSE_S
        return found

    def _read(self, ranges: Iterable[OffsetRange]) -> Definitions:
        defined: Definitions = {}
        for chunk in (chunk for each in ranges for chunk in self.fetch(each)):
            for split in splits_of(self.decoder, chunk):
                if split.corrupt:
                    raise split.corrupt[0].error
                defined |= definitions_in(split, self.decoder)
        return defined

    def _look(self, wanted: tuple[TableName, int], found: Definitions, ends: dict[TopicPartition, int]) -> bool:
        """Scan what was not scanned yet, nearest to the range first; return whether the definition was found.

        `found` gets all definitions; `ends` says up to which offset each topic partition was scanned.
        """
        for windows in self._parts(ends):
            for chunks in scanned(windows, self.limit, self.timeout_s, self.clock):
                for chunk in chunks:
                    for split in splits_of(self.decoder, chunk, lambda _: False):  # no rows: they define nothing
                        found.update(definitions_in(split, self.decoder))
                if wanted in found:
                    return True
        return False

    def _parts(self, ends: dict[TopicPartition, int]) -> list[Iterator[Iterable[Chunk]]]:
        """Return the windows to scan: before the range, from its start to the end, and partition 0 from its end.

        Each part is scanned up to the limits. Later looks scan new records only.
        """
        here = self.around
        assert here is not None  # noqa: S101 (for mypy)
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


def _range(place: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(place.topic, place.partition, min(start, end), end)


class KnownDefinitions:
    """The definitions that a Python worker has read, by topic: it may read the next micro-batch of that topic."""

    def __init__(self) -> None:
        self._of_topics: dict[str, Definitions] = {}

    def of_topics(self, topics: Iterable[str]) -> Definitions:
        return {key: columns for topic in topics for key, columns in self._of_topics.get(topic, {}).items()}

    def add(self, topics: Iterable[str], definitions: Definitions) -> None:
        """Keep the definitions found while these topics were read. Above the limit of a topic, drop the oldest."""
        for topic in topics:
            known = self._of_topics.setdefault(topic, {})
            known.update(definitions)
            for key in list(known)[: max(0, len(known) - _MOST_KNOWN)]:
                del known[key]


def last_commit_ts(
    table: TableName,
    topic_partition: TopicPartition,
    offset: int,
    *,
    decoder: Decoder,
    fetch: Fetch,
    bounds: Bounds,
    limit: int,
    timeout_s: float,
) -> int | None:
    """Return the commit-ts of the last row of a table before an offset that has one; None if no such row is found.

    A delete of Avro without a value lacks it. At most `limit` records are scanned, for at most `timeout_s`.
    """
    start, _ = bounds([topic_partition]).get(topic_partition, (offset, offset))
    windows = windows_from_end(OffsetRange(*topic_partition, min(start, offset), offset), fetch, _FIRST_WINDOW)
    for chunks in scanned(windows, limit, timeout_s):
        for chunk in reversed(chunks):
            for split in reversed(list(splits_of(decoder, chunk, table.is_same))):
                for events in split.tables.values():
                    own = decoder.commit_versions(events).drop_null()
                    if len(own):
                        commit_ts: int = own[-1].as_py()
                        return commit_ts
    return None
