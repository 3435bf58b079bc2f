"""Streaming queries in their own process, which a test kills: `python -m tests.spark.restarts queries.json`."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.parquet_copy import merge_into
from tests.support.paths import PACKAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROOT = Path(__file__).resolve().parents[2]
STARTED = "started"


@dataclass(frozen=True)
class Query:
    """A stream that writes Parquet files, or keeps a copy of a table.

    Attributes:
        keys: the columns that identify a row, to keep a copy as `tests.support.parquet_copy` does; none to write files.
        schema: the user's schema; None to infer it at each start.
        alone_at_first: whether the next queries start only after its first micro-batch is committed.
    """

    options: Mapping[str, str]
    folder: str
    keys: Sequence[str] = ()
    schema: str | None = None
    alone_at_first: bool = False

    @property
    def output(self) -> Path:
        """The folder of the Parquet files."""
        return Path(self.folder) / "output"

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint."""
        return Path(self.folder) / "checkpoint"

    def start(self, spark: "SparkSession", **more: Any) -> "StreamingQuery":
        """Start it, or continue it; the trigger `availableNow=True` ends after the last record."""
        trigger = {name: more.pop(name) for name in ("availableNow", "processingTime") if name in more}
        reader = spark.readStream.format("ticdc").options(**{**self.options, **more})
        frame = (reader.schema(self.schema) if self.schema else reader).load()
        writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint))
        writer = writer.trigger(**trigger) if trigger else writer
        if self.keys:
            self.output.mkdir(parents=True, exist_ok=True)
            return writer.foreachBatch(merge_into(str(self.output), list(self.keys))).start()
        return writer.format("parquet").start(str(self.output))

    def forget_an_empty_checkpoint(self) -> None:
        """Remove a checkpoint whose first entry Spark was killed writing."""
        forget_an_empty_checkpoint(self.checkpoint)


def forget_an_empty_checkpoint(checkpoint: Path) -> None:
    """Remove a checkpoint whose first entry Spark was killed writing: nothing has been read.

    Spark asks users to delete such a checkpoint (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY).
    """
    begun = checkpoint / "offsets"
    if State.of(checkpoint).planned < 0 and begun.is_dir() and any(begun.iterdir()):
        shutil.rmtree(checkpoint)


@dataclass(frozen=True)
class State:
    """The last micro-batches that are planned and committed in a checkpoint; -1 for none."""

    planned: int
    committed: int

    @classmethod
    def of(cls, checkpoint: Path) -> "State":
        return cls(*(max(_batches(checkpoint / name), default=-1) for name in ("offsets", "commits")))

    @property
    def in_a_batch(self) -> bool:
        """Whether a batch is planned and not committed."""
        return self.planned > self.committed

    def __str__(self) -> str:
        return f"in batch {self.planned}" if self.in_a_batch else f"after batch {self.committed}"


def offset_of(checkpoint: Path, batch: int) -> Any:
    return json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])


def steps_of(checkpoint: Path, topic: str) -> list[int]:
    """Return how many offsets each planned micro-batch of a stream of one topic has, from the checkpoint."""
    ends = [offset_of(checkpoint, batch) for batch in range(State.of(checkpoint).planned + 1)]
    sums = [sum(one[topic].values()) for one in (ends[0]["$init"], *ends)]
    return [end - start for start, end in pairwise(sums)]


def _batches(folder: Path) -> Iterator[int]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 (needs only names, and often)
    except FileNotFoundError:
        return
    yield from (int(name) for name in names if name.isdigit())


class Program:
    """A process that a test kills: Python, its JVM, and the JVM's Python workers."""

    def __init__(
        self, python: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log_file = folder / "log"
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [python, "-m", *arguments],
                cwd=folder,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": python,
                    "PYSPARK_DRIVER_PYTHON": python,
                    "PYTHONPATH": os.pathsep.join(filter(None, [PACKAGES, os.environ.get("PYTHONPATH")])),
                    "TMPDIR": str(folder),
                    **(environment or {}),
                },
                stdin=subprocess.PIPE,  # the child ends when this is closed, also if this process dies
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_for(self, reached: Callable[[], bool], *, stop: bool = False, seconds: float = 600.0) -> None:
        """Wait until a condition holds; with `stop`, driver and JVM are stopped then, so that it still holds."""
        deadline = time.monotonic() + seconds
        while True:
            if reached():
                if not stop:
                    return
                os.killpg(self._process.pid, signal.SIGSTOP)
                if reached():
                    return
                os.killpg(self._process.pid, signal.SIGCONT)
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, f"not reached in {seconds} s:\n{self.log}"
            time.sleep(0.001)

    @property
    def pid(self) -> int:
        """The process id of the driver's Python."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code; None if it runs."""
        return self._process.poll()

    def end(self, seconds: float = 60.0) -> int:
        """Close its input, which asks it to end, and return its exit code."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        return self._process.wait(seconds)

    @property
    def has_started(self) -> bool:
        """Whether all queries have been started."""
        return re.search(f"(?m)^{STARTED}$", self.log) is not None

    @property
    def log(self) -> str:
        """The output of the child and its JVM."""
        return self.log_file.read_text(errors="replace")

    def family(self) -> set[int]:
        return _descendants(self._process.pid)

    def freeze(self) -> set[int]:
        """Stop the driver, the JVM and all Python workers where they are; return the ids of all but the driver."""
        os.killpg(self._process.pid, signal.SIGSTOP)
        # PySpark's daemons have their own process groups; stopped parents create no more children.
        family: set[int] = set()
        while (found := _descendants(self._process.pid)) - family:
            for pid in found - family:
                _signal(pid, signal.SIGSTOP)
            family |= found
        return family

    def thaw(self, family: Iterable[int]) -> None:
        """Let all go on that `freeze` has stopped."""
        for pid in (*family, self._process.pid):
            _signal(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the driver, the JVM and all Python workers, and return when they are gone."""
        process = self._process
        if process.poll() is None:
            family = self.freeze()
            for pid in (process.pid, *family):
                _signal(pid, signal.SIGKILL)
            process.wait()
            deadline = time.monotonic() + 30
            while alive := family & _alive():
                assert time.monotonic() < deadline, f"killed, and still there: {alive}"
                time.sleep(0.01)
        if process.stdin is not None:
            process.stdin.close()


class Child(Program):
    """A process that runs queries."""

    def __init__(
        self,
        queries: Iterable[Query],
        folder: Path,
        module: str = "tests.spark.restarts",
        python: str | Path = sys.executable,
    ) -> None:
        folder.mkdir(parents=True)
        (folder / "queries.json").write_text(json.dumps([dataclasses.asdict(query) for query in queries]))
        super().__init__(str(python), [module, "queries.json"], folder)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _processes() -> list[tuple[int, int, str]]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True)
    return [(int(pid), int(parent), state) for pid, parent, state in map(str.split, listed.stdout.splitlines())]


def _alive() -> set[int]:
    return {pid for pid, _, state in _processes() if not state.startswith("Z")}


def _descendants(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for child, parent, _ in _processes():
        children.setdefault(parent, []).append(child)
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        new = set(children.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found


def session(master: str = "local[2]", java: str = "") -> "SparkSession":
    """Return a session that writes nothing outside the current folder."""
    from pyspark.sql import SparkSession

    from tests.support.spark_settings import LOCAL
    from tests.versions.scenario import register

    here = os.getcwd()  # noqa: PTH109 (as text)
    settings = {
        **LOCAL,
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={here} {java}",
        "spark.local.dir": here,
        "spark.sql.warehouse.dir": f"{here}/warehouse",
    }
    spark = SparkSession.builder.master(master).config(map={**settings}).getOrCreate()
    register(spark)
    return spark


def main(path: str) -> None:
    """Run the queries of a file until killed."""
    spark = session()
    for entry in json.loads(Path(path).read_text()):
        query = Query(**entry)
        running = query.start(spark)
        while query.alone_at_first and State.of(query.checkpoint).committed < 0 and running.isActive:
            time.sleep(0.01)
    print(STARTED, flush=True)  # noqa: T201 (to the parent)
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
