"""Searches a topic partition for the row before an offset: it has the commit-ts that a delete without a value lacks."""

from __future__ import annotations

import time

from ticdc_source.driver.definition_search import Bounds
from ticdc_source.driver.resolved_ts import Fetch, windows_from_end
from ticdc_source.errors import DataLossError, DecodeError
from ticdc_source.events import TableName
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.protocols.base import Decoder, Place, splits_of

__all__ = ["PreviousRows"]

_FIRST_WINDOW = 64  # offsets; later windows are larger


class PreviousRows:
    """Returns the commit-ts of the last row of a table before an offset that has one.

    Args:
        decoder: the decoder of the protocol.
        fetch: yields the records of a range.
        bounds: see `Bounds`.
        limit: how many records to scan at most.
        timeout_s: for how long to scan.
    """

    def __init__(self, decoder: Decoder, fetch: Fetch, bounds: Bounds, *, limit: int, timeout_s: float) -> None:
        self._decoder = decoder
        self._fetch = fetch
        self._bounds = bounds
        self._limit = limit
        self._timeout_s = timeout_s

    def __call__(self, table: TableName, place: Place, offset: int) -> int | None:
        """Search; return None if no such row is found."""
        topic_partition = TopicPartition(*place)
        start, _ = self._bounds([topic_partition]).get(topic_partition, (offset, offset))
        before = OffsetRange(*place, min(start, offset), offset)
        scanned, begun = 0, time.monotonic()
        for window in windows_from_end(before, self._fetch, _FIRST_WINDOW):
            try:
                chunks = list(window)
            except (DataLossError, DecodeError):
                return None
            for chunk in reversed(chunks):
                scanned += len(chunk)
                for split in reversed(list(splits_of(self._decoder, chunk, table.is_same))):
                    for events in split.tables.values():
                        known = self._decoder.commit_versions(events).drop_null()
                        if len(known):
                            commit_ts: int = known[-1].as_py()
                            return commit_ts
            if scanned >= self._limit or time.monotonic() - begun >= self._timeout_s:
                return None
        return None
