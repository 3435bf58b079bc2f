"""The lease of a sync: one process writes, another takes over when it is dead or silent; without Spark."""

import os
import subprocess
import sys
from dataclasses import replace
from threading import RLock
from typing import Any

import pytest

from lakehouse.tests.syncs.context import Clock
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.lease import LEASE_S, Lease, Owner


class Properties:
    """A status table that has properties only."""

    name = "lake._ticdc_sync"

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def properties(self) -> dict[str, str]:
        return dict(self.values)

    def set_properties(self, properties: dict[str, str]) -> None:
        self.values |= properties


def lease(table: Any, clock: Clock, owner: Owner | None = None) -> Lease:
    return Lease(lambda: table, owner or Owner.of(os.getpid()), RLock(), clock, clock.sleep)


def elsewhere() -> Owner:
    return replace(Owner.of(os.getpid()), host="other-host", space="other-boot", pid=17)


def test_two_syncs_cannot_write_at_once() -> None:
    """The second is refused, with the process that writes; when the first gives its lease back, the second has it."""
    table, clock = Properties(), Clock()
    first = lease(table, clock)
    first.take()
    with pytest.raises(TargetError, match=rf"process {os.getpid()} on .*Stop one of the two"):
        lease(table, clock).take()
    first.check(now=True)

    first.release()
    lease(table, clock).take()

    with pytest.raises(TargetError, match="another sync"):
        first.check(now=True)


def test_a_silent_owner_loses_its_lease() -> None:
    """An owner on another machine is left alone until it has been silent for long; while it renews, it keeps it."""
    table, clock = Properties(), Clock()
    other = lease(table, clock, elsewhere())
    other.take()
    clock.now += LEASE_S - 10
    other.check(now=True)
    clock.now += LEASE_S - 10
    with pytest.raises(TargetError, match="process 17 on other-host, last heard of 29"):
        lease(table, clock).take()

    clock.now += 20
    lease(table, clock).take()

    with pytest.raises(TargetError, match="being written by another sync"):
        other.check()


def test_a_dead_process_of_this_machine_has_no_lease() -> None:
    """A process that was killed is followed at once; one with its number that started later is not it."""
    table, clock, here = Properties(), Clock(), Owner.of(os.getpid())
    assert not here.is_known_dead()
    assert replace(here, started="another").is_known_dead()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        lease(table, clock, Owner.of(child.pid)).take()
        with pytest.raises(TargetError, match=f"process {child.pid}"):
            lease(table, clock).take()
    finally:
        child.kill()
        child.wait()

    lease(table, clock).take()


def test_of_two_that_take_it_at_once_one_is_refused() -> None:
    """A catalog that takes both commits keeps the last: who wrote first reads it again, and ends."""
    table, clock = Properties(), Clock()
    second = lease(table, clock)
    pending = [second]

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        while pending:
            pending.pop()._write(table)  # type: ignore[arg-type]  # it has looked before the first one wrote

    first = Lease(lambda: table, Owner.of(os.getpid()), RLock(), clock, sleep)  # type: ignore[arg-type,return-value]
    with pytest.raises(TargetError, match="another sync"):
        first.take()

    second.check(now=True)


def test_a_catalog_that_fails_for_a_moment_takes_no_lease() -> None:
    """A catalog that says for some seconds that there is no such table ends no sync; one that goes on does."""
    table, clock = Properties(), Clock()
    owner = lease(table, clock)
    owner.take()
    properties, answers = table.values, iter([dict[str, str](), dict[str, str]()])

    table.properties = lambda: next(answers, properties)  # type: ignore[method-assign]
    owner.check(now=True)

    table.properties = dict  # type: ignore[method-assign]
    with pytest.raises(TargetError, match=r"The property ticdc\.lease of .* was removed"):
        owner.check(now=True)
