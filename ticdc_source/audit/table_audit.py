"""`audit_table`: a target that `merge_into` keeps, compared with its table in TiDB at a TSO that its commits record.

Both sides are fixed: TiDB is read as of the TSO, and the target as of one version, so changes meanwhile do not matter.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from ticdc_source.audit.canonical import columns_of, row_text_in_spark
from ticdc_source.audit.differences import Differences, differing_buckets, differing_rows
from ticdc_source.audit.repair import repairing_changes
from ticdc_source.audit.report import TableAudit
from ticdc_source.audit.sides import KEY, Checksum, Comparison, SparkSide, TiDBQueries, checksums_of
from ticdc_source.errors import SchemaError, TargetError, TiCDCSourceError
from ticdc_source.snapshots.jdbc import SnapshotRows, gc_state_of
from ticdc_source.snapshots.queries import TiDBAddress, check_tso
from ticdc_source.targets.conflicts import retried
from ticdc_source.targets.log import LOG
from ticdc_source.targets.merge import DELETES, KEYS, PREFIX, TABLE, merge_into
from ticdc_source.targets.sessions import configured, in_thread, own_session
from ticdc_source.targets.sql_targets import existing_target
from ticdc_source.targets.target import Target, quoted
from ticdc_source.tso import utc

__all__ = ["SETTINGS", "VERIFIED", "TiDBSide", "audit_table"]

Result = TypeVar("Result")

VERIFIED = "ticdc.verified_ts"  # the property of a target: the TSO at which its last equal audit compared it
_REPAIR = "repair-"  # begins the app_id of the commit of a repair; the TSO follows
_METADATA_PREFIX = "__ticdc_"  # of frames that nobody else sees: a column of the table may be called _sequence
SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}


def audit_table(
    spark: SparkSession,
    name: str,
    *,
    tidb: TiDBAddress,
    at: int | None = None,
    complete: int | None = None,
    repair: bool = False,
    sample: int = 20,
) -> TableAudit:
    """Compare a target of `merge_into` with its table in TiDB, at one TSO; what prevents it is in the result.

    Args:
        spark: the session, with MySQL's JDBC driver among its jars.
        name: the name of the target, as `merge_into` takes it.
        tidb: where TiDB is.
        at: the TSO; by default the newest one up to which the target is known to be complete.
        complete: a TSO up to which the caller knows that the target is complete, if its commits record an older one: a
            table without changes has no commits.
        repair: whether the rows that differ get TiDB's values as of the TSO.
        sample: how many rows that differ the report has at most.
    """
    if at is not None:
        check_tso(at)
    began = time.monotonic()
    table = ""
    try:
        with own_session(spark) as own, configured(own, SETTINGS):
            target = _opened(own, name)
            table = target.properties().get(TABLE, "")
            moment = _Moment.of(target, at, complete)
            audited = _TableAudit.of(target, tidb, moment)
            found = audited.run(sample)
            if repair and audited.differences is not None:
                found = audited.repair(found, tidb)
            if found.state == "equal":
                verified = {VERIFIED: str(found.at)}
                retried(lambda: target.set_properties(verified))
            target.refresh(spark)
    except TiCDCSourceError as error:
        found = TableAudit(table=table, target=name, state="unknown", reason=str(error))
    return replace(found, seconds=round(time.monotonic() - began, 3))


def _opened(spark: SparkSession, name: str) -> Target:
    target = existing_target(spark, name)
    if target is None:
        msg = f"There is no table {name}"
        raise TargetError(msg)
    properties = target.properties()
    if LOG in properties:
        msg = f"{name} is a log: it has every change as often as it came, so nothing says which rows TiDB must have"
        raise TargetError(msg)
    if KEYS not in properties or PREFIX not in properties:
        msg = f"{name} is not a table that merge_into created, or it has had no rows yet: nothing says what its key is"
        raise TargetError(msg)
    return target


@dataclass(frozen=True, slots=True)
class _Moment:
    """A version of a target, and the TSO at which it is compared."""

    version: int
    at: int

    @staticmethod
    def of(target: Target, at: int | None, complete: int | None) -> _Moment:
        """Choose them.

        Raises:
            TargetError: no version is known to be complete up to the TSO.
        """
        commits = target.commits()
        newest = commits[0].version
        known: list[tuple[int, int]] = []  # versions and up to which TSO they are complete, the oldest first
        for commit in reversed(commits):
            resolved = max(commit.facts.resolved_ts or 0, known[-1][1] if known else 0)
            known.append((commit.version, resolved))
        known[-1] = (newest, max(known[-1][1], complete or 0))
        last = known[-1][1]
        if not last:
            msg = (
                f"Nothing says up to which TSO {target.name} is complete: the changefeed sends no watermarks, or the "
                "table has had bad records"
            )
            raise TargetError(msg)
        if at is None:
            return _Moment(newest, last)
        version = next((version for version, resolved in known if resolved >= at), None)
        if version is None:
            msg = (
                f"{target.name} is complete up to TSO {last} ({utc(last)}), and at={at} ({utc(at)}) is later: wait "
                "until the changes have come, or give an earlier TSO"
            )
            raise TargetError(msg)
        return _Moment(version, at)


class _TableAudit:
    """The audit of a target at a moment."""

    def __init__(self, target: Target, rows: SnapshotRows, moment: _Moment) -> None:
        self._target, self._rows, self._moment = target, rows, moment
        properties = target.properties()
        prefix = properties[PREFIX]
        self._frame = target.frame_at(moment.version)
        self._sequence = f"{quoted(f'{prefix}sequence')}.commit_ts"
        self._deleted = quoted(f"{prefix}is_deleted") if properties.get(DELETES) == "soft" else None
        compared, self._missing_columns = columns_of(
            rows.table.columns, {field.name: field.dataType for field in self._frame.schema}
        )
        names = {column.name.lower(): column for column in compared}
        keys = [names.get(key.lower()) for key in json.loads(properties[KEYS])]
        if None in keys:
            msg = f"The key of {target.name} is {properties[KEYS]}, and {rows.table.name} in TiDB has no such column"
            raise SchemaError(msg)
        self.differences: Differences | None = None
        self._differing: set[int] = set()
        self._comparison = Comparison(compared, tuple(key for key in keys if key is not None))

    @staticmethod
    def of(target: Target, tidb: TiDBAddress, moment: _Moment) -> _TableAudit:
        """Ask TiDB what the table was at the moment."""
        table = target.properties().get(TABLE, "")
        if not table:
            msg = f"{target.name} does not say of which table in TiDB it is: it has no property {TABLE}"
            raise TargetError(msg)
        gc_state_of(target.spark, tidb, moment.at).check()
        rows = SnapshotRows.of(target.spark, tidb, table, at=moment.at, metadata_column_prefix=_METADATA_PREFIX)
        return _TableAudit(target, rows, moment)

    def run(self, sample: int) -> TableAudit:
        """Compare the buckets, and the rows of those that differ."""
        comparison = self._comparison
        ours = SparkSide(self._current(), comparison)
        theirs = TiDBSide(self._rows, comparison)
        its_total, my_total = self._both(theirs.total, ours.total)
        found = TableAudit(
            table=str(self._rows.table.name),
            target=self._target.name,
            state="different" if self._missing_columns else "equal",
            at=self._moment.at,
            version=self._moment.version,
            rows=its_total.rows,
            target_rows=my_total.rows,
            cells=its_total.rows * len(comparison.columns),
            missing_columns=self._missing_columns,
        )
        if its_total == my_total:
            return found
        its, mine = self._both(theirs.buckets, ours.buckets)
        differing = differing_buckets(its, mine)
        found = replace(found, buckets=len(its.keys() | mine.keys()), differing_buckets=len(differing))
        newer = self._newer()
        differences = differing_rows(comparison, theirs, ours, differing, newer)
        counts = differences.counts
        if counts:
            self.differences, self._differing = differences, differing
        return replace(
            found,
            state="different" if counts or self._missing_columns else "equal",
            rows_read=differences.rows_read,
            newer=newer.count(),
            missing=counts.get("missing", 0),
            extra=counts.get("extra", 0),
            changed=counts.get("changed", 0),
            columns=dict(differences.columns),
            differences=differences.sample(comparison, sample),
        )

    def _both(self, theirs: Callable[[], Result], ours: Callable[[], Result]) -> tuple[Result, Result]:
        """Return what TiDB and Spark compute at the same time."""
        with ThreadPoolExecutor(1, thread_name_prefix="audit") as threads:
            asked = threads.submit(in_thread(self._target.spark, theirs))
            mine = ours()
            return asked.result(), mine

    def repair(self, found: TableAudit, tidb: TiDBAddress) -> TableAudit:
        """Merge TiDB's values of the rows that differ, and compare again."""
        assert self.differences is not None  # noqa: S101 (for mypy)
        changes = repairing_changes(
            self._rows, self._comparison, self.differences.frame, self._differing, self._current()
        )
        writer = f"{_REPAIR}{self._moment.at}"
        retried(lambda: merge_into(changes, self._target.name, app_id=writer))
        newest = replace(self._moment, version=self._target.commits()[0].version)
        again = _TableAudit.of(self._target, tidb, newest).run(0)
        rows = sum(self.differences.counts.values())
        return replace(found, state=again.state, version=again.version, repaired=rows)

    def _current(self) -> DataFrame:
        """Return the rows of the target that have not changed since the TSO."""
        rows = self._frame.where(f"{self._sequence} <= {self._moment.at}")
        return rows if self._deleted is None else rows.where(f"NOT {self._deleted}")

    def _newer(self) -> DataFrame:
        """Return the keys that changed after the TSO."""
        key = F.expr(row_text_in_spark(self._comparison.keys)).alias(KEY)
        newer = self._frame.where(f"{self._sequence} > {self._moment.at}").select(key)
        tombstones = self._target.deleted_keys()
        if self._deleted is None and tombstones.exists():
            newer = newer.union(tombstones.frame().where(f"{self._sequence} > {self._moment.at}").select(key))
        return newer.distinct().localCheckpoint()


@dataclass(frozen=True, slots=True)
class TiDBSide:
    """The rows of TiDB."""

    snapshot: SnapshotRows
    comparison: Comparison

    @property
    def _queries(self) -> TiDBQueries:
        return TiDBQueries(self.snapshot.table.quoted, self.comparison)

    def total(self) -> Checksum:
        """Return the checksum of all rows."""
        return self._checksums(self._queries.total())[0]

    def buckets(self) -> dict[int, Checksum]:
        """Return the checksums of the buckets that have rows."""
        return self._checksums(self._queries.buckets())

    def _checksums(self, question: str) -> dict[int, Checksum]:
        found = self.snapshot.asked(question, "bucket STRING, n STRING, hashes STRING").collect()
        return checksums_of([(row["bucket"], row["n"], row["hashes"]) for row in found])

    def rows(self, buckets: Collection[int]) -> DataFrame:
        """Return the rows of buckets."""
        texts = ", ".join(f"{name} STRING" for name in (KEY, *self.comparison.names))
        return self.snapshot.asked(self._queries.rows(buckets), texts)
