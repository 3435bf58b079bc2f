"""What a merge costs with a real engine: Spark jobs and commits; and merges that run side by side."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from ticdc_lakehouse import append_log, commits_of, merge_into
from ticdc_lakehouse.targets.opening import existing_target
from ticdc_lakehouse.targets.target import CommitFacts
from ticdc_source.schema.change_order import SEQUENCE
from ticdc_source.spark.schema import to_spark

OWN = to_spark(pa.schema([("_change_type", pa.string()), ("_sequence", SEQUENCE)]))


class Cost(NamedTuple):
    """How many jobs and commits something took."""

    jobs: int
    commits: int


class CostScenario:
    """What must hold, with an engine, a session, and a function that names targets."""

    def __init__(
        self, engine: str, spark: SparkSession, name: Callable[[str], str], equal: Callable[[object, object], None]
    ) -> None:
        self.engine = engine
        self.spark = spark
        self.name = name
        self.equal = equal

    def parts(self) -> list[Callable[[], None]]:
        return [self.side_by_side, self.costs]

    def side_by_side(self) -> None:
        """Merges that run at once on one session record their own facts, and leave its settings as they are."""
        names = [self.name(f"side_{number}") for number in range(4)]

        def write(number: int) -> None:
            for batch in (0, 1):
                changes = [("insert", 10 + batch, 100 * number + batch, f"{number}")]
                self._merge(names[number], changes, app_id=f"writer {number}", batch_id=10 * number + batch,
                            resolved_ts=1000 * number + batch)  # fmt: skip

        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(write, range(len(names))))

        for number, name in enumerate(names):
            facts = [one.facts for one in reversed(commits_of(self.spark, name)) if one.facts != CommitFacts()]
            expected = [(1000 * number + n, f"writer {number}", 10 * number + n) for n in (0, 1)]
            self.equal([(one.resolved_ts, one.app_id, one.batch_id) for one in facts], expected)
            rows = sorted(tuple(row) for row in self.spark.table(name).select("id", "v").collect())
            self.equal(rows, [(100 * number + n, f"{number}") for n in (0, 1)])
        of_commits = ("delta.commitInfo", "delta.write", "snapshot-property")
        self.equal([name for name in self.spark.conf.getAll if any(one in name for one in of_commits)], [])

    def costs(self) -> None:
        """Each step takes no more jobs and commits than the design page says."""
        target, log = self.name("costs"), self.name("costs_log")
        rows = [("insert", 10, number, "a") for number in range(1000)]
        later = [[("update_postimage", ts, number, "b") for number in range(20)] for ts in (11, 12)]
        wide = [("update_postimage", 13, number, "c", "x", "y") for number in range(20)]
        facts: dict[str, Any] = {"app_id": "me"}
        steps: dict[str, Callable[[], object]] = {
            "created": lambda: self._merge(target, rows, batch_id=0, **facts),
            "20 changes": lambda: self._merge(target, later[0], batch_id=1, **facts),
            "two columns": lambda: self._merge(
                target, wide, "id int, v string, w string, x string", batch_id=2, **facts
            ),
            "a repeat": lambda: self._merge(target, wide, "id int, v string, w string, x string", batch_id=2, **facts),
            "log created": lambda: self._append(log, rows, batch_id=0, **facts),
            "log, 20 changes": lambda: self._append(log, later[0], batch_id=1, **facts),
        }
        found = {name: self._cost(target, log, step) for name, step in steps.items()}
        print("costs", self.engine, {name: tuple(cost) for name, cost in found.items()}, flush=True)  # noqa: T201
        most = MOST[self.engine]
        too_many = {name: (cost, most[name]) for name, cost in found.items() if _exceeds(cost, most[name])}
        self.equal(too_many, {})

    def _cost(self, target: str, log: str, step: Callable[[], object]) -> Cost:
        commits = self._commits(target) + self._commits(log)
        with counted_jobs(self.spark) as jobs:
            step()
        return Cost(jobs[0], self._commits(target) + self._commits(log) - commits)

    def _commits(self, name: str) -> int:
        """Return how many times a table was committed: versions of Delta, metadata files of Iceberg."""
        if existing_target(self.spark, name) is None:
            return 0
        if self.engine == "delta":
            return len(commits_of(self.spark, name))
        return self.spark.table(f"{name}.metadata_log_entries").count()

    def _merge(
        self, target: str, changes: Sequence[tuple[Any, ...]], columns: str = "id int, v string", **facts: Any
    ) -> None:
        merge_into(self._frame(changes, columns), target, keys=["id"], format=self.engine, **facts)

    def _append(self, target: str, changes: Sequence[tuple[Any, ...]], **facts: Any) -> None:
        append_log(self._frame(changes, "id int, v string"), target, format=self.engine, **facts)

    def _frame(self, changes: Sequence[tuple[Any, ...]], columns: str) -> Any:
        own = StructType.fromDDL(columns)
        assert isinstance(own, StructType)
        schema = StructType([*OWN.fields, *own.fields])
        rows = [
            (kind, (ts, 1, 0, 10_000 * ts + number, 0), *values) for number, (kind, ts, *values) in enumerate(changes)
        ]  # later changes have later offsets
        return self.spark.createDataFrame(rows, schema)


def _exceeds(cost: Cost, most: Cost) -> bool:
    return cost.jobs > most.jobs or cost.commits > most.commits


@contextmanager
def counted_jobs(spark: SparkSession) -> Iterator[list[int]]:
    """Give a list that has, at the end, how many jobs Spark ran meanwhile."""
    scheduler: Any = spark.sparkContext._jsc.sc().dagScheduler()
    counted: list[int] = []
    before = scheduler.numTotalJobs()
    yield counted
    counted.append(scheduler.numTotalJobs() - before)


# Jobs and commits; the page of the design has the same numbers.
MOST: dict[str, dict[str, Cost]] = {
    "delta": {
        "created": Cost(4, 2),
        "20 changes": Cost(10, 1),
        "two columns": Cost(11, 2),
        "a repeat": Cost(2, 0),
        "log created": Cost(5, 2),
        "log, 20 changes": Cost(4, 1),
    },
    "iceberg": {
        "created": Cost(3, 2),
        "20 changes": Cost(7, 1),
        "two columns": Cost(7, 2),
        "a repeat": Cost(2, 0),
        "log created": Cost(4, 2),
        "log, 20 changes": Cost(4, 1),
    },
}
