"""`[maintain]`: which tables are due for maintenance, which runs after a micro-batch for a few tables at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial

from pyspark.sql import SparkSession

from ticdc_lakehouse.syncs.config import MaintainConfig, SyncConfig
from ticdc_lakehouse.syncs.failures import LONGEST_WARNING
from ticdc_lakehouse.syncs.lease import LeaseLostError
from ticdc_lakehouse.syncs.status import TableStatus
from ticdc_lakehouse.targets.maintenance import maintain
from ticdc_lakehouse.targets.opening import open_target
from ticdc_lakehouse.targets.sessions import in_thread
from ticdc_source.developer_api import parse_table, warn

_OWN = {"_ticdc_sync": False, "_ticdc_quarantine": True}  # and whether they have small files to compact
_KEPT_OF_OWN = timedelta(days=1)


def due(statuses: Iterable[TableStatus], config: MaintainConfig, now_ms: int) -> list[str]:
    """Return the tables that are due, the longest waiting first.

    A table is due `every` so often. If no micro-batch has changed it since its last round, it is due once its versions
    have become too old, as there is nothing else to do.
    """
    found = []
    for each in statuses:
        if each.state != "following" or each.kind is None or each.maintained_ms is None:
            continue
        idle = each.batch_id == each.maintained_batch
        pause = max(config.pause, config.history) if idle else config.pause
        if now_ms - each.maintained_ms >= pause // timedelta(milliseconds=1):
            found.append((each.maintained_ms, each.table_name))
    return [name for _, name in sorted(found)]


class Upkeep:
    """The maintenance of a sync's tables.

    It runs between two micro-batches, so that it never conflicts with a merge. Each micro-batch waits for a few tables
    only: as many as are written in parallel.
    """

    def __init__(self, spark: SparkSession, config: SyncConfig) -> None:
        self._spark, self._config = spark, config
        self._own_at: float | None = None  # by the monotonic clock

    def after_batch(self, statuses: Mapping[str, TableStatus], *, is_last: bool = False) -> dict[str, TableStatus]:
        """Maintain tables that are due; return the statuses that have changed.

        For a new table, the time until it is due starts now. After the last micro-batch, all due tables are maintained.
        """
        config = self._config.maintain
        if config is None:
            return {}
        now = _now_ms()
        changed = {
            name: replace(each, maintained_ms=now, maintained_batch=-1)
            for name, each in statuses.items()
            if each.maintained_ms is None and each.kind is not None
        }
        names = due(statuses.values(), config, now)
        chosen = [statuses[name] for name in (names if is_last else names[: self._config.parallel])]
        if chosen:
            with ThreadPoolExecutor(self._config.parallel, "maintain") as pool:
                run = in_thread(self._spark, partial(self._one, config))
                changed |= {each.table_name: each for each in pool.map(run, chosen)}
            self._maintain_own(config)
        return changed

    def _one(self, config: MaintainConfig, status: TableStatus) -> TableStatus:
        """Maintain a table. A failure is a warning, and the table is due again after `every`."""
        memory, table = config.memory, parse_table(status.table_name)
        before = None if memory is None else datetime.now(timezone.utc) - memory
        keep, compact = config.history, config.compact
        self._maintain(status.target, keep=keep, compact=compact, purge_before=before, may_lack=False)
        if status.kind == "table" and self._config.of_table(table).history:
            self._maintain(self._config.layout.target(table, "__log"), keep=keep, compact=compact)
        return replace(status, maintained_ms=_now_ms(), maintained_batch=status.batch_id)

    def _maintain_own(self, config: MaintainConfig) -> None:
        """Maintain the tables of the sync itself, once `every` so often. Their old versions are not needed."""
        now = time.monotonic()
        if self._own_at is not None and now - self._own_at < config.pause.total_seconds():
            return
        self._own_at = now
        for name, compact in _OWN.items():
            self._maintain(self._config.layout.own(name), keep=_KEPT_OF_OWN, compact=compact)

    def _maintain(
        self, name: str, *, keep: timedelta, compact: bool, purge_before: datetime | None = None, may_lack: bool = True
    ) -> None:
        try:
            if may_lack and not open_target(self._spark, name, self._config.format).exists():
                return
            maintain(self._spark, name, keep=keep, compact=compact, purge_before=purge_before)
        except LeaseLostError:
            raise
        except Exception as error:  # noqa: BLE001 (of Spark, Py4J, a catalog or a store: each has its own)
            why = self._config.redact(str(error))[:LONGEST_WARNING]
            warn(f"Cannot maintain {name}: {why}. The sync continues, and tries again after maintain.every")


def _now_ms() -> int:
    return int(time.time() * 1000)
