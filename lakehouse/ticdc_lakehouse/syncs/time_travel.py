"""Time travel: every table of a sync as it was at one commit-ts, and what changed in a table between two moments.

With `consistency = "resolved"`, the commits of a micro-batch have every change up to its resolved ts, and none after
it. So each target has a version that is its table at that commit-ts, unless it did not follow then: the status
remembers such pauses.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DataType, StructType

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.snapshots.queries import check_tso
from ticdc_lakehouse.spark_sql.verbatim import with_verbatim_sql
from ticdc_lakehouse.syncs.checkpoint import StreamCheckpoint
from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.status import StatusTable, TableStatus, status_table
from ticdc_lakehouse.targets.log import LOG
from ticdc_lakehouse.targets.merge import COMMIT_TIME, DELETES, KEYS, PREFIX
from ticdc_lakehouse.targets.opening import existing_target
from ticdc_lakehouse.targets.target import Commit, Target, quoted
from ticdc_source.developer_api import loads, of_ms, of_time, parse_table, utc
from ticdc_source.errors import OptionError

__all__ = ["DatabaseState", "as_of", "diff"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseState:
    """The tables of a sync at one commit-ts.

    Attributes:
        commit_ts: the commit-ts: every change up to it is there, itself included, and none after it.
        tables: a frame for each table, by its name: the rows that existed or, of a table without a key, its log up to
            then. A table that was created later, or has never had rows, is not among them.
    """

    commit_ts: int
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
        tables: the tables; all by default.

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
    stored = status_table(spark, config)
    statuses, identity = _selected(stored, tables), stored.identity()
    exact_since = identity.get("exact_since")
    if exact_since is None:
        then = (
            "Nothing has been applied yet since it is 'resolved': run the sync, and try again"
            if config.consistency == "resolved"
            else "Write consistency = 'resolved' into sync.toml: states from then on can be read"
        )
        msg = f"With consistency = 'latest', a version of a table mixes several commit-ts. {then}"
        raise TargetError(msg)
    histories = [_History.of(spark, status) for status in statuses]
    created = [one for one in histories if not one.is_created_after(moment)]
    if not created:
        return DatabaseState(commit_ts=moment, tables={})
    for one in created:
        one.check_target()
    if len(created) == 1:  # each of its versions is a state of it
        commit_ts = max((one.ts for one in created[0].points if one.ts <= moment), default=None)
        is_shared = True
        created[0].followed_from(moment)  # rounding down may cross a pause
    else:
        commit_ts, is_shared = _newest(created, str(identity["writer"]), committed, moment)
    if commit_ts is None or commit_ts < exact_since:
        later = [one.ts for history in created for one in history.points if one.ts >= exact_since]
        first = f"the first that can be read is {utc(min(later))}" if later else "the sync has none yet"
        msg = f"There is no commit-ts up to {utc(moment)} that can be read: {first}. Each micro-batch makes one"
        raise TargetError(msg)
    found = {one.status.table_name: one.at(commit_ts, is_shared=is_shared) for one in created}
    return DatabaseState(commit_ts=commit_ts, tables={name: rows for name, rows in found.items() if rows is not None})


@with_verbatim_sql
def diff(
    spark: SparkSession,
    config: SyncConfig,
    table: str,
    since: int | datetime.datetime,
    until: int | datetime.datetime,
) -> DataFrame:
    """Return what changed in a table between two moments: the difference of its rows, and not each change.

    Args:
        spark: a session with Delta or Iceberg.
        config: the configuration of the sync.
        table: the table, which has a key.
        since: the first moment, as `as_of` takes it.
        until: the second one.

    Returns:
        The columns of the table, and `_change_type`: `insert`, `delete`, or `update_preimage` and `update_postimage`.

    Example:
        ```python
        from datetime import datetime, timedelta, timezone

        from ticdc_lakehouse import diff

        now = datetime.now(timezone.utc)
        diff(spark, config, "shop.orders", now - timedelta(days=1), now).show()
        ```

    Raises:
        OptionError: a moment is none, `since` is later than `until`, or the sync has no such table.
        TargetError: a state is not known, as for `as_of`, or the table has no key or no rows.
    """
    if _last_tso(since) > _last_tso(until):
        msg = f"since = {since} is later than until = {until}: give the earlier moment first"
        raise OptionError(msg)
    before, after = (
        next(iter(as_of(spark, config, moment, tables=[table]).tables.values()), None) for moment in (since, until)
    )
    (status,) = _selected(status_table(spark, config), [table])
    target = existing_target(spark, status.target)
    if status.kind != "table" or target is None or after is None:
        msg = f"{status.table_name} has no key, or no rows until then. The log of a table without a key has each change"
        raise TargetError(msg)
    keys: list[str] = loads(target.properties()[KEYS])
    if before is None:  # the table was created in between
        before = after.where("false")
    return _difference(_keyed(before, after.schema, keys), _keyed(after, after.schema, keys), after.schema, len(keys))


def _last_tso(moment: int | datetime.datetime) -> int:
    """Return the last TSO of a moment.

    Raises:
        OptionError: it is no TSO and no time with a zone.
    """
    if not isinstance(moment, datetime.datetime):
        check_tso(moment)
        return moment
    if moment.tzinfo is None:
        msg = f"{moment} has no time zone. If it is UTC, give it as moment.replace(tzinfo=timezone.utc)"
        raise OptionError(msg)
    return of_time(moment) + of_ms(1) - 1


def _selected(stored: StatusTable, tables: Sequence[str]) -> list[TableStatus]:
    """Return the statuses of tables; of all that are copied, if none is named.

    Raises:
        OptionError: the sync has no such table.
    """
    copied = {name: each for name, each in stored.read().items() if each.state != "left out"}
    if not copied:
        msg = (
            f"There is no sync with tables here: {stored.name} is missing or empty. Run the sync first; or give its "
            "folder or catalog, and a session that has Delta or Iceberg"
        )
        raise OptionError(msg)
    if not tables:
        return [*copied.values()]
    found = []
    for table in [tables] if isinstance(tables, str) else tables:
        try:
            name = parse_table(table)
        except ValueError:
            msg = f"{table!r} is no name of a table: write it as shop.orders"
            raise OptionError(msg) from None
        same = [each for each in copied.values() if parse_table(each.table_name).is_same(name)]
        if not same:
            msg = f"The sync has no table {table}. It has {', '.join(sorted(copied))}"
            raise OptionError(msg)
        found += same
    return found


def _newest(histories: Sequence[_History], writer: str, committed: int, moment: int) -> tuple[int | None, bool]:
    """Return the newest commit-ts up to a moment that all tables can have.

    A micro-batch that Spark has not committed is in some targets only. A load is of the tables alone that it has read.

    Args:
        histories: the histories of the tables.
        writer: the id of the query.
        committed: the last micro-batch that Spark has committed.
        moment: the moment.

    Returns:
        It, and whether a table with an older version did not change until then: so it is for a micro-batch.
    """
    known = [one for history in histories for one in history.points if one.ts <= moment]
    batches = [one.ts for one in known if one.writer == writer and (one.batch_id or 0) <= committed]
    loads = [one.ts for one in known if one.writer != writer]
    return (max(batches), True) if batches else (max(loads, default=None), False)


@dataclass(frozen=True, slots=True)
class _Point:
    """A version of a target that is its table at a commit-ts.

    Attributes:
        version: the version.
        ts: the commit-ts.
        writer: who has written it.
        batch_id: the number of its micro-batch.
    """

    version: int
    ts: int
    writer: str | None = None
    batch_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    """What a target was at which commit-ts.

    Attributes:
        status: the status of the table.
        target: the target; None if it does not exist.
        points: its versions that are the table at a commit-ts, oldest first.
    """

    status: TableStatus
    target: Target | None
    points: Sequence[_Point]

    @classmethod
    def of(cls, spark: SparkSession, status: TableStatus) -> _History:
        """Read the commits of a target."""
        target = existing_target(spark, status.target)
        commits = [] if target is None else target.commits(undone=True)
        return cls(status=status, target=target, points=_points(commits))

    @property
    def _was_created_in_stream(self) -> bool:
        """Whether the sync has read the CREATE TABLE of the table, and has never loaded it."""
        return self.status.complete_since is not None and self.status.loaded_ts is None and not self.status.pauses

    def is_created_after(self, commit_ts: int) -> bool:
        """Return whether the table did not exist yet at a commit-ts. One with an older version did: it was dropped."""
        created_ts = self.status.complete_since or 0
        return self._was_created_in_stream and commit_ts < created_ts and all(one.ts > commit_ts for one in self.points)

    def at(self, commit_ts: int, *, is_shared: bool) -> DataFrame | None:
        """Return the rows of the table at a commit-ts; None if it did not exist, or has never had rows.

        Args:
            commit_ts: the commit-ts.
            is_shared: whether a table with an older version did not change until then.

        Raises:
            TargetError: they are not known.
        """
        status = self.status
        if self.is_created_after(commit_ts):
            return None
        followed_from = self.followed_from(commit_ts)
        self.check_target()
        if self.target is None:  # it only has had DDL, or TiDB had no such table
            return None
        if self._was_created_in_stream and not self.points:  # it only has had DDL
            return None
        point = next((one for one in reversed(self.points) if one.ts <= commit_ts), None)
        if point is None or point.ts < followed_from or (point.ts < commit_ts and not is_shared):
            msg = (
                f"{status.table_name} has no version of {utc(commit_ts)} in {status.target}. It may have been removed "
                "(`keep` in [maintain] says for how long versions stay), or the table was loaded at another TSO than "
                "the others"
            )
            raise TargetError(msg)
        try:
            return _rows(self.target, point.version)
        except Exception as error:  # of either engine
            why = str(error).partition("\n")[0]
            msg = (
                f"{status.table_name} at {utc(commit_ts)} is version {point.version} of {status.target}, which cannot "
                f"be read: {why}. `keep` in [maintain] says for how long versions stay"
            )
            raise TargetError(msg) from error

    def check_target(self) -> None:
        """Refuse a target that somebody has dropped.

        Raises:
            TargetError: the table has had rows, and its target does not exist.
        """
        if self.target is None and self.status.kind is not None:
            msg = f"The target {self.status.target} of {self.status.table_name} is gone: restore it, with its versions"
            raise TargetError(msg)

    def followed_from(self, commit_ts: int) -> int:
        """Return the commit-ts from which the table followed without a pause, up to another one.

        Raises:
            TargetError: it did not follow then, or was not complete.
        """
        status = self.status
        followed_from = 0
        for pause in status.pauses:
            if commit_ts <= pause.from_ts:
                return max(followed_from, self._complete(pause.complete_since, commit_ts))
            if commit_ts < pause.to_ts:
                msg = (
                    f"{status.table_name} has no state between {utc(pause.from_ts)} and {utc(pause.to_ts)}, and "
                    f"{utc(commit_ts)} is between them: it did not follow then. {pause.reason}"
                )
                raise TargetError(msg)
            followed_from = pause.to_ts
        if status.state != "following" and commit_ts > (status.resolved_ts or 0):
            msg = (
                f"{status.table_name} has no state after {utc(status.resolved_ts)}, and {utc(commit_ts)} is later: it "
                f"is {status.state}. {status.reason or ''}"
            )
            raise TargetError(msg)
        return max(followed_from, self._complete(status.complete_since, commit_ts))

    def _complete(self, complete_since: int | None, commit_ts: int) -> int:
        """Return the commit-ts from which the table was complete.

        Raises:
            TargetError: it was not complete at a commit-ts.
        """
        if complete_since is not None and complete_since <= commit_ts:
            return complete_since
        when = "is not known to be complete" if complete_since is None else f"is complete since {utc(complete_since)}"
        msg = f"{self.status.table_name} {when}, so its rows at {utc(commit_ts)} are not known"
        raise TargetError(msg)


def _points(commits: Sequence[Commit]) -> list[_Point]:
    """Return the versions that are a table at a commit-ts, oldest first.

    A commit counts if its resolved ts is at least that of each commit before it; of two with the same one, the later. A
    smaller one means that the commit repeated older work.

    Args:
        commits: the commits of the target, newest first.
    """
    found: list[_Point] = []
    for commit in reversed(commits):
        ts = commit.facts.resolved_ts
        if ts is None or (found and ts < found[-1].ts):
            continue
        if found and ts == found[-1].ts:
            found.pop()
        found.append(_Point(commit.version, ts, commit.facts.app_id, commit.facts.batch_id))
    return found


def _rows(target: Target, version: int) -> DataFrame:
    """Return the rows of a version that were not deleted, with the columns of the table alone."""
    properties, frame = target.properties(), target.frame_at(version)
    if LOG in properties:
        return frame
    prefix = properties[PREFIX]
    own = {f"{prefix}sequence"}
    if properties.get(DELETES) == "soft":
        frame = frame.where(f"NOT {quoted(f'{prefix}is_deleted')}")
        own.add(f"{prefix}is_deleted")
    if COMMIT_TIME in properties:
        own.add(f"{prefix}committed_at")
    return frame.select(*(F.col(quoted(name)) for name in frame.columns if name not in own))


def _keyed(frame: DataFrame, schema: StructType, keys: Sequence[str]) -> DataFrame:
    """Return rows with the columns of a schema, each as a struct `row`, beside their keys `k0`, …."""
    names = {name.lower(): name for name in frame.columns}
    columns = [
        (F.col(quoted(names[field.name.lower()])) if field.name.lower() in names else F.lit(None))
        .cast(field.dataType)
        .alias(field.name)
        for field in schema
    ]
    key = [F.col(quoted(name)).alias(f"k{number}") for number, name in enumerate(keys)]
    row = F.struct(*(F.col(quoted(field.name)) for field in schema)).alias("row")
    return frame.select(*columns).select(*key, row)


def _difference(before: DataFrame, after: DataFrame, schema: StructType, keys: int) -> DataFrame:
    """Return the rows that differ: a changed row once as it was, and once as it is."""
    old, new = before.alias("old"), after.alias("new")
    same_key = [F.col(f"old.k{number}").eqNullSafe(F.col(f"new.k{number}")) for number in range(keys)]
    joined = old.join(new, same_key, "full_outer").select(
        F.col("old.row").alias("before"), F.col("new.row").alias("after")
    )
    is_same = reduce(
        Column.__and__,
        (
            _comparable(F.col(f"before.{quoted(field.name)}"), field.dataType).eqNullSafe(
                _comparable(F.col(f"after.{quoted(field.name)}"), field.dataType)
            )
            for field in schema
        ),
    )
    in_both = F.col("before").isNotNull() & F.col("after").isNotNull()
    sides = F.array(*(F.struct(F.lit(name).alias("name"), F.col(name).alias("row")) for name in ("before", "after")))
    changed = joined.where(~(in_both & is_same)).select(in_both.alias("in_both"), F.explode(sides).alias("side"))
    is_before = F.col("side.name") == "before"
    change_type = (
        F.when(F.col("in_both") & is_before, "update_preimage")
        .when(F.col("in_both"), "update_postimage")
        .when(is_before, "delete")
        .otherwise("insert")
    )
    values = [F.col(f"side.row.{quoted(field.name)}").alias(field.name) for field in schema]
    return changed.where("side.row IS NOT NULL").select(*values, change_type.alias("_change_type"))


def _comparable(column: Column, type_: DataType) -> Column:
    """Return a value that can be compared: Spark compares no VARIANT."""
    return F.to_json(column) if type_.typeName() == "variant" else column
