"""`audit`: compare a target of `merge_into` with its table in TiDB, as of a TSO up to which it is complete.

Both sides are fixed: TiDB is read as of the TSO, and the target at one version, so changes meanwhile do not matter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from ticdc_lakehouse.audits.canonical import columns_of, row_text_in_spark
from ticdc_lakehouse.audits.repair import as_stored, repairing_changes
from ticdc_lakehouse.audits.sides import (
    KEY,
    Comparison,
    Difference,
    Differences,
    SparkSide,
    TiDBSide,
    differing_buckets,
    differing_rows,
)
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets.ddl_state import TRUNCATED_TS
from ticdc_lakehouse.targets.log import LOG
from ticdc_lakehouse.targets.merge import KEYS, PREFIX, TABLE, OwnColumns, merge_into
from ticdc_lakehouse.targets.opening import existing_target, in_own_session, retried
from ticdc_lakehouse.targets.sessions import computed, configured, in_thread, with_verbatim_sql
from ticdc_lakehouse.targets.target import Target
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_lakehouse.tidb import SnapshotTable, TiDBConfig, check_tso
from ticdc_source.developer_api import REPAIR_RANK, loads, of_ms, parse_table, utc
from ticdc_source.errors import DataLossError, SchemaError, TiCDCSourceError

Result = TypeVar("Result")

VERIFIED = "ticdc.verified_ts"  # the property of a target: the TSO at which its last equal audit compared it
_REPAIR = "repair-"  # prefix of a repair's app_id; the TSO follows
_CLOCK_SKEW_MS = 3_600_000  # of TiDB and PD, at most
SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}
EQUAL, DIFFERENT, UNKNOWN = 0, 1, 2  # exit codes


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAudit:
    """What the audit of a table found."""

    table: str  # the table in TiDB; "" if the target does not say it
    target: str
    state: Literal["equal", "different", "unknown"]
    reason: str | None = None  # why the state is unknown, or the repair failed
    at: int | None = None  # the TSO at which both sides were compared
    version: int | None = None  # the version of the target: Delta's, or Iceberg's snapshot id
    rows: int = 0  # how many rows TiDB has
    target_rows: int = 0  # how many rows the target has, without those that changed after `at`
    cells: int = 0  # how many values were compared: rows times columns
    buckets: int = 0  # how many buckets of rows were compared; 0 if all rows together have the same checksum
    differing_buckets: int = 0  # how many of them differ
    rows_read: int = 0  # how many rows were read from TiDB
    newer: int = 0  # how many rows changed after `at`, and are not compared
    missing: int = 0  # how many rows the target lacks
    extra: int = 0  # how many rows the target has, and TiDB does not
    changed: int = 0  # how many rows have other values than in TiDB
    columns: Mapping[str, int] = field(default_factory=dict)  # by column, how many values differ
    missing_columns: tuple[str, ...] = ()  # columns with values in TiDB that the target lacks
    differences: tuple[Difference, ...] = ()  # a sample of the rows that differ
    repaired: int = 0  # how many rows were repaired; the other numbers are from before the repair
    seconds: float = 0.0

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "at_time": utc(self.at)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The result of an audit."""

    tables: tuple[TableAudit, ...]  # one for each table

    @property
    def equal(self) -> bool:
        """Whether every table equals its table in TiDB."""
        return all(each.state == "equal" for each in self.tables)

    @property
    def exit_code(self) -> int:
        """0 if all tables are equal, 1 if any is different; 2 if none is, and some could not be compared."""
        states = {each.state for each in self.tables}
        return DIFFERENT if "different" in states else UNKNOWN if "unknown" in states else EQUAL


@with_verbatim_sql
def audit(
    spark: SparkSession,
    target: str,
    *,
    tidb: TiDBConfig,
    at: int | None = None,
    complete: int | None = None,
    repair: bool = False,
    sample: int = 20,
) -> AuditReport:
    """Compare a target of `merge_into` with its table in TiDB, at one TSO.

    TiDB and Spark each compute row counts and checksums, in total and for 4,096 buckets of keys. Rows are read from
    TiDB only if their bucket differs.

    Args:
        spark: the session.
        target: the name of the target, as `merge_into` takes it.
        tidb: where TiDB is.
        at: the TSO; by default the newest one up to which the target is known to be complete.
        complete: a TSO up to which the target is known to be complete, if it is later than those in its commits: a
            table without changes has no commits.
        repair: whether to set the rows that differ to TiDB's values as of the TSO, in one commit. The target is then
            compared again, so the state is that after the repair.
        sample: the maximum number of differing rows in the report.

    Returns:
        What was found. If the target cannot be compared, its state is `unknown`, and `reason` says why. A target that
        equals TiDB gets the property `ticdc.verified_ts`.

    Example:
        ```python
        from ticdc_lakehouse import TiDBConfig, audit

        tidb = TiDBConfig(url="tidb:4000", user="reader", password="…")
        report = audit(spark, "lake.shop.orders", tidb=tidb)
        print(report.equal, report.tables[0].rows)
        ```

    Raises:
        OptionError: `at` is not a TSO.
    """
    if at is not None:
        check_tso(at)
    began = time.monotonic()
    table = ""
    try:
        with in_own_session(spark, lambda own: _opened(own, target)) as opened, configured(opened.spark, SETTINGS):
            table = opened.properties().get(TABLE, "")
            audited = _TableAudit.of(opened, tidb, _Moment.of(opened, at, complete, newest=repair))
            found = audited.run(sample)
            if repair and audited.differences is not None:
                found = audited.repair(found, tidb)
            if found.state == "equal" and audited.moment.is_newest:
                verified = {VERIFIED: str(found.at)}
                retried(lambda: opened.set_properties(verified))
    except Exception as error:  # noqa: BLE001 (of the engine, Py4J, a store: the other tables are compared all the same)
        found = TableAudit(table=table, target=target, state="unknown", reason=_reason(error))
    return AuditReport(tables=(replace(found, seconds=round(time.monotonic() - began, 3)),))


def _reason(error: Exception) -> str:
    """Return the text of an error: its first line, if it is not one of this package."""
    if isinstance(error, TiCDCSourceError):
        return str(error)
    java = getattr(error, "java_exception", None)  # Py4J's own text only says which call has failed
    return str(error if java is None else java.toString()).partition("\n")[0]


def _opened(spark: SparkSession, name: str) -> Target:
    target = existing_target(spark, name)
    if target is None:
        raise TargetError(f"The target {name} does not exist. Check its name; the sync creates it with its first rows")
    properties = target.properties()
    if LOG in properties:
        raise TargetError(
            f"{name} is a log: it holds changes instead of current rows, so it cannot be compared with a table in TiDB"
        )
    if KEYS not in properties or PREFIX not in properties:
        raise TargetError(f"The key of {name} is unknown: it has had no rows yet, or merge_into did not create it")
    return target


@dataclass(frozen=True, slots=True)
class _Moment:
    """A version of a target, and the TSO as of which it is compared."""

    version: int | None
    at: int
    is_newest: bool

    @staticmethod
    def of(target: Target, at: int | None, complete: int | None, *, newest: bool) -> _Moment:
        """Choose the version and the TSO: `at`, or the newest one up to which the target is known to be complete.

        `complete` is such a TSO that the caller knows. With `newest`, the version is the newest one.
        """
        commits, last = target.commits(), 0
        known: list[tuple[int | None, int]] = []  # (version, TSO up to which it is complete), oldest first
        for commit in reversed(commits):
            last = max(commit.facts.resolved_ts or 0, last)
            known.append((commit.version, last))
        last = max(last, complete or 0)
        latest = commits[0].version if commits else None  # Iceberg has none of a table that never had rows
        known = [*known[:-1], (latest, last)]
        if not last:
            raise TargetError(
                f"It is not known up to which TSO {target.name} is complete: the changefeed sends no watermarks, the "
                "table has bad records, or merge_into was called without resolved_ts. Load the table again, or pass "
                "the TSO as complete"
            )
        if at is not None and at > last:
            raise TargetError(
                f"{target.name} is complete up to TSO {last} ({utc(last)}), and {at} ({utc(at)}) is later. Choose an "
                "earlier TSO, or run the sync until it has reached this one"
            )
        version = next(version for version, resolved in known if resolved >= (at or last))
        if newest or at is None:
            version = latest
        moment = _Moment(version, at or last, version == latest)
        emptied = int(target.properties().get(TRUNCATED_TS, 0))
        if moment.is_newest and emptied > moment.at:
            raise TargetError(
                f"DDL emptied {target.name} at {utc(emptied)}, after TSO {moment.at}. Audit it again once it is "
                "complete up to a later TSO"
            )
        return moment


class _TableAudit:
    """The audit of a target at a moment."""

    def __init__(self, target: Target, rows: SnapshotTable, moment: _Moment, now: int) -> None:
        self._target, self._rows, self.moment = target, rows, moment
        self._latest = now + of_ms(_CLOCK_SKEW_MS)  # no change can be later
        properties = target.properties()
        own = OwnColumns.of(properties)
        self._frame = _frame_of(target, moment)
        self._whole_sequence = quoted(own.sequence)
        self._sequence = f"{self._whole_sequence}.commit_ts"
        self._deleted = None if own.deleted is None else quoted(own.deleted)
        self._keys: list[str] = loads(properties[KEYS])
        self._types = {field.name: field.dataType for field in self._frame.schema}
        compared, self._missing_columns = columns_of(rows.columns, self._types, self._keys)
        names = {column.name.lower(): column for column in compared}
        keys = {key: names.get(key.lower()) for key in self._keys}
        lost = [key for key, column in keys.items() if column is None]
        if lost:
            raise SchemaError(f"Key column {lost[0]} of {target.name} is not in {rows.name} in TiDB at TSO {moment.at}")
        self.differences: Differences | None = None
        self._differing: set[int] = set()
        self._comparison = Comparison(compared, tuple(key for key in keys.values() if key is not None))

    @staticmethod
    def of(target: Target, tidb: TiDBConfig, moment: _Moment) -> _TableAudit:
        """Read the definition of the table from TiDB, as of the TSO."""
        table = target.properties().get(TABLE, "")
        if not table:
            raise TargetError(f"{target.name} has no property {TABLE}. Set it to the name of its table in TiDB")
        try:
            rows = tidb.table(parse_table(table), moment.at)
        except DataLossError:
            raise TargetError(
                f"{target.name} is known to be complete up to {utc(moment.at)}, which is before TiDB's GC safe point: "
                "TiDB may have removed rows of that time. Run the sync, and the audit right after it. Or let TiDB keep "
                "old versions for longer: SET GLOBAL tidb_gc_life_time = '24h'"
            ) from None
        return _TableAudit(target, rows, moment, tidb.now())

    def run(self, sample: int) -> TableAudit:
        """Compare the buckets, and the rows of those that differ."""
        comparison = self._comparison
        ours = SparkSide(self._current(), comparison)
        theirs = TiDBSide(self._rows, comparison)
        total_in_tidb, total = self._both(theirs.total, ours.total)
        missing_columns = theirs.with_values(self._missing_columns)
        found = TableAudit(
            table=str(self._rows.name),
            target=self._target.name,
            state="different" if missing_columns else "equal",
            at=self.moment.at,
            version=self.moment.version,
            rows=total_in_tidb.rows,
            target_rows=total.rows,
            cells=total_in_tidb.rows * len(comparison.columns),
            newer=self._newer().count(),
            missing_columns=missing_columns,
        )
        if total_in_tidb == total:
            return found
        in_tidb, in_target = self._both(theirs.buckets, ours.buckets)
        differing = differing_buckets(in_tidb, in_target)
        found = replace(found, buckets=len(in_tidb.keys() | in_target.keys()), differing_buckets=len(differing))
        asked = theirs.rows(self._target.spark, differing)
        differences = differing_rows(comparison, asked, ours.rows(differing), self._newer_keys())
        counts = differences.counts
        if counts:
            self.differences, self._differing = differences, differing
        return replace(
            found,
            state="different" if counts or missing_columns else "equal",
            rows_read=differences.rows_read,
            missing=counts.get("missing", 0),
            extra=counts.get("extra", 0),
            changed=counts.get("changed", 0),
            columns=dict(differences.columns),
            differences=differences.sample(comparison, sample),
        )

    def _both(self, theirs: Callable[[], Result], ours: Callable[[], Result]) -> tuple[Result, Result]:
        with ThreadPoolExecutor(1, thread_name_prefix="audit") as threads:
            asked = threads.submit(in_thread(self._target.spark, theirs))
            found = ours()
            return asked.result(), found

    def repair(self, found: TableAudit, tidb: TiDBConfig) -> TableAudit:
        """Repair, and compare again. State and version are from after the repair, the numbers from before it.

        If the repair fails, `reason` says why.
        """
        assert self.differences is not None  # noqa: S101 (for mypy)
        try:
            self._merge(self.differences.frame)
        except Exception as error:  # noqa: BLE001 (of the engine; what was found is still reported)
            return replace(found, reason=f"The repair failed: {_reason(error)}")
        newest = replace(self.moment, version=self._target.commits()[0].version)
        again = _TableAudit.of(self._target, tidb, newest).run(0)
        before, after = (one.missing + one.extra + one.changed for one in (found, again))
        return replace(found, state=again.state, version=again.version, repaired=max(0, before - after))

    def _merge(self, differing: DataFrame) -> None:
        sequence = self._whole_sequence
        of_repairs = f"{sequence}.commit_ts = {self.moment.at} AND {sequence}.rank = {REPAIR_RANK}"
        last = self._frame.where(of_repairs).agg(F.max(F.expr(f"{sequence}.index"))).collect()[0][0]
        changes = repairing_changes(
            self._rows, self._comparison, differing, self._differing, self._current(), 0 if last is None else last + 1
        )
        changes = changes.drop(*self._missing_columns)  # in the other rows they would stay NULL
        changes = as_stored(changes, self._rows.columns, self._types)
        writer = f"{_REPAIR}{self.moment.at}"
        retried(lambda: merge_into(changes, self._target.name, keys=self._keys, app_id=writer))

    def _current(self) -> DataFrame:
        """Return the rows that are not deleted, and have not changed since the TSO.

        A row that somebody has added by hand may have no `_sequence`, no `_is_deleted`, or a TSO in the future.
        """
        rows = self._frame.where(f"NOT {self._is_newer()}")
        return rows if self._deleted is None else rows.where(f"NOT coalesce({self._deleted}, false)")

    def _is_newer(self) -> str:
        return f"coalesce({self._sequence} > {self.moment.at} AND {self._sequence} <= {self._latest}, false)"

    def _newer(self) -> DataFrame:
        return self._frame.where(self._is_newer())

    def _newer_keys(self) -> DataFrame:
        """Return the keys of rows that were changed or deleted after the TSO."""
        key = F.expr(row_text_in_spark(self._comparison.keys)).alias(KEY)
        newer = self._newer().select(key)
        tombstones = self._target.deleted_keys()
        if self._deleted is None and tombstones.exists():
            newer = newer.union(tombstones.frame().where(self._is_newer()).select(key))
        return computed(newer.distinct())


def _frame_of(target: Target, moment: _Moment) -> DataFrame:
    """Return the rows of the version. In Iceberg, a version lacks columns that DDL has added after it."""
    if moment.version is None:
        return target.frame()
    frame = target.frame_at(moment.version)
    has_all = {field.name: field.dataType for field in frame.schema} == target.columns()
    return frame if has_all or not moment.is_newest else target.frame()
