"""What a sync tells: reports of each micro-batch and of its end, and metrics of its tables for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from pyspark.sql import SparkSession

from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.status import Loading, SetAside, TableStatus
from ticdc_source import progress_listener
from ticdc_source.developer_api import Exported, ProgressCollector, served


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What a micro-batch did."""

    batch_id: int
    changed: Mapping[str, int]  # how many changed rows each table had
    created: tuple[str, ...] = ()  # the tables whose target it created
    set_aside: Mapping[str, str] = field(default_factory=dict)  # and why
    bad_records: int = 0  # how many records went into quarantine
    maintained: tuple[str, ...] = ()  # the tables whose files were tidied after it
    # Every table that is not set aside has every change up to this commit-ts, except bad records; None if unknown.
    resolved_ts: int | None = None
    seconds: float = 0.0
    resumed: tuple[str, ...] = ()  # they have now what they missed
    complete: int = 0  # how many tables have all rows of the table in TiDB up to `resolved_ts`
    tables: int = 0

    def as_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """The state of the tables when a sync ends."""

    tables: Mapping[str, TableStatus]  # the status of each table, by its name
    batches: int = 0  # how many micro-batches there were
    bad_records: int = 0  # how many records went into quarantine

    @property
    def set_aside(self) -> dict[str, str]:
        """The tables that are set aside, with the reasons."""
        return {name: each.reason or "" for name, each in self.tables.items() if isinstance(each.phase, SetAside)}

    @property
    def loading(self) -> tuple[str, ...]:
        """The tables whose rows have not been read, because TiDB did not answer."""
        return tuple(name for name, each in self.tables.items() if isinstance(each.phase, Loading))


# Of each table.
EXPORTED = (
    Exported("ticdc_sync_rows_total", "counter", "rows", "changed rows written"),
    Exported("ticdc_sync_lag_seconds", "gauge", "lag", "age of the resolved ts: the table has every change up to it"),
    Exported("ticdc_sync_set_aside", "gauge", "is_set_aside", "1 while the table is set aside, 0 otherwise"),
)


class TableMetrics(NamedTuple):
    """The metrics of a table, by the members of `EXPORTED`; `query` is the name of the sync's stream."""

    query: str
    table: str
    rows: int
    lag: float | None
    is_set_aside: bool

    @staticmethod
    def of(query: str, status: TableStatus, now: float) -> TableMetrics:
        is_set_aside = isinstance(status.phase, SetAside)
        return TableMetrics(query, status.table_name, status.images, status.lag(now), is_set_aside)


@contextmanager
def exported(
    spark: SparkSession,
    config: SyncConfig,
    query: str,
    statuses: Callable[[], Collection[TableStatus]],
    clock: Callable[[], float] = time.time,
) -> Iterator[None]:
    """Serve the metrics of a sync while the block runs, if `prometheus_port` is given; `query` names the stream."""
    if config.prometheus_port is None:
        yield
        return
    path = config.source_option("metricsPath", "") or None
    with served(config.prometheus_port) as registry:
        of_tables = ProgressCollector(lambda: [TableMetrics.of(query, one, clock()) for one in statuses()], EXPORTED)
        registry.register(of_tables)
        listener = progress_listener(metrics_path=path, registry=registry, spark=spark)
        spark.streams.addListener(listener)
        try:
            yield
        finally:
            spark.streams.removeListener(listener)
            listener.close()
