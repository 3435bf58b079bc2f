"""What messages show of a changefeed, beside what they say: settings, and the time zone of its server.

A setting is shown only if messages prove it, and only if a finding or the options of a read depend on it.

The messages do not name the zone (docs/wire.md, item 21). But a column that holds the time of the change, such as
`updated_at`, lies just before the commit time in the right zone, and whole quarters of an hour beside it in another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

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


def shift_of(values: pa.Array, commit_ms: pa.Array, time_zone: str) -> str | None:
    """Return the UTC offset in which the values of a column lie beside the commit times; None if most do in none.

    The values were read in `time_zone`, for whose own offset it returns an empty text; `commit_ms` is the commit time
    of each, in milliseconds since the epoch.
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
    if not quarter:
        return ""
    moment = datetime.fromtimestamp(max(commits[quarter]), timezone.utc)
    offset = _offset_of(time_zone, moment) + timedelta(seconds=quarter * _QUARTER_S)
    if offset / timedelta(seconds=_QUARTER_S) not in _OFFSETS:
        return None
    return str(timezone(offset)).removeprefix("UTC") or "UTC"


def _offset_of(time_zone: str, moment: datetime) -> timedelta:
    if time_zone == "UTC":
        return timedelta()
    zone = datetime.strptime(time_zone, "%z").tzinfo if time_zone[0] in "+-" else ZoneInfo(time_zone)
    return moment.astimezone(zone).utcoffset() or timedelta()


_NEARLY_ALL = 0.95  # of the values: some bytes look compressed and are not


@dataclass(slots=True)
class Evidence:
    """Counts what the messages of one protocol have and lack.

    Attributes:
        placed: how many of them have no commit-ts of their own (`Decoded.placed`).
    """

    facts: ProtocolFacts
    registry: RegistrySettings
    rows: int = 0
    placed: int = 0
    updates: int = 0
    old_rows: int = 0
    _extended: int = 0
    _plain: int = 0
    _claimed: int = 0
    _key_only: int = 0
    _codecs: Counter[str] = field(default_factory=Counter)

    def add_values(self, chunk: Chunk) -> None:
        texts = ((value or b"")[self.facts.text_start :] for value in chunk.values)
        self._codecs.update(codec_of(text) for text in texts if text)

    def add_events(self, events: TableEvents, decoded: Decoded) -> None:
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
        return max(0, self.updates - self._claimed - self._key_only)

    def settings(self, watermarks: int) -> Iterator[ChangefeedSetting]:
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
