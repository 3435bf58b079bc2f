"""Searches a topic partition for the row before an offset: it has the commit-ts that a delete without a value lacks."""

from __future__ import annotations

from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.planning.definition_search import Bounds
from ticdc_source.planning.resolved_ts import Fetch, scanned, windows_from_end
from ticdc_source.protocols.base import Decoder, Place, splits_of
from ticdc_source.schema.table_name import TableName

__all__ = ["last_commit_ts"]

_FIRST_WINDOW = 64  # offsets; later windows are larger


def last_commit_ts(
    table: TableName,
    place: Place,
    offset: int,
    *,
    decoder: Decoder,
    fetch: Fetch,
    bounds: Bounds,
    limit: int,
    timeout_s: float,
) -> int | None:
    """Return the commit-ts of the last row of a table before an offset that has one; None if no such row is found.

    Args:
        table: the table.
        place: the topic partition.
        offset: the offset.
        decoder: the decoder of the protocol.
        fetch: yields the records of a range.
        bounds: see `Bounds`.
        limit: how many records to scan at most.
        timeout_s: for how long to scan.
    """
    topic_partition = TopicPartition(*place)
    start, _ = bounds([topic_partition]).get(topic_partition, (offset, offset))
    windows = windows_from_end(OffsetRange(*place, min(start, offset), offset), fetch, _FIRST_WINDOW)
    for chunks in scanned(windows, limit, timeout_s):
        for chunk in reversed(chunks):
            for split in reversed(list(splits_of(decoder, chunk, table.is_same))):
                for events in split.tables.values():
                    own = decoder.commit_versions(events).drop_null()
                    if len(own):
                        commit_ts: int = own[-1].as_py()
                        return commit_ts
    return None
