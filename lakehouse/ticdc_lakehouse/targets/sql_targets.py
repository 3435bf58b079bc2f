"""Targets in Delta and Iceberg, of any catalog of the session: the contract of `targets/target.py` in plain SQL."""

from __future__ import annotations

import datetime
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import Any

from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import (
    ByteType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.spark_sql.verbatim import run_sql
from ticdc_lakehouse.targets.sessions import REMEMBERED, RememberedBatch, configured
from ticdc_lakehouse.targets.statements import definition, merge_in_sql, settings_in_sql, text_in_sql
from ticdc_lakehouse.targets.target import (
    APP_ID,
    BATCH_ID,
    Commit,
    CommitFacts,
    LastBatch,
    Merged,
    NewColumn,
    Target,
    Upsert,
    quoted,
)
from ticdc_lakehouse.targets.target_names import (
    bare,
    check_name,
    check_session_catalog,
    deleted_keys_of,
    is_path,
    parts_of,
)
from ticdc_lakehouse.targets.widening import delta_can_widen, iceberg_can_widen
from ticdc_source.developer_api import check_permission, loads

__all__ = ["ENGINES", "DeltaTarget", "IcebergTarget", "existing_target", "open_target"]

_SECOND = datetime.timedelta(seconds=1)
_DELTA_LOG = datetime.timedelta(days=30)  # how long Delta keeps its log by default
_OF_HISTORY = ("version", "operation", "operationParameters", "userMetadata")
_NEWEST_COMMITS = 20  # among which the last micro-batch of a writer is looked for first


class _SqlTarget:
    """What both engines do by the same SQL."""

    engine = ""

    def __init__(self, spark: SparkSession, name: str, schema: StructType | None = None) -> None:
        self.spark = spark
        self.name = name
        self.time_as = "micros"
        self._schema = schema  # what was read, until this object changes it
        self._opened_deleted_keys = False
        self._is_own = False  # whether this process has made its last version
        self._properties: dict[str, str] | None = None

    def renew(self) -> None:
        """Forget what the catalog of the session has kept of the table."""

    def exists(self) -> bool:
        self._schema = self._schema or _schema_of(self.spark, self.name)
        return self._schema is not None

    def frame(self) -> DataFrame:
        return self.spark.table(self.name)

    def frame_at(self, version: int) -> DataFrame:
        return run_sql(self.spark, f"SELECT * FROM {self.name} VERSION AS OF {version}")  # noqa: S608

    def deleted_keys(self) -> Target:
        self._opened_deleted_keys = True
        return open_target(self.spark, deleted_keys_of(self.name), self.engine)

    def columns(self) -> dict[str, DataType]:
        self._schema = self._schema or self.frame().schema
        return {field.name: field.dataType for field in self._schema}

    def properties(self) -> dict[str, str]:
        if self._properties is None:
            rows = run_sql(self.spark, f"SHOW TBLPROPERTIES {self.name}").collect()
            self._properties = {row["key"]: row["value"] for row in rows}
        return dict(self._properties)

    def stored(self, type_: DataType) -> DataType:
        time = StringType() if self.time_as == "text" else LongType()
        return time if isinstance(type_, DayTimeIntervalType) else type_

    def create(
        self,
        columns: Sequence[NewColumn],
        properties: Mapping[str, str],
        location: str | None = None,
        *,
        layout: str = "",
        replaces: bool = False,
    ) -> None:
        check_session_catalog(self.spark, self.name)
        self._create_namespace()
        definitions = ", ".join(definition(column) for column in columns)
        place = "" if location is None else f" LOCATION {text_in_sql(location)}"
        given = {**self.own_properties(columns), **properties}
        settings = f" TBLPROPERTIES {settings_in_sql(given)}" if given else ""
        verb = "CREATE OR REPLACE" if replaces else "CREATE"
        using = f"USING {self.engine}{layout}{place}"
        create = f"{verb} TABLE {self.name} ({definitions}) {using}{settings}"
        try:
            self.alter(create)
        except Exception as error:  # a Java exception of Py4J; in Spark Connect, one of PySpark
            if is_path(self.name) and "TABLE_OR_VIEW_ALREADY_EXISTS" in str(error):
                raise TargetError(_not_opened(self.name, "its folder holds files that are no Delta table")) from None
            if "DATA_SOURCE_NOT_FOUND" not in str(error):
                raise
            msg = (
                f"The target {self.name} cannot be created: this session has no {self.engine.title()}. Start it with "
                f"{self.engine.title()}'s package, extension and catalog: see 'Tables in Delta and Iceberg' in the "
                "documentation"
            )
            raise TargetError(msg) from None

    def own_properties(self, _columns: Sequence[NewColumn]) -> dict[str, str]:
        """Return the properties that a new table gets for the engine's sake."""
        return {}

    def _create_namespace(self) -> None:
        parts = parts_of(self.name)
        if len(parts) > 1 and not is_path(self.name):
            namespace = ".".join(parts[:-1])
            run_sql(self.spark, f"CREATE NAMESPACE IF NOT EXISTS {namespace}")

    def add_columns(self, columns: Sequence[NewColumn]) -> None:
        definitions = ", ".join(definition(column) for column in columns)
        self.alter(f"ALTER TABLE {self.name} ADD COLUMNS ({definitions})")

    def widen_column(self, name: str, type_: DataType) -> None:
        self.alter(f"ALTER TABLE {self.name} ALTER COLUMN {quoted(name)} TYPE {type_.simpleString()}")

    def rename_column(self, name: str, to: str) -> None:
        self.alter(f"ALTER TABLE {self.name} RENAME COLUMN {quoted(name)} TO {quoted(to)}")

    def set_properties(self, properties: Mapping[str, str]) -> None:
        self.alter(f"ALTER TABLE {self.name} SET TBLPROPERTIES {settings_in_sql(properties)}")

    def remove_properties(self, names: Sequence[str]) -> None:
        self.alter(f"ALTER TABLE {self.name} UNSET TBLPROPERTIES IF EXISTS ({', '.join(map(text_in_sql, names))})")

    def alter(self, statement: str) -> None:
        """Run a statement that changes columns or properties, after which they are read anew."""
        self._schema = self._properties = None
        check_permission()
        run_sql(self.spark, statement)

    def update_rows(self, values: Mapping[str, str], where: str, facts: CommitFacts) -> None:
        assignments = ", ".join(f"{quoted(name)} = {value}" for name, value in values.items())
        self.commit(f"UPDATE {self.name} SET {assignments} WHERE {where}", facts)  # noqa: S608

    def delete_rows(self, where: str, facts: CommitFacts) -> None:
        self.commit(f"DELETE FROM {self.name} WHERE {where}", facts)  # noqa: S608

    def append(self, rows: DataFrame, facts: CommitFacts) -> Merged:
        names = ", ".join(map(quoted, rows.columns))
        with _view(rows) as source, self._remembering(facts):
            self.commit(f"INSERT INTO {self.name} ({names}) SELECT {names} FROM {source}", facts)  # noqa: S608
        return Merged(is_commit=True)

    def overwrite(self, rows: DataFrame, facts: CommitFacts) -> None:
        names = ", ".join(map(quoted, rows.columns))
        with _view(rows) as source:
            self.commit(f"INSERT OVERWRITE {self.name} ({names}) SELECT {names} FROM {source}", facts)  # noqa: S608

    def merge(self, upsert: Upsert, facts: CommitFacts) -> Merged:
        with _view(upsert.images) as view, self._remembering(facts):
            return self.merged(self.commit(merge_in_sql(self.name, view, upsert), facts), facts)

    def last_batch(self, app_id: str) -> LastBatch | None:
        last = REMEMBERED.take(self.spark, self.name, app_id)
        if last is not None and last.version == self.version():
            self._is_own = True
            return LastBatch(last.facts)
        return self.recorded_batch(app_id)

    def refresh(self, spark: SparkSession) -> None:
        """Delta's sessions see what others write."""

    def recorded_batch(self, app_id: str) -> LastBatch | None:
        """Return the last micro-batch of a writer, by the commits that the engine still knows."""
        raise NotImplementedError

    def version(self) -> str | None:
        """Return what names the version of the table now, without a job of Spark; None if nobody tells it."""
        if getattr(self.spark, "_jsparkSession", None) is None:  # Spark Connect
            return None
        try:
            return self.version_of_engine()
        except Exception:  # noqa: BLE001 (of another release of the engine: the commits are read then)
            return None

    def version_of_engine(self) -> str | None:
        """Return what the engine itself calls the version of the table now."""
        raise NotImplementedError

    def follows(self, _version: str, _before: str, _facts: CommitFacts) -> bool:
        """Return whether a version is that of a commit with facts, and nobody else has committed since another one."""
        return False

    @contextmanager
    def _remembering(self, facts: CommitFacts) -> Iterator[None]:
        """Note what is committed here, with the version, so that the next micro-batch need not read it back.

        A version that somebody else has made, which may be a RESTORE, is not noted.
        """
        before = self.version() if facts.app_id is not None and facts.batch_id is not None else None
        yield
        version = None if before is None else self.version()
        if facts.app_id is None or before is None or version is None:
            return
        with suppress(Exception):  # it is committed, whatever the engine says now
            if self.follows(version, before, facts):
                REMEMBERED.put(self.spark, self.name, facts.app_id, RememberedBatch(facts, version))

    def merged(self, answer: Sequence[Row], facts: CommitFacts) -> Merged:
        """Return what a MERGE did, by its answer and by what its commit records."""
        raise NotImplementedError

    def commit(self, statement: str, facts: CommitFacts) -> list[Row]:
        """Run a statement whose commit records facts."""
        check_permission()
        with configured(self.spark, self.recording(facts)):
            return run_sql(self.spark, statement).collect()

    def recording(self, facts: CommitFacts) -> dict[str, str]:
        """Return the settings of the session with which a commit records facts."""
        raise NotImplementedError


class DeltaTarget(_SqlTarget):
    """A Delta table."""

    def undone(self) -> list[CommitFacts]:
        """Return nothing: RESTORE restores the properties too."""
        return []

    def append(self, rows: DataFrame, facts: CommitFacts) -> Merged:
        """Append rows; if there are none, the commit records its facts all the same."""
        with configured(self.spark, {"spark.databricks.delta.skipRecordingEmptyCommits": "false"}):
            return super().append(rows, facts)

    engine = "delta"

    def can_widen(self, old: DataType, new: DataType) -> bool:
        """Return whether a column with rows can change its type so."""
        return delta_can_widen(old, new) and self.properties().get("delta.enableTypeWidening") == "true"

    def own_properties(self, _columns: Sequence[NewColumn]) -> dict[str, str]:
        """Return what lets columns be widened, renamed, have any name, and be DATETIME later."""
        return {
            "delta.enableTypeWidening": "true",
            "delta.columnMapping.mode": "name",
            "delta.feature.timestampNtz": "supported",
        }

    def add_columns(self, columns: Sequence[NewColumn]) -> None:
        """Add columns; a feature that the type of one needs is enabled."""
        try:
            super().add_columns(columns)
        except Exception as error:
            feature = re.search(r"MANUAL_ENABLEMENT\].*?feature\(s\): ([\w-]+)", str(error), re.DOTALL)
            if feature is None:
                raise
            self.set_properties({f"delta.feature.{feature[1]}": "supported"})
            self.add_columns(columns)

    def rename_column(self, name: str, to: str) -> None:
        """Give a column another name, which needs column mapping."""
        if self.properties().get("delta.columnMapping.mode", "none") == "none":
            msg = (
                f"Column {name} of {self.name} must become {to}, because DDL gave the column another type: enable "
                f"column mapping, ALTER TABLE {self.name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
            )
            raise TargetError(msg)
        super().rename_column(name, to)

    def merged(self, answer: Sequence[Row], _facts: CommitFacts) -> Merged:
        """Return what a MERGE did."""
        rows = answer[0]["num_affected_rows"]
        return Merged(rows, is_commit=rows > 0)

    def recording(self, facts: CommitFacts) -> dict[str, str]:
        """Return the settings with which a commit records facts."""
        return {"spark.databricks.delta.commitInfo.userMetadata": json.dumps(facts.as_properties())}

    def version_of_engine(self) -> str | None:
        """Return the id of the table and the number of its version."""
        jframe: Any = self.spark.table(self.name)._jdf  # noqa: SLF001 (no SQL tells it without a job)
        snapshot = jframe.queryExecution().analyzed().collectLeaves().head().relation().location().getSnapshot()
        return f"{snapshot.metadata().id()} {snapshot.version()}"

    def follows(self, version: str, before: str, _facts: CommitFacts) -> bool:
        """Return whether a version is the next one after another."""
        (table, number), (table_before, number_before) = version.split(" "), before.split(" ")
        return table == table_before and int(number) == int(number_before) + 1

    def compact(self) -> None:
        """Write small files into larger ones."""
        self.commit(f"OPTIMIZE {self.name}", CommitFacts())

    def forget_versions(self, keep: datetime.timedelta) -> None:
        """Remove the files of versions that nobody can read who reads the table as of a moment within a time.

        Delta counts from the commit that replaced a file, and refuses less than what the table's properties say.
        """
        wanted = {"delta.deletedFileRetentionDuration": f"interval {keep // _SECOND} seconds"}
        if 2 * keep > _DELTA_LOG:  # the log must have the version before, which may be older
            wanted["delta.logRetentionDuration"] = f"interval {2 * keep // _SECOND} seconds"
        if any(self.properties().get(name) != value for name, value in wanted.items()):
            self.set_properties(wanted)
        check_permission()
        run_sql(self.spark, f"VACUUM {self.name}").collect()

    def commits(self, *, undone: bool = False) -> list[Commit]:
        """Return the commits, newest first; those that a RESTORE has undone only if they count."""
        history = run_sql(self.spark, f"DESCRIBE HISTORY {self.name}").select(*_OF_HISTORY).collect()
        rows = history if undone else _in_effect(history)
        return [Commit(row["version"], _facts_in(row["userMetadata"])) for row in rows]

    def recorded_batch(self, app_id: str) -> LastBatch | None:
        """Return the last micro-batch of a writer. The newest commits nearly always have it."""
        for limit in (_NEWEST_COMMITS, None):
            text = f"DESCRIBE HISTORY {self.name}{'' if limit is None else f' LIMIT {limit}'}"
            history = run_sql(self.spark, text).select(*_OF_HISTORY).collect()
            last = _last_in(history, app_id)
            is_whole = limit is None or len(history) < limit
            if is_whole or (last is not None and last.facts is not None):
                return last
        return None


class IcebergTarget(_SqlTarget):
    """An Iceberg table."""

    engine = "iceberg"

    def can_widen(self, old: DataType, new: DataType) -> bool:
        """Return whether a column with rows can change its type so."""
        return iceberg_can_widen(old, new)

    def renew(self) -> None:
        """Forget what the catalog of the session has kept of the table: another session may have changed it since."""
        self._refresh_one(self.spark, self.name)
        self._schema = None

    def refresh(self, spark: SparkSession) -> None:
        """Forget what a session's catalog keeps of the table, and of that of deleted keys if it was opened."""
        self._refresh_one(spark, self.name)
        if self._opened_deleted_keys:
            self._refresh_one(spark, deleted_keys_of(self.name))

    def _refresh_one(self, spark: SparkSession, name: str) -> None:
        try:
            run_sql(spark, f"REFRESH TABLE {name}")  # the catalog's refreshTable leaves what Iceberg has cached
        except (AnalysisException, IllegalArgumentException) as error:
            if not _is_missing(error):
                raise

    def stored(self, type_: DataType) -> DataType:
        """Return the type in which Iceberg keeps values of a type."""
        return IntegerType() if isinstance(type_, (ByteType, ShortType)) else super().stored(type_)

    def recording(self, facts: CommitFacts) -> dict[str, str]:
        """Return the settings with which a commit records facts."""
        start = "spark.sql.iceberg.snapshot-property."
        return {f"{start}{name}": value for name, value in facts.as_properties().items()}

    def compact(self) -> None:
        """Write small files into larger ones, and join files of deletes."""
        self._call("rewrite_data_files")
        self._call("rewrite_position_delete_files")

    def forget_versions(self, keep: datetime.timedelta) -> None:
        """Remove snapshots that nobody can read who reads the table as of a moment within a time."""
        before = datetime.datetime.now(datetime.timezone.utc) - keep
        rows = self._current().selectExpr(
            "unix_millis(committed_at) AS ms", f"summary['{BATCH_ID}'] IS NOT NULL AS has_batch"
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
        """Call a procedure of the catalog of the table."""
        parts = parts_of(self.name)
        named = len(parts) > 1 and self.spark.conf.get(f"spark.sql.catalog.{bare(parts[0])}", None) is not None
        catalog = parts[0] if named else quoted(self.spark.catalog.currentCatalog())
        given = ", ".join((f"table => {text_in_sql(self.name)}", *arguments))
        check_permission()
        run_sql(self.spark, f"CALL {catalog}.system.{procedure}({given})").collect()

    def _current(self) -> DataFrame:
        """Return the snapshots that were not rolled back."""
        current = self.spark.table(f"{self.name}.history").where("is_current_ancestor").select("snapshot_id")
        return self.spark.table(f"{self.name}.snapshots").join(current.distinct(), "snapshot_id")

    def commits(self, *, undone: bool = False) -> list[Commit]:
        """Return the commits, newest first; those that were rolled back only if they count."""
        known = self.spark.table(f"{self.name}.snapshots") if undone else self._current()
        snapshots = known.orderBy("committed_at", ascending=False).select("snapshot_id", "summary")
        return [Commit(row["snapshot_id"], CommitFacts.of(row["summary"])) for row in snapshots.collect()]

    def recorded_batch(self, app_id: str) -> LastBatch | None:
        """Return the last micro-batch of a writer. Commits that were rolled back do not count."""
        its = f"summary['{BATCH_ID}'] IS NOT NULL"
        rows = self._newest_first(its).where(F.col("summary").getItem(APP_ID) == app_id).collect()
        return _last_of((CommitFacts.of(row["summary"]), bool(row["in_effect"])) for row in rows)

    def undone(self) -> list[CommitFacts]:
        """Return what the commits recorded that a rollback has undone, unless there is a commit since."""
        if self._is_own:
            return []
        newest_first = self._newest_first().collect()
        return [CommitFacts.of(row["summary"]) for row in takewhile(lambda row: not row["in_effect"], newest_first)]

    def _newest_first(self, where: str = "true") -> DataFrame:
        """Return the summaries of snapshots, and which of them are in effect: the others were rolled back."""
        ancestors = self.spark.table(f"{self.name}.history").where("is_current_ancestor").select("snapshot_id")
        ancestors = ancestors.distinct().withColumn("in_effect", F.lit(True))  # noqa: FBT003 (a value of Spark)
        snapshots = self.spark.table(f"{self.name}.snapshots").where(where).join(ancestors, "snapshot_id", "left")
        return snapshots.orderBy("committed_at", ascending=False).select("summary", "in_effect")

    def merged(self, _answer: Sequence[Row], facts: CommitFacts) -> Merged:
        """Return whether the snapshot of now is that of the MERGE, if it can be asked; nobody tells its rows."""
        is_known = self.version() is not None
        return Merged(is_commit=is_known and self.follows("", "", facts))

    def version_of_engine(self) -> str | None:
        """Return the id of the snapshot."""
        snapshot = self._snapshot()
        return None if snapshot is None else snapshot[0]

    def follows(self, _version: str, _before: str, facts: CommitFacts) -> bool:
        """Return whether the snapshot records facts."""
        snapshot = self._snapshot()
        return snapshot is not None and CommitFacts.of(snapshot[1]) == facts

    def _snapshot(self) -> tuple[str, dict[str, str]] | None:
        """Return the id of the snapshot of now, and its summary."""
        jvm: Any = self.spark._jvm  # noqa: SLF001 (as in Delta)
        load = getattr(jvm, "org.apache.iceberg.spark.Spark3Util").loadIcebergTable
        snapshot = load(self.spark._jsparkSession, self.name).currentSnapshot()  # noqa: SLF001 (as above)
        return None if snapshot is None else (str(snapshot.snapshotId()), dict(snapshot.summary()))


ENGINES: dict[str, type[DeltaTarget | IcebergTarget]] = {one.engine: one for one in (DeltaTarget, IcebergTarget)}


def open_target(spark: SparkSession, name: str, engine: str | None = None) -> Target:
    """Return the target of a name; the table need not exist yet.

    Args:
        spark: the session.
        name: a name as SQL has it, or ``delta.`/path` `` for a Delta table without a catalog.
        engine: `delta` or `iceberg`; None to ask the table, or the catalog of a table that does not exist.

    Raises:
        TargetError: it is no table in Delta or Iceberg, or it is not clear which of them a new one shall be, or its
            name is refused.
    """
    if engine is not None and engine not in ENGINES:
        msg = f"format={engine!r}: it must be one of {', '.join(ENGINES)}"
        raise TargetError(msg)
    existing = existing_target(spark, name)
    if existing is not None:
        if engine in (None, existing.engine):
            return existing
        msg = (
            f"The target {name} is in {existing.engine}, and format={engine!r} was given: leave it out, or give "
            "another name"
        )
        raise TargetError(msg)
    engine = engine or _engine_of_catalog(spark, name)
    if engine is None:
        msg = (
            f"The target {name} does not exist, and its catalog does not say whether tables in it are Delta or "
            "Iceberg: give format='delta' or format='iceberg'"
        )
        raise TargetError(msg)
    return ENGINES[engine](spark, name)


def existing_target(spark: SparkSession, name: str) -> Target | None:
    """Return the target of a name if there is such a table; None if there is none.

    Raises:
        TargetError: it is no table in Delta or Iceberg, or its name is refused.
    """
    check_name(name)
    schema = _schema_of(spark, name)
    if schema is None:
        REMEMBERED.put_engine(spark, name, None)
        return None
    provider = REMEMBERED.engine(spark, name) or _provider_of(spark, name)
    if provider in ENGINES:
        if "." in name:  # a view of the session may hide the others
            REMEMBERED.put_engine(spark, name, provider)
        found = ENGINES[provider](spark, name, schema)
        found.renew()
        return found if found.exists() else None
    what = f"a table of {provider}" if provider else "a view, or a table of an unknown format"
    msg = (
        f"{name} is {what}: only tables in Delta and Iceberg have the MERGE and the commits that are needed. Give "
        "another name, or write the changes with append_log"
    )
    raise TargetError(msg)


# Delta says the last also of a folder with no table: CREATE takes an empty one, and refuses one with files.
_MISSING = frozenset({"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND"})


def _schema_of(spark: SparkSession, name: str) -> StructType | None:
    """Return the schema of a table; None if there is none of this name."""
    try:
        return spark.table(name).schema
    except (AnalysisException, IllegalArgumentException) as error:  # the second if Hadoop has no such path
        if _is_missing(error):
            return None
        raise TargetError(_not_opened(name, str(error).partition("\n")[0])) from error


def _not_opened(name: str, why: str) -> str:
    return (
        f"The target {name} cannot be opened: {why}. Give the name of a table, or of one to be created, in a "
        "catalog that the session has; or delta.`/path` with a path that is empty or holds a Delta table"
    )


def _is_missing(error: PySparkException) -> bool:
    return (error.getCondition() or "").partition(".")[0] in _MISSING


def _provider_of(spark: SparkSession, name: str) -> str:
    """Return Spark's word for the format of a table; "" for a view."""
    described = run_sql(spark, f"DESCRIBE TABLE EXTENDED {name}").collect()
    return next((row["data_type"].lower() for row in reversed(described) if row["col_name"] == "Provider"), "")


def _engine_of_catalog(spark: SparkSession, name: str) -> str | None:
    if is_path(name):
        return "delta"
    first, *more = parts_of(name)
    kind: str | None = spark.conf.get(f"spark.sql.catalog.{first.strip('`')}", None) if more else None
    if kind is None:
        current = spark.catalog.currentCatalog()
        kind = spark.conf.get(f"spark.sql.catalog.{current}", None)
    return next((engine for engine in ENGINES if engine in (kind or "").lower()), None)


@contextmanager
def _view(frame: DataFrame) -> Iterator[str]:
    """Give a frame a name for SQL."""
    name = f"ticdc_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        frame.sparkSession.catalog.dropTempView(name)


def _in_effect(history: Sequence[Row]) -> Iterator[Row]:
    """Yield the commits of a history of Delta, newest first, that no RESTORE has undone."""
    restored_to: int | None = None
    for row in history:
        if restored_to is not None and row["version"] > restored_to:
            continue
        restored_to = None
        yield row
        if row["operation"] == "RESTORE":
            version = (row["operationParameters"] or {}).get("version")
            if version is None:  # to a time, so nobody knows which commits that has undone
                return
            restored_to = int(version)


def _last_in(history: Sequence[Row], app_id: str) -> LastBatch | None:
    """Return the last micro-batch of a writer in a history of Delta, the newest commit first.

    RESTORE keeps the commits that it undoes in the history: those between itself and the version that it restores.
    """
    in_effect = {row["version"] for row in _in_effect(history)}
    told = ((_facts_in(row["userMetadata"]), row["version"] in in_effect) for row in history)
    return _last_of((facts, counts) for facts, counts in told if facts.app_id == app_id and facts.batch_id is not None)


def _last_of(commits: Iterable[tuple[CommitFacts, bool]]) -> LastBatch | None:
    """Return the last micro-batch among the commits of a writer, newest first, each with whether it is in effect."""
    undone: int | None = None
    for facts, is_in_effect in commits:
        if is_in_effect:
            return LastBatch(facts, undone)
        number = facts.batch_id or 0
        undone = number if undone is None else min(undone, number)
    return None if undone is None else LastBatch(None, undone)


def _facts_in(metadata: str | None) -> CommitFacts:
    """Return the facts in Delta's `userMetadata`, which may be anybody's text."""
    try:
        recorded = loads(metadata or "null")
        return CommitFacts.of(recorded) if isinstance(recorded, dict) else CommitFacts()
    except ValueError:
        return CommitFacts()
