"""A worker switches the garbage collector off while it decodes an input partition."""

import gc
from collections.abc import Iterator

import pytest

from ticdc_source.pipeline.collector import _gc, collecting, not_collecting


@pytest.fixture(params=[True, False])
def initially_on(request: pytest.FixtureRequest) -> Iterator[bool]:
    (gc.enable if request.param else gc.disable)()
    yield bool(request.param)
    gc.enable()


def seen(items: list[bool], upto: int = 3) -> Iterator[bool]:
    """Record and yield whether the collector is on; fail after some items."""
    for _ in range(upto):
        items.append(gc.isenabled())
        yield gc.isenabled()
    msg = "broken"
    raise ValueError(msg)


def test_the_collector_is_off_inside_and_as_it_was_outside(initially_on: bool) -> None:
    """The collector is off while a worker decodes, and as the caller has it during fetches and between batches."""
    fetched: list[bool] = []
    decoded: list[bool] = []

    def decode(chunks: Iterator[bool]) -> Iterator[bool]:
        for _ in chunks:
            decoded.append(gc.isenabled())
            yield gc.isenabled()

    batches = not_collecting(decode(collecting(seen(fetched))))
    for _ in range(3):
        assert next(batches) is False
        assert gc.isenabled() is initially_on
    with pytest.raises(ValueError, match="broken"):
        next(batches)
    assert gc.isenabled() is initially_on
    assert fetched == [initially_on] * 3
    assert decoded == [False] * 3


def test_threads_share_the_collector() -> None:
    """While any thread wants it off it is off, and when the last one ends it is as before, in whichever order."""
    assert gc.isenabled()
    first, second = _gc(on=False), _gc(on=False)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)

    assert gc.isenabled()
