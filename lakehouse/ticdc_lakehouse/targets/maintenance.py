"""Between merges: how complete a target is, which deleted rows it may forget, and the clean-up of its files."""

from __future__ import annotations

import datetime

from pyspark.sql import SparkSession

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets.merge import DELETES, OwnColumns
from ticdc_lakehouse.targets.opening import existing_target, in_own_session
from ticdc_lakehouse.targets.sessions import with_verbatim_sql
from ticdc_lakehouse.targets.target import Commit, CommitFacts, Target
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_lakehouse.tidb import tso_of
from ticdc_source.errors import OptionError


@with_verbatim_sql
def resolved_ts_of(spark: SparkSession, target: str) -> int | None:
    """Return the resolved ts of a target, up to which it has every change; None if no commit has recorded one.

    Args:
        spark: the session.
        target: the name of the table, as `merge_into` takes it.

    Example:
        ```python
        from ticdc_lakehouse import resolved_ts_of

        print(resolved_ts_of(spark, "lake.shop.orders"))
        ```

    Raises:
        TargetError: there is no such table in Delta or Iceberg.
    """
    recorded = (commit.facts.resolved_ts for commit in commits_of(spark, target))
    return next((one for one in recorded if one is not None), None)


@with_verbatim_sql
def commits_of(spark: SparkSession, target: str) -> list[Commit]:
    """Return the commits of a target that Delta or Iceberg still keeps, newest first, with what each recorded.

    Use a commit's `version`, Delta's version or Iceberg's snapshot id, in `VERSION AS OF`.

    Example:
        ```python
        from ticdc_lakehouse import commits_of

        for commit in commits_of(spark, "lake.shop.orders"):
            print(commit.version, commit.facts.batch_id, commit.facts.resolved_ts)
        ```

    Raises:
        TargetError: there is no such table in Delta or Iceberg.
    """
    return _existing(spark, target).commits()


@with_verbatim_sql
def purge_deleted(spark: SparkSession, target: str, *, before: int | datetime.datetime) -> None:
    """Purge the rows that were deleted before a moment, in one commit.

    With soft deletes, the rows are removed from the target; with hard deletes, their keys from the table of deleted
    keys. If an old change of a purged row then arrives again, it brings the row back. So keep deleted rows at least as
    long as the topic keeps its messages.

    Args:
        spark: the session.
        target: the name of the table, as `merge_into` takes it.
        before: the moment: a commit-ts, or a time with a time zone.

    Example:
        ```python
        from datetime import datetime, timedelta, timezone

        from ticdc_lakehouse import purge_deleted

        purge_deleted(spark, "lake.shop.orders", before=datetime.now(timezone.utc) - timedelta(days=7))
        ```

    Raises:
        OptionError: the time has no zone.
        TargetError: there is no such table, or `merge_into` did not create it.
    """
    with in_own_session(spark, lambda own: _existing(own, target)) as table:
        _purge(table, target, before)


@with_verbatim_sql
def maintain(
    spark: SparkSession,
    target: str,
    *,
    keep: datetime.timedelta,
    compact: bool = True,
    purge_before: int | datetime.datetime | None = None,
) -> None:
    """Compact and clean up the files of a target or a log: Delta's OPTIMIZE and VACUUM, or Iceberg's equivalents.

    Rows do not change, except those that `purge_before` removes. Do not run it during a merge into the target: one of
    the two could fail, though without harm to the data.

    Args:
        spark: the session.
        target: the name of the table, as given to `merge_into` or `append_log`.
        keep: how long old versions are kept. Every version that was the newest at some moment within this time is kept,
            with what its commit records, such as `ticdc.resolved_ts`.
        compact: whether small files are merged into larger ones.
        purge_before: purge rows that were deleted before this commit-ts or time, as `purge_deleted` does.

    Example:
        ```python
        from datetime import timedelta

        from ticdc_lakehouse import maintain

        maintain(spark, "lake.shop.orders", keep=timedelta(days=7))
        ```

    Raises:
        OptionError: the time has no zone, or `keep` is negative.
        TargetError: there is no such table in Delta or Iceberg.
    """
    if keep < datetime.timedelta():
        raise OptionError(f"keep={keep}: it must not be negative")
    with in_own_session(spark, lambda own: _existing(own, target)) as table:
        if purge_before is not None and DELETES in table.properties():  # a log has none
            _purge(table, target, purge_before)
        deleted_keys = table.deleted_keys()
        for each in (table, *([deleted_keys] if deleted_keys.exists() else [])):
            if compact:
                each.compact()
            each.forget_versions(keep)


def _purge(table: Target, target: str, before: int | datetime.datetime) -> None:
    properties = table.properties()
    if DELETES not in properties:
        raise TargetError(
            f"{target} has no property {DELETES}: merge_into did not create it, so its deleted rows are unknown"
        )
    own = OwnColumns.of(properties)
    older = f"{quoted(own.sequence)}.commit_ts < {before if isinstance(before, int) else tso_of(before)}"
    if own.deleted is not None:
        table.delete_rows(f"{quoted(own.deleted)} AND {older}", CommitFacts())
        return
    tombstones = table.deleted_keys()
    if tombstones.exists():
        tombstones.delete_rows(older, CommitFacts())


def _existing(spark: SparkSession, target: str) -> Target:
    table = existing_target(spark, target)
    if table is None:
        raise TargetError(
            f"There is no table {target} in the catalogs of this session. Use the name that merge_into was called with"
        )
    return table
