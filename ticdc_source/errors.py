"""Error classes, and how errors and warnings reach the user.

Errors take positional arguments only, so that they survive pickling between Spark's processes. No message contains an
option's value that may be a secret.

Spark runs the data source in Python processes of its own, prints what they write to standard error, and prints each
traceback twice. So an error has a traceback of one frame (`from_one_frame`), and a warning names the user's own line
(`warn`).
"""

from __future__ import annotations

import difflib
import functools
import inspect
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from types import FrameType
from typing import ParamSpec, TypeVar

__all__ = [
    "AccessRefusedError",
    "Address",
    "CheckpointError",
    "ClaimCheckUnavailableError",
    "DataLossError",
    "DecodeError",
    "FramingError",
    "KafkaUnavailableError",
    "OptionError",
    "SchemaError",
    "SchemaRegistryUnavailableError",
    "StorageUnavailableError",
    "TiCDCSourceError",
    "TiDBUnavailableError",
    "UnsupportedTypeError",
]  # for users; the functions below are internal

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Item = TypeVar("Item")

_log = logging.getLogger(__name__)
_OURS = "ticdc_"  # prefix of packages whose lines are not shown: this one, and those built on it
_NOT_THE_USERS = frozenset({"contextlib", "pyspark", "runpy"})
_NO_LINE = 'format("ticdc")'  # stands for the user's line in Spark's own processes
_NEAR = 0.75  # similarity of two names, from 0 to 1; below it, common letters are chance
_SEEN: ContextVar[set[str] | None] = ContextVar("seen", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where in Kafka and in the table something was found. Unknown parts are None.

    `database` is set only if there is no table, such as for DDL of a database.
    """

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    table: str | None = None
    column: str | None = None
    database: str | None = None

    def completed_by(self, other: Address) -> Address:
        return Address(**(asdict(other) | self._known()))

    def _known(self) -> dict[str, str | int]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._known().items())


class TiCDCSourceError(Exception):
    """The base class of all errors that the package raises on purpose."""


class OptionError(TiCDCSourceError, ValueError):
    """An option is missing, unknown, misspelt or contradicts another one."""


class AccessRefusedError(OptionError):
    """A login or the access to a topic is refused, or lacks a certificate, token, ticket or package.

    It affects all tables.
    """


class SchemaError(TiCDCSourceError):
    """The messages and the requested schema do not match."""


class UnsupportedTypeError(SchemaError):
    """A column has a type that the package does not read."""


class DecodeError(TiCDCSourceError):
    """A record, or one value of it, cannot be read.

    `reason` says what is wrong and what to do, `address` where.
    """

    def __init__(self, reason: str, address: Address = Address(), /) -> None:
        reason = reason.encode(errors="replace").decode()  # lone surrogates stand for bytes that are not UTF-8
        super().__init__(reason, address)
        self.reason = reason
        self.address = address

    def __str__(self) -> str:
        where = str(self.address)
        return f"{self.reason} ({where})" if where else self.reason

    def at(self, address: Address, /) -> DecodeError:
        return type(self)(self.reason, self.address.completed_by(address))


class FramingError(DecodeError):
    """The frames of a record do not add up: a length beyond the end, or keys without values."""


class DataLossError(TiCDCSourceError):
    """Records between the start and the end of an offset range are gone from Kafka."""


class KafkaUnavailableError(TiCDCSourceError):
    """The brokers did not answer in time."""


class CheckpointError(TiCDCSourceError):
    """A stream's checkpoint does not hold offsets: somebody has edited it."""


class ClaimCheckUnavailableError(TiCDCSourceError):
    """The storage of large messages cannot be read.

    It is an error in every mode, because the message itself may be fine.
    """


class StorageUnavailableError(TiCDCSourceError):
    """Storage sink files cannot be read."""


class TiDBUnavailableError(TiCDCSourceError):
    """TiDB does not answer, or the connection is lost."""


class SchemaRegistryUnavailableError(TiCDCSourceError):
    """The schema registry does not answer, or refuses. A schema that it does not have is a `DecodeError`."""


def counted(number: int, singular: str) -> str:
    """Return a number and what it counts, such as `1 record` and `2,000 records`."""
    return f"{number:,} {singular}{'' if number == 1 else 's'}"


def nearest(name: str, among: Iterable[str], most: int = 1) -> list[str]:
    """Return the closest known names, best first; empty if none is close. Case is ignored."""
    by_lower = {each.lower(): each for each in among}
    return [by_lower[each] for each in difflib.get_close_matches(name.strip().lower(), by_lower, n=most, cutoff=_NEAR)]


def warn(message: str) -> None:
    """Warn at the user's line that called the package, or without a line if Spark called it.

    Inside `once_per_query`, each warning is shown once.
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
    # Python shows a line's warning once per process; a query shows it even if an earlier query has.
    registry = user.f_globals.setdefault("__warningregistry__", {}) if seen is None else None
    warnings.warn_explicit(message, UserWarning, user.f_code.co_filename, user.f_lineno, registry=registry)


def _users_frame() -> FrameType | None:
    frame = inspect.currentframe()
    while frame is not None and (_package(frame) in _NOT_THE_USERS or _package(frame).startswith(_OURS)):
        frame = frame.f_back
    return frame


def _package(frame: FrameType) -> str:
    spec = frame.f_globals.get("__spec__")  # `python -m pyspark.daemon` is called `__main__`
    name: str = frame.f_globals.get("__name__", "") if spec is None else spec.name
    return name.partition(".")[0]


@contextmanager
def once_per_query(seen: set[str]) -> Iterator[None]:
    """Show each warning once per query, even in a process that showed it for an earlier one; add it to `seen`."""
    token = _SEEN.set(seen)
    try:
        yield
    finally:
        _SEEN.reset(token)


def from_one_frame(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Shorten the traceback of the package's own errors to one frame: their text says what is wrong.

    The full traceback and cause are logged at DEBUG. Any other exception is a bug and keeps its traceback.
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
    """Like `from_one_frame`, for a generator function."""

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
