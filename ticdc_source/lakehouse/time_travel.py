"""Time travel: every table of a sync as it was at one commit-ts, and what changed in a table between two of them.

With `consistency = "resolved"`, the commits of a micro-batch have every change up to its resolved ts, and none after
it. So a version of each table is the database at that commit-ts, unless the table did not follow then: the status
remembers such times.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DataType, StructType

from ticdc_source.errors import OptionError, TargetError
from ticdc_source.lakehouse.checkpoint import StreamCheckpoint
from ticdc_source.lakehouse.config import SyncConfig
from ticdc_source.lakehouse.status import TableStatus, status_table
from ticdc_source.options.table_filter import parse_table
from ticdc_source.targets.log import LOG
from ticdc_source.targets.merge import COMMIT_TIME, DELETES, KEYS, PREFIX
from ticdc_source.targets.sql_targets import existing_target
from ticdc_source.targets.target import Commit, Target, quoted
from ticdc_source.tso import of_ms, utc

__all__ = ["DatabaseState", "as_of", "diff"]

_IMAGES = (("update_preimage", "before"), ("update_postimage", "after"))  # of a row that is in both states


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseState:
    """The tables of a sync at one commit-ts.

    Attributes:
        commit_ts: the commit-ts: every change up to it is there, itself included, and none after it.
        tables: the rows of each table, without deleted ones, by its name; of a table without a key, its changes. A
            table that was created later, or has never had rows, is not among them.
    """

    commit_ts: int
    tables: Mapping[str, DataFrame]

    @property
    def time(self) -> str:
        """The time of the commit-ts in ISO 8601, UTC."""
        return str(utc(self.commit_ts))


def as_of(
    spark: SparkSession, config: SyncConfig, at: int | datetime.datetime, *, tables: Sequence[str] = ()
) -> DatabaseState:
    """Return every table of a sync as it was at one commit-ts, the newest one up to a moment that they all have.

    It needs `consistency = "resolved"`, and versions of that time: `maintain.keep` says for how long they stay.

    Args:
        spark: a session with Delta or Iceberg.
        config: the configuration of the sync.
        at: the moment: a TSO, or a time with a time zone.
        tables: the tables; all by default.

    Example:
        ```python
        from datetime import datetime, timezone

        from ticdc_source.lakehouse import as_of

        before = as_of(spark, config, datetime(2026, 11, 24, 18, 0, tzinfo=timezone.utc))
        print(before.time)
        before.tables["shop.orders"].where("status = 'paid'").show()
        ```

    Raises:
        OptionError: `at` has no time zone, or the sync has no such table.
        TargetError: a table is not known to be complete at that commit-ts, or its versions of that time are gone.
    """
    moment = _tso(at)
    committed = StreamCheckpoint(spark, f"{config.checkpoint}/stream").committed()  # first: statuses are written before
    stored = status_table(spark, config)
    statuses, identity = _selected(stored.read(), tables), stored.identity()
    since = identity.get("exact_since")
    if since is None:
        msg = (
            "The sync applies changes with consistency = 'latest', so no version of its tables is the database at one "
            "commit-ts. Write consistency = 'resolved' into sync.toml: what is applied from then on can be read"
        )
        raise TargetError(msg)
    histories = [_History.of(spark, status) for status in statuses]
    commit_ts, is_of_stream = _newest(histories, str(identity["writer"]), committed, moment)
    if commit_ts is None or commit_ts < since:
        begins = f"the first one of the sync that can be read is after {utc(since)}" if since else "the sync had none"
        msg = f"There is no commit-ts up to {moment} ({utc(moment)}) that all tables have: {begins}"
        raise TargetError(msg)
    found = {one.status.table_name: one.at(commit_ts, is_of_stream=is_of_stream) for one in histories}
    if len(histories) == 1 and any(rows is not None for rows in found.values()):
        histories[0].check(moment)  # what it had before a pause is not what it had at the moment
    return DatabaseState(commit_ts=commit_ts, tables={name: rows for name, rows in found.items() if rows is not None})


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

        from ticdc_source.lakehouse import diff

        now = datetime.now(timezone.utc)
        diff(spark, config, "shop.orders", now - timedelta(days=1), now).show()
        ```

    Raises:
        OptionError: a moment has no time zone, or the sync has no such table.
        TargetError: a state is not known, as for `as_of`, or the table has no key.
    """
    states = [as_of(spark, config, moment, tables=[table]) for moment in (since, until)]
    (status,) = _selected(status_table(spark, config).read(), [table])
    target = existing_target(spark, status.target)
    if status.kind != "table" or target is None:
        msg = f"{status.table_name} has no key, or no rows: its log {status.target} has each change"
        raise TargetError(msg)
    keys: list[str] = json.loads(target.properties()[KEYS])
    frames = [next(iter(state.tables.values()), None) for state in states]
    known = [frame for frame in frames if frame is not None]
    schema = StructType([*known[-1].schema] if known else [])
    before, after = (
        _with_columns(spark.createDataFrame([], schema) if frame is None else frame, schema, keys) for frame in frames
    )
    return _difference(before, after, schema, keys)


def _tso(moment: int | datetime.datetime) -> int:
    """Return the last TSO of a moment.

    Raises:
        OptionError: it has no time zone.
    """
    if isinstance(moment, int):
        return moment
    if moment.tzinfo is None:
        msg = f"{moment} has no time zone: datetime(2026, 11, 24, 18, 0, tzinfo=timezone.utc) has one"
        raise OptionError(msg)
    return of_ms(int(moment.timestamp() * 1000))


def _selected(statuses: Mapping[str, TableStatus], tables: Sequence[str]) -> list[TableStatus]:
    if not statuses:
        msg = "The sync has no tables yet: run it first"
        raise OptionError(msg)
    if not tables:
        return [each for each in statuses.values() if each.state != "left out"]
    found = []
    for table in tables:
        name = parse_table(table)
        found += [each for each in statuses.values() if parse_table(each.table_name).is_same(name)]
        if not found or not parse_table(found[-1].table_name).is_same(name):
            msg = f"The sync has no table {table}. It has {', '.join(sorted(statuses))}"
            raise OptionError(msg)
    return found


def _newest(histories: Sequence[_History], writer: str, committed: int, moment: int) -> tuple[int | None, bool]:
    """Return the newest commit-ts up to a moment at which tables have been written, and whether it is of the stream.

    A micro-batch that is not committed yet is in some of the tables, and in others not. The TSO of a load is a
    commit-ts of the tables that it has loaded alone.

    Args:
        histories: the commits of the tables.
        writer: the id of the query.
        committed: the last micro-batch that has ended.
        moment: the moment.
    """
    stream: list[int] = []
    loads: list[int] = []
    for facts in (commit.facts for history in histories for commit in history.points):
        if facts.resolved_ts is not None and facts.resolved_ts <= moment:
            is_of_stream = facts.app_id == writer and facts.batch_id is not None and facts.batch_id <= committed
            (stream if is_of_stream else loads).append(facts.resolved_ts)
    if len(histories) == 1:  # each of its versions is a state of it
        return max([*stream, *loads], default=None), True
    return (max(stream), True) if stream else (max(loads, default=None), False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    """What a target was at which commit-ts.

    Attributes:
        status: the status of the table.
        target: the target; None if it does not exist.
        points: the versions that are the table at their resolved ts, oldest first.
    """

    status: TableStatus
    target: Target | None
    points: Sequence[Commit]

    @classmethod
    def of(cls, spark: SparkSession, status: TableStatus) -> _History:
        """Read the commits of a target."""
        target = existing_target(spark, status.target)
        commits = [] if target is None else target.commits(undone=True)
        return cls(status=status, target=target, points=points(commits))

    def at(self, commit_ts: int, *, is_of_stream: bool) -> DataFrame | None:
        """Return the rows of the table at a commit-ts; None if it did not exist, or has never had rows.

        Args:
            commit_ts: the commit-ts.
            is_of_stream: whether it is the resolved ts of a micro-batch: then the table has not changed since its own
                last one before that.

        Raises:
            TargetError: they are not known.
        """
        status = self.status
        point = next((one for one in reversed(self.points) if (one.facts.resolved_ts or 0) <= commit_ts), None)
        came_by_ddl = status.complete_since is not None and status.loaded_ts is None and not status.pauses
        if came_by_ddl and point is None and commit_ts < (status.complete_since or 0):
            return None
        since = self.check(commit_ts)
        if self.target is None and status.kind is not None:
            msg = f"The target {status.target} of {status.table_name} is gone: restore it, and its versions"
            raise TargetError(msg)
        if self.target is None or (point is None and came_by_ddl and not self.points):  # it only has had DDL
            return None
        ts = 0 if point is None else point.facts.resolved_ts or 0
        if point is None or ts < since or (ts < commit_ts and not is_of_stream):
            msg = (
                f"{status.table_name} has no version of {utc(commit_ts)}: "
                f"the versions of {status.target} from {utc(since)} to that time are gone, or it has none of its own"
            )
            raise TargetError(msg)
        return _rows(self.target, point)

    def check(self, commit_ts: int) -> int:
        """Return since when the table had followed, without a pause, at a commit-ts.

        Raises:
            TargetError: it did not follow then, or was not complete.
        """
        status = self.status
        since = 0
        for pause in status.pauses:
            if commit_ts <= pause.from_ts:
                return max(since, self._complete(pause.complete_since, commit_ts))
            if commit_ts < pause.to_ts:
                msg = (
                    f"{status.table_name} has no state between {utc(pause.from_ts)} and {utc(pause.to_ts)}, and "
                    f"{utc(commit_ts)} is between them: it did not follow then. {pause.reason}"
                )
                raise TargetError(msg)
            since = pause.to_ts
        if status.state != "following" and commit_ts > (status.resolved_ts or 0):
            msg = (
                f"{status.table_name} has no state after {utc(status.resolved_ts)}, and {utc(commit_ts)} is later: it "
                f"is {status.state}. {status.reason or ''}"
            )
            raise TargetError(msg)
        return max(since, self._complete(status.complete_since, commit_ts))

    def _complete(self, complete_since: int | None, commit_ts: int) -> int:
        """Return since when the table was complete.

        Raises:
            TargetError: it was not, at a commit-ts.
        """
        if complete_since is not None and complete_since <= commit_ts:
            return complete_since
        when = "is not known to be complete" if complete_since is None else f"is complete since {utc(complete_since)}"
        msg = f"{self.status.table_name} {when}, so its rows at {utc(commit_ts)} are not known"
        raise TargetError(msg)


def points(commits: Sequence[Commit]) -> list[Commit]:
    """Return the commits that made a target equal to its table at their resolved ts, oldest first.

    A commit whose resolved ts is not larger than that of one before it has repeated something.

    Args:
        commits: the commits of the target, newest first.
    """
    found: list[Commit] = []
    for commit in reversed(commits):
        ts, last = commit.facts.resolved_ts, found[-1].facts.resolved_ts if found else 0
        if ts is None or ts < (last or 0):
            continue
        if ts == last:
            found.pop()
        found.append(commit)
    return found


def _rows(target: Target, point: Commit) -> DataFrame:
    """Return the rows of a version that were not deleted, with the columns of the table alone."""
    properties, frame = target.properties(), target.frame_at(point.version)
    if LOG in properties:
        return frame
    prefix = properties[PREFIX]
    own = {f"{prefix}sequence"}
    if properties.get(DELETES) == "soft":
        frame = frame.where(f"NOT {quoted(f'{prefix}is_deleted')}")
        own.add(f"{prefix}is_deleted")
    if COMMIT_TIME in properties:
        own.add(f"{prefix}committed_at")
    return frame.select(*(F.col(quoted(name)) for name in frame.columns if name not in own and "__until_" not in name))


def _with_columns(frame: DataFrame, schema: StructType, keys: Sequence[str]) -> DataFrame:
    """Return rows with the columns of a schema, each as a struct `row`, beside their keys `k0`, …."""
    names = {name.lower(): name for name in frame.columns}
    columns = [
        (F.col(quoted(names[field.name.lower()])) if field.name.lower() in names else F.lit(None))
        .cast(field.dataType)
        .alias(field.name)
        for field in schema
    ]
    chosen = frame.select(*columns)
    key = [F.col(quoted(name)).alias(f"k{number}") for number, name in enumerate(keys)]
    return chosen.select(*key, F.struct(*(F.col(quoted(field.name)) for field in schema)).alias("row"))


def _difference(before: DataFrame, after: DataFrame, schema: StructType, keys: Sequence[str]) -> DataFrame:
    old, new = before.alias("old"), after.alias("new")
    same_key = [F.col(f"old.k{number}").eqNullSafe(F.col(f"new.k{number}")) for number in range(len(keys))]
    joined = old.join(new, same_key, "full_outer").select(
        F.col("old.row").alias("before"), F.col("new.row").alias("after")
    )
    same = [
        _comparable(F.col(f"before.{quoted(field.name)}"), field.dataType).eqNullSafe(
            _comparable(F.col(f"after.{quoted(field.name)}"), field.dataType)
        )
        for field in schema
    ]
    is_same = F.lit(True)  # noqa: FBT003 (a value of Spark)
    for one in same:
        is_same = is_same & one
    is_in_both = F.col("before").isNotNull() & F.col("after").isNotNull()
    changed = joined.where(~(is_in_both & is_same))
    images = F.array(*(F.struct(F.lit(kind).alias("kind"), F.col(side).alias("row")) for kind, side in _IMAGES))
    shown = changed.select(F.explode(images).alias("image"), is_in_both.alias("both"))
    shown = shown.where("image.row IS NOT NULL")
    kind = F.when(F.col("both"), F.col("image.kind")).when(F.col("image.kind") == _IMAGES[0][0], "delete")
    values = [F.col(f"image.row.{quoted(field.name)}").alias(field.name) for field in schema]
    return shown.select(*values, kind.otherwise("insert").alias("_change_type"))


def _comparable(column: Column, type_: DataType) -> Column:
    """Return a value that can be compared: Spark compares no VARIANT."""
    return F.to_json(column) if type_.typeName() == "variant" else column
