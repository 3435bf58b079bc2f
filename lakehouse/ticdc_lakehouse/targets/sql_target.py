"""What a target is in both engines, in any catalog of the session: the contract of `targets/target.py` in plain SQL."""

# ruff: noqa: D102 (what each method does says the contract, `Target`)

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import ClassVar, TypeVar

from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import DataType, DayTimeIntervalType, LongType, StringType, StructType

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.spark_sql.verbatim import run_sql
from ticdc_lakehouse.targets.data_layout import check_not_laid_out_by
from ticdc_lakehouse.targets.merge_sessions import configured
from ticdc_lakehouse.targets.remembered import REMEMBERED, RememberedBatch
from ticdc_lakehouse.targets.statements import definition, merge_in_sql, settings_in_sql, text_in_sql
from ticdc_lakehouse.targets.target import CommitFacts, LastBatch, Merged, NewColumn, Upsert, quoted
from ticdc_lakehouse.targets.target_names import check_session_catalog, deleted_keys_of, is_path, parts_of
from ticdc_source.developer_api import check_permission

__all__ = ["SqlTarget", "is_missing", "last_of", "not_opened", "schema_of"]

_Own = TypeVar("_Own", bound="SqlTarget")


class SqlTarget(ABC):
    """What both engines do by the same SQL."""

    engine = ""
    own_properties: ClassVar[Mapping[str, str]] = {}  # those of a new table, for the engine's sake

    def __init__(self, spark: SparkSession, name: str, schema: StructType | None = None) -> None:
        self.spark = spark
        self.name = name
        self.time_as = "micros"
        self._schema = schema  # what was read, until this object changes it
        self._opened_deleted_keys = False
        self._is_own = False  # whether this process has made its last version
        self._properties: dict[str, str] | None = None

    @abstractmethod
    def renew(self) -> None:
        """Forget what the catalog of the session has kept of the table."""

    def exists(self) -> bool:
        self._schema = self._schema or schema_of(self.spark, self.name)
        return self._schema is not None

    def frame(self) -> DataFrame:
        return self.spark.table(self.name)

    def frame_at(self, version: int) -> DataFrame:
        return self._frame_at(self.spark, version)

    def _frame_at(self, spark: SparkSession, version: int) -> DataFrame:
        return run_sql(spark, f"SELECT * FROM {self.name} VERSION AS OF {version}")  # noqa: S608

    def deleted_keys(self: _Own) -> _Own:  # noqa: PYI019 (Python 3.10 has no Self)
        self._opened_deleted_keys = True
        keys = type(self)(self.spark, deleted_keys_of(self.name))
        keys.renew()
        return keys

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
        parts = parts_of(self.name)
        if len(parts) > 1 and not is_path(self.name):
            run_sql(self.spark, f"CREATE NAMESPACE IF NOT EXISTS {'.'.join(parts[:-1])}")
        definitions = ", ".join(definition(column) for column in columns)
        place = "" if location is None else f" LOCATION {text_in_sql(location)}"
        given = {**self.own_properties, **properties}
        settings = f" TBLPROPERTIES {settings_in_sql(given)}" if given else ""
        verb = "CREATE OR REPLACE" if replaces else "CREATE"
        using = f"USING {self.engine}{layout}{place}"
        create = f"{verb} TABLE {self.name} ({definitions}) {using}{settings}"
        try:
            self.alter(create)
        except Exception as error:  # a Java exception of Py4J; in Spark Connect, one of PySpark
            if is_path(self.name) and "TABLE_OR_VIEW_ALREADY_EXISTS" in str(error):
                raise TargetError(not_opened(self.name, "its folder holds files that are no Delta table")) from None
            if "DATA_SOURCE_NOT_FOUND" not in str(error):
                raise
            msg = (
                f"The target {self.name} cannot be created: this session has no {self.engine.title()}. Start it with "
                f"{self.engine.title()}'s package, extension and catalog: see 'Tables in Delta and Iceberg' in the "
                "documentation"
            )
            raise TargetError(msg) from None

    def add_columns(self, columns: Sequence[NewColumn]) -> None:
        definitions = ", ".join(definition(column) for column in columns)
        self.alter(f"ALTER TABLE {self.name} ADD COLUMNS ({definitions})")

    def widen_column(self, name: str, type_: DataType) -> None:
        self.alter(f"ALTER TABLE {self.name} ALTER COLUMN {quoted(name)} TYPE {type_.simpleString()}")

    def check_drop(self, names: Sequence[str]) -> None:
        check_not_laid_out_by(names, self.name, self.properties())

    def drop_columns(self, names: Sequence[str]) -> None:
        self.alter(f"ALTER TABLE {self.name} DROP COLUMNS ({', '.join(map(quoted, names))})")

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

    @abstractmethod
    def refresh(self, spark: SparkSession) -> None:
        """Forget what a session's catalog keeps of the table, and of that of deleted keys if it was opened."""

    @abstractmethod
    def recorded_batch(self, app_id: str) -> LastBatch | None:
        """Return the last micro-batch of a writer, by the commits that the engine still knows."""

    def version(self) -> str | None:
        """Return what names the version of the table now, without a job of Spark; None if nobody tells it."""
        if getattr(self.spark, "_jsparkSession", None) is None:  # Spark Connect
            return None
        try:
            return self.version_of_engine()
        except Exception:  # noqa: BLE001 (of another release of the engine: the commits are read then)
            return None

    @abstractmethod
    def version_of_engine(self) -> str | None:
        """Return what the engine itself calls the version of the table now."""

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

    @abstractmethod
    def merged(self, answer: Sequence[Row], facts: CommitFacts) -> Merged:
        """Return what a MERGE did, by its answer and by what its commit records."""

    def commit(self, statement: str, facts: CommitFacts) -> list[Row]:
        """Run a statement whose commit records facts."""
        check_permission()
        with configured(self.spark, self.recording(facts)):
            return run_sql(self.spark, statement).collect()

    @abstractmethod
    def recording(self, facts: CommitFacts) -> dict[str, str]:
        """Return the settings of the session with which a commit records facts."""


# Delta says the last also of a folder with no table: CREATE takes an empty one, and refuses one with files.
_MISSING = frozenset({"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND"})


def schema_of(spark: SparkSession, name: str) -> StructType | None:
    """Return the schema of a table; None if there is none of this name."""
    try:
        return spark.table(name).schema
    except (AnalysisException, IllegalArgumentException) as error:  # the second if Hadoop has no such path
        if is_missing(error):
            return None
        raise TargetError(not_opened(name, str(error).partition("\n")[0])) from error


def not_opened(name: str, why: str) -> str:
    """Return the error of a table that is not opened."""
    return (
        f"The target {name} cannot be opened: {why}. Give the name of a table, or of one to be created, in a "
        "catalog that the session has; or delta.`/path` with a path that is empty or holds a Delta table"
    )


def is_missing(error: PySparkException) -> bool:
    """Return whether Spark says that there is no such table."""
    return (error.getCondition() or "").partition(".")[0] in _MISSING


@contextmanager
def _view(frame: DataFrame) -> Iterator[str]:
    """Give a frame a name for SQL."""
    name = f"ticdc_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        frame.sparkSession.catalog.dropTempView(name)


def last_of(commits: Iterable[tuple[CommitFacts, bool]]) -> LastBatch | None:
    """Return the last micro-batch among the commits of a writer, newest first, each with whether it is in effect."""
    undone: int | None = None
    for facts, is_in_effect in commits:
        if is_in_effect:
            return LastBatch(facts, undone)
        number = facts.batch_id or 0
        undone = number if undone is None else min(undone, number)
    return None if undone is None else LastBatch(None, undone)
