"""Looks in a topic for the versions of tables that rows name and the records of a read do not define.

A range may begin behind the DDL or BOOTSTRAP message that defines a version, or end before it: TiCDC sends another
BOOTSTRAP after some time, and with `send-bootstrap-to-all-partition=false` to the first partition only.
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

# Returns where topic partitions begin and end now: the first offset, and the one behind the last record.
Bounds = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, tuple[int, int]]]

_FIRST_WINDOW = 64  # offsets; those after it are larger
_PAUSE_S = 1.0
_MOST_KNOWN = 10_000  # versions of tables


class DefinitionSearch:
    """Looks for definitions around an offset range: before it, behind it, and in the first partition of its topic.

    Args:
        decoder: the decoder of the protocol.
        fetch: yields the records of a range.
        bounds: returns where topic partitions begin and end.
        limit: how many records to look at for one version, at most.
        timeout_s: for how long to look, at most.
        wait_s: for how long to wait for records that TiCDC has not written yet.
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
        """Return definitions that were found while this one was looked for. It may not be among them."""
        found: Definitions = {}
        wanted = (table, version)
        if self.around is None or wanted in self._missing:
            return found
        begun = self._clock()
        ends: dict[TopicPartition, int] = {}
        while not self._is_found(wanted, found, begun, ends):
            if self._clock() - begun >= self._wait_s:
                self._missing.add(wanted)
                break
            self._sleep(_PAUSE_S)
        return found

    def _is_found(
        self, wanted: tuple[TableName, int], found: Definitions, begun: float, ends: dict[TopicPartition, int]
    ) -> bool:
        """Look at the records that were not looked at yet, the likely ones first.

        Args:
            wanted: what is looked for.
            found: gets what is defined.
            begun: when the search has begun.
            ends: up to where each topic partition was looked at; empty at first.
        """
        scanned = 0
        for window in self._windows(ends):
            for chunk in window:
                scanned += len(chunk)
                for split in splits_of(self._decoder, chunk, lambda _: False):
                    if self._decoder.facts.definitions is not None:
                        found.update(self._decoder.facts.definitions([*split.ddl, *split.bootstraps]))
            if wanted in found:
                return True
            if scanned >= self._limit or self._clock() - begun >= max(self._timeout_s, self._wait_s):
                return False
        return False

    def _windows(self, ends: dict[TopicPartition, int]) -> Iterator[Iterable[Chunk]]:
        here = self.around
        assert here is not None  # noqa: S101 (for mypy)
        own, first = here.topic_partition, TopicPartition(here.topic, 0)
        bounds = self._bounds([own] if own == first else [own, first])
        is_first_look = not ends
        start, end = bounds.get(own, (here.start, here.end))
        if is_first_look:
            yield from self._readable(windows_from_end(_range(own, start, here.start), self._fetch, _FIRST_WINDOW))
        yield from self._readable(
            windows_from_start(_range(own, ends.get(own, here.end), end), self._fetch, _FIRST_WINDOW)
        )
        ends[own] = max(end, ends.get(own, here.end))
        if own != first and first in bounds:
            start, end = bounds[first]
            rest = _range(first, max(start, ends.get(first, start)), end)
            yield from self._readable(windows_from_end(rest, self._fetch, _FIRST_WINDOW))
            ends[first] = end

    def _readable(self, windows: Iterable[Iterable[Chunk]]) -> Iterator[Iterable[Chunk]]:
        """Yield windows up to one that cannot be read: if the read needs its records, it raises the error itself."""
        for window in windows:
            try:
                yield list(window)
            except (DataLossError, DecodeError):
                return


def _range(place: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(place.topic, place.partition, min(start, end), end)


class KnownDefinitions:
    """The definitions that a process has met, by topic: a worker reads one topic in many micro-batches."""

    def __init__(self) -> None:
        self._of_topics: dict[str, Definitions] = {}

    def of(self, topics: Iterable[str]) -> Definitions:
        """Return the definitions of some topics."""
        return {key: columns for topic in topics for key, columns in self._of_topics.get(topic, {}).items()}

    def add(self, topics: Iterable[str], definitions: Definitions) -> None:
        """Know definitions that were met while these topics were read; the oldest ones are forgotten."""
        for topic in topics:
            known = self._of_topics.setdefault(topic, {})
            known.update(definitions)
            for key in list(known)[: max(0, len(known) - _MOST_KNOWN)]:
                del known[key]
