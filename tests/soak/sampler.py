"""Once a second: memory, files and threads of a program's processes, from Linux's /proc, and how far streams are."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

DRIVER, JVM, WORKER = "driver Python", "driver JVM", "Python worker"
KINDS = (JVM, DRIVER, WORKER)
_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process at one moment."""

    pid: int
    kind: str
    parent: int
    memory: int
    files: int
    threads: int


@dataclass(frozen=True)
class Sample:
    """A moment of a run."""

    second: float
    life: int
    processes: tuple[Process, ...]
    heap: int
    done: Mapping[str, int]
    backlog: Mapping[str, int]


def processes_of(driver: int) -> tuple[Process, ...]:
    """Return the process of a driver and all its descendants."""
    parents = dict(_parents())
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found, waiting = [], [(driver, DRIVER)]
    while waiting:
        pid, kind = waiting.pop()
        process = _process(pid, kind, parents.get(pid, 0))
        if process is not None:
            found.append(process)
        below = JVM if kind == DRIVER else WORKER
        waiting += [(child, below) for child in children.get(pid, ())]
    return tuple(found)


def _parents() -> Iterator[tuple[int, int]]:
    for name in os.listdir(_PROC):  # noqa: PTH208 (needs only names)
        if name.isdigit():
            try:
                stat = (_PROC / name / "stat").read_text()
            except OSError:
                continue
            yield int(name), int(stat.rpartition(")")[2].split()[1])


def _process(pid: int, kind: str, parent: int) -> Process | None:
    """Return what a process is now; None if it has ended."""
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
        files = len(os.listdir(_PROC / str(pid) / "fd"))  # noqa: PTH208 (needs only their number)
    except OSError:
        return None
    status = dict(line.split(":", 1) for line in lines)
    if "VmRSS" not in status:  # it has ended, and nobody has asked for its exit code
        return None
    return Process(pid, kind, parent, int(status["VmRSS"].split()[0]) * 1024, files, int(status["Threads"]))


def born(pid: int) -> str:
    """Return when a process started, in ticks since the boot: an id is given again; "" for one that has ended."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def sockets_of(pid: int) -> set[str]:
    """Return the inodes of a process's sockets."""
    found = set()
    for file in (_PROC / str(pid) / "fd").iterdir():
        try:
            target = os.readlink(file)  # noqa: PTH115 (not a path)
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def connections_to(ports: set[int]) -> dict[str, str]:
    """Return the open connections of this machine to these ports: the inode of the client's socket, and its state."""
    found = {}
    for name in ("tcp", "tcp6"):
        for line in (_PROC / "net" / name).read_text().splitlines()[1:]:
            fields = line.split()
            state, inode = fields[3], fields[9]
            if int(fields[2].rpartition(":")[2], 16) in ports and state in ("01", "08"):  # ESTABLISHED, CLOSE_WAIT
                found[inode] = state
    return found


@dataclass
class Sampler:
    """Takes a sample each second, in a thread of its own."""

    progress: Callable[[], tuple[Mapping[str, int], Mapping[str, int]]]
    samples: list[Sample] = field(default_factory=list)
    seen: dict[int, str] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _watched: tuple[int, int, Path] | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def second(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def watch(self, life: int, pid: int, log: Path) -> None:
        """Watch another life of the program."""
        self._watched = (life, pid, log)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        heaps: dict[int, int] = {}
        while not self._ended.wait(1.0):
            assert self._watched is not None
            life, pid, log = self._watched
            processes = processes_of(pid)
            self.seen |= {process.pid: born(process.pid) for process in processes}
            done, backlog = self.progress()
            heaps[life] = _last_heap(log) or heaps.get(life, 0)
            self.samples.append(Sample(self.second, life, processes, heaps[life], done, backlog))


def _last_heap(log: Path) -> int:
    """Return what the last full collection has left, if the end of the log says it; else 0."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = file.read().splitlines()
    said = [line for line in lines if line.startswith(b"{") and b'"heap"' in line and line.endswith(b"}")]
    return int(json.loads(said[-1])["heap"]) if said else 0
