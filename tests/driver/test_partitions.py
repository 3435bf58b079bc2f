"""Reading an input partition, as far as that needs neither Spark nor Kafka."""

import gc
from collections.abc import Iterator

import pytest

from ticdc_source.spark.worker import _with_gc


@pytest.fixture(params=[True, False])
def at_first(request: pytest.FixtureRequest) -> Iterator[bool]:
    """The garbage collector as the caller has it: on, or off."""
    (gc.enable if request.param else gc.disable)()
    yield bool(request.param)
    gc.enable()


def seen(items: list[bool], upto: int = 3) -> Iterator[bool]:
    """Give, and note, whether the collector is on; fail after some."""
    for _ in range(upto):
        items.append(gc.isenabled())
        yield gc.isenabled()
    msg = "broken"
    raise ValueError(msg)


def test_the_collector_is_off_inside_and_as_it_was_outside(at_first: bool) -> None:
    """Decoding runs without it, fetching with it where the caller has it on; whatever ends it, it is as it was."""
    fetched: list[bool] = []
    decoded: list[bool] = []

    def decode(chunks: Iterator[bool]) -> Iterator[bool]:
        for _ in chunks:
            decoded.append(gc.isenabled())
            yield gc.isenabled()

    batches = _with_gc(decode(_with_gc(seen(fetched), on=gc.isenabled())), on=False)
    for _ in range(3):
        assert next(batches) is False
        assert gc.isenabled() is at_first
    with pytest.raises(ValueError, match="broken"):
        next(batches)
    assert gc.isenabled() is at_first
    assert fetched == [at_first] * 3
    assert decoded == [False] * 3


def test_a_reader_that_is_left_leaves_the_collector(at_first: bool) -> None:
    """Closed in the middle, or at its end, a reader leaves the collector as it was."""
    closed = _with_gc(seen([]), on=False)
    next(closed)
    closed.close()  # type: ignore[attr-defined]
    assert gc.isenabled() is at_first
    assert list(_with_gc(iter([1, 2]), on=False)) == [1, 2]
    assert gc.isenabled() is at_first
