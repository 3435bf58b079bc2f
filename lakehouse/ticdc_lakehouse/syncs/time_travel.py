"""Time travel: every table of a sync as it was at one commit-ts.

With `consistency = "resolved"`, the commits of a micro-batch have every change up to its resolved ts, and none after
it. So each target has a version that is its table at that commit-ts, unless it did not follow then: the status
remembers such pauses.
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
from ticdc_lakehouse.tidb import check_tso
from ticdc_source.developer_api import TableFilter, of_ms, of_time, parse_table, table_patterns, utc
from ticdc_source.errors import OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseState:
    """The tables of a sync at one commit-ts."""

    commit_ts: int  # the commit-ts: every change up to it is there, itself included, and none after it
    # a frame for each table, by its name: the rows that existed or, of a table without a key, its log up to then. A
    # table that was created later, or has never had rows, is not among them.
    tables: Mapping[str, DataFrame]

    @property
    def time(self) -> str:
        """The time of the commit-ts in ISO 8601, UTC."""
        return str(utc(self.commit_ts))


@with_verbatim_sql
def as_of(
    spark: SparkSession, config: SyncConfig, at: int | datetime.datetime, *, tables: Sequence[str] = ()
) -> DatabaseState:
    """Return every table of a sync as it was at one commit-ts: the newest one, up to a moment, that all tables have.

    It needs `consistency = "resolved"`, and versions of that time: `maintain.keep` says for how long they stay.

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
        OptionError: `at` is no TSO and no time with a zone, or the sync has no such table.
        TargetError: a table is not known to be complete at that commit-ts, or its versions of that time are gone.
    """
    moment = _last_tso(at)
    # Spark commits a micro-batch after its statuses are written: read in this order, each status is as new.
    committed = StreamCheckpoint(spark, f"{config.checkpoint}/stream").committed()
    statuses = selected(statuses_of(spark, config), tables)
    identity = StatusTable(spark, config).identity()
    exact_since = identity.get("exact_since")
    if exact_since is None:
        raise TargetError(
            "No micro-batch has been applied with consistency = 'resolved' yet, and with 'latest' a version of a table "
            "mixes several commit-ts. Write it into sync.toml and run the sync: states from then on can be read"
        )
    histories = [_History.of(spark, status) for status in statuses]
    created = [one for one in histories if not one.is_created_after(moment)]
    if not created:
        return DatabaseState(commit_ts=moment, tables={})
    for one in created:  # rounding down must not hide a pause
        _followed_from(one.status, moment)
    commit_ts = _newest(created, str(identity["writer"]), committed, moment)
    if commit_ts is None or commit_ts < exact_since:
        later = [ts for history in created for ts in history.points if ts >= exact_since]
        first = f"the first that can be read is {utc(min(later))}" if later else "the sync has none yet"
        raise TargetError(
            f"There is no commit-ts up to {utc(moment)} that can be read: {first}. Each micro-batch makes one, and the "
            "TSO of a load is one of the tables that were loaded at it"
        )
    found = {one.status.table_name: one.at(commit_ts) for one in created}
    return DatabaseState(commit_ts=commit_ts, tables={name: rows for name, rows in found.items() if rows is not None})


def _last_tso(moment: int | datetime.datetime) -> int:
    if not isinstance(moment, datetime.datetime):
        check_tso(moment)
        return moment
    if moment.tzinfo is None:
        raise OptionError(f"{moment} has no time zone. If it is UTC, give it as moment.replace(tzinfo=timezone.utc)")
    return of_time(moment) + of_ms(1) - 1


def selected(
    statuses: Sequence[TableStatus], tables: Sequence[str], *, with_left_out: bool = False
) -> list[TableStatus]:
    """Return the statuses of the tables that patterns match, in their order; of all tables, without patterns.

    Tables that are left out count only if that is said.
    """
    known = [one for one in statuses if with_left_out or one.state != "left out"]
    found: set[str] = set()
    for pattern in [tables] if isinstance(tables, str) else tables or ["*.*"]:
        try:
            pairs = table_patterns(pattern)
        except ValueError:
            raise OptionError(f"{pattern!r} is no name of a table: write it as shop.orders, or shop.*") from None
        for pair in pairs:
            wanted = TableFilter((pair,))
            matches = {one.table_name for one in known if wanted.matches(parse_table(one.table_name))}
            if not matches:
                has = ", ".join(one.table_name for one in known) or "none yet: run it first"
                raise OptionError(f"The sync has no table {'.'.join(pair)}. It has {has}")
            found |= matches
    return [one for one in known if one.table_name in found]


def _newest(histories: Sequence[_History], writer: str, committed: int, moment: int) -> int | None:
    """Return the newest commit-ts up to a moment that all tables can have; None if there is none.

    It is that of a micro-batch, in which a table without a commit did not change, or one at which each table has a
    commit, such as the TSO of a load. A micro-batch that Spark has not committed does not count: it may be in some
    tables only, and may have new tables that no status tells of.
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
    """What a target was at which commit-ts."""

    status: TableStatus
    target: Target | None  # None if the table has had no rows
    points: Mapping[int, Commit]  # its commits that are the table at a commit-ts, by it

    @classmethod
    def of(cls, spark: SparkSession, status: TableStatus) -> _History:
        target = existing_target(spark, status.target)
        if target is None and status.kind is not None:
            raise TargetError(
                f"The target {status.target} of {status.table_name} is gone: restore it, with its versions"
            )
        return cls(status=status, target=target, points={} if target is None else _points(target.commits(undone=True)))

    @property
    def _created_ts(self) -> int:
        """The commit-ts of the CREATE TABLE, if the sync has read it, and has never loaded the table; 0 otherwise."""
        was_loaded = self.status.loaded_ts is not None or self.status.pauses
        return 0 if was_loaded else self.status.complete_since or 0

    def is_created_after(self, commit_ts: int) -> bool:
        """Whether the table did not exist yet at a commit-ts. One with an older version did: it was dropped."""
        return commit_ts < self._created_ts and all(ts > commit_ts for ts in self.points)

    def at(self, commit_ts: int) -> DataFrame | None:
        """Return the rows of the table at a commit-ts; None if it did not exist, or has never had rows."""
        if self.is_created_after(commit_ts):
            return None
        name, followed_from = self.status.table_name, _followed_from(self.status, commit_ts)
        if self.target is None or (self._created_ts and not self.points):  # it only has had DDL
            return None
        ts = max((ts for ts in self.points if followed_from <= ts <= commit_ts), default=None)
        if ts is None:
            raise TargetError(
                f"{name} has no version of {utc(commit_ts)} in {self.status.target}. It may have been removed: `keep` "
                "in [maintain] says for how long versions stay"
            )
        version = self.points[ts].version
        try:
            return _rows(self.target, version)
        except Exception as error:  # of either engine
            why = str(error).partition("\n")[0]
            raise TargetError(
                f"{name} at {utc(commit_ts)} is version {version} of {self.status.target}, which cannot be read: "
                f"{why}. `keep` in [maintain] says for how long versions stay"
            ) from error


def _followed_from(status: TableStatus, commit_ts: int) -> int:
    """Return the commit-ts from which a table followed, complete and without a pause, up to another one."""
    name, when = status.table_name, utc(commit_ts)
    followed_from, complete_since = 0, status.complete_since
    for pause in status.pauses:
        if commit_ts <= pause.from_ts:
            complete_since = pause.complete_since
            break
        if commit_ts < pause.to_ts:
            raise TargetError(
                f"{name} has no state between {utc(pause.from_ts)} and {utc(pause.to_ts)}, and {when} is between them: "
                f"it did not follow then. {pause.reason}"
            )
        followed_from = pause.to_ts
    else:
        if status.state != "following" and commit_ts > (status.resolved_ts or 0):
            raise TargetError(
                f"{name} has no state after {utc(status.resolved_ts)}, and {when} is later: it is {status.state}. "
                f"{status.reason or ''}"
            )
    if complete_since is None or complete_since > commit_ts:
        known = "not known to be complete" if complete_since is None else f"complete since {utc(complete_since)}"
        raise TargetError(f"{name} is {known}, so its rows at {when} are not known")
    return max(followed_from, complete_since)


def _points(commits: Sequence[Commit]) -> dict[int, Commit]:
    """Return the commits that are a table at a commit-ts, by it, oldest first.

    A commit counts if its resolved ts is at least that of each commit before it; of two with the same one, the later. A
    smaller one means that the commit repeated older work.
    """
    found: dict[int, Commit] = {}
    for commit in reversed(commits):
        ts = commit.facts.resolved_ts
        if ts is not None and ts >= next(reversed(found), 0):
            found[ts] = commit
    return found


def _rows(target: Target, version: int) -> DataFrame:
    """Return the rows of a version that were not deleted, with the columns of the table alone."""
    properties, frame = target.properties(), target.frame_at(version)
    if LOG in properties:
        return frame
    own = OwnColumns.of(properties)
    if own.deleted is not None:
        frame = frame.where(f"NOT {quoted(own.deleted)}")
    return frame.select(*(quoted(name) for name in frame.columns if name not in own))
