"""Which tables may be called complete, and which may not any more because changes of them are lost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pyspark.sql import SparkSession

from ticdc_source.lakehouse.config import SyncConfig
from ticdc_source.lakehouse.loading import COMPLETE
from ticdc_source.lakehouse.status import TableStatus
from ticdc_source.options.table_filter import parse_table
from ticdc_source.targets.sessions import in_thread
from ticdc_source.targets.sql_targets import existing_target
from ticdc_source.tso import of_ms

__all__ = ["FOR_EVER", "compared", "disclaimed_tables", "exact_since", "lost_before", "newest_ts", "unclaimed"]

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


def compared(
    spark: SparkSession, config: SyncConfig, statuses: Mapping[str, TableStatus], writer: str, last: int
) -> dict[str, TableStatus]:
    """Return the statuses, at a start, of tables whose target is an older version than was written.

    Each is set aside before anything is written, also if no change of it comes; unless the stream reads again what the
    target lacks, because its checkpoint is as old.

    Args:
        spark: the session.
        config: what is copied.
        statuses: the statuses of the tables.
        writer: the id of the streaming query.
        last: the last micro-batch that has ended, by the checkpoint, as the tables number it.
    """

    def of_target(status: TableStatus) -> TableStatus:
        target = existing_target(spark, status.target)
        held = None if target is None else target.last_batch(writer)
        if held is None or status.target_batch is None or held.number >= status.target_batch:
            return status  # a target that is gone says so when the next change comes
        if held.number >= last:
            return replace(status, target_batch=held.number)
        is_loaded_again = config.tidb is not None and status.complete_since is None and status.kind != "log"
        if status.state == "set aside" or is_loaded_again:
            return status
        reason = (
            f"{status.target} has had micro-batch {status.target_batch}, and ends with micro-batch {held.number} "
            "now: it is an older version, without the changes in between. Put back its newest version, and resume "
            f"{status.table_name}; or put back the whole checkpoint as it was then, or before, and resume it. Or read "
            "the table again with [tidb]: stop the sync, drop the target, and delete the row of the table from the "
            "status table"
        )
        return replace(status.set_aside(0, reason), set_aside_batch=None)  # nothing is kept yet

    known = [each for each in statuses.values() if each.state in ("following", "set aside")
             and each.target_batch is not None and config.selects(parse_table(each.table_name))]  # fmt: skip
    with ThreadPoolExecutor(config.parallel, thread_name_prefix="ticdc-sync compare") as pool:
        return {each.table_name: each for each in pool.map(in_thread(spark, of_target), known)}


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
