"""Configurations, and a context of micro-batches that reach no lake, for tests without Spark."""

from typing import Any

from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.failures import Shared, Stream
from ticdc_lakehouse.syncs.joining import Joining
from ticdc_lakehouse.syncs.micro_batch import SyncContext
from ticdc_lakehouse.tidb import TiDBConfig

A_TIDB = TiDBConfig(url="h", user="reader")
SERVERS = {"kafka.bootstrap.servers": "h:1"}


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def config(**given: Any) -> SyncConfig:
    """Return a configuration; if nothing else is given, of a topic whose tables go to Delta in a folder."""
    values = {"format": "delta", "path": "/l", "checkpoint": "/c", **given}
    return SyncConfig(**{**values, "source": {**SERVERS, "subscribe": "t", **given.get("source", {})}})


def context(config: SyncConfig, **given: Any) -> SyncContext:
    """Return what all micro-batches of a sync share, without a session."""
    spark: Any = None
    stream = Stream(config)
    shared = Shared(stopping=stream.is_stopped, try_store=lambda: None)
    joining = Joining(spark, config, stream, shared)
    return SyncContext(**{"spark": spark, "config": config, "shared": shared, "joining": joining, **given})
