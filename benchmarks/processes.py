"""What Spark's processes take of memory and of the processors: what Linux says of them in /proc."""

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


class Memory(NamedTuple):
    """A process' resident memory, in MiB: now, and the most there ever was (the kernel keeps it: no peak is missed)."""

    now: float
    peak: float


class Sampler(threading.Thread):
    """Looks every few milliseconds at all Python processes below one (Spark's Java), until it is stopped.

    Attributes:
        peaks: the most MiB of any process, by what it does (see `python_processes`).
        samples: seconds since the start, and the MiB then of the biggest process that reads: a worker.
    """

    def __init__(self, root: int, interval: float = 0.1) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._interval = interval
        self._ended = threading.Event()
        self.peaks: dict[str, float] = {}
        self.samples: list[tuple[float, float]] = []

    def run(self) -> None:
        begun = time.monotonic()
        while True:
            last = self._ended.is_set()
            workers = [0.0]
            for pid, role in python_processes(self._root).items():
                memory = memory_of(pid)
                if memory is not None:
                    self.peaks[role] = max(memory.peak, self.peaks.get(role, 0.0))
                    if role == "worker":
                        workers.append(memory.now)
            self.samples.append((round(time.monotonic() - begun, 2), round(max(workers), 1)))
            if last:
                return
            self._ended.wait(self._interval)

    def end(self) -> None:
        """Take a last look, and end."""
        self._ended.set()
        self.join()


@contextmanager
def sampled(root: int, interval: float = 0.1) -> Iterator[Sampler]:
    """Sample for as long as the `with` block runs; the workers must still live at its end."""
    sampler = Sampler(root, interval)
    sampler.start()
    try:
        yield sampler
    finally:
        sampler.end()


def cpu_seconds(root: int) -> float:
    """Say what a process and all below it have taken of the processors, those that have ended included."""
    parents = _parents()
    ticks = 0
    for pid in parents:
        if pid == root or root in _above(pid, parents, root):
            ticks += sum(map(int, _stat(pid)[11:15]))  # own time and that of waited-for children, in user and system
    return ticks / os.sysconf("SC_CLK_TCK")


def forget_peaks(root: int) -> None:
    """Let the peaks of the Python processes below `root` begin anew at what they hold now."""
    for pid in python_processes(root):
        with suppress(OSError):
            (PROC / str(pid) / "clear_refs").write_text("5")


def python_processes(root: int) -> dict[int, str]:
    """Find the Python processes below `root`, and what each does.

    `worker` reads; `plan_data_source_read` and the like plan for the driver; a name ending in `daemon` only forks.
    """
    parents = _parents()
    found = {}
    for pid, parent in parents.items():
        if root in _above(pid, parents, root):
            role = _role(pid)
            if role is not None:
                found[pid] = f"{role} daemon" if parent == root and _DAEMON in _command(pid) else role
    return found


def memory_of(pid: int) -> Memory | None:
    """Say what memory a process has; None when it is gone."""
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
    """Give what Linux says of a process from its state on; nothing when it is gone."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return stat.rpartition(")")[2].split()  # a program's name may hold blanks and brackets


def _command(pid: int) -> list[str]:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _role(pid: int) -> str | None:
    modules = [word for word in _command(pid) if word.startswith("pyspark.")]
    return modules[-1].rpartition(".")[2] if modules else None
