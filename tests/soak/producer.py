"""Writes changefeeds to Kafka at a steady rate, at least once, as TiCDC does."""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from tests.soak.changes import Feed, Message

_TICK = 0.5  # seconds
_REMEMBERED = 2000  # messages that may be sent again
_WATERMARK = 2.0  # seconds between two


@dataclass
class Counts:
    """What was written."""

    messages: int = 0
    repeated: int = 0
    failed: int = 0


@dataclass
class Producer:
    """Writes changefeeds in a thread of its own."""

    servers: str
    feeds: Sequence[Feed]
    rate: float
    chance: random.Random
    pauses: Callable[[], bool]
    counts: Counts = field(default_factory=Counts)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    error: BaseException | None = None
    _ddl: deque[tuple[Feed, str]] = field(default_factory=deque)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Create the tables, and go on in a thread."""
        self._recent: dict[str, deque[Message]] = {feed.topic: deque(maxlen=_REMEMBERED) for feed in self.feeds}
        self._client = self._connected()
        for feed in self.feeds:
            self._write(feed, feed.created())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def alter(self, feed: Feed, how: str) -> None:
        """Alter the table that is read: `added` or `widened`."""
        self._ddl.append((feed, how))

    def stop(self) -> None:
        """End the thread, once all messages are written."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._client.close()

    def end_of(self, topic: str) -> int:
        """Return how many records a topic has."""
        return sum(end for (name, _), end in list(self.ends.items()) if name == topic)

    def _connected(self) -> Any:  # kafka-python has no types
        return KafkaProducer(bootstrap_servers=self.servers, acks="all", linger_ms=20, metrics_enabled=False)

    def _run(self) -> None:
        try:
            self._keep_writing()
        except BaseException as error:  # noqa: BLE001 (the main thread reports it)
            self.error = error

    def _keep_writing(self) -> None:
        marked, began, ticks = time.monotonic(), time.monotonic(), 0
        while not self._ended.is_set():
            while self._ddl:
                feed, how = self._ddl.popleft()
                table = feed.tables[0]
                self._write(feed, feed.ddl(table, table.column_added() if how == "added" else table.widened()))
            for feed in () if self.pauses() else self.feeds:
                count = int(self.rate * _TICK + self.chance.random())
                self._write(feed, [message for _ in range(count) for message in feed.changes(self.chance)])
                if self.chance.random() < _TICK / 15:
                    self._repeat(feed)
            if time.monotonic() - marked > _WATERMARK:
                marked = time.monotonic()
                for feed in self.feeds:
                    self._write(feed, feed.watermarks())
            ticks += 1
            self._ended.wait(max(0.0, began + ticks * _TICK - time.monotonic()))

    def _repeat(self, feed: Feed) -> None:
        """Send a stretch of earlier messages again, in order, as TiCDC does when it restarts from a checkpoint."""
        recent = self._recent[feed.topic]
        again = list(recent)[self.chance.randrange(len(recent)) :][: self.chance.choice((5, 50, 500))]
        self.counts.repeated += len(again)
        self._write(feed, again, repetition=True)

    def _write(self, feed: Feed, messages: Sequence[Message], *, repetition: bool = False) -> None:
        """Write messages; after a failure send all of them again."""
        if not repetition:
            self._recent[feed.topic].extend(messages)
        while True:
            futures = []
            try:
                futures = [
                    self._client.send(feed.topic, message.value, message.key, partition=message.partition)
                    for message in messages
                ]
                self._client.flush(60)
                for message, future in zip(messages, futures, strict=True):
                    place = feed.topic, message.partition
                    self.ends[place] = max(self.ends.get(place, 0), future.get(timeout=60).offset + 1)
            except KafkaError:
                self.counts.failed += len(messages)
                with suppress(KafkaError):  # nothing of the first try must come between the messages of the second
                    self._client.close(timeout=10)
                self._client = self._connected()
                continue
            self.counts.messages += len(messages)
            return
