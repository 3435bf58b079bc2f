"""Fetchers that a worker process keeps from one micro-batch to the next: connecting costs more than a small batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.sources.chunk import FetchSettings
from ticdc_source.sources.kafka.fetch import KafkaFetcher
from ticdc_source.sources.record_source import Fetcher

__all__ = ["FETCHERS", "FetcherPool"]

_IDLE_SECONDS = 300.0  # as Spark's spark.kafka.consumer.cache.timeout
_MAX_IDLE = 16


class FetcherPool:
    """Idle fetchers, by the settings they were made with. Safe to use from several threads."""

    def __init__(self) -> None:
        # The most recently used one is the last. A borrowed fetcher is not in here: no two tasks share one.
        self._idle: dict[tuple[ClientSettings, FetchSettings], tuple[Fetcher, float]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, client: ClientSettings, settings: FetchSettings, *, fresh: bool = False) -> Iterator[Fetcher]:
        """Return a context with a fetcher for these settings: an idle one, or a new one.

        The fetcher goes back to the pool at the end, unless the block failed or was abandoned.

        Args:
            client: the settings of the client.
            settings: how to read.
            fresh: whether to take a new fetcher (a retried task must not meet the same fault again).
        """
        key = (client, settings)
        self._close_old()
        with self._lock:
            idle = None if fresh else self._idle.pop(key, None)
        fetcher = KafkaFetcher(client, settings) if idle is None else idle[0]
        try:
            yield fetcher
        except BaseException:  # also GeneratorExit: an abandoned fetch leaves records in flight
            fetcher.close()
            raise
        with self._lock:
            replaced = self._idle.pop(key, None)
            self._idle[key] = (fetcher, time.monotonic())
        if replaced is not None:
            replaced[0].close()

    def close_all(self) -> None:
        """Close all idle fetchers."""
        with self._lock:
            idle = list(self._idle.values())
            self._idle.clear()
        for fetcher, _ in idle:
            fetcher.close()

    def _close_old(self) -> None:
        limit = time.monotonic() - _IDLE_SECONDS
        with self._lock:
            keys = list(self._idle)
            old = [key for key in keys if self._idle[key][1] < limit] + keys[: max(0, len(keys) - _MAX_IDLE)]
            dropped = [self._idle.pop(key)[0] for key in dict.fromkeys(old)]
        for fetcher in dropped:
            fetcher.close()


# The pool of this process. It is the one object of the package that lives as long as its process: Spark runs the tasks
# of many micro-batches in the same Python worker, and keeps nothing else between them.
FETCHERS = FetcherPool()
