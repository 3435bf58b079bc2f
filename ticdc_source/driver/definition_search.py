"""Searches a topic for definitions that a read needs and its own records lack.

The message that defines a version of a table may be before the range, after it (TiCDC repeats the BOOTSTRAP), or, with
`send-bootstrap-to-all-partition=false`, in partition 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ticdc_source.driver.resolved_ts import Fetch, windows_from_end, windows_from_start
from ticdc_source.errors import DataLossError, DecodeError
from ticdc_source.events import Chunk, TableName
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.protocols.base import Decoder, splits_of
from ticdc_source.schema.model import Definitions

__all__ = ["Bounds", "DefinitionSearch", "KnownDefinitions"]

# Returns the earliest and the latest offset of topic partitions; the latest is one after the last record.
Bounds = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, tuple[int, int]]]

_FIRST_WINDOW = 64  # offsets; later windows are larger
_PAUSE_S = 1.0
_MOST_KNOWN = 10_000  # definitions per topic


class DefinitionSearch:
    """Searches for definitions around an offset range: before it, after it, and in partition 0 of its topic.

    Args:
        decoder: the decoder of the protocol.
        fetch: yields the records of a range.
        bounds: see `Bounds`.
        limit: after how many records to end one look.
        timeout_s: for how long one look may scan.
        wait_s: for how long to repeat the look, because TiCDC may still write the definition.
        clock: a monotonic clock, in seconds.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        decoder: Decoder,
        fetch: Fetch,
        bounds: Bounds,
        *,
        limit: int,
        timeout_s: float,
        wait_s: float = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._decoder = decoder
        self._fetch = fetch
        self._bounds = bounds
        self._limit = limit
        self._timeout_s = timeout_s
        self._wait_s = wait_s
        self._clock = clock
        self._sleep = sleep
        self._missing: set[tuple[TableName, int]] = set()
        self.around: OffsetRange | None = None

    def __call__(self, table: TableName, version: int) -> Definitions:
        """Search for one definition; return all that were found on the way. The wanted one may be missing."""
        found: Definitions = {}
        wanted = (table, version)
        if self.around is None or wanted in self._missing:
            return found
        begun = self._clock()
        ends: dict[TopicPartition, int] = {}
        while not self._look(wanted, found, ends):
            if self._clock() - begun >= self._wait_s:
                self._missing.add(wanted)
                break
            self._sleep(_PAUSE_S)
        return found

    def _look(self, wanted: tuple[TableName, int], found: Definitions, ends: dict[TopicPartition, int]) -> bool:
        """Scan what was not scanned yet, nearest to the range first; return whether the definition was found.

        Args:
            wanted: the definition.
            found: gets all definitions.
            ends: the offset up to which each topic partition was scanned; empty at first.
        """
        scanned, begun = 0, self._clock()
        for window in self._windows(ends):
            for chunk in window:
                scanned += len(chunk)
                for split in splits_of(self._decoder, chunk, lambda _: False):  # no rows: only definitions are wanted
                    if self._decoder.facts.definitions is not None:
                        found.update(self._decoder.facts.definitions([*split.ddl, *split.bootstraps]))
            if wanted in found:
                return True
            if scanned >= self._limit or self._clock() - begun >= self._timeout_s:
                return False
        return False

    def _windows(self, ends: dict[TopicPartition, int]) -> Iterator[Iterable[Chunk]]:
        """Yield first what precedes the range, then what follows it, then partition 0 from its end.

        Later looks yield only new records: what an earlier look left out at its limit is not likely to help.
        """
        here = self.around
        assert here is not None  # noqa: S101 (for mypy)
        own, first = here.topic_partition, TopicPartition(here.topic, 0)
        bounds = self._bounds([own] if own == first else [own, first])
        start, end = bounds.get(own, (here.start, here.end))
        before, ends[own] = ends.get(own), max(end, ends.get(own, here.end))
        rest = None
        if own != first and first in bounds:
            earliest, latest = bounds[first]
            rest = _range(first, max(earliest, ends.get(first, earliest)), latest)
            ends[first] = latest
        if before is None:
            yield from self._readable(windows_from_end(_range(own, start, here.start), self._fetch, _FIRST_WINDOW))
        yield from self._readable(
            windows_from_start(_range(own, here.end if before is None else before, end), self._fetch, _FIRST_WINDOW)
        )
        if rest is not None:
            yield from self._readable(windows_from_end(rest, self._fetch, _FIRST_WINDOW))

    def _readable(self, windows: Iterable[Iterable[Chunk]]) -> Iterator[Iterable[Chunk]]:
        """Stop at a window that cannot be read. If the read needs its records, the read raises the error."""
        for window in windows:
            try:
                yield list(window)
            except (DataLossError, DecodeError):
                return


def _range(place: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(place.topic, place.partition, min(start, end), end)


class KnownDefinitions:
    """The definitions that a Python worker has read, by topic: it may read the next micro-batch of that topic."""

    def __init__(self) -> None:
        self._of_topics: dict[str, Definitions] = {}

    def of(self, topics: Iterable[str]) -> Definitions:
        """Return the definitions of some topics."""
        return {key: columns for topic in topics for key, columns in self._of_topics.get(topic, {}).items()}

    def add(self, topics: Iterable[str], definitions: Definitions) -> None:
        """Keep the definitions found while these topics were read. Above the limit of a topic, drop the oldest."""
        for topic in topics:
            known = self._of_topics.setdefault(topic, {})
            known.update(definitions)
            for key in list(known)[: max(0, len(known) - _MOST_KNOWN)]:
                del known[key]
