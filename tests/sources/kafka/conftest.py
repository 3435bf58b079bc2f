"""What holds for every test of Kafka."""

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """After a test no thread of a client runs any more, also not of one that never came to life."""
    before = set(threading.enumerate())
    yield
    left = [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("kafka-io")]
    assert left == []
