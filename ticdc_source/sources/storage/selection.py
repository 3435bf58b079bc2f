"""Which files a read needs, and which of them one task reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TableFilter, TopicPartition
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.storage.changefeed import CHECKPOINT, Look
from ticdc_source.sources.storage.paths import directory_of, order_of

__all__ = ["in_order", "packed_files", "ranges_of", "sampled", "tables_of", "wanted_of"]

_TASK_BYTES = 32 << 20  # the most bytes of files in an input partition of several files
_MOST_SAMPLED = 30  # at most so many directories of a table are sampled, the newest


def ranges_of(look: Look, tables: TableFilter) -> list[OffsetRange]:
    """Return what a batch reads: the finished files of wanted tables, and the checkpoint-ts."""
    ranges = [OffsetRange(*place, look.starts[place], end) for place, end in look.ends.items()]
    if look.checkpoint is not None:
        ranges.append(OffsetRange(*CHECKPOINT, look.checkpoint, look.checkpoint + 1))
    return sorted(wanted_of(ranges, tables), key=in_order)


def tables_of(look: Look) -> set[TableName]:
    """Return the tables of which there are data files, or were; their paths tell them."""
    directories = (directory_of(pattern) for pattern in {*look.sizes, *(place.topic for place in look.ends)})
    return {TableName(*each.table) for each in directories if each is not None and each.table is not None}


def wanted_of(ranges: Iterable[OffsetRange], tables: TableFilter) -> list[OffsetRange]:
    """Return the ranges whose files may be of wanted tables."""
    return [each for each in ranges if _may_be_wanted(each.topic, tables)]


def _may_be_wanted(topic: str, wanted: TableFilter) -> bool:
    """Return whether files may be of a wanted table."""
    place = directory_of(topic)
    if not wanted.patterns or place is None or place.table is None or "/" in place.table[1]:
        return True  # the path does not tell the table; a slash may belong to the database or to the table
    return wanted.matches(TableName(*place.table))


def sampled(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges to sample: all schema files, and the first and last file of a table's newest directories."""
    by_owner: dict[str, list[OffsetRange]] = {}
    chosen = []
    for each in ranges:
        place = directory_of(each.topic)
        if place is not None and each.size:
            by_owner.setdefault(place.owner, []).append(each)
        elif place is None and each.topic_partition != CHECKPOINT:
            chosen.append(each)
    for directories in by_owner.values():
        for each in sorted(directories, key=in_order)[-_MOST_SAMPLED:]:
            chosen.append(each._replace(end=each.start + 1))
            if each.size > 1:  # partition 1 is made up: the sampler takes one range of each topic partition
                chosen.append(each._replace(partition=1, start=each.end - 1))
    return chosen


def packed_files(
    ranges: Iterable[OffsetRange], sizes: Mapping[str, Mapping[int, int]], min_partitions: int | None = None
) -> list[list[OffsetRange]]:
    """Return the files of each input partition, in order: up to 32 MiB together, or one larger file. No file is split.

    Args:
        ranges: the files.
        sizes: see `Look.sizes`. A data file of unknown size counts as 32 MiB; schema files and `metadata` as 0.
        min_partitions: the option `minPartitions`; it lowers the 32 MiB.
    """
    files = [
        (each._replace(start=start, end=start + 1), _size_of(each.topic, start + 1, sizes))
        for each in ranges
        for start in range(each.start, each.end)
    ]
    max_bytes = _TASK_BYTES
    if min_partitions is not None:
        max_bytes = min(max_bytes, sum(size for _, size in files) // min_partitions)
    packed: list[list[OffsetRange]] = []
    free = -1  # bytes left in the last input partition; -1 opens the first one, also for a file of 0 bytes
    for file, size in files:
        if size > free:
            packed.append([])
            free = max_bytes
        free -= size
        last = packed[-1][-1] if packed[-1] else None
        if last is not None and last.topic_partition == file.topic_partition and last.end == file.start:
            packed[-1][-1] = last._replace(end=file.end)
        else:
            packed[-1].append(file)
    return packed


def _size_of(topic: str, number: int, sizes: Mapping[str, Mapping[int, int]]) -> int:
    return 0 if directory_of(topic) is None else sizes.get(topic, {}).get(number, _TASK_BYTES)


def in_order(files: OffsetRange | TopicPartition) -> tuple[int, int, str, str]:
    """Return where files stand in the order in which TiCDC writes them."""
    return order_of(files.topic)
