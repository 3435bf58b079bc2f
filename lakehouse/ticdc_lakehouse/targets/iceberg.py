"""A table in Iceberg: its snapshots, the effects of a rollback, and the procedures of its catalog.

The settings of a catalog, such as a REST catalog's, are those of the session (syncs/session_and_catalog.py).
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, ClassVar

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import ByteType, DataType, IntegerType, ShortType, VariantType

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets.column_types import iceberg_can_widen
from ticdc_lakehouse.targets.sessions import run_sql
from ticdc_lakehouse.targets.target import BATCH_ID, Commit, CommitFacts, Merged, Target, is_missing, text_in_sql
from ticdc_lakehouse.targets.target_names import catalog_of, deleted_keys_of, quoted
from ticdc_source.developer_api import check_permission

_VARIANT_SINCE = 3  # version of Iceberg's format


class IcebergTarget(Target):
    """An Iceberg table."""

    engine: ClassVar = "iceberg"
    partitions_by_transforms: ClassVar = True
    caches_tables: ClassVar = True
    small_properties: ClassVar = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "20",
    }
    session: ClassVar = {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"}
    packages: ClassVar = {
        "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
        "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    }

    @staticmethod
    def folder_catalog(catalog: str, folder: str) -> dict[str, str]:
        name = f"spark.sql.catalog.{catalog}"
        return {name: "org.apache.iceberg.spark.SparkCatalog", f"{name}.type": "hadoop", f"{name}.warehouse": folder}

    def check_new(self, column: str, type_: DataType, given: Mapping[str, str]) -> None:
        if not isinstance(type_, VariantType):
            return
        properties = self.properties() if self.exists() else given
        if int(properties.get("format-version", "2")) < _VARIANT_SINCE:
            raise TargetError(
                f"{self.name} cannot have the column {column}: VARIANT needs Iceberg's format version "
                f"{_VARIANT_SINCE}. Read JSON as text, variantJson=false; or create the table with "
                f"properties={{'format-version': '{_VARIANT_SINCE}'}}"
            )

    def can_widen(self, old: DataType, new: DataType) -> bool:
        return iceberg_can_widen(old, new)

    def renew(self, spark: SparkSession | None = None) -> None:
        for name in (self.name, *([deleted_keys_of(self.name)] if self._opened_deleted_keys else [])):
            try:
                run_sql(spark or self.spark, f"REFRESH TABLE {name}")  # refreshTable leaves Iceberg's own cache
            except (AnalysisException, IllegalArgumentException) as error:
                if not is_missing(error):
                    raise
        if spark is None:
            self._schema = None

    def stored(self, type_: DataType) -> DataType:
        return IntegerType() if isinstance(type_, (ByteType, ShortType)) else super().stored(type_)

    def recording(self, facts: CommitFacts) -> dict[str, str]:
        start = "spark.sql.iceberg.snapshot-property."
        return {f"{start}{name}": value for name, value in facts.as_properties().items()}

    def compact(self) -> None:
        """Merge small files into larger ones, and files of position deletes."""
        self._call("rewrite_data_files")
        self._call("rewrite_position_delete_files")

    def forget_versions(self, keep: datetime.timedelta) -> None:
        before = datetime.datetime.now(datetime.timezone.utc) - keep
        rows = (
            self._newest_first()
            .where("in_effect")
            .selectExpr("unix_millis(committed_at) AS ms", f"summary['{BATCH_ID}'] IS NOT NULL AS has_batch")
        )
        commits = sorted(((row["ms"], row["has_batch"]) for row in rows.collect()), reverse=True)
        newest_then = next((ms for ms, _ in commits if ms <= before.timestamp() * 1000), None)
        last_batch = next((ms for ms, has_batch in commits if has_batch), newest_then)
        if newest_then is None or last_batch is None:
            return
        first = min(newest_then, last_batch)
        if any(ms < first for ms, _ in commits):
            moment = datetime.datetime.fromtimestamp(first / 1000, datetime.timezone.utc)
            self._call("expire_snapshots", f"older_than => TIMESTAMP '{moment.isoformat()}'")

    def _call(self, procedure: str, *arguments: str) -> None:
        catalog = quoted(catalog_of(self.spark, self.name))
        given = ", ".join((f"table => {text_in_sql(self.name)}", *arguments))
        check_permission()
        run_sql(self.spark, f"CALL {catalog}.system.{procedure}({given})").collect()

    def history(self) -> list[tuple[Commit, bool]]:
        rows = self._newest_first().select("snapshot_id", "summary", "in_effect").collect()
        return [(Commit(row["snapshot_id"], CommitFacts.of(row["summary"])), bool(row["in_effect"])) for row in rows]

    def undone(self) -> list[CommitFacts]:
        """Return what a rollback has undone, as it does not restore properties. The next commit hides it."""
        if self._is_own:
            return []
        return [commit.facts for commit, _ in takewhile(lambda one: not one[1], self.history())]

    def _newest_first(self) -> DataFrame:
        """Return the snapshots; `in_effect` is true, or NULL for those that were rolled back."""
        ancestors = self.spark.table(f"{self.name}.history").where("is_current_ancestor").select("snapshot_id")
        ancestors = ancestors.distinct().withColumn("in_effect", F.lit(True))  # noqa: FBT003 (a value of Spark)
        snapshots = self.spark.table(f"{self.name}.snapshots").join(ancestors, "snapshot_id", "left")
        return snapshots.orderBy("committed_at", ascending=False)

    def merged(self, _answer: Sequence[Row], facts: CommitFacts) -> Merged:
        """Return whether the present snapshot is that of the MERGE; Iceberg does not report the number of rows."""
        is_known = self.version() is not None
        return Merged(is_commit=is_known and self.follows("", "", facts))

    def version_of_engine(self) -> str:
        """Return the id of the snapshot; "" if there is none, as in a new table."""
        snapshot = self._snapshot()
        return "" if snapshot is None else snapshot[0]

    def follows(self, _version: str, _before: str, facts: CommitFacts) -> bool:
        snapshot = self._snapshot()
        return snapshot is not None and CommitFacts.of(snapshot[1]) == facts

    def _snapshot(self) -> tuple[str, dict[str, str]] | None:
        """Return the id of the present snapshot, and its summary; None in a new table."""
        jvm: Any = self.spark._jvm  # noqa: SLF001 (as in Delta)
        load = getattr(jvm, "org.apache.iceberg.spark.Spark3Util").loadIcebergTable
        snapshot = load(self.spark._jsparkSession, self.name).currentSnapshot()  # noqa: SLF001 (as above)
        return None if snapshot is None else (str(snapshot.snapshotId()), dict(snapshot.summary()))
