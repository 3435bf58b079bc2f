"""Which partition dispatcher the changefeed has: what rows of one partition have in common.

Sources: pingcap/tiflow cdc/sink/dmlsink/mq/dispatcher/partition: `ts` is the commit-ts modulo the number of partitions,
`table` a hash of the table's name, `index-value` a hash of the handle key.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.protocols.settings import ChangefeedSetting

__all__ = ["Dispatched"]

_NAME = "dispatcher-partition"
# So many rows that could have been elsewhere are no accident.
_LEAST_ROWS, _LEAST_KEYS, _LEAST_REPEATED = 8, 8, 3
_HASHED = (pa.types.is_integer, pa.types.is_string, pa.types.is_binary, pa.types.is_decimal, pa.types.is_date)


@dataclass(slots=True)
class Dispatched:
    """Counts in which partitions rows are, over all tables of a topic.

    Attributes:
        partitions: the number of partitions of the topic.
    """

    partitions: int
    _rows: int = 0
    _by_ts: int = 0
    _used: set[int] = field(default_factory=set)
    _tables: int = 0
    _one_partition: int = 0
    _chances: int = 0  # for a second partition: the distinct keys of each table but one
    _keyed: int = 0
    _repeated: int = 0
    _scattered: int = 0

    def add(self, partitions: pa.Array, commit_ts: pa.Array, keys: list[pa.Array]) -> None:
        """Add the rows of a table: the partition, the commit-ts and the columns of the handle key of each."""
        if not len(partitions):
            return
        self._rows += len(partitions)
        self._used.update(partitions.unique().to_pylist())
        expected = [None if ts is None else ts % self.partitions for ts in commit_ts.to_pylist()]
        self._by_ts += pc.sum(pc.equal(partitions, pa.array(expected, partitions.type)).cast(pa.int32())).as_py() or 0
        self._tables += 1
        alone = len(partitions.unique()) == 1
        self._one_partition += alone
        if not keys or not all(any(is_type(key.type) for is_type in _HASHED) for key in keys):
            return
        names = [f"key{number}" for number in range(len(keys))]
        rows = pa.table([*keys, partitions, commit_ts], names=[*names, "partition", "commit_ts"])
        by_key = rows.group_by(names).aggregate([("partition", "count_distinct"), ("commit_ts", "count_distinct")])
        self._chances += len(by_key) - 1
        self._keyed += not alone
        self._repeated += pc.greater(by_key["commit_ts_count_distinct"], 1).to_pylist().count(True)
        self._scattered += pc.greater(by_key["partition_count_distinct"], 1).to_pylist().count(True)

    def found(self) -> list[ChangefeedSetting]:
        """Return the dispatcher, if the rows show it."""
        if self.partitions < 2 or self._rows < _LEAST_ROWS:  # noqa: PLR2004 (one partition says nothing)
            return []
        if self._by_ts == self._rows and len(self._used) > 1:
            because = f"the partition of each of {self._rows:,} rows is its commit-ts modulo {self.partitions}"
            return [ChangefeedSetting(_NAME, "ts", because)]
        if self._one_partition == self._tables:
            if self._chances < _LEAST_KEYS:
                return []
            because = f"tables whose rows are all in one partition: {self._tables:,}, all of them"
            return [ChangefeedSetting(_NAME, "table", because)]
        if self._keyed and not self._scattered and self._repeated >= _LEAST_REPEATED:
            because = f"rows that changed more than once, each in one partition: {self._repeated:,}"
            return [ChangefeedSetting(_NAME, "index-value", because)]
        return []
