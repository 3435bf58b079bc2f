"""Fetchers kept by a worker process from one micro-batch to the next: connecting costs more than a small batch."""

from __future__ import annotations

import hashlib
import pickle
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ticdc_source.kafka.fetch import Fetcher

__all__ = ["borrowed_fetcher", "close_all"]

_IDLE_SECONDS = 300.0  # as Spark's spark.kafka.consumer.cache.timeout
_MOST = 16

# Fetchers that nobody uses, by what they were made with; the newest last. A borrowed one is not here, so that no two
# tasks ever share one.
_resting: dict[str, tuple[Fetcher, float]] = {}
_lock = threading.Lock()


@contextmanager
def borrowed_fetcher(config: Mapping[str, Any], *, fresh: bool = False, **settings: Any) -> Iterator[Fetcher]:
    """Give a fetcher for these settings: one that rests here, or a new one.

    It is kept afterwards, unless the work with it failed or was broken off.

    Args:
        config: what `client_config` returned.
        fresh: do not take one that rests here (a task that is tried again must not meet the same fault).
        settings: the keyword arguments of `Fetcher`.
    """
    name = _name_of(config, settings)
    _drop_idle()
    with _lock:
        rested = None if fresh else _resting.pop(name, None)
    fetcher = Fetcher(config, **settings) if rested is None else rested[0]
    try:
        yield fetcher
    except BaseException:  # also GeneratorExit: a fetch that was broken off leaves records in flight
        fetcher.close()
        raise
    with _lock:
        replaced = _resting.pop(name, None)
        _resting[name] = (fetcher, time.monotonic())
    if replaced is not None:
        replaced[0].close()


def close_all() -> None:
    """Close all fetchers that rest here."""
    with _lock:
        resting = list(_resting.values())
        _resting.clear()
    for fetcher, _ in resting:
        fetcher.close()


def _drop_idle() -> None:
    limit = time.monotonic() - _IDLE_SECONDS
    with _lock:
        names = list(_resting)
        old = [name for name in names if _resting[name][1] < limit] + names[: max(0, len(names) - _MOST)]
        dropped = [_resting.pop(name)[0] for name in dict.fromkeys(old)]
    for fetcher in dropped:
        fetcher.close()


def _name_of(config: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return a name for equal settings; a digest, as they hold secrets."""
    return hashlib.sha256(pickle.dumps((sorted(config.items()), sorted(settings.items())))).hexdigest()
