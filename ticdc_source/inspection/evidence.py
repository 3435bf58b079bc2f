"""What messages show of a changefeed, beside what they say: settings, the time zone of its server, its dispatcher.

A setting is shown only if messages prove it, and only if a finding or the options of a read depend on it.

The messages do not name the zone (docs/wire.md, item 21). But a column that holds the time of the change, such as
`updated_at`, lies just before the commit time in the right zone, and whole quarters of an hour beside it in another.

The dispatcher shows in what the rows of one partition have in common. Sources: pingcap/tiflow
cdc/sink/dmlsink/mq/dispatcher/partition: `ts` is the commit-ts modulo the number of partitions, `table` a hash of the
table's name, `index-value` a hash of the handle key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from ticdc_source.inspection.report import ChangefeedSetting
from ticdc_source.options.registry import RegistrySettings
from ticdc_source.protocols.base import Decoded, ProtocolFacts
from ticdc_source.protocols.compression import codec_of
from ticdc_source.protocols.events import TableEvents
from ticdc_source.protocols.messages import MALFORMED
from ticdc_source.sources.chunk import Chunk

_QUARTER_S = 900
_NEAR_S = 120.0  # a row is written so long before it is committed, at most; clocks may differ as well
_LEAST = 3  # rows, with as many commit times
_LEAST_PART = 0.5  # of the rows
# UTC offsets of time zones, in quarters of an hour. Others are times that are planned: an expiry in 15 minutes.
_OFFSETS = frozenset((*range(-48, 57, 4), -38, -14, -10, 14, 18, 22, 23, 26, 35, 38, 42, 51, 55))

# Time zones to name, those of the most people first. Others have the same offset.
_ZONES = (
    "Asia/Shanghai", "Asia/Kolkata", "Asia/Tokyo", "Asia/Jakarta", "Asia/Dubai", "Europe/London", "Europe/Berlin",
    "Europe/Moscow", "America/New_York", "America/Chicago", "America/Denver", "America/Los_Angeles",
    "America/Sao_Paulo", "Australia/Sydney",
)  # fmt: skip


class Shift(NamedTuple):
    """By how much a column is shifted.

    Attributes:
        zones: names of time zones that have this offset at the time of the rows.
        seconds: the shift against the time zone of the read; 0 if that is right.
    """

    offset: str
    zones: tuple[str, ...]
    seconds: int


def shift_of(values: pa.Array, commit_ms: pa.Array, time_zone: str) -> Shift | None:
    """Return by how much the values of a column are beside the commit times; None if most are not, or not clearly.

    The values were read in `time_zone`; `commit_ms` is the commit time of each, in milliseconds since the epoch.
    """
    pairs = [
        (value / 1e6, commit / 1e3)
        for value, commit in zip(values.cast(pa.int64()).to_pylist(), commit_ms.to_pylist(), strict=True)
        if value is not None and commit is not None
    ]
    quarters: Counter[int] = Counter()
    commits: dict[int, set[float]] = {}
    for value, commit in pairs:
        quarter = round((value - commit) / _QUARTER_S)
        if abs(value - commit - quarter * _QUARTER_S) <= _NEAR_S:
            quarters[quarter] += 1
            commits.setdefault(quarter, set()).add(commit)
    if not quarters:
        return None
    quarter, rows = quarters.most_common(1)[0]
    if rows < _LEAST_PART * len(pairs) or len(commits[quarter]) < _LEAST:
        return None
    moment = datetime.fromtimestamp(max(commits[quarter]), timezone.utc)
    offset = _offset_of(time_zone, moment) + timedelta(seconds=quarter * _QUARTER_S)
    if quarter and offset / timedelta(seconds=_QUARTER_S) not in _OFFSETS:
        return None
    return Shift(_text(offset), tuple(_names(offset, moment)), quarter * _QUARTER_S)


def _offset_of(time_zone: str, moment: datetime) -> timedelta:
    if time_zone[:1] in "+-":
        sign = -1 if time_zone[0] == "-" else 1
        hours, _, minutes = time_zone[1:].partition(":")
        return sign * timedelta(hours=int(hours), minutes=int(minutes or 0))
    if time_zone == "UTC":
        return timedelta()
    return moment.astimezone(ZoneInfo(time_zone)).utcoffset() or timedelta()


def _names(offset: timedelta, moment: datetime) -> Iterator[str]:
    if not offset:
        yield "UTC"
    for name in _ZONES:
        try:
            zone = ZoneInfo(name)
        except ZoneInfoNotFoundError:  # slim images lack time-zone data
            return
        if moment.astimezone(zone).utcoffset() == offset:
            yield name


def _text(offset: timedelta) -> str:
    minutes = round(offset / timedelta(minutes=1))
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


_DISPATCHER = "dispatcher-partition"
# Columns beside those of a table, by names that no table of MySQL has: they end in a space.
PARTITION, COMMIT_TS = "partition ", "commit_ts "
# So many rows that could have been elsewhere are no accident.
_LEAST_ROWS, _LEAST_KEYS, _LEAST_REPEATED = 8, 8, 3
_HASHED = (pa.types.is_integer, pa.types.is_string, pa.types.is_binary, pa.types.is_decimal, pa.types.is_date)


@dataclass(slots=True)
class Dispatched:
    """Counts in which partitions rows are, over all tables of a topic."""

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

    def add(self, rows: pa.Table) -> None:
        """Add the rows of a table: the partition, the commit-ts and the columns of the handle key of each."""
        if not rows.num_rows:
            return
        partitions, commit_ts = rows[PARTITION].to_pylist(), rows[COMMIT_TS].to_pylist()
        self._rows += len(partitions)
        self._used.update(partitions)
        self._by_ts += sum(
            ts is not None and ts % self.partitions == partition
            for partition, ts in zip(partitions, commit_ts, strict=True)
        )
        self._tables += 1
        alone = len(set(partitions)) == 1
        self._one_partition += alone
        names = [name for name in rows.column_names if name not in (PARTITION, COMMIT_TS)]
        if not names or not all(any(is_type(rows[name].type) for is_type in _HASHED) for name in names):
            return
        by_key = rows.group_by(names).aggregate([(PARTITION, "count_distinct"), (COMMIT_TS, "count_distinct")])
        self._chances += len(by_key) - 1
        self._keyed += not alone
        self._repeated += sum(count > 1 for count in by_key[f"{COMMIT_TS}_count_distinct"].to_pylist())
        self._scattered += sum(count > 1 for count in by_key[f"{PARTITION}_count_distinct"].to_pylist())

    def settings(self) -> list[ChangefeedSetting]:
        if self.partitions < 2 or self._rows < _LEAST_ROWS:  # noqa: PLR2004 (one partition says nothing)
            return []
        if self._by_ts == self._rows and len(self._used) > 1:
            because = f"the partition of each of {self._rows:,} rows is its commit-ts modulo {self.partitions}"
            return [ChangefeedSetting(_DISPATCHER, "ts", because)]
        if self._one_partition == self._tables:
            if self._chances < _LEAST_KEYS:
                return []
            because = f"tables whose rows are all in one partition: {self._tables:,}, all of them"
            return [ChangefeedSetting(_DISPATCHER, "table", because)]
        if self._keyed and not self._scattered and self._repeated >= _LEAST_REPEATED:
            because = f"rows that changed more than once, each in one partition: {self._repeated:,}"
            return [ChangefeedSetting(_DISPATCHER, "index-value", because)]
        return []


_NEARLY_ALL = 0.95  # of the values: some bytes look compressed and are not


@dataclass(slots=True)
class Evidence:
    """Counts what the messages of one protocol have and lack.

    Attributes:
        placed: how many of them have no commit-ts of their own (`Decoded.placed`).
        rewritten: the number of rows that were inserted again, and not deleted in between.
    """

    facts: ProtocolFacts
    registry: RegistrySettings
    rows: int = 0
    placed: int = 0
    updates: int = 0
    old_rows: int = 0
    rewritten: int = 0
    _extended: int = 0
    _plain: int = 0
    _claimed: int = 0
    _key_only: int = 0
    _codecs: Counter[str] = field(default_factory=Counter)

    def add_values(self, chunk: Chunk) -> None:
        texts = ((value or b"")[self.facts.text_start :] for value in chunk.values)
        self._codecs.update(codec_of(text) for text in texts if text)

    def add_events(self, events: TableEvents, decoded: Decoded) -> None:
        """Look at the row messages of a table, and at what they were decoded to."""
        self.rows += len(events) - len(decoded.failures)
        self.placed += decoded.placed.true_count
        self._claimed += decoded.claimed
        self._key_only += decoded.key_only
        if self.facts.shows_extension is None:
            return
        for payload in events.payloads:
            try:
                extended = self.facts.shows_extension(payload, self.registry)
            except MALFORMED:  # decoding reports it
                continue
            self._extended += extended is True
            self._plain += extended is False

    def by_ticdc(self, watermarks: int) -> bool:
        """Return whether TiCDC wrote the messages, of which so many are watermarks."""
        if self.facts.commit_ts_needs is None or watermarks or self._extended or self._plain:
            return True
        return self.placed < self.rows or not self.rows

    def no_commit_ts(self) -> int:
        """Return how many row messages lack a commit-ts, without deletes that no setting gives one."""
        return self._plain if self.facts.lacks_commit_ts else self.placed

    def no_old_rows(self) -> int:
        """Return how many updates lack their old rows; 0 if one has it, or if large messages may be the reason."""
        if self.old_rows or self.facts.old_rows_need is None:
            return 0
        return max(0, self.updates + self.rewritten - self._claimed - self._key_only)

    def settings(self, watermarks: int) -> Iterator[ChangefeedSetting]:
        """Yield the settings that the messages prove, of which so many are watermarks."""
        if self.facts.shows_extension is not None and (watermarks or self._extended or self._plain):
            extended = self._extended + watermarks  # they need it too
            value = _value({"true": extended, "false": self._plain})
            because = f"rows and watermarks with its fields: {extended:,} of {extended + self._plain:,}"
            yield ChangefeedSetting("enable-tidb-extension", value, because)
        large = {"claim-check": self._claimed, "handle-key-only": self._key_only}
        if any(large.values()):
            because = f"messages that were too large: {sum(large.values()):,}"
            yield ChangefeedSetting("large-message-handle-option", _value(large), because)
        total = self._codecs.total()
        for codec, count in self._codecs.most_common(1):
            how = "are not compressed" if codec == "none" else f"are compressed with {codec}"
            value = codec if count >= _NEARLY_ALL * total else "mixed"
            because = f"values that {how}: {count:,} of {total:,}"
            yield ChangefeedSetting("large-message-handle-compression", value, because)


def _value(counts: Mapping[str, int]) -> str:
    """Return the only value that messages prove, given how many prove each; `mixed` if they prove several."""
    proved = [value for value, count in counts.items() if count]
    return proved[0] if len(proved) == 1 else "mixed"
