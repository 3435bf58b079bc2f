"""A worker switches the garbage collector off while it decodes an input partition."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from ticdc_source.pipeline.collector import _gc, collecting, leave_out_modules, not_collecting


@pytest.fixture(params=[True, False])
def initially_on(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Return whether the caller has the garbage collector on."""
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


def test_later_collections_leave_modules_out() -> None:
    """What lives at the first call is left out of later collections, and a cycle that is made afterwards is freed."""
    gc.unfreeze()
    leave_out_modules.cache_clear()
    try:
        leave_out_modules()
        left_out = gc.get_freeze_count()
        later = _Cycle()
        gone = weakref.ref(later)
        leave_out_modules()
        assert gc.get_freeze_count() <= left_out
        del later
        gc.collect()
    finally:
        gc.unfreeze()
        leave_out_modules.cache_clear()
    assert left_out > len(gc.get_objects()) // 2
    assert gone() is None


class _Cycle:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


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
