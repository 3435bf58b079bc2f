"""A table in Delta: its properties, its history, and the effects of RESTORE."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from pyspark.sql import DataFrame, Row
from pyspark.sql.types import DataType

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets.column_types import delta_can_widen
from ticdc_lakehouse.targets.sessions import configured, frame_in, own_session, run_sql
from ticdc_lakehouse.targets.target import Commit, CommitFacts, LastBatch, Merged, NewColumn, Target, last_of
from ticdc_source.developer_api import check_permission, loads

_SECOND = datetime.timedelta(seconds=1)
_DELTA_LOG = datetime.timedelta(days=30)  # how long Delta keeps its log by default
_OF_HISTORY = ("version", "operation", "operationParameters", "userMetadata")
_REFUSE_OLDER = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
_NEWEST_COMMITS = 20  # searched first for the last micro-batch of a writer


class DeltaTarget(Target):
    """A Delta table. All sessions see what others write, and RESTORE restores the properties too."""

    engine: ClassVar = "delta"
    opens_paths: ClassVar = True
    clusters: ClassVar = True
    small_properties: ClassVar = {
        "delta.logRetentionDuration": "interval 1 days",
        "delta.deletedFileRetentionDuration": "interval 1 days",
    }
    session: ClassVar = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # 50 by default, with which each access to a small table takes a second.
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    packages: ClassVar = {  # none for Spark 4.3 yet
        "4.0": "io.delta:delta-spark_2.13:4.0.1",
        "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
    }
    to_widen: ClassVar = "Enable type widening: ALTER TABLE … SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    own_properties: ClassVar = {  # so that columns can be widened and dropped, and a DATETIME added, later
        "delta.enableTypeWidening": "true",
        "delta.columnMapping.mode": "name",
        "delta.feature.timestampNtz": "supported",
    }

    def frame_at(self, version: int) -> DataFrame:
        """Return the rows of a version whose files still exist.

        Since 4.1, Delta refuses a version that is older than its retention of deleted files. But such a version may
        have been the newest one within the retention, so that VACUUM has left its files.
        """
        with own_session(self.spark) as own, configured(own, {_REFUSE_OLDER: "false"}):
            frame = self._frame_at(own, version)
        return frame_in(frame, self.spark)

    def append(self, rows: DataFrame, facts: CommitFacts) -> Merged:
        """Append rows; the commit records its facts even if there are no rows."""
        with configured(self.spark, {"spark.databricks.delta.skipRecordingEmptyCommits": "false"}):
            return super().append(rows, facts)

    def can_widen(self, old: DataType, new: DataType) -> bool:
        return delta_can_widen(old, new) and self.properties().get("delta.enableTypeWidening") == "true"

    def add_columns(self, columns: Sequence[NewColumn]) -> None:
        """Add columns, and enable the table feature that a type may need."""
        try:
            super().add_columns(columns)
        except Exception as error:
            feature = re.search(r"MANUAL_ENABLEMENT\].*?feature\(s\): ([\w-]+)", str(error), re.DOTALL)
            if feature is None:
                raise
            self.set_properties({f"delta.feature.{feature[1]}": "supported"})
            self.add_columns(columns)

    def check_drop(self, names: Sequence[str]) -> None:
        """Refuse to drop columns of a table without column mapping, too."""
        if self.properties().get("delta.columnMapping.mode", "none") == "none":
            raise TargetError(
                f"DDL has changed the type of {', '.join(names)} of {self.name}, so Delta must drop the column and add "
                f"it again, which needs column mapping. Enable it: ALTER TABLE {self.name} SET TBLPROPERTIES "
                "('delta.columnMapping.mode' = 'name')"
            )
        super().check_drop(names)

    def merged(self, answer: Sequence[Row], _facts: CommitFacts) -> Merged:
        rows = answer[0]["num_affected_rows"]
        return Merged(rows, is_commit=rows > 0)

    def recording(self, facts: CommitFacts) -> dict[str, str]:
        return {"spark.databricks.delta.commitInfo.userMetadata": json.dumps(facts.as_properties())}

    def version_of_engine(self) -> str | None:
        """Return the id of the table and the number of its version."""
        jframe: Any = self.spark.table(self.name)._jdf  # noqa: SLF001 (no SQL tells it without a job)
        snapshot = jframe.queryExecution().analyzed().collectLeaves().head().relation().location().getSnapshot()
        return f"{snapshot.metadata().id()} {snapshot.version()}"

    def follows(self, version: str, before: str, _facts: CommitFacts) -> bool:
        (table, number), (table_before, number_before) = version.split(" "), before.split(" ")
        return table == table_before and int(number) == int(number_before) + 1

    def compact(self) -> None:
        self.commit(f"OPTIMIZE {self.name}", CommitFacts())

    def forget_versions(self, keep: datetime.timedelta) -> None:
        """Remove the files of versions that were not the newest at any moment of the last `keep`.

        Delta counts from the commit that replaced a file, and refuses a shorter time than the table's properties.
        """
        wanted = {"delta.deletedFileRetentionDuration": f"interval {keep // _SECOND} seconds"}
        if 2 * keep > _DELTA_LOG:  # the log must still have the version before that time, which may be much older
            wanted["delta.logRetentionDuration"] = f"interval {2 * keep // _SECOND} seconds"
        if any(self.properties().get(name) != value for name, value in wanted.items()):
            self.set_properties(wanted)
        check_permission()
        run_sql(self.spark, f"VACUUM {self.name}").collect()

    def history(self) -> list[tuple[Commit, bool]]:
        return self._described(f"DESCRIBE HISTORY {self.name}")

    def recorded_batch(self, app_id: str) -> LastBatch | None:
        """Search the newest commits first, which nearly always have it."""
        newest = self._described(f"DESCRIBE HISTORY {self.name} LIMIT {_NEWEST_COMMITS}")
        last = last_of(newest, app_id)
        is_found = last is not None and last.facts is not None
        return last if is_found or len(newest) < _NEWEST_COMMITS else super().recorded_batch(app_id)

    def _described(self, statement: str) -> list[tuple[Commit, bool]]:
        return commits_in(run_sql(self.spark, statement).select(*_OF_HISTORY).collect())


def commits_in(history: Sequence[Row]) -> list[tuple[Commit, bool]]:
    """Return the commits in a history of Delta, as `Target.history` does.

    The history keeps the commits that RESTORE undoes: those between it and the version that it restores.
    """
    in_effect = {row["version"] for row in _in_effect(history)}
    return [(Commit(row["version"], _facts_in(row["userMetadata"])), row["version"] in in_effect) for row in history]


def _in_effect(history: Sequence[Row]) -> Iterator[Row]:
    restored_to: int | None = None
    for row in history:
        if restored_to is not None and row["version"] > restored_to:
            continue
        restored_to = None
        yield row
        if row["operation"] == "RESTORE":
            version = (row["operationParameters"] or {}).get("version")
            if version is None:  # to a time, so the commits that it has undone are not known
                return
            restored_to = int(version)


def _facts_in(metadata: str | None) -> CommitFacts:
    """Return the facts in Delta's `userMetadata`, which may be anybody's text."""
    try:
        recorded = loads(metadata or "null")
        return CommitFacts.of(recorded) if isinstance(recorded, dict) else CommitFacts()
    except ValueError:
        return CommitFacts()
