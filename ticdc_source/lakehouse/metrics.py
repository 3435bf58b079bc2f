"""What a sync tells Prometheus: how each table is, and what `progress_listener` says of its stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from ticdc_source.inspection.monitoring.listener import progress_listener
from ticdc_source.inspection.monitoring.prometheus import EXPORTED_BY_SYNC, ProgressCollector, served
from ticdc_source.lakehouse.config import SyncConfig
from ticdc_source.lakehouse.status import TableStatus

__all__ = ["TableMetrics", "exported"]


@dataclass(frozen=True, slots=True)
class TableMetrics:
    """What is told of a table: the members of `EXPORTED_BY_SYNC`.

    Attributes:
        query: the name of the sync's stream.
        status: the status of the table.
        now: the time, in seconds since 1970.
    """

    query: str
    status: TableStatus
    now: float

    @property
    def table(self) -> str:
        """The table."""
        return self.status.table_name

    @property
    def rows(self) -> int:
        """How many changed rows were written."""
        return self.status.images

    @property
    def lag(self) -> float | None:
        """How old the commit-ts is up to which the table is complete, in seconds."""
        return self.status.lag(self.now)

    @property
    def is_set_aside(self) -> bool:
        """Whether it is set aside."""
        return self.status.state == "set aside"


@contextmanager
def exported(
    spark: SparkSession,
    config: SyncConfig,
    query: str,
    statuses: Callable[[], Collection[TableStatus]],
    clock: Callable[[], float] = time.time,
) -> Iterator[None]:
    """Serve the metrics of a sync while the block runs, if its configuration says so.

    Args:
        spark: the session of the stream.
        config: the configuration.
        query: the name of the stream.
        statuses: returns the status of each table at this moment.
        clock: returns the time in seconds since 1970.

    Raises:
        OptionError: `prometheus-client` is not installed, or the port is taken.
    """
    if config.prometheus_port is None:
        yield
        return
    path = next((text for name, text in config.source.items() if name.lower() == "metricspath"), None)
    with served(config.prometheus_port) as registry:
        registry.register(
            ProgressCollector(lambda: [TableMetrics(query, one, clock()) for one in statuses()], EXPORTED_BY_SYNC)
        )
        listener = progress_listener(metrics_path=path, registry=registry, spark=spark)
        spark.streams.addListener(listener)
        try:
            yield
        finally:
            spark.streams.removeListener(listener)
            listener.close()
