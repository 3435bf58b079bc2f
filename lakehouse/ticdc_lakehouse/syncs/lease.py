"""The lease: which process may write the tables of a sync. It is a property of the status table, with owner and time.

No engine has a compare-and-set of properties. If two processes take a free lease at once, the last one has it, so a
process reads the lease again a while after it has written it, and renews it only if it is still its own.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets.opening import retried
from ticdc_lakehouse.targets.target import Target
from ticdc_source.developer_api import asking, loads

_LEASE = "ticdc.lease"
LEASE_S = 300.0  # an owner that has not renewed it for so long is taken for dead
_RENEW_S = 60.0
_SETTLE_S = 0.2
_PAUSES_S = (1.0, 4.0, 10.0)  # before a table without a lease is believed


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process that writes."""

    id: str
    host: str  # the name of its machine, for people
    space: str  # where the pid is unique: the boot of the machine, and the container
    pid: int
    started: str | None = None  # its start time, as the kernel counts; None if unknown

    @staticmethod
    def of(pid: int) -> Owner:
        return Owner(id=uuid.uuid4().hex, host=platform.node(), space=_space(), pid=pid, started=_started(pid))

    def is_known_dead(self) -> bool:
        """Whether the process has certainly ended, which only its own machine can tell."""
        if self.space != _space() or os.name != "posix":
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # it belongs to another user
            pass
        return self.started != _started(self.pid)


class LeaseLostError(TargetError):
    """Another sync is writing the tables."""


class Lease:
    """The right to write the tables of a sync; `lock` is held at each commit of the status table."""

    def __init__(
        self,
        table: Callable[[], Target],
        owner: Owner,
        lock: threading.RLock,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._table, self._owner, self.lock, self._clock, self._sleep = table, owner, lock, clock, sleep
        self._renewed_at = 0.0
        self._released = threading.Event()

    def take(self) -> None:
        """Take the lease; a `LeaseLostError` if another sync has it."""
        began = self._clock()
        retried(self._take, self._sleep)
        # Another process may have read before this one wrote, and write after it, within as long as it took here.
        self._sleep(self._clock() - began + _SETTLE_S)
        self.check(now=True)

    def _take(self) -> None:
        table = self._table()
        owner, since = _read(table)
        if owner is not None and owner.id != self._owner.id and not self._is_free(owner, since):
            raise self._held(table, owner, since)
        self._write(table)

    def check(self, *, now: bool = False) -> None:
        """Make sure that this process still has the lease; with `now`, even if it was renewed recently."""
        if not now and self._clock() - self._renewed_at < LEASE_S / 2:
            return
        with self.lock, asking(lambda: None):  # a renewal is a commit too
            for pause in (None, *_PAUSES_S):
                if pause is not None:  # a failing catalog may say that the table does not exist
                    self._sleep(pause)
                table = self._table()
                owner, since = _read(table)
                if owner is not None:
                    break
            if owner is None or owner.id != self._owner.id:
                raise self._held(table, owner, since)
            if not now or self._clock() - self._renewed_at >= _RENEW_S / 2:
                self._write(table)

    def keep(self, lost: Callable[[TargetError], None]) -> None:
        """Renew the lease in a thread, until it is released or lost."""

        def run() -> None:
            while not self._released.wait(_RENEW_S):
                try:
                    self.check(now=True)
                except LeaseLostError as error:
                    if not self._released.is_set():
                        lost(error)
                    return
                except Exception:  # noqa: BLE001, S112 (the store may be back in a minute; `check` asks again)
                    continue

        threading.Thread(target=run, name="ticdc-sync lease", daemon=True).start()

    def release(self) -> None:
        self._released.set()
        if not self._renewed_at:  # it never had the lease
            return
        with self.lock:
            table = self._table()
            owner, _ = _read(table)
            if owner is not None and owner.id == self._owner.id:
                table.set_properties({_LEASE: "{}"})

    def _write(self, table: Target) -> None:
        now = self._clock()
        table.set_properties({_LEASE: json.dumps({**asdict(self._owner), "at": now})})
        self._renewed_at = now

    def _is_free(self, owner: Owner, since: float) -> bool:
        return owner.is_known_dead() or self._clock() - since > LEASE_S

    def _held(self, table: Target, owner: Owner | None, since: float) -> LeaseLostError:
        if owner is None:
            return LeaseLostError(
                f"The property {_LEASE} of {table.name} was removed while this sync was running. Start the sync again"
            )
        silent = max(0.0, self._clock() - since)
        free = datetime.fromtimestamp(since + LEASE_S, timezone.utc)
        return LeaseLostError(
            f"The tables beside {table.name} are being written by another sync: process {owner.pid} on {owner.host}, "
            f"last heard of {silent:.0f} seconds ago. Stop one of the two. If that process has ended, start again "
            f"after {free:%Y-%m-%d %H:%M:%S} UTC"
        )


def _read(table: Target) -> tuple[Owner | None, float]:
    try:
        lease = loads(table.properties().get(_LEASE, "{}"))
        since = float(lease.pop("at"))
        return Owner(**lease), since
    except (AttributeError, KeyError, TypeError, ValueError):
        return None, 0.0


def _space() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{platform.node()} {platform.system()}"


def _started(pid: int) -> str | None:
    """Return the start time of a process, as the kernel counts; None if unknown, or if the process has ended."""
    try:
        # The name of the program, in brackets, may have blanks; the start is the 20th word after it.
        state, *words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else words[18]  # Z: ended, and not yet reaped by its parent
    except (OSError, IndexError, ValueError):
        return None
