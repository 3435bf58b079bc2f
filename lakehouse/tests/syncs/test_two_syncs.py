"""Two processes with one target: of two that live, one writes; one that was stopped for long writes nothing more."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakehouse.tests.syncs.memory_sync import STATUS, MemorySync, ddl, insert, target
from lakehouse.tests.targets.memory import Lake
from ticdc_lakehouse.common.errors import TargetError
from ticdc_lakehouse.syncs import following, lease

pytestmark = pytest.mark.slow("some starts of a sync")

CREATE = "CREATE TABLE `a` (`id` int PRIMARY KEY)"


class Frozen:
    """A sync that is stopped right before a write, until another one has taken over and written two micro-batches.

    Args:
        sync: the sync, which has had micro-batch 0.
        at: the method and the table of the write.
        patch: lets its lease be as old as if it had been stopped for long.
    """

    def __init__(self, sync: MemorySync, at: tuple[str, str], patch: pytest.MonkeyPatch) -> None:
        self.sync, self.at, self.patch = sync, at, patch
        self.writes = 0  # all that is written until it goes on
        self.other = MemorySync(sync.lake, sync.folder)
        sync.lake.writing = self.before

    def before(self, *write: str) -> None:
        """Stop before the write."""
        if write != self.at:
            return
        self.sync.lake.writing = lambda *_: None
        self.patch.setattr(lease, "LEASE_S", -1.0)
        with ThreadPoolExecutor(1) as process:
            process.submit(self.take_over).result()
        self.writes = len(self.sync.lake.writes)

    def take_over(self) -> None:
        """Write the micro-batch that the other one has begun, and one more."""
        self.other.start()
        self.other.batch(1, *MESSAGES)
        self.other.batch(2, insert("a", 3, 30))


MESSAGES = insert("a", 2, 20), insert("b", 1, 20, key=False), (None, b'{"database": "shop", "table')


@pytest.mark.parametrize(
    "at",
    [
        ("merge", target("a")),
        ("append", target("b__log")),
        ("append", "delta.`/lake/_ticdc_quarantine`"),
        ("overwrite", STATUS),
    ],
)
def test_a_sync_that_was_stopped_for_long_writes_nothing_more(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: tuple[str, str]
) -> None:
    """It goes on in the middle of a micro-batch, and the next write is an error that names the process that writes."""
    monkeypatch.setattr(following, "_STATUS_EVERY_S", -1.0)
    sync = MemorySync(lake, tmp_path / "checkpoint")
    sync.start()
    sync.batch(0, ddl("a", CREATE, 5, "CREATE"), insert("a", 1, 10), insert("b", 0, 10, key=False))
    frozen = Frozen(sync, at, monkeypatch)

    with pytest.raises(TargetError, match="are being written by another sync"):
        sync.batch(1, *MESSAGES, committed=False)

    assert frozen.writes
    assert lake.writes[frozen.writes :] == []
    assert (frozen.other.ids("a"), frozen.other.ids("b__log")) == ([1, 2, 3], [0, 1])
    assert frozen.other.status("a").state == frozen.other.status("b").state == "following"
    frozen.other.batch(3, insert("a", 4, 40))
    frozen.other.end()
    assert frozen.other.ids("a") == [1, 2, 3, 4]
