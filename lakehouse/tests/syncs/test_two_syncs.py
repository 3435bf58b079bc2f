"""Two processes with one target: of two that live, one writes; one that was stopped for long writes nothing more."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakehouse.tests.syncs.memory_sync import STATUS, MemorySync, ddl, insert, target
from lakehouse.tests.targets.memory import Lake
from tests.support.messages import Message
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs import following, lease

pytestmark = pytest.mark.slow("some starts of a sync")

CREATE = "CREATE TABLE `a` (`id` int PRIMARY KEY)"


WRITES = [
    ("merge", target("a")),
    ("append", target("b__log")),
    ("append", "delta.`/lake/_ticdc_quarantine`"),
    ("overwrite", STATUS),
]


class Frozen:
    """A sync that is stopped right before a write, until another one has taken over and written two micro-batches."""

    def __init__(self, sync: MemorySync, at: tuple[str, str], number: int, patch: pytest.MonkeyPatch) -> None:
        self.sync, self.at, self.number, self.patch = sync, at, number, patch
        self.writes = 0  # all that is written until it goes on
        self.other = MemorySync(sync.lake, sync.folder)
        sync.lake.writing = self.before

    def before(self, *write: str) -> None:
        if write != self.at:
            return
        self.sync.lake.writing = lambda *_: None
        self.patch.setattr(lease, "LEASE_S", -1.0)
        with ThreadPoolExecutor(1) as process:
            process.submit(self.take_over).result()
        self.writes = len(self.sync.lake.writes)

    def take_over(self) -> None:
        self.other.start()
        self.other.batch(self.number, *messages(self.number))
        self.other.batch(self.number + 1, insert("a", self.number + 1, 10 * self.number + 20))


def messages(number: int) -> list[Message]:
    """Return what a micro-batch has: rows with a key and without one, and a bad record."""
    commit_ts = 10 * number + 10
    bad = (None, b'{"database": "shop", "table')
    return [insert("a", number, commit_ts), insert("b", number, commit_ts, key=False), bad]


def test_a_sync_that_was_stopped_for_long_writes_nothing_more(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on in the middle of a micro-batch, and the next write is an error that names the process that writes.

    The one that has taken over is stopped in its turn, each before another write.
    """
    monkeypatch.setattr(following, "_STATUS_EVERY_S", -1.0)
    sync = MemorySync(lake, tmp_path / "checkpoint")
    sync.start()
    sync.batch(0, ddl("a", CREATE, 5, "CREATE"), insert("a", 0, 10), insert("b", 0, 10, key=False))
    for number, at in zip((1, 3, 5, 7), WRITES, strict=True):
        with monkeypatch.context() as patch:
            frozen = Frozen(sync, at, number, patch)
            with pytest.raises(TargetError, match="are being written by another sync"):
                sync.batch(number, *messages(number), committed=False)

        assert frozen.writes, at
        assert lake.writes[frozen.writes :] == [], at
        sync = frozen.other
        assert (sync.ids("a"), sync.ids("b__log")) == ([*range(number + 2)], [0, *range(1, number + 1, 2)]), at
        assert sync.status("a").state == sync.status("b").state == "following"
    sync.batch(9, insert("a", 9, 110))
    sync.end()
    assert sync.ids("a") == [*range(10)]
