"""Random tests with many seeds, several of them in one test, because beginning a test takes longer than such a seed."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import pytest

_AT_ONCE = 25

_Test = TypeVar("_Test", bound=Callable[..., None])


def each_seed(count: int) -> Callable[[_Test], _Test]:
    """Run a test with each `seed` from 0 on; the last one printed is that of a failure."""

    def decorate(test: _Test) -> _Test:
        @wraps(test)
        def run(*, seed: int, **given: object) -> None:
            for each in range(seed, min(seed + _AT_ONCE, count)):
                print(f"seed {each}")  # noqa: T201 (pytest shows it of a test that fails)
                test(seed=each, **given)

        marked: _Test = pytest.mark.parametrize("seed", range(0, count, _AT_ONCE))(run)
        return marked

    return decorate
