"""What the user sees when something is wrong: warnings at the user's own line, and errors from one frame.

Spark runs the data source in Python processes of its own. There the user's code is on no stack, and Spark prints
whatever a process writes to its standard error, and the traceback of an exception twice.
"""

from __future__ import annotations

import functools
import inspect
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import ParamSpec, TypeVar

from ticdc_source.errors import TiCDCSourceError

__all__ = ["each_from_one_frame", "from_one_frame", "once_per_query", "warn"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Item = TypeVar("Item")

_log = logging.getLogger(__name__)
_NOT_THE_USERS = frozenset({"contextlib", "pyspark", "runpy", "ticdc_source"})  # packages whose lines are not shown
_NO_LINE = 'format("ticdc")'  # stands for the user's line in Spark's own processes
_SEEN: ContextVar[set[str] | None] = ContextVar("seen", default=None)


def warn(message: str) -> None:
    """Warn at the line from which the user called the package; with no line if Spark called it.

    Inside `once_per_query`, a warning that its query has shown is not repeated.
    """
    seen = _SEEN.get()
    if seen is not None:
        if message in seen:
            return
        seen.add(message)
    user = _users_frame()
    if user is None:
        warnings.warn_explicit(message, UserWarning, _NO_LINE, 0)
        return
    # Python repeats no warning of a line. A query shows it, whatever an earlier one has shown.
    registry = user.f_globals.setdefault("__warningregistry__", {}) if seen is None else None
    warnings.warn_explicit(message, UserWarning, user.f_code.co_filename, user.f_lineno, registry=registry)


def _users_frame() -> FrameType | None:
    frame = inspect.currentframe()
    while frame is not None and _package(frame) in _NOT_THE_USERS:
        frame = frame.f_back
    return frame


def _package(frame: FrameType) -> str:
    spec = frame.f_globals.get("__spec__")  # `python -m pyspark.daemon` is called `__main__`
    name: str = frame.f_globals.get("__name__", "") if spec is None else spec.name
    return name.partition(".")[0]


@contextmanager
def once_per_query(seen: set[str]) -> Iterator[None]:
    """Show each warning once, also in a process that has shown it for an earlier query.

    Args:
        seen: the warnings that the query has shown; those that come are added.
    """
    token = _SEEN.set(seen)
    try:
        yield
    finally:
        _SEEN.reset(token)


def from_one_frame(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return the function with a short traceback for the package's own errors: what is wrong is in their text.

    Their full traceback and cause are logged at DEBUG. Any other exception is a bug and keeps its traceback.
    """

    @functools.wraps(function)
    def ticdc(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except TiCDCSourceError as error:
            failure = _without_frames(error)
        raise failure

    return ticdc


def each_from_one_frame(function: Callable[Parameters, Iterator[Item]]) -> Callable[Parameters, Iterator[Item]]:
    """Return the generator function with the tracebacks of `from_one_frame`."""

    @functools.wraps(function)
    def ticdc(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Iterator[Item]:
        try:
            yield from function(*args, **kwargs)
        except TiCDCSourceError as error:
            failure = _without_frames(error)
        else:
            return
        raise failure

    return ticdc


def _without_frames(error: TiCDCSourceError) -> TiCDCSourceError:
    _log.debug("The full traceback", exc_info=error)
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
