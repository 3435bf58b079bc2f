"""What this process remembers of tables: their engine, and the micro-batch that it has committed last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from pyspark.sql import SparkSession

from ticdc_lakehouse.targets.merge_sessions import origin
from ticdc_lakehouse.targets.target import CommitFacts

__all__ = ["REMEMBERED", "RememberedBatch"]

_MOST_REMEMBERED = 10_000

_lock = threading.Lock()


class RememberedBatch(NamedTuple):
    """A micro-batch that this process has committed: the facts, and what names the version of the table after it."""

    facts: CommitFacts
    version: str


class RememberedBatches:
    """The last micro-batch that this process has committed: by the session, the table and the writer.

    An entry is taken out before a micro-batch and put back after its commit. If anything fails in between, the commits
    of the table are read.

    It also remembers the engine of a table, until the table is missed.
    """

    def __init__(self) -> None:
        self._batches: OrderedDict[tuple[str, str, str], RememberedBatch] = OrderedDict()
        self._engines: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def engine(self, spark: SparkSession, table: str) -> str | None:
        """Return the engine of a table; None if it is not known."""
        with _lock:
            return self._engines.get(_place(spark, table))

    def put_engine(self, spark: SparkSession, table: str, engine: str | None) -> None:
        """Note the engine of a table; None if the table is not there."""
        place = _place(spark, table)
        with _lock:
            self._engines.pop(place, None)
            if engine is not None:
                self._engines[place] = engine
            while len(self._engines) > _MOST_REMEMBERED:
                self._engines.popitem(last=False)

    def take(self, spark: SparkSession, table: str, app_id: str) -> RememberedBatch | None:
        """Take out a writer's last micro-batch; None if it is not known."""
        with _lock:
            return self._batches.pop((origin(spark), table, app_id), None)

    def put(self, spark: SparkSession, table: str, app_id: str, batch: RememberedBatch) -> None:
        """Note a writer's last micro-batch."""
        with _lock:
            self._batches[origin(spark), table, app_id] = batch
            while len(self._batches) > _MOST_REMEMBERED:
                self._batches.popitem(last=False)


def _place(spark: SparkSession, table: str) -> tuple[str, str, str]:
    """Return what identifies a table: its name may not have the catalog."""
    return origin(spark), spark.catalog.currentCatalog(), table


# Like the sessions of merges it belongs to the process: each call of merge_into opens its target anew.
REMEMBERED = RememberedBatches()
