"""A fault, such as a store that is away, is retried before it sets a table aside, and then later by itself."""

import os
import signal
import threading
from pathlib import Path

import pytest

from lakehouse.tests.syncs.context import Clock
from lakehouse.tests.syncs.memory_sync import STATUS, MemorySync, insert, target
from lakehouse.tests.targets.memory import Lake
from ticdc_lakehouse import TableConfig
from ticdc_lakehouse.syncs.database_sync import await_query
from ticdc_lakehouse.syncs.status import Following, SetAside
from ticdc_lakehouse.targets import opening

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow("several micro-batches of some seconds each"),
    pytest.mark.filterwarnings("ignore:.* is tried again in"),
]
TRIES = 5


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_PAUSES_S", (0.0,) * (TRIES - 1))


def timed(sync: MemorySync) -> Clock:
    """Let a test move the clock by which tables are tried again."""
    clock = Clock()
    assert sync._running is not None
    sync._running._back_off._clock = clock
    return clock


def test_a_store_that_is_busy_for_a_moment_costs_no_table(lake: Lake, tmp_path: Path) -> None:
    """Three answers of 503 are three warnings; the table is written, and so is the status table."""
    sync = MemorySync(lake, tmp_path, table_configs={"shop.k": TableConfig(history=True, cluster_by=("id",))})
    sync.start()
    sync.batch(0, insert("k", 1, 10))
    assert lake.layouts[target("k")]
    assert not lake.layouts[target("k__log")]  # which has a layout only if the table has no other target
    lake.faults = {target("k"): 3, STATUS: 3, target("k__log"): 1}

    with pytest.warns(UserWarning, match="shop.k cannot be written, and is tried again in 0 s: 503 Slow Down"):
        report = sync.batch(1, insert("k", 2, 20))
    sync.end()

    assert report.set_aside == {}
    assert sync.ids("k") == [1, 2]
    assert not any(lake.faults.values())


def test_a_fault_that_repeats_sets_aside_until_it_ends(lake: Lake, tmp_path: Path) -> None:
    """The table is tried again after a minute, then later, and nobody has to resume it; the others go on.

    A target that cannot take the changes waits for a person: what it needs is known, and no time mends it.
    """
    sync = MemorySync(lake, tmp_path)
    sync.start()
    sync.batch(0, insert("k", 1, 10), insert("e", 1, 10, key=False), insert("v", 1, 10))
    clock = timed(sync)
    lake.faults = {target("k"): 10**6, target("e__log"): 10**6}
    lake.blocked = {target("v")}
    failed = sync.batch(
        1, insert("k", 2, 20), insert("e", 2, 20, key=False), insert("v", 2, 20), insert("other", 1, 21)
    )
    lake.blocked = set()
    assert sorted(failed.set_aside) == ["shop.e", "shop.k", "shop.v"]
    assert failed.set_aside["shop.k"] == "503 Slow Down. The sync resumes the table by itself"
    assert isinstance(phase := sync.status("k").phase, SetAside)
    assert phase.ends_by == "retry"

    tried = []
    for number in (2, 3):
        left = lake.faults[target("k")]
        clock.now += 30
        assert sync.batch(number, insert("other", number, 20 + number)).resumed == ()
        tried.append(lake.faults[target("k")] < left)
    assert tried == [False, True]

    lake.faults = {}
    clock.now += 3600
    resumed = sync.batch(4, insert("k", 3, 40), insert("e", 3, 40, key=False), insert("v", 3, 40))

    assert (sorted(resumed.resumed), resumed.set_aside) == (["shop.e", "shop.k"], {})
    assert sync.ids("k") == sync.ids("e__log") == [1, 2, 3]
    assert sync.ids("other") == [1, 2, 3]
    assert sync.status("k").phase == Following()
    assert isinstance(phase := sync.status("v").phase, SetAside)
    assert (phase.ends_by, sync.ids("v")) == ("resume", [1])
    assert len(list(tmp_path.glob("aside/*"))) == 1  # of the table that waits


def test_a_restart_and_the_end_of_a_run_try_again(lake: Lake, tmp_path: Path) -> None:
    """A run that ends with the topics writes the table at its end; so does the first micro-batch of the next start."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    sync.batch(0, insert("k", 1, 10))
    lake.faults = {target("k"): TRIES}
    assert list(sync.batch(1, insert("k", 2, 20)).set_aside) == ["shop.k"]
    assert sync._running is not None
    sync._running._writer = "the-query"
    sync._running.load_the_rest()
    assert (sync.status("k").state, sync.ids("k")) == ("following", [1, 2])

    lake.faults = {target("k"): TRIES}
    sync.batch(2, insert("k", 3, 30))
    sync.kill()
    sync.start()
    assert sync.status("k").state == "set aside"
    sync.batch(3, insert("other", 1, 40))

    assert (sync.status("k").state, sync.ids("k")) == ("following", [1, 2, 3])


class SignalError(Exception):
    """What the handler of a signal raises."""


def test_a_signal_interrupts_the_wait_for_a_query(lake: Lake) -> None:
    """The query can be stopped then, and the session be used: no answer of Py4J is left on the connection."""

    def interrupt(*_: object) -> None:
        raise SignalError

    before = signal.signal(signal.SIGUSR1, interrupt)
    query = lake.spark.readStream.format("rate").load().writeStream.format("noop").start()
    threading.Timer(1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    try:
        with pytest.raises(SignalError):
            await_query(query)
    finally:
        signal.signal(signal.SIGUSR1, before)

    query.stop()
    assert lake.spark.range(3).count() == 3
