"""Memory and CPU time of Spark's processes, as Linux reports them in /proc."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
_MIB = 1024  # KiB, /proc's unit
_DAEMON = "pyspark.daemon"
_BUSY_TICKS = 10  # of CPU time; a process that uses less waits for work


class Memory(NamedTuple):
    """Resident memory of a process in MiB: now, and its peak (the kernel records it, so none is missed)."""

    now: float
    peak: float


class Sampler(threading.Thread):
    """Samples the Python processes below another one (Spark's Java) that do something, until it is stopped.

    Attributes:
        peaks: the largest peak in MiB, by what the process does (see `python_processes`).
        samples: seconds since the start, and the MiB of the largest worker at that time.
    """

    def __init__(self, root: int, interval: float = 0.1) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._interval = interval
        self._ended = threading.Event()
        self._ticks_before = {pid: _ticks(pid) for pid in python_processes(root)}
        self.peaks: dict[str, float] = {}
        self.samples: list[tuple[float, float]] = []

    def run(self) -> None:
        begun = time.monotonic()
        while True:
            last = self._ended.is_set()
            workers = [0.0]
            for pid, role in python_processes(self._root).items():
                memory = memory_of(pid)
                if memory is not None and _ticks(pid) >= self._ticks_before.get(pid, 0) + _BUSY_TICKS:
                    self.peaks[role] = max(memory.peak, self.peaks.get(role, 0.0))
                    if role == "worker":
                        workers.append(memory.now)
            self.samples.append((round(time.monotonic() - begun, 2), round(max(workers), 1)))
            if last:
                return
            self._ended.wait(self._interval)

    def end(self) -> None:
        """Take a last sample, and end."""
        self._ended.set()
        self.join()


@contextmanager
def sampled(root: int, interval: float = 0.1) -> Iterator[Sampler]:
    """Sample while the `with` block runs; the workers must still live at its end."""
    sampler = Sampler(root, interval)
    sampler.start()
    try:
        yield sampler
    finally:
        sampler.end()


def cpu_seconds(root: int) -> float:
    """Return the CPU seconds of a process and of all processes below it, including those that have ended.

    The time of a process that ends is added to its parent's. If one ended while /proc was read, it may be counted twice
    or not at all, so /proc is read until none has begun or ended.
    """
    before = _below(root)
    while True:
        ticks = sum(sum(map(int, _stat(pid)[11:15])) for pid in before)  # its own and that of finished children
        after = _below(root)
        if after == before:
            return ticks / os.sysconf("SC_CLK_TCK")
        before = after


def _below(root: int) -> set[int]:
    parents = _parents()
    return {pid for pid in parents if pid == root or root in _above(pid, parents, root)}


def own_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, without those of its children."""
    return sum(map(int, _stat(pid)[11:13])) / os.sysconf("SC_CLK_TCK")


def forget_peaks(root: int) -> None:
    """Reset the peaks of the Python processes below `root` to their present memory."""
    for pid in python_processes(root):
        with suppress(OSError):
            (PROC / str(pid) / "clear_refs").write_text("5")


def python_processes(root: int) -> dict[int, str]:
    """Return the Python processes below `root`, and what each does.

    `worker` reads; `plan_data_source_read` and similar ones plan for the driver; a name ending in `daemon` only forks.
    """
    parents = _parents()
    found = {}
    for pid, parent in parents.items():
        if root in _above(pid, parents, root):
            role = _role(pid)
            if role is not None:
                found[pid] = f"{role} daemon" if parent == root and _DAEMON in _command(pid) else role
    return found


def _ticks(pid: int) -> int:
    """Return the CPU time of a process, in clock ticks."""
    return sum(map(int, _stat(pid)[11:13]))


def memory_of(pid: int) -> Memory | None:
    """Return the memory of a process; None if it is gone."""
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    sizes = {name: int(rest.split()[0]) / _MIB for name, _, rest in (line.partition(":") for line in lines)
             if name in ("VmRSS", "VmHWM")}  # fmt: skip
    return Memory(sizes["VmRSS"], sizes["VmHWM"]) if len(sizes) == 2 else None


def _pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def _parents() -> dict[int, int]:
    return {pid: int(stat[1]) for pid in _pids() if (stat := _stat(pid))}


def _above(pid: int, parents: dict[int, int], root: int) -> list[int]:
    above = [pid]
    while above[-1] in parents and above[-1] != root and len(above) < 20:
        above.append(parents[above[-1]])
    return above[1:]


def _stat(pid: int) -> list[str]:
    """Return Linux's fields about a process from its state on; no field if it is gone."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return stat.rpartition(")")[2].split()  # the name of a program may hold blanks and brackets


def _command(pid: int) -> list[str]:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _role(pid: int) -> str | None:
    modules = [word for word in _command(pid) if word.startswith("pyspark.")]
    return modules[-1].rpartition(".")[2] if modules else None
