"""A target: what `merge_into` and `append_log` need of a table, in SQL that Delta and Iceberg share.

Differences between the engines are in `targets/delta.py` and `targets/iceberg.py`. A target knows nothing of changes or
DDL. Names of columns are as in the table, without quotes; conditions and values are expressions of Spark SQL.
"""

from __future__ import annotations

import datetime
import hashlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple, TypeVar

from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import DataType, DayTimeIntervalType, LongType, StringType, StructType

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets.column_types import common_type
from ticdc_lakehouse.targets.data_layout import DataLayout, check_not_laid_out_by
from ticdc_lakehouse.targets.sessions import configured, origin, run_sql
from ticdc_lakehouse.targets.target_names import check_session_catalog, deleted_keys_of, is_path, parts_of, quoted
from ticdc_source.developer_api import check_permission

_Own = TypeVar("_Own", bound="Target")
_What = TypeVar("_What")
_FACT = "ticdc."  # the prefix of what a commit records
BATCH_ID = f"{_FACT}batch_id"


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """What a commit records, for readers of the table."""

    resolved_ts: int | None = None  # every change up to this commit-ts, itself included, is in the table
    app_id: str | None = None  # who writes: one name for each stream and target
    batch_id: int | None = None  # the micro-batch; a stream whose checkpoint was restored uses the number again
    content: str | None = None  # identifies the changes of the micro-batch: equal texts, equal changes
    ends: str | None = None  # of a log: by topic partition, the largest offset that this writer has written, as JSON

    @property
    def identity(self) -> str | None:
        """A text that tells the micro-batch from others with its number; None if the commit has none."""
        if self.content is not None or self.ends is None:
            return self.content
        return hashlib.sha256(self.ends.encode()).hexdigest()[:16]

    def as_properties(self) -> dict[str, str]:
        return {f"{_FACT}{name}": str(value) for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def of(properties: Mapping[str, object]) -> CommitFacts:
        values = {one.name: properties.get(f"{_FACT}{one.name}") for one in fields(CommitFacts)}
        recorded: dict[str, Any] = {name: str(value) for name, value in values.items() if value is not None}
        recorded |= {name: int(recorded[name]) for name in ("resolved_ts", "batch_id") if name in recorded}
        return CommitFacts(**recorded)


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of a table: Delta's version or Iceberg's snapshot id, and the facts that it records."""

    version: int
    facts: CommitFacts


class LastBatch(NamedTuple):
    """The last micro-batch of a writer in a table, and what was undone since."""

    facts: CommitFacts | None  # what its commit records; None if no commit of the writer is in effect
    undone: int | None = None  # the smallest number of a micro-batch that a restore or a rollback has undone since

    @property
    def number(self) -> int:
        """The number of the micro-batch; -1 if there is none."""
        return -1 if self.facts is None or self.facts.batch_id is None else self.facts.batch_id


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column to add to a table."""

    name: str
    type: DataType
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert:
    """Images, one for each key: an image changes the row with its key if its sequence is larger than the row's."""

    # `k0`, `k1`, … are the keys, `c0`, … the other values, `seq` the sequence; `gone` says that the row is deleted, and
    # `bare` that a delete has only its key.
    images: DataFrame
    keys: tuple[str, ...]  # the columns of `k0`, …; NULL equals NULL
    values: tuple[str, ...]  # the columns of `c0`, …; a bare image leaves them as they are
    sequence: str
    committed_at: str | None = None  # the column with the time of the commit
    deleted: str | None = None  # the column that says whether the row is deleted
    removes: bool = False  # deleted rows are removed from the table
    tombstones: Target | None = None  # the sequences of deleted keys: older images change nothing


@dataclass(frozen=True, slots=True)
class Merged:
    """What a MERGE did."""

    rows: int | None = None  # how many rows it changed; None if the engine does not report it
    is_commit: bool = False  # whether it made a commit, which a MERGE without effect may not


_MOST_REMEMBERED = 10_000  # each query has a session of its own, and a process may run one after another


class _Memory(dict[tuple[str, str, str], _What]):
    """A cache: whatever it forgets is read again."""

    def __setitem__(self, key: tuple[str, str, str], what: _What) -> None:
        if key not in self and len(self) >= _MOST_REMEMBERED:
            self.clear()
        super().__setitem__(key, what)


# What this process knows of tables, as each call of merge_into opens its target anew.
# By session, table and writer: the last micro-batch that was committed here, and what names the version of the table
# after it. It is taken out before a micro-batch and put back after its commit, so if anything fails in between, the
# commits of the table are read.
KNOWN_BATCHES: _Memory[tuple[CommitFacts, str]] = _Memory()
# By session, catalog and table: the engine, until the table is missed.
KNOWN_ENGINES: _Memory[str] = _Memory()


class Target(ABC):
    """A table whose writes are atomic commits. It need not exist yet."""

    engine: ClassVar[str]  # as Spark and users write it, such as `delta`
    opens_paths: ClassVar = False  # whether a path names a table
    clusters: ClassVar = False  # whether a table can have liquid clustering
    partitions_by_transforms: ClassVar = False  # whether it can be partitioned by `days(c)` and the like
    caches_tables: ClassVar = False  # whether the catalog of a session caches tables
    own_properties: ClassVar[Mapping[str, str]] = {}  # of a new table, which the engine needs
    small_properties: ClassVar[Mapping[str, str]] = {}  # of a table with many commits, whose past is not needed
    session: ClassVar[Mapping[str, str]]  # settings of Spark that the engine needs when it starts
    packages: ClassVar[dict[str, str]]  # its Maven coordinates, by the releases of PySpark that it supports
    to_widen: ClassVar = ""  # what a user can do so that a column can be widened

    def __init__(self, spark: SparkSession, name: str, schema: StructType | None = None) -> None:
        self.spark = spark
        self.name = name  # as SQL: `lake.shop.orders`, or the path of a Delta table
        self.time_as = "micros"  # how TIME is stored: `micros`, a bigint, or `text`
        self._schema = schema  # a cache, until this object changes the table
        self._opened_deleted_keys = False
        self._is_own = False  # whether this process has made the last version
        self._properties: dict[str, str] | None = None

    @classmethod
    def check_layout(cls, layout: DataLayout, what: str) -> None:
        """Refuse a layout that the engine lacks."""
        layout.check(cls.engine.title(), what, clusters=cls.clusters, transforms=cls.partitions_by_transforms)

    def renew(self, spark: SparkSession | None = None) -> None:  # noqa: B027 (most sessions see what others write)
        """Refresh the table, and its table of deleted keys, in a session's catalog; by default that of the target."""

    def exists(self) -> bool:
        self._schema = self._schema or schema_of(self.spark, self.name)
        return self._schema is not None

    def frame(self) -> DataFrame:
        return self.spark.table(self.name)

    def frame_at(self, version: int) -> DataFrame:
        """Return the rows of a version, as `commits` returns it, with its columns."""
        return self._frame_at(self.spark, version)

    def _frame_at(self, spark: SparkSession, version: int) -> DataFrame:
        return run_sql(spark, f"SELECT * FROM {self.name} VERSION AS OF {version}")  # noqa: S608

    def deleted_keys(self: _Own) -> _Own:  # noqa: PYI019 (Python 3.10 has no Self)
        """Return the table with the keys of hard deletes; it need not exist."""
        self._opened_deleted_keys = True
        keys = type(self)(self.spark, deleted_keys_of(self.name))
        keys.renew()
        return keys

    def columns(self) -> dict[str, DataType]:
        """Return the types of the columns by name, in their order."""
        self._schema = self._schema or self.frame().schema
        return {field.name: field.dataType for field in self._schema}

    def properties(self) -> dict[str, str]:
        if self._properties is None:
            rows = run_sql(self.spark, f"SHOW TBLPROPERTIES {self.name}").collect()
            self._properties = {row["key"]: row["value"] for row in rows}
        return dict(self._properties)

    def stored(self, type_: DataType) -> DataType:
        """Return the type in which the engine stores values of a type."""
        time = StringType() if self.time_as == "text" else LongType()
        return time if isinstance(type_, DayTimeIntervalType) else type_

    def create(
        self, columns: Sequence[NewColumn], properties: Mapping[str, str], *, layout: str = "", replaces: bool = False
    ) -> None:
        """Create the table, and its namespace if that is missing; `layout` is a clause of SQL.

        `replaces` is for a table that exists, without rows, and without columns of the table in TiDB.
        """
        check_session_catalog(self.spark, self.name)
        parts = parts_of(self.name)
        if len(parts) > 1 and not is_path(self.name):
            run_sql(self.spark, f"CREATE NAMESPACE IF NOT EXISTS {'.'.join(parts[:-1])}")
        definitions = ", ".join(_definition(column) for column in columns)
        given = {**self.own_properties, **properties}
        settings = f" TBLPROPERTIES {_settings_in_sql(given)}" if given else ""
        verb = "CREATE OR REPLACE" if replaces else "CREATE"
        create = f"{verb} TABLE {self.name} ({definitions}) USING {self.engine}{layout}{settings}"
        try:
            self.alter(create)
        except Exception as error:  # a Java exception of Py4J; in Spark Connect, one of PySpark
            if is_path(self.name) and "TABLE_OR_VIEW_ALREADY_EXISTS" in str(error):
                raise TargetError(not_opened(self.name, "its folder has files but is not a Delta table")) from None
            if "DATA_SOURCE_NOT_FOUND" not in str(error):
                raise
            raise TargetError(
                f"The target {self.name} cannot be created: this session has no {self.engine.title()}. Start it with "
                f"{self.engine.title()}'s package, extension and catalog: see 'Tables in Delta and Iceberg' in the "
                "documentation"
            ) from None

    def add_columns(self, columns: Sequence[NewColumn]) -> None:
        """Add columns, which are NULL in all rows; one commit, unless a type needs a feature that the table lacks."""
        definitions = ", ".join(_definition(column) for column in columns)
        self.alter(f"ALTER TABLE {self.name} ADD COLUMNS ({definitions})")

    def widen_column(self, name: str, type_: DataType) -> None:
        self.alter(f"ALTER TABLE {self.name} ALTER COLUMN {quoted(name)} TYPE {type_.simpleString()}")

    def check_drop(self, names: Sequence[str]) -> None:
        """Refuse to drop columns by which the table is laid out, before anything is written."""
        check_not_laid_out_by(names, self.name, self.properties())

    def drop_columns(self, names: Sequence[str]) -> None:
        self.alter(f"ALTER TABLE {self.name} DROP COLUMNS ({', '.join(map(quoted, names))})")

    def set_properties(self, properties: Mapping[str, str]) -> None:
        self.alter(f"ALTER TABLE {self.name} SET TBLPROPERTIES {_settings_in_sql(properties)}")

    def remove_properties(self, names: Sequence[str]) -> None:
        """Remove table properties; those that the table does not have are ignored."""
        self.alter(f"ALTER TABLE {self.name} UNSET TBLPROPERTIES IF EXISTS ({', '.join(map(text_in_sql, names))})")

    def alter(self, statement: str) -> None:
        """Run a statement that changes columns or properties, after which they are read anew."""
        self._schema = self._properties = None
        check_permission()
        run_sql(self.spark, statement)

    def update_rows(self, values: Mapping[str, str], where: str, facts: CommitFacts) -> None:
        """Set columns to values, which are SQL, in the rows that meet a condition; one commit.

        The facts must not have the number of the micro-batch, as it would mean that the following merge is done.
        """
        assignments = ", ".join(f"{quoted(name)} = {value}" for name, value in values.items())
        self.commit(f"UPDATE {self.name} SET {assignments} WHERE {where}", facts)  # noqa: S608

    def delete_rows(self, where: str, facts: CommitFacts) -> None:
        """Delete the rows that meet a condition; one commit, with facts as in `update_rows`."""
        self.commit(f"DELETE FROM {self.name} WHERE {where}", facts)  # noqa: S608

    def append(self, rows: DataFrame, facts: CommitFacts) -> Merged:
        """Append rows, whose columns the table has; one commit."""
        names = ", ".join(map(quoted, rows.columns))
        with _view(rows) as source, self._remembering(facts):
            self.commit(f"INSERT INTO {self.name} ({names}) SELECT {names} FROM {source}", facts)  # noqa: S608
        return Merged(is_commit=True)

    def overwrite(self, rows: DataFrame, facts: CommitFacts) -> None:
        """Replace all rows; one commit."""
        names = ", ".join(map(quoted, rows.columns))
        with _view(rows) as source:
            self.commit(f"INSERT OVERWRITE {self.name} ({names}) SELECT {names} FROM {source}", facts)  # noqa: S608

    def merge(self, upsert: Upsert, facts: CommitFacts) -> Merged:
        """Merge newer images of rows; one commit."""
        with _view(upsert.images) as view, self._remembering(facts):
            merge = f"MERGE INTO {self.name} t USING {_source(view, upsert)} s {_clauses(upsert)}"
            return self.merged(self.commit(merge, facts), facts)

    def last_batch(self, app_id: str) -> LastBatch | None:
        facts, version = KNOWN_BATCHES.pop((origin(self.spark), self.name, app_id), (None, None))
        if facts is not None and version == self.version():
            self._is_own = True
            return LastBatch(facts)
        return self.recorded_batch(app_id)

    @staticmethod
    def folder_catalog(_catalog: str, _folder: str) -> dict[str, str]:
        """Return the settings of the catalog that tables in a folder need."""
        return {}

    def check_new(self, column: str, type_: DataType, given: Mapping[str, str]) -> None:  # noqa: B027 (most take all)
        """Refuse a new column that the table cannot have; `given` are the properties of a table to be created."""

    @abstractmethod
    def can_widen(self, old: DataType, new: DataType) -> bool:
        """Whether a column can be widened from `old` to `new`."""

    def widened(self, old: DataType, new: DataType) -> DataType | None:
        """Return the type in which a column holds the values of both types; None if it cannot be widened to it."""
        wide = common_type(old, new)
        return wide if wide is not None and (wide == old or self.can_widen(old, wide)) else None

    @abstractmethod
    def compact(self) -> None:
        """Merge small files into larger ones, without deleted rows; a few commits, which change no row."""

    @abstractmethod
    def forget_versions(self, keep: datetime.timedelta) -> None:
        """Remove versions and their files, except those that were the newest at any moment of the last `keep`.

        The commit of the last micro-batch stays, so that a repetition of it is noticed.
        """

    @abstractmethod
    def history(self) -> list[tuple[Commit, bool]]:
        """Return the commits that the engine still lists, newest first, and whether each is in effect.

        A commit that is not was undone by a restore or a rollback.
        """

    def commits(self, *, undone: bool = False) -> list[Commit]:
        """Return the commits that are in effect, newest first; with `undone`, also those that were undone."""
        return [commit for commit, is_in_effect in self.history() if undone or is_in_effect]

    def recorded_batch(self, app_id: str) -> LastBatch | None:
        return last_of(self.history(), app_id)

    def undone(self) -> list[CommitFacts]:
        """Return what undone commits recorded, unless the restore has also restored the properties."""
        return []

    def version(self) -> str | None:
        """Return a text for the present version of the table, without a job of Spark; None if unknown."""
        if getattr(self.spark, "_jsparkSession", None) is None:  # Spark Connect
            return None
        try:
            return self.version_of_engine()
        except Exception:  # noqa: BLE001 (of another release of the engine: the commits are read then)
            return None

    def version_of_engine(self) -> str | None:
        """Return the engine's own text for the present version of the table."""
        return None

    def follows(self, _version: str, _before: str, _facts: CommitFacts) -> bool:
        """Whether a version is that of a commit with the facts, right after the earlier version."""
        return False

    @contextmanager
    def _remembering(self, facts: CommitFacts) -> Iterator[None]:
        """Remember the commit and its version in `KNOWN_BATCHES`, so that the next micro-batch need not read it.

        A version of somebody else, which may be a RESTORE, is not remembered.
        """
        before = self.version() if facts.app_id is not None and facts.batch_id is not None else None
        yield
        version = None if before is None else self.version()
        if facts.app_id is None or before is None or version is None:
            return
        with suppress(Exception):  # it is committed, whatever the engine says now
            if self.follows(version, before, facts):
                KNOWN_BATCHES[origin(self.spark), self.name, facts.app_id] = facts, version

    @abstractmethod
    def merged(self, answer: Sequence[Row], facts: CommitFacts) -> Merged:
        """Return what a MERGE did, by its answer and by the facts that its commit records."""

    def commit(self, statement: str, facts: CommitFacts) -> list[Row]:
        """Run a statement whose commit records the facts."""
        check_permission()
        with configured(self.spark, self.recording(facts)):
            return run_sql(self.spark, statement).collect()

    @abstractmethod
    def recording(self, facts: CommitFacts) -> dict[str, str]:
        """Return the settings of the session with which a commit records the facts."""


# Delta raises the last one for a folder without a table, too: CREATE takes an empty folder, and refuses one with files.
_MISSING = frozenset({"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND"})


def schema_of(spark: SparkSession, name: str) -> StructType | None:
    try:
        return spark.table(name).schema
    except (AnalysisException, IllegalArgumentException) as error:  # the second one if Hadoop has no such path
        if is_missing(error):
            return None
        raise TargetError(not_opened(name, str(error).partition("\n")[0])) from error


def not_opened(name: str, why: str) -> str:
    return (
        f"The target {name} cannot be opened: {why}. Use the name of a table, or of one to be created, in a "
        "catalog that the session has; or delta.`/path` with a path that is empty or holds a Delta table"
    )


def is_missing(error: PySparkException) -> bool:
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


def last_of(history: Iterable[tuple[Commit, bool]], app_id: str) -> LastBatch | None:
    undone: int | None = None
    for commit, is_in_effect in history:
        number = commit.facts.batch_id
        if commit.facts.app_id != app_id or number is None:
            continue
        if is_in_effect:
            return LastBatch(commit.facts, undone)
        undone = number if undone is None else min(undone, number)
    return None if undone is None else LastBatch(None, undone)


# SQL that Delta and Iceberg have in common


def text_in_sql(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _settings_in_sql(properties: Mapping[str, str]) -> str:
    return "(" + ", ".join(f"{text_in_sql(name)} = {text_in_sql(value)}" for name, value in properties.items()) + ")"


def _definition(column: NewColumn) -> str:
    comment = "" if column.comment is None else f" COMMENT {text_in_sql(column.comment)}"
    return f"{quoted(column.name)} {column.type.simpleString()}{comment}"


def _source(view: str, upsert: Upsert) -> str:
    """Return the source of the MERGE: the images that are not older than the delete of their key."""
    if upsert.tombstones is None:
        return view
    # As a query: Spark 4.1 cannot plan a MERGE from a view of an Iceberg table.
    return (
        f"(SELECT s.* FROM {view} s LEFT ANTI JOIN {upsert.tombstones.name} b "  # noqa: S608
        f"ON {_same_keys(upsert, 'b')} AND NOT s.gone AND b.{quoted(upsert.sequence)} > s.seq)"
    )


def _clauses(upsert: Upsert) -> str:
    """Return the clauses of the MERGE: an image changes only older rows of the target."""
    keys = {quoted(name): f"s.k{number}" for number, name in enumerate(upsert.keys)}
    values = {quoted(name): f"s.c{number}" for number, name in enumerate(upsert.values)}
    own = {quoted(upsert.sequence): "s.seq"} | ({} if upsert.deleted is None else {quoted(upsert.deleted): "s.gone"})
    if upsert.committed_at is not None:
        own[quoted(upsert.committed_at)] = "timestamp_millis(shiftright(s.seq.commit_ts, 18))"
    # A row that somebody has added by hand may have no sequence.
    newer = f"WHEN MATCHED AND (s.seq > t.{quoted(upsert.sequence)}) IS NOT FALSE"
    special = f"{newer} AND s.gone THEN DELETE" if upsert.removes else f"{newer} AND s.bare THEN UPDATE SET {_set(own)}"
    absent = f"WHEN NOT MATCHED{' AND NOT s.gone' if upsert.removes else ''}"
    inserted = {**keys, **values, **own}
    return (
        f"ON {_same_keys(upsert, 't')} {special} {newer} THEN UPDATE SET {_set({**values, **own})} "  # noqa: S608
        f"{absent} THEN INSERT ({', '.join(inserted)}) VALUES ({', '.join(inserted.values())})"
    )


def _same_keys(upsert: Upsert, other: str) -> str:
    return " AND ".join(f"{other}.{quoted(name)} <=> s.k{number}" for number, name in enumerate(upsert.keys))


def _set(values: Mapping[str, str]) -> str:
    return ", ".join(f"t.{name} = {value}" for name, value in values.items())
