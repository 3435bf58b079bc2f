"""`[maintain]`: which tables are due, and their rounds, which run after the merges of a micro-batch, some in each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial

from pyspark.sql import SparkSession

from ticdc_lakehouse.syncs.config import MaintainConfig, SyncConfig
from ticdc_lakehouse.syncs.lease import LeaseLostError
from ticdc_lakehouse.syncs.status import TableStatus
from ticdc_lakehouse.targets.maintenance import maintain
from ticdc_lakehouse.targets.opening import open_target
from ticdc_lakehouse.targets.sessions import in_thread
from ticdc_source.developer_api import parse_table, warn

_OWN = {"_ticdc_sync": False, "_ticdc_quarantine": True}  # and whether they get small files
_KEPT_OF_OWN = timedelta(days=1)
_LONGEST_ERROR = 500  # characters


def due(statuses: Iterable[TableStatus], config: MaintainConfig, now_ms: int) -> list[str]:
    """Return the tables that are due, those that have waited longest first.

    A table is due `every` so often. If no micro-batch has changed it since its last round, all that is left to do is to
    remove versions that have become too old: it is due once they have.
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
    """The rounds of the tables of a sync.

    They run between the merges of two micro-batches, so no commit of theirs meets a merge. Each micro-batch waits for
    few of them: as many as are written side by side.
    """

    def __init__(self, spark: SparkSession, config: SyncConfig) -> None:
        self._spark, self._config = spark, config
        self._own_at: float | None = None  # by the monotonic clock

    def after_batch(self, statuses: Mapping[str, TableStatus], *, is_last: bool = False) -> dict[str, TableStatus]:
        """Maintain tables that are due; return the statuses that have changed.

        The time of a table that has none starts now. After the last micro-batch, all tables that are due are
        maintained: none will wait for them.
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
        """Maintain a table. If that fails, its copy goes on, and it is due again in the next round."""
        memory, table = config.memory, parse_table(status.table_name)
        before = None if memory is None else datetime.now(timezone.utc) - memory
        keep, compact = config.history, config.compact
        self._maintain(status.target, keep=keep, compact=compact, purge_before=before, may_lack=False)
        if status.kind == "table" and self._config.of_table(table).history:
            self._maintain(self._config.layout.target(table, "__log"), keep=keep, compact=compact)
        return replace(status, maintained_ms=_now_ms(), maintained_batch=status.batch_id)

    def _maintain_own(self, config: MaintainConfig) -> None:
        """Maintain the tables of the sync itself, once in a round. Nobody reads their old versions."""
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
            warn(
                f"{name} could not be maintained: {self._config.redact(str(error))[:_LONGEST_ERROR]}. Its copy goes on"
            )


def _now_ms() -> int:
    return int(time.time() * 1000)
