"""Between merges: how complete a target is, and which deleted rows it may forget."""

from __future__ import annotations

import datetime

from pyspark.sql import SparkSession

from ticdc_source.errors import OptionError, TargetError
from ticdc_source.lakehouse.merge import DELETES, PREFIX, deleted_keys_of
from ticdc_source.lakehouse.targets import Commit, Target, existing_target, quoted

__all__ = ["commits_of", "purge_deleted", "resolved_ts_of"]


def resolved_ts_of(spark: SparkSession, target: str) -> int | None:
    """Return the commit-ts up to which a target is complete; None if no commit has recorded one.

    Args:
        spark: the session.
        target: the name of the table, as `merge_into` takes it.

    Raises:
        TargetError: there is no such table in Delta or Iceberg.
    """
    recorded = (commit.facts.resolved_ts for commit in commits_of(spark, target))
    return next((one for one in recorded if one is not None), None)


def commits_of(spark: SparkSession, target: str) -> list[Commit]:
    """Return the commits of a target that its engine still knows, newest first, with what each has recorded.

    `VERSION AS OF` takes their `version`: Delta's version, or Iceberg's snapshot id.

    Raises:
        TargetError: there is no such table in Delta or Iceberg.
    """
    return _there(spark, target).commits()


def purge_deleted(spark: SparkSession, target: str, *, before: int | datetime.datetime) -> None:
    """Forget the rows that were deleted before a moment: one commit.

    With soft deletes, the rows leave the target. With hard deletes, their keys leave the table of deleted keys. A
    change of such a row that comes again afterwards brings the row back: keep deleted rows for longer than messages
    may repeat, as long as the topic keeps them.

    Args:
        spark: the session.
        target: the name of the table, as `merge_into` takes it.
        before: the moment: a commit-ts, or a time with a time zone.

    Raises:
        OptionError: the time has no zone.
        TargetError: there is no such table, or `merge_into` did not create it.
    """
    table = _there(spark, target)
    properties = table.properties()
    if DELETES not in properties:
        msg = f"{target} has no property {DELETES}: merge_into did not create it, so which rows are deleted is unknown"
        raise TargetError(msg)
    prefix = properties.get(PREFIX, "_")
    older = f"{quoted(f'{prefix}sequence')}.commit_ts < {_commit_ts(before)}"
    if properties[DELETES] == "soft":
        table.delete_rows(f"{quoted(f'{prefix}is_deleted')} AND {older}")
        return
    forgotten = existing_target(spark, deleted_keys_of(target))
    if forgotten is not None:
        forgotten.delete_rows(older)


def _there(spark: SparkSession, target: str) -> Target:
    found = existing_target(spark, target)
    if found is None:
        msg = f"There is no table {target} in the catalogs of this session: give the name that merge_into has"
        raise TargetError(msg)
    return found


def _commit_ts(moment: int | datetime.datetime) -> int:
    """Return the first commit-ts of a moment."""
    if isinstance(moment, int):
        return moment
    if moment.tzinfo is None:
        msg = f"before={moment!r} has no time zone: give one, for example datetime(2026, 1, 31, tzinfo=timezone.utc)"
        raise OptionError(msg)
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return since // datetime.timedelta(milliseconds=1) << 18
