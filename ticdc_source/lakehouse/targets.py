"""Target tables: what `merge_into` needs of a table, in the words of Delta and of Iceberg. Plain SQL.

A target knows SQL and its engine, and nothing of changes. Names of columns are as the table has them, without quotes;
conditions and values are SQL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import ByteType, DataType, DayTimeIntervalType, IntegerType, LongType, ShortType

from ticdc_source.errors import TargetError
from ticdc_source.lakehouse.widening import delta_can_widen, iceberg_can_widen

__all__ = [
    "ENGINES",
    "Commit",
    "CommitFacts",
    "DeltaTarget",
    "IcebergTarget",
    "LastBatch",
    "Merged",
    "NewColumn",
    "Target",
    "existing_target",
    "open_target",
    "quoted",
]

_RESOLVED_TS, _APP_ID, _BATCH_ID = "ticdc.resolved_ts", "ticdc.app_id", "ticdc.batch_id"
_NEWEST_COMMITS = 20  # among which the last micro-batch of a writer is looked for first


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """What a commit records, so that a reader of the table finds it again.

    Attributes:
        resolved_ts: the moment up to which the table is complete; None if nobody knows it.
        app_id: who writes: one name for each stream and target.
        batch_id: the number of the micro-batch.
    """

    resolved_ts: int | None = None
    app_id: str | None = None
    batch_id: int | None = None

    def as_properties(self) -> dict[str, str]:
        """Return what is known, by the names under which it is recorded."""
        named = {_RESOLVED_TS: self.resolved_ts, _APP_ID: self.app_id, _BATCH_ID: self.batch_id}
        return {name: str(value) for name, value in named.items() if value is not None}

    @staticmethod
    def of(properties: Mapping[str, object]) -> CommitFacts:
        """Return the facts among what a commit recorded."""
        resolved_ts, app_id, batch_id = (properties.get(name) for name in (_RESOLVED_TS, _APP_ID, _BATCH_ID))
        return CommitFacts(
            None if resolved_ts is None else int(str(resolved_ts)),
            None if app_id is None else str(app_id),
            None if batch_id is None else int(str(batch_id)),
        )


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of a table.

    Attributes:
        version: Delta's version, or Iceberg's snapshot id.
        facts: what `merge_into` recorded with it; nothing in commits of others.
    """

    version: int
    facts: CommitFacts


class LastBatch(NamedTuple):
    """The last micro-batch that a table has of a writer.

    Attributes:
        number: its number.
        restored: whether the table was restored after it, and the engine skips it all the same.
    """

    number: int
    restored: bool = False


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column that a table is to get."""

    name: str
    type: DataType
    comment: str | None = None

    def as_sql(self) -> str:
        """Return the definition of the column."""
        comment = "" if self.comment is None else f" COMMENT {_text(self.comment)}"
        return f"{quoted(self.name)} {self.type.simpleString()}{comment}"


class Target(Protocol):
    """A table in Delta or Iceberg."""

    @property
    def spark(self) -> SparkSession:
        """The session."""

    @property
    def name(self) -> str:
        """The name as SQL: `lake.shop.orders`, or the path of a Delta table."""

    @property
    def engine(self) -> str:
        """`delta` or `iceberg`."""

    def exists(self) -> bool:
        """Return whether the table exists."""

    def columns(self) -> dict[str, DataType]:
        """Return the types of the columns by name, in the table's order."""

    def properties(self) -> dict[str, str]:
        """Return the table properties."""

    def stored(self, type_: DataType) -> DataType:
        """Return the type in which the engine keeps values of a type."""

    def can_widen(self, old: DataType, new: DataType) -> bool:
        """Return whether a column with rows can change its type so."""

    def create(self, columns: Sequence[NewColumn], properties: Mapping[str, str], location: str | None = None) -> None:
        """Create the table, and its namespace if that is missing."""

    def add_column(self, column: NewColumn) -> None:
        """Add a column, which is NULL in all rows."""

    def widen_column(self, name: str, type_: DataType) -> None:
        """Change the type of a column to a wider one."""

    def rename_column(self, old: str, new: str) -> None:
        """Rename a column."""

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set table properties."""

    def update_rows(self, values: Mapping[str, str], where: str, facts: CommitFacts = CommitFacts()) -> None:
        """Set columns to values, which are SQL, in the rows that meet a condition; one commit.

        Its facts must not have the number of the micro-batch: Delta would then skip the merge that follows.
        """

    def delete_rows(self, where: str, facts: CommitFacts = CommitFacts()) -> None:
        """Delete the rows that meet a condition; one commit. Its facts are as those of `update_rows`."""

    def merge(self, source: str, clauses: str, facts: CommitFacts) -> Merged:
        """Run `MERGE INTO target t USING source s` with these clauses; one commit.

        Args:
            source: the name of a view, or a query in parentheses.
            clauses: what follows: `ON …` and the `WHEN` clauses.
            facts: what the commit records. With `app_id` and `batch_id`, Delta skips a number that is not larger than
                the writer's last; Iceberg skips nothing.
        """

    def append(self, source: str, columns: Sequence[str], facts: CommitFacts) -> Merged:
        """Append these columns of a view; one commit, as in `merge`."""

    def commits(self) -> list[Commit]:
        """Return the commits that the engine still knows, newest first."""

    def last_batch(self, app_id: str) -> LastBatch | None:
        """Return the last micro-batch of a writer, by the commits that the engine still knows; None if there is none.

        Args:
            app_id: the name of the writer.
        """


@dataclass(frozen=True, slots=True)
class Merged:
    """What a MERGE did.

    Attributes:
        rows: how many rows it changed; None if the engine does not tell.
        skipped: whether it was skipped, because its micro-batch was there already.
    """

    rows: int | None = None
    skipped: bool = False


class _SqlTarget:
    """What both engines do by the same SQL."""

    engine = ""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark = spark
        self.name = name

    def exists(self) -> bool:
        return _schema_of(self.spark, self.name) is not None

    def columns(self) -> dict[str, DataType]:
        return {field.name: field.dataType for field in self.spark.table(self.name).schema}

    def properties(self) -> dict[str, str]:
        return {row["key"]: row["value"] for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()}

    def stored(self, type_: DataType) -> DataType:
        return LongType() if isinstance(type_, DayTimeIntervalType) else type_

    def create(self, columns: Sequence[NewColumn], properties: Mapping[str, str], location: str | None = None) -> None:
        self._create_namespace()
        definitions = ", ".join(column.as_sql() for column in columns)
        place = "" if location is None else f" LOCATION {_text(location)}"
        settings = _settings({**self.own_properties(columns), **properties})
        self.spark.sql(f"CREATE TABLE {self.name} ({definitions}) USING {self.engine}{place} TBLPROPERTIES {settings}")

    def own_properties(self, _columns: Sequence[NewColumn]) -> dict[str, str]:
        """Return the properties that a new table gets for the engine's sake."""
        return {}

    def _create_namespace(self) -> None:
        parts = _parts(self.name)
        if len(parts) > 1 and not is_path(self.name):
            namespace = ".".join(parts[:-1])
            self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")

    def add_column(self, column: NewColumn) -> None:
        self.spark.sql(f"ALTER TABLE {self.name} ADD COLUMNS ({column.as_sql()})")

    def widen_column(self, name: str, type_: DataType) -> None:
        self.spark.sql(f"ALTER TABLE {self.name} ALTER COLUMN {quoted(name)} TYPE {type_.simpleString()}")

    def rename_column(self, old: str, new: str) -> None:
        self.spark.sql(f"ALTER TABLE {self.name} RENAME COLUMN {quoted(old)} TO {quoted(new)}")

    def set_properties(self, properties: Mapping[str, str]) -> None:
        self.spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES {_settings(properties)}")

    def update_rows(self, values: Mapping[str, str], where: str, facts: CommitFacts = CommitFacts()) -> None:
        assignments = ", ".join(f"{quoted(name)} = {value}" for name, value in values.items())
        self.commit(f"UPDATE {self.name} SET {assignments} WHERE {where}", facts)  # noqa: S608

    def delete_rows(self, where: str, facts: CommitFacts = CommitFacts()) -> None:
        self.commit(f"DELETE FROM {self.name} WHERE {where}", facts)  # noqa: S608

    def append(self, source: str, columns: Sequence[str], facts: CommitFacts) -> Merged:
        names = ", ".join(map(quoted, columns))
        self.commit(f"INSERT INTO {self.name} ({names}) SELECT {names} FROM {source}", facts)  # noqa: S608
        return Merged()

    def commit(self, statement: str, facts: CommitFacts) -> list[Row]:
        """Run a statement whose commit records facts."""
        with _configured(self.spark, self.recording(facts)):
            return self.spark.sql(statement).collect()

    def recording(self, facts: CommitFacts) -> dict[str, str]:
        """Return the settings of the session with which a commit records facts."""
        raise NotImplementedError


class DeltaTarget(_SqlTarget):
    """A Delta table."""

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

    def add_column(self, column: NewColumn) -> None:
        """Add a column; a feature that its type needs is enabled."""
        try:
            super().add_column(column)
        except Exception as error:
            feature = re.search(r"MANUAL_ENABLEMENT\].*?feature\(s\): ([\w-]+)", str(error), re.DOTALL)
            if feature is None:
                raise
            self.set_properties({f"delta.feature.{feature[1]}": "supported"})
            super().add_column(column)

    def merge(self, source: str, clauses: str, facts: CommitFacts) -> Merged:
        """Run a MERGE; see `Target`."""
        rows = self.commit(f"MERGE INTO {self.name} t USING {source} s {clauses}", facts)
        return Merged(rows[0]["num_affected_rows"]) if rows else Merged(0, skipped=True)

    def recording(self, facts: CommitFacts) -> dict[str, str]:
        """Return the settings with which a commit records facts."""
        recorded = {"spark.databricks.delta.commitInfo.userMetadata": json.dumps(facts.as_properties())}
        if facts.app_id is None or facts.batch_id is None:
            return recorded
        start = "spark.databricks.delta.write.txn"
        return {**recorded, f"{start}AppId": facts.app_id, f"{start}Version": str(facts.batch_id)}

    def commits(self) -> list[Commit]:
        """Return the commits, newest first."""
        found = self.spark.sql(f"DESCRIBE HISTORY {self.name}").select("version", "userMetadata").collect()
        return [Commit(row["version"], _facts_in(row["userMetadata"])) for row in found]

    def last_batch(self, app_id: str) -> LastBatch | None:
        """Return the last micro-batch of a writer; see `Target`. The newest commits nearly always have it."""
        for limit in (_NEWEST_COMMITS, None):
            text = f"DESCRIBE HISTORY {self.name}{'' if limit is None else f' LIMIT {limit}'}"
            found = self.spark.sql(text).select("operation", "userMetadata").collect()
            restored = False
            for row in found:
                restored = restored or row["operation"] == "RESTORE"
                facts = _facts_in(row["userMetadata"])
                if facts.app_id == app_id and facts.batch_id is not None:
                    return LastBatch(facts.batch_id, restored)
            if limit is not None and len(found) < limit:
                break
        return None


class IcebergTarget(_SqlTarget):
    """An Iceberg table."""

    engine = "iceberg"

    def can_widen(self, old: DataType, new: DataType) -> bool:
        """Return whether a column with rows can change its type so."""
        return iceberg_can_widen(old, new)

    def stored(self, type_: DataType) -> DataType:
        """Return the type in which Iceberg keeps values of a type."""
        return IntegerType() if isinstance(type_, (ByteType, ShortType)) else super().stored(type_)

    def merge(self, source: str, clauses: str, facts: CommitFacts) -> Merged:
        """Run a MERGE; see `Target`."""
        self.commit(f"MERGE INTO {self.name} t USING {source} s {clauses}", facts)
        return Merged()

    def recording(self, facts: CommitFacts) -> dict[str, str]:
        """Return the settings with which a commit records facts."""
        start = "spark.sql.iceberg.snapshot-property."
        return {f"{start}{name}": value for name, value in facts.as_properties().items()}

    def commits(self) -> list[Commit]:
        """Return the commits, newest first."""
        table = f"{self.name}.snapshots"
        snapshots = self.spark.table(table).orderBy("committed_at", ascending=False).select("snapshot_id", "summary")
        return [Commit(row["snapshot_id"], CommitFacts.of(row["summary"])) for row in snapshots.collect()]

    def last_batch(self, app_id: str) -> LastBatch | None:
        """Return the last micro-batch of a writer; see `Target`. Commits that were rolled back do not count."""
        current = self.spark.table(f"{self.name}.history").where("is_current_ancestor").select("snapshot_id")
        snapshots = self.spark.table(f"{self.name}.snapshots").join(current.distinct(), "snapshot_id")
        newest = snapshots.where(f"summary['{_BATCH_ID}'] IS NOT NULL").orderBy("committed_at", ascending=False)
        found = newest.where(F.col("summary").getItem(_APP_ID) == app_id).select("summary").limit(1).collect()
        number = CommitFacts.of(found[0]["summary"]).batch_id if found else None
        return None if number is None else LastBatch(number)


ENGINES: dict[str, type[DeltaTarget | IcebergTarget]] = {one.engine: one for one in (DeltaTarget, IcebergTarget)}


def open_target(spark: SparkSession, name: str, engine: str | None = None) -> Target:
    """Return the target of a name; the table need not exist yet.

    Args:
        spark: the session.
        name: a name as SQL has it, or ``delta.`/path` `` for a Delta table without a catalog.
        engine: `delta` or `iceberg`; None to ask the table, or the catalog of a table that does not exist.

    Raises:
        TargetError: it is no table in Delta or Iceberg, or it is not clear which of them a new one shall be.
    """
    if engine is not None and engine not in ENGINES:
        msg = f"format={engine!r}: it must be one of {', '.join(ENGINES)}"
        raise TargetError(msg)
    found = existing_target(spark, name)
    there = None if found is None else found.engine
    if there is not None and engine not in (None, there):
        msg = f"The target {name} is in {there}, and format={engine!r} was given: leave it out, or give another name"
        raise TargetError(msg)
    known = there or engine or _engine_of_catalog(spark, name)
    if known is None:
        msg = (
            f"The target {name} does not exist, and its catalog does not say whether tables in it are Delta or "
            "Iceberg: give format='delta' or format='iceberg'"
        )
        raise TargetError(msg)
    return found or ENGINES[known](spark, name)


def existing_target(spark: SparkSession, name: str) -> Target | None:
    """Return the target of a name if there is such a table; None if there is none.

    Raises:
        TargetError: it is no table in Delta or Iceberg.
    """
    if _schema_of(spark, name) is None:
        return None
    there = _provider_of(spark, name)
    if there in ENGINES:
        return ENGINES[there](spark, name)
    what = f"a table of {there}" if there else "a view, or a table of an unknown format"
    msg = (
        f"{name} is {what}: only tables in Delta and Iceberg have the MERGE and the commits that are needed. Give "
        "another name, or write the changes with append_log"
    )
    raise TargetError(msg)


_MISSING = frozenset({"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "PATH_NOT_FOUND"})


def _schema_of(spark: SparkSession, name: str) -> object | None:
    """Return the schema of a table; None if there is none of this name."""
    try:
        return spark.table(name).schema
    except AnalysisException as error:
        condition = error.getCondition() or ""
        if condition.partition(".")[0] in _MISSING:
            return None
        said = str(error).partition("\n")[0]
        msg = (
            f"The target {name} cannot be opened: {said}. Give the name of a table, or of one to be created, in a "
            "catalog that the session has; or delta.`/path` with a path that does not exist or holds a Delta table"
        )
        raise TargetError(msg) from error


def _provider_of(spark: SparkSession, name: str) -> str:
    """Return Spark's word for the format of a table; "" for a view."""
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    return next((row["data_type"].lower() for row in reversed(described) if row["col_name"] == "Provider"), "")


def _engine_of_catalog(spark: SparkSession, name: str) -> str | None:
    if is_path(name):
        return "delta"
    first, *more = _parts(name)
    kind: str | None = spark.conf.get(f"spark.sql.catalog.{first.strip('`')}", None) if more else None
    if kind is None:
        current = spark.catalog.currentCatalog()
        kind = spark.conf.get(f"spark.sql.catalog.{current}", None)
    return next((engine for engine in ENGINES if engine in (kind or "").lower()), None)


def is_path(name: str) -> bool:
    """Return whether a name is the path of a Delta table."""
    parts = _parts(name)
    return len(parts) == 2 and parts[0].lower() == "delta" and parts[1].startswith("`")  # noqa: PLR2004 (delta, path)


def _parts(name: str) -> list[str]:
    """Return the parts of a name, with their quotes."""
    return re.findall(r"`(?:[^`]|``)*`|[^.`]+", name)


def quoted(name: str) -> str:
    """Return a name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def _text(text: str) -> str:
    """Return a text as Spark SQL writes it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _settings(properties: Mapping[str, str]) -> str:
    return "(" + ", ".join(f"{_text(name)} = {_text(value)}" for name, value in properties.items()) + ")"


def _facts_in(metadata: str | None) -> CommitFacts:
    """Return the facts in Delta's `userMetadata`, which may be anybody's text."""
    try:
        found = json.loads(metadata or "null")
        return CommitFacts.of(found) if isinstance(found, dict) else CommitFacts()
    except ValueError:
        return CommitFacts()


@contextmanager
def _configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set configurations of the session for a while."""
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
