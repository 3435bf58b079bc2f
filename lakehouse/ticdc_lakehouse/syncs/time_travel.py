"""Time travel: every table of a sync as it was at one commit-ts.

With `consistency = "resolved"`, the commits of a micro-batch have every change up to its resolved ts, and none after
it. So each target has a version that is its table at that commit-ts, except in pauses, in which the copy did not follow
the table; the status has a list of them.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.checkpoint import StreamCheckpoint
from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.status import StatusTable, TableStatus, statuses_of
from ticdc_lakehouse.targets.log import LOG
from ticdc_lakehouse.targets.merge import OwnColumns
from ticdc_lakehouse.targets.opening import existing_target
from ticdc_lakehouse.targets.sessions import with_verbatim_sql
from ticdc_lakehouse.targets.target import Commit, Target
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_lakehouse.tidb import check_tso, tso_of
from ticdc_source.developer_api import TableFilter, of_ms, parse_table, table_patterns, utc
from ticdc_source.errors import OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseState:
    """The tables of a sync at one commit-ts."""

    commit_ts: int  # the commit-ts: the tables have every change up to and including it, and no later ones
    # A frame for each table, by name: the rows that existed then or, for a table without a key, its log up to then.
    # Tables that were created later, or have never had rows, are left out.
    tables: Mapping[str, DataFrame]

    @property
    def time(self) -> str:
        """The time of the commit-ts in ISO 8601, UTC."""
        return str(utc(self.commit_ts))


@with_verbatim_sql
def as_of(
    spark: SparkSession, config: SyncConfig, at: int | datetime.datetime, *, tables: Sequence[str] = ()
) -> DatabaseState:
    """Return all tables of a sync as they were at one commit-ts: the newest up to `at` at which all can be read.

    This requires `consistency = "resolved"`, and versions from that time: `maintain.keep` says how long they are kept.

    Args:
        spark: a session with Delta or Iceberg.
        config: the configuration of the sync.
        at: the moment: a TSO, or a time with a time zone.
        tables: patterns of the tables, such as `shop.*`; all by default.

    Example:
        ```python
        from datetime import datetime, timezone

        from ticdc_lakehouse import as_of

        before = as_of(spark, config, datetime(2026, 11, 24, 18, 0, tzinfo=timezone.utc))
        print(before.time)
        before.tables["shop.orders"].where("status = 'paid'").show()
        ```

    Raises:
        OptionError: `at` is neither a TSO nor a time with a time zone, or the sync has no such table.
        TargetError: a table is not known to be complete at that commit-ts, or its versions from that time are gone.
    """
    moment = _last_tso(at)
    # Spark commits a micro-batch after its statuses are written: read in this order, each status is as new.
    committed = StreamCheckpoint(spark, f"{config.checkpoint}/stream").committed()
    statuses = selected(statuses_of(spark, config), tables)
    identity = StatusTable(spark, config).identity()
    exact_since = identity.get("exact_since")
    if exact_since is None:
        raise TargetError(
            "No micro-batch has been applied with consistency = 'resolved' yet; with 'latest', a version of a table "
            "mixes several commit-ts. Set it in sync.toml and run the sync. Later states can then be read"
        )
    histories = [_History.of(spark, status) for status in statuses]
    created = [one for one in histories if not one.is_created_after(moment)]
    if not created:
        return DatabaseState(commit_ts=moment, tables={})
    for one in created:  # the commit-ts is rounded down below, which must not hide a pause
        _followed_from(one.status, moment)
    commit_ts = _newest(created, str(identity["writer"]), committed, moment)
    if commit_ts is None or commit_ts < exact_since:
        later = [ts for history in created for ts in history.points if ts >= exact_since]
        first = (
            f"the first one is at {utc(min(later))}. Choose a later time" if later else "there is none. Run the sync"
        )
        raise TargetError(
            f"No state of the tables up to {utc(moment)} can be read: {first}. Each micro-batch makes a state of all "
            "tables, and a load makes one of the tables that it loads"
        )
    found = {one.status.table_name: one.at(commit_ts) for one in created}
    return DatabaseState(commit_ts=commit_ts, tables={name: rows for name, rows in found.items() if rows is not None})


def _last_tso(moment: int | datetime.datetime) -> int:
    if not isinstance(moment, datetime.datetime):
        check_tso(moment)
        return moment
    return tso_of(moment) + of_ms(1) - 1


def selected(
    statuses: Sequence[TableStatus], tables: Sequence[str], *, with_left_out: bool = False
) -> list[TableStatus]:
    """Return the statuses of the tables that match the patterns, or of all tables, in the order of `statuses`.

    Tables that the sync leaves out are included only `with_left_out`.
    """
    known = [one for one in statuses if with_left_out or one.state != "left out"]
    found: set[str] = set()
    for pattern in [tables] if isinstance(tables, str) else tables or ["*.*"]:
        try:
            pairs = table_patterns(pattern)
        except ValueError:
            raise OptionError(f"{pattern!r} is not a table name. Write it as shop.orders, or shop.*") from None
        for pair in pairs:
            wanted = TableFilter((pair,))
            matches = {one.table_name for one in known if wanted.matches(parse_table(one.table_name))}
            if not matches:
                has = ", ".join(one.table_name for one in known) or "none yet: run it first"
                raise OptionError(f"The sync has no table {'.'.join(pair)}. It has {has}")
            found |= matches
    return [one for one in known if one.table_name in found]


def _newest(histories: Sequence[_History], writer: str, committed: int, moment: int) -> int | None:
    """Return the newest commit-ts up to a moment at which all tables have a state; None if there is none.

    It is that of a micro-batch, in which tables without a commit did not change, or one at which every table has a
    commit, such as the TSO of a load. A micro-batch that Spark has not committed does not count: it may be in some
    tables only, and may have new tables that have no status yet.
    """
    batches: set[int] = set()
    common: list[set[int]] = []
    for history in histories:
        by_sync = {ts: one.facts.batch_id or 0 for ts, one in history.points.items() if one.facts.app_id == writer}
        ended = {ts for ts, batch_id in by_sync.items() if batch_id <= committed}
        batches |= ended
        common.append(history.points.keys() - by_sync.keys() | ended)
    return max((ts for ts in batches | set.intersection(*common) if ts <= moment), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    """The versions of a target, by commit-ts."""

    status: TableStatus
    target: Target | None  # None if the table has had no rows
    points: Mapping[int, Commit]  # by commit-ts, the commit with the table as of it

    @classmethod
    def of(cls, spark: SparkSession, status: TableStatus) -> _History:
        target = existing_target(spark, status.target)
        if target is None and status.kind is not None:
            raise TargetError(
                f"The target {status.target} of {status.table_name} is gone. Restore it, with its versions"
            )
        return cls(status=status, target=target, points={} if target is None else _points(target.commits(undone=True)))

    @property
    def _created_ts(self) -> int:
        """The commit-ts of the CREATE TABLE, if the sync has read it and never loaded the table; 0 otherwise."""
        was_loaded = self.status.loaded_ts is not None or self.status.pauses
        return 0 if was_loaded else self.status.complete_since or 0

    def is_created_after(self, commit_ts: int) -> bool:
        """Whether the table did not exist yet at a commit-ts. One with an older version existed, and was dropped."""
        return commit_ts < self._created_ts and all(ts > commit_ts for ts in self.points)

    def at(self, commit_ts: int) -> DataFrame | None:
        """Return the rows of the table at a commit-ts; None if it did not exist, or has never had rows."""
        if self.is_created_after(commit_ts):
            return None
        name, followed_from = self.status.table_name, _followed_from(self.status, commit_ts)
        if self.target is None or (self._created_ts and not self.points):  # it has had DDL only
            return None
        ts = max((ts for ts in self.points if followed_from <= ts <= commit_ts), default=None)
        if ts is None:
            raise TargetError(
                f"{name} has no version of {utc(commit_ts)} in {self.status.target}. Choose a later time: older "
                "versions are removed after `keep` in [maintain]"
            )
        version = self.points[ts].version
        try:
            return _rows(self.target, version)
        except Exception as error:  # of either engine
            why = str(error).partition("\n")[0]
            raise TargetError(
                f"{name} at {utc(commit_ts)} is version {version} of {self.status.target}, which cannot be read: "
                f"{why}. If it was removed, choose a later time: versions are removed after `keep` in [maintain]"
            ) from error


def _followed_from(status: TableStatus, commit_ts: int) -> int:
    """Return the commit-ts since which a table was complete, without a pause, up to `commit_ts`."""
    name, when = status.table_name, utc(commit_ts)
    followed_from, complete_since = 0, status.complete_since
    for pause in status.pauses:
        if commit_ts <= pause.from_ts:
            complete_since = pause.complete_since
            break
        if commit_ts < pause.to_ts:
            raise TargetError(
                f"{name} has no state at {when}: the sync did not write it from {utc(pause.from_ts)} to "
                f"{utc(pause.to_ts)}. Choose a time before or after that. The reason was: {pause.reason}"
            )
        followed_from = pause.to_ts
    else:
        if status.state != "following" and commit_ts > (status.resolved_ts or 0):
            raise TargetError(
                f"{name} has no state at {when}, as it has changes up to {utc(status.resolved_ts)} only: it is "
                f"{status.state}. {status.reason or ''}"
            )
    if complete_since is None or complete_since > commit_ts:
        known = "not known to be complete" if complete_since is None else f"complete since {utc(complete_since)}"
        raise TargetError(f"{name} has no state at {when}: it is {known}")
    return max(followed_from, complete_since)


def _points(commits: Sequence[Commit]) -> dict[int, Commit]:
    """Return the commits with the table as of a commit-ts, by commit-ts, oldest first.

    A commit counts if its resolved ts is at least that of each earlier commit; of two with the same one, the later. A
    smaller resolved ts means that the commit repeats earlier work.
    """
    found: dict[int, Commit] = {}
    for commit in reversed(commits):
        ts = commit.facts.resolved_ts
        if ts is not None and ts >= next(reversed(found), 0):
            found[ts] = commit
    return found


def _rows(target: Target, version: int) -> DataFrame:
    """Return the rows of a version without deleted ones, with the columns of the table alone."""
    properties, frame = target.properties(), target.frame_at(version)
    if LOG in properties:
        return frame
    own = OwnColumns.of(properties)
    if own.deleted is not None:
        frame = frame.where(f"NOT {quoted(own.deleted)}")
    return frame.select(*(quoted(name) for name in frame.columns if name not in own))
