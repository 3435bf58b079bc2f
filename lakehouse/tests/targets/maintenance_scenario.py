"""What must hold of `maintain` and of layouts with a real engine."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from ticdc_lakehouse import MergeReport, append_log, commits_of, maintain, merge_into, resolved_ts_of
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets.opening import open_target
from ticdc_lakehouse.targets.target_names import deleted_keys_of
from ticdc_source.errors import OptionError
from ticdc_source.schema.change_order import SEQUENCE
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.table_name import TableName
from ticdc_source.spark.schema import to_spark

OWN = to_spark(pa.schema([("_change_type", pa.string()), ("_sequence", SEQUENCE)]))
COLUMNS = "id int, region string, `made at` timestamp"
OLD, NEW = 6, 3  # commits before and after the moment until which versions are kept
PAUSE = 2.0  # seconds between them


class MaintenanceScenario:
    """What must hold, with an engine, a session, a function that names targets, and checks."""

    def __init__(
        self,
        engine: str,
        spark: SparkSession,
        name: Callable[[str], str],
        equal: Callable[[object, object], None],
        refused: Callable[[Any, str, Callable[[], object]], None],
    ) -> None:
        self.engine = engine
        self.spark = spark
        self.name = name
        self.equal = equal
        self.refused = refused

    def parts(self) -> list[Callable[[], None]]:
        return [self.maintenance, self.maintenance_of_logs_and_deleted_keys, self.layouts]

    def maintenance(self) -> None:
        """A round leaves the rows, and each version that was the newest at a moment to be kept; others are gone."""
        target = self.name("maintained")
        for batch in range(OLD):
            self._merge(target, [("update_postimage", 100 + batch, n, f"{n}-{batch}") for n in range(50)], batch)
        self._merge(target, [("delete", 107, 7, "7-5")], OLD)
        began = time.monotonic()
        time.sleep(PAUSE)
        for batch in range(OLD + 1, OLD + 1 + NEW):
            self._merge(target, [("update_postimage", 200 + batch, n, f"{n}-{batch}") for n in range(3)], batch)
        rows, files = self._rows(target), self._files(target)
        kept = [one.version for one in commits_of(self.spark, target) if (one.facts.resolved_ts or 0) >= 1000 + OLD]
        self.equal(len(kept), NEW + 1)
        shown = {version: self._rows_at(target, version) for version in kept}

        for _ in range(2):  # the second one finds nothing to do
            maintain(self.spark, target, keep=timedelta(seconds=time.monotonic() - began))
            self.equal(self._rows(target), rows)
            self.equal({one: self._rows_at(target, one) for one in kept}, shown)
            self.equal(resolved_ts_of(self.spark, target), 1000 + OLD + NEW)
        left = self._files(target)
        print(f"files {files} -> {left}; commits {len(commits_of(self.spark, target))}")  # noqa: T201 (a figure)
        self.equal(left < files, True)
        if self.engine == "iceberg":  # Delta keeps its log, and loses the files of old versions
            recorded = [one.facts.batch_id for one in commits_of(self.spark, target) if one.facts.batch_id is not None]
            self.equal(recorded, list(range(OLD + NEW, OLD - 1, -1)))
        last = OLD + NEW
        again = self._merge(target, [("update_postimage", 200 + last, n, f"{n}-{last}") for n in range(3)], last)
        self.equal(again.repeated, True)
        self.equal(self._rows(target, "_is_deleted"), [(7, "7-5")])
        maintain(self.spark, target, keep=timedelta(0), purge_before=108)
        self.equal(self._rows(target, "_is_deleted"), [])
        last = OLD + NEW
        again = self._merge(target, [("update_postimage", 200 + last, n, f"{n}-{last}") for n in range(3)], last)
        self.equal(again.repeated, True)
        self._merge(target, [("update_postimage", 301, 1, "new")], OLD + NEW + 1)
        self.equal((1, "new") in self._rows(target), True)
        self.refused(OptionError, "must not be negative",
                     lambda: maintain(self.spark, target, keep=timedelta(hours=-1)))  # fmt: skip
        self.refused(TargetError, "There is no table",
                     lambda: maintain(self.spark, self.name("none"), keep=timedelta(0)))  # fmt: skip

    def maintenance_of_logs_and_deleted_keys(self) -> None:
        """A log keeps every change, and knows its last micro-batch; the keys of hard deletes are maintained too."""
        log = self.name("maintained__log")
        for batch in range(4):
            self._append(log, [("insert", 100 + batch, batch, "x")], batch)
        maintain(self.spark, log, keep=timedelta(0), purge_before=1000)
        self._append(log, [("insert", 103, 3, "x")], 3)
        self.equal(self._rows(log), [(number, "x") for number in range(4)])
        hard = self.name("maintained_hard")
        self._merge(hard, [("insert", 10, 1, "a"), ("insert", 10, 2, "b"), ("insert", 10, 3, "c")], 0, deletes="hard")
        for batch in (1, 2):
            self._merge(hard, [("delete", 20 * batch, batch, "-")], batch)
        maintain(self.spark, hard, keep=timedelta(0), purge_before=30)
        self.equal(self._rows(hard), [(3, "c")])
        self.equal([row["id"] for row in self.spark.table(deleted_keys_of(hard)).select("id").collect()], [2])

    def layouts(self) -> None:
        """A new target has the layout that is given, also if it only had DDL until then; rows may move."""
        rows = [("insert", 10, 1, "eu", None), ("insert", 10, 2, "us", None)]
        layout: dict[str, Any] = {"partition_by": ["REGION"]}
        wanted = ["region"]
        if self.engine == "iceberg":
            layout = {"partition_by": ["region", "days(`made at`)".replace("`", ""), "bucket(4, id)"]}
            wanted = ["region", "days(`made at`)", "bucket(4, id)"]
        target = self.name("laid_out")
        self._merge(target, rows, 0, columns=COLUMNS, **layout)
        self._merge(target, [("update_postimage", 20, 1, "us", None)], 1, columns=COLUMNS, **layout)
        self.equal(self._rows(target, columns=("id", "region")), [(1, "us"), (2, "us")])
        described = [row.asDict() for row in self.spark.sql(f"DESCRIBE TABLE {target}").collect()]
        start = next(number for number, row in enumerate(described) if row["col_name"].startswith("# Partition"))
        names = [row for row in described[start + 1 :] if not row["col_name"].startswith("#")]
        found = [row["data_type"] if row["col_name"].startswith("Part ") else row["col_name"] for row in names]
        self.equal([one.replace("`", "") for one in found], [one.replace("`", "") for one in wanted])
        other: dict[str, Any] = {"partition_by": ["id"]}
        self.refused(TargetError, "was created with the layout",
                     lambda: self._merge(target, rows, 2, columns=COLUMNS, **other))  # fmt: skip
        late = self.name("laid_out_late")
        self._merge(late, [], 0, columns="", ddl=True, **layout)
        self._merge(late, rows, 1, columns=COLUMNS, **layout)
        self.equal(self._rows(late, columns=("id", "region")), [(1, "eu"), (2, "us")])
        headings = [row["col_name"] for row in self.spark.sql(f"DESCRIBE TABLE {late}").collect()]
        self.equal(any(name.startswith("# Partition") for name in headings), True)
        if self.engine == "delta":
            clustered = self.name("clustered")
            self._merge(clustered, rows, 0, columns=COLUMNS, cluster_by=["region", "id"])
            self._merge(clustered, [("update_postimage", 20, 1, "us", None)], 1, columns=COLUMNS)
            maintain(self.spark, clustered, keep=timedelta(days=7))
            self.equal(self._rows(clustered, columns=("id", "region")), [(1, "us"), (2, "us")])
            detail = self.spark.sql(f"DESCRIBE DETAIL {clustered}").collect()[0]
            self.equal(detail["clusteringColumns"], ["region", "id"])

    def _merge(
        self, target: str, changes: Sequence[Any], batch: int, columns: str = "id int, v string", *, ddl: bool = False,
        **more: Any,
    ) -> MergeReport:  # fmt: skip
        events = []
        if ddl:
            events = [
                DDLEvent(position=0, index=0, commit_ts=5, table=TableName("s", "t"), query="TRUNCATE TABLE t", type="")
            ]
        return merge_into(
            self._frame(changes, columns), target, keys=["id"], format=self.engine, app_id="me", batch_id=batch,
            resolved_ts=1000 + batch, ddl=events, on_destructive_ddl="apply", **more,
        )  # fmt: skip

    def _append(self, log: str, changes: Sequence[Any], batch: int) -> None:
        append_log(self._frame(changes, "id int, v string"), log, format=self.engine, app_id="me", batch_id=batch)

    def _frame(self, changes: Sequence[Any], columns: str) -> Any:
        rows = [
            (kind, (commit_ts, 0 if kind == "delete" else 1, 0, offset, 0), *values)
            for offset, (kind, commit_ts, *values) in enumerate(changes)
        ]
        own = OWN.simpleString().removeprefix("struct<").removesuffix(">")
        return self.spark.createDataFrame(rows, f"{own},{columns}" if columns else own)

    def _rows(self, table: str, where: str = "true", columns: Sequence[str] = ("id", "v")) -> list[tuple[Any, ...]]:
        frame = self.spark.sql(f"SELECT * FROM {table}").where(where)  # noqa: S608 (names of this scenario)
        return sorted(tuple(row) for row in frame.select(*columns).collect())

    def _rows_at(self, target: str, version: int) -> list[tuple[Any, ...]]:
        return sorted(
            tuple(row) for row in open_target(self.spark, target).frame_at(version).select("id", "v").collect()
        )

    def _files(self, target: str) -> int:
        """Return how many data files of a target there are on disk, whether a version needs them or not."""
        if self.engine == "delta":
            folder = Path(target.split("`")[1])
        else:
            location = self.spark.sql(f"DESCRIBE TABLE EXTENDED {target}").where("col_name = 'Location'").collect()[0]
            folder = Path(location["data_type"].removeprefix("file:"))
        return sum(1 for _ in folder.rglob("*.parquet"))
