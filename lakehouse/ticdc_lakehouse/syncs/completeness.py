"""Which tables may be called complete, and which may not any more because changes of them are lost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.loading import COMPLETE
from ticdc_lakehouse.syncs.status import TableStatus
from ticdc_lakehouse.targets.opening import existing_target
from ticdc_source.developer_api import of_ms, parse_table

__all__ = ["FOR_EVER", "disclaimed_tables", "exact_since", "lost_before", "newest_ts", "unclaimed"]

FOR_EVER = 2**63 - 1  # no commit-ts is larger
_CLOCKS_DIFFER_S = 60.0  # of this machine and of TiDB's placement driver, at most
_LEFT_OUT = (
    "`tables` or `skip` has left it out, so its target lacks the changes of that time. With [tidb], --resume loads it "
    "again, unless the target is a log; otherwise --resume goes on without them"
)


def disclaimed_tables(
    spark: SparkSession, config: SyncConfig, statuses: Mapping[str, TableStatus]
) -> dict[str, TableStatus]:
    """Return the statuses, at a start, of tables that are not complete any more.

    What `tables` or `skip` leaves out misses what is read meanwhile: the offsets of the stream are those of all tables.
    If such a table is selected again, it is set aside, because somebody has to decide what becomes of that. With
    `failOnDataLoss=false` the stream goes on after records that Kafka has removed, and does not say whose they were.
    """
    changed = {}
    for name, status in statuses.items():
        now, is_selected = status, config.selects(parse_table(name))
        if not is_selected and status.state != "left out":
            now = unclaimed(spark, status).left_out()
        elif is_selected and status.state == "left out":
            now = replace(status.set_aside(0, _LEFT_OUT), set_aside_batch=None)  # nothing is kept yet
        elif config.may_lose_changes:
            now = unclaimed(spark, status)
        if now != status:
            changed[name] = now
    return changed


def unclaimed(spark: SparkSession, status: TableStatus) -> TableStatus:
    """Return the status of a table that is not known to be complete; its target says so no longer."""
    if status.complete_since is None:
        return status
    target = existing_target(spark, status.target)
    if target is not None:
        target.remove_properties([COMPLETE])
    return replace(status, complete_since=None)


def lost_before(config: SyncConfig, starts: Mapping[str, Mapping[str, int]] | None) -> int | None:
    """Return up to which commit-ts the topics may have lost changes before the stream started; None for none.

    A stream that starts at offset 0 everywhere has lost nothing. Otherwise everything that is lost was written
    before now, so its commit-ts is not larger than that of now.

    Args:
        config: what is copied.
        starts: the offsets at which the stream has started, by topic and partition; None if nobody knows.
    """
    if starts is not None and not config.may_lose_changes and not any(any(each.values()) for each in starts.values()):
        return None
    return newest_ts()


def exact_since(config: SyncConfig, is_first: bool, before: int | None) -> int | None:  # noqa: FBT001 (a callback)
    """Return since which commit-ts the targets are the database at the resolved ts of each micro-batch; None if not.

    Args:
        config: what is copied.
        is_first: whether the first micro-batch of all is applied.
        before: what was known before.
    """
    if config.consistency != "resolved":
        return None
    if is_first:
        return 0
    return newest_ts() if before is None else before  # changes up to now may be applied that are later than their batch


def newest_ts() -> int:
    """Return a TSO that is not smaller than any that TiDB has given until now."""
    return of_ms(int((time.time() + _CLOCKS_DIFFER_S) * 1000))
