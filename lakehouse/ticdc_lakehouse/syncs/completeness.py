"""Which tables may be called complete, and which may not any more because changes of them are lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.status import Identity, LeftOut, TableStatus
from ticdc_lakehouse.syncs.steps import Signal
from ticdc_lakehouse.targets.merge import COMPLETE
from ticdc_lakehouse.targets.opening import existing_target
from ticdc_source.developer_api import of_ms, parse_table

FOR_EVER = 2**63 - 1  # no commit-ts is larger
_CLOCKS_DIFFER_S = 60.0  # of this machine and of TiDB's placement driver, at most


def disclaimer(config: SyncConfig, status: TableStatus) -> Signal | None:
    """Return why, at a start, a table is not complete any more; None if it is as before.

    What `tables` or `skip` leaves out misses what is read meanwhile: the offsets of the stream are those of all tables.
    If such a table is selected again, it is set aside, because somebody has to decide what becomes of that. With
    `failOnDataLoss=false` the stream goes on after records that Kafka has removed, and does not say whose they were.
    """
    if not config.selects(parse_table(status.table_name)):
        return Signal.LEFT_OUT
    if isinstance(status.phase, LeftOut):
        return Signal.SELECTED
    return Signal.LOSS_POSSIBLE if config.may_lose_changes else None


def unclaim(spark: SparkSession, target: str) -> None:
    """Let a target say no longer that it is complete."""
    existing = existing_target(spark, target)
    if existing is not None:
        existing.remove_properties([COMPLETE])


def lost_before(config: SyncConfig, starts: Mapping[str, Mapping[str, int]] | None) -> int | None:
    """Return up to which commit-ts the topics may have lost changes before the stream started; None for none.

    A stream that starts at offset 0 everywhere has lost nothing. Otherwise everything that is lost was written
    before now, so its commit-ts is not larger than that of now.
    """
    if starts is not None and not config.may_lose_changes and not any(any(each.values()) for each in starts.values()):
        return None
    return newest_ts()


def claimed(
    config: SyncConfig, starts: Callable[[], Mapping[str, Mapping[str, int]] | None], writer: str, before: Identity
) -> Identity:
    """Return what the status table says from the first micro-batch of a process on.

    Its `exact_since` is the commit-ts since which the targets are the database at the resolved ts of each micro-batch;
    None if they are not.

    Args:
        starts: returns the offsets at which the stream has started; see `lost_before`.
        writer: the id of the streaming query. If the table does not name it yet, this is the first micro-batch of all.
    """
    begins, may_lose = before["writer"] != writer, config.may_lose_changes
    exact_since = 0 if begins else before.get("exact_since")
    if config.consistency != "resolved":
        exact_since = None
    elif exact_since is None:  # changes up to now may be applied that are later than their micro-batch
        exact_since = newest_ts()
    now = {**before, "writer": writer, "may_lose": may_lose, "exact_since": exact_since}
    if begins or "lost_until" not in before:
        return {**now, "lost_until": lost_before(config, starts())}
    return now if before.get("may_lose", may_lose) == may_lose else {**now, "lost_until": newest_ts()}


def newest_ts() -> int:
    """Return a TSO that is not smaller than any that TiDB has given until now."""
    return of_ms(int((time.time() + _CLOCKS_DIFFER_S) * 1000))
