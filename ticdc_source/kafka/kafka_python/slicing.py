"""The fast record path: kafka-python's consumer hands out what a whole fetch has brought, not record by record.

`Fetcher.PartitionRecords` is where kafka-python 3.0 unpacks a fetch. Its place is taken, for one consumer, by a class
that hands the record batches on as they came. Everything else stays kafka-python's: connections, sessions, leaders,
positions, errors. As the position is behind the whole fetch at once, the next fetch is on its way before the first
record of this one has been cut.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any

import kafka
from kafka.consumer.fetcher import Fetcher
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords

from ticdc_source.events import Chunk
from ticdc_source.kafka.batches.cut import Bounds, chunks_of
from ticdc_source.kafka.batches.record_batches import Fetched, record_batches

__all__ = ["is_sliceable", "sliced"]

_log = logging.getLogger(__name__)

# What the fetcher asks of the class, in kafka-python 3.0.12: where it differs, the general path is taken.
_ARGUMENTS = (
    "self",
    "fetch_offset",
    "tp",
    "records",
    "key_deserializer",
    "value_deserializer",
    "check_crcs",
    "isolation_level",
    "aborted_transactions",
    "metric_aggregator",
    "on_drain",
)
_MEMBERS = frozenset({"__init__", "__bool__", "take", "drain"})
_USED = {
    "_append": {"topic_partition", "next_fetch_offset", "leader_epoch", "take", "drain"},
    "_parse_fetched_data": {"PartitionRecords", "MemoryRecords"},
    "_on_partition_records_drain": {"bytes_read", "topic_partition"},
    "_fetchable_partitions": {"_next_partition_records", "topic_partition"},
}


@functools.cache
def is_sliceable() -> bool:
    """Tell whether kafka-python's fetcher is built as the fast path needs it; looked at once."""
    try:
        reason = _difference()
    except (AttributeError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
    if reason:
        _log.debug("kafka-python %s is read record by record: %s", kafka.__version__, reason)
    else:
        _log.debug("kafka-python %s is read by whole record batches", kafka.__version__)
    return not reason


def _difference() -> str | None:
    replaced = Fetcher.PartitionRecords
    arguments = tuple(inspect.signature(replaced.__init__).parameters)
    if arguments != _ARGUMENTS:
        return f"PartitionRecords has other arguments: {', '.join(arguments)}"
    if missing := _MEMBERS - vars(replaced).keys():
        return f"PartitionRecords has no {', '.join(sorted(missing))}"
    if "_buffer" not in MemoryRecords.__slots__:
        return "MemoryRecords keeps its bytes elsewhere"
    for name, used in _USED.items():
        if missing := used - set(getattr(Fetcher, name).__code__.co_names):
            return f"Fetcher.{name} does not use {', '.join(sorted(missing))}"
    return None


class Slice:
    """Stands in for kafka-python's `PartitionRecords`: gives one object, `chunks`, instead of records.

    Args:
        bounds: how much goes into a chunk; its `end` is that of the range that is read at the time.
        fetch_offset: the offset that was asked for.
        tp: the topic partition.
        records: what has come.
        key_deserializer: not used here.
        value_deserializer: not used here.
        check_crcs: whether checksums are compared.
        isolation_level: whether aborted transactions are left out.
        aborted_transactions: which those are.
        metric_aggregator: not used here: metrics are off.
        on_drain: whom to tell that all was taken.
    """

    def __init__(
        self,
        bounds: Bounds,
        fetch_offset: int,
        tp: Any,
        records: Any,
        key_deserializer: Any = None,  # noqa: ARG002 (kafka-python's interface, down to the names)
        value_deserializer: Any = None,  # noqa: ARG002
        check_crcs: bool = True,  # noqa: FBT001, FBT002
        isolation_level: Any = IsolationLevel.READ_UNCOMMITTED,
        aborted_transactions: Any = None,
        metric_aggregator: Any = None,  # noqa: ARG002
        on_drain: Callable[[Any], object] = lambda _: None,
    ) -> None:
        self.topic_partition = tp
        self.fetch_offset = self.next_fetch_offset = fetch_offset
        self.leader_epoch = -1
        self.bytes_read = self.records_read = 0
        self._bounds = bounds
        self._on_drain = on_drain
        self._left = True
        committed = isolation_level == IsolationLevel.READ_COMMITTED
        self._fetched: Fetched | None = Fetched(
            tp.topic,
            tp.partition,
            fetch_offset,
            records._buffer,  # noqa: SLF001 (its only way out is batch by batch, each copied)
            check_crcs,
            (aborted_transactions or []) if committed else None,
        )

    def __bool__(self) -> bool:
        """Return whether there is something left: as long as there is, no more is fetched."""
        return self._left

    def take(self, _most: int | None = None) -> list[Iterator[Chunk]]:
        """Give everything at once, and move on to what comes behind it.

        Where nothing more is wanted, this stays as if something were left, so that nothing more is fetched.
        """
        fetched, self._fetched = self._fetched, None
        if fetched is None:
            self.drain()
            return []
        batches, damage = record_batches(fetched.data)
        if batches:
            self.next_fetch_offset = max(self.next_fetch_offset, batches[-1].next_offset)
            self.leader_epoch = batches[-1].leader_epoch
        self.bytes_read = len(fetched.data)
        if damage is None and self.next_fetch_offset < self._bounds.end:
            self.drain()
        return [chunks_of(fetched, batches, damage, self._bounds)] if batches or damage else []

    def drain(self) -> None:
        """Let go of what there is."""
        self._fetched = None
        if self._left:
            self._left = False
            self._on_drain(self)


def sliced(consumer: Any, bounds: Bounds) -> bool:
    """Let a consumer's polls give iterators over chunks instead of records, where that is possible.

    Returns:
        whether it does.
    """
    fetcher = getattr(consumer, "_fetcher", None)
    if not isinstance(fetcher, Fetcher) or not is_sliceable():
        return False
    fetcher.PartitionRecords = functools.partial(Slice, bounds)
    return True
