"""JSON messages: parsing, checked values, and the error for a broken message.

orjson parses them. Python's parser takes over for text that is not UTF-8, which orjson refuses, and for numbers with
all digits, as orjson turns fractions and integers beyond 64 bits into doubles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DecodeError
from ticdc_source.protocols.compression import looks_compressed
from ticdc_source.schema.json_text import loads
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.tso import of_ms

# A JSON object. Any: decoders trust the protocol about members, without checking each. On other members they raise an
# error of MALFORMED.
JSONObject: TypeAlias = dict[str, Any]

# The errors of decoders for messages that break their protocol's promises.
MALFORMED = (DecodeError, ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)

_2_63, _2_64 = 1 << 63, 1 << 64
_MOST_MS = 1 << 45
_SURROGATE = re.compile("[\ud800-\udfff]")


def parse_json(payload: bytes) -> object:
    r"""Parse one JSON document, with orjson's numbers. The last of repeated members counts.

    TiCDC writes text bytes that are not UTF-8 unchanged (docs/wire.md, items 12 and 13). orjson refuses them, and lone
    surrogates in \u escapes. Python's parser keeps both as lone surrogates (PEP 383), which text kernels handle as
    `invalidUtf8` says.

    Raises:
        ValueError: the bytes are not JSON.
    """
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        try:
            return _parse_slowly(payload)
        except ValueError:
            raise ValueError(f"the JSON is broken: {error}{_guess(payload)}") from None


def _parse_slowly(payload: bytes) -> object:
    text = payload.decode(errors="surrogateescape")
    return loads(text, parse_float=_number, parse_constant=_refuse_constant)


def parse_exact_json(payload: bytes) -> object:
    """Like `parse_json`, but numbers that a double cannot hold keep their digits.

    Integers are int, whatever their size. Any other number is a float if that is the float's shortest text, else a
    Decimal.
    """
    parsed = parse_json(payload)
    return _parse_slowly(payload) if _has_long_number(payload) and not _are_held(payload) else parsed


def have_long_numbers(payloads: Sequence[bytes]) -> bool:
    texts = pa.array(list(payloads), pa.large_binary())
    return not all(map(_are_held, texts.filter(pc.match_substring_regex(texts, _LONG)).to_pylist()))


def _has_long_number(payload: bytes) -> bool:
    if len(payload) < _LARGE:
        return _LONG_NUMBER.search(payload) is not None
    return bool(pc.match_substring_regex(pa.scalar(payload, pa.large_binary()), _LONG).as_py())


def _are_held(payload: bytes) -> bool:
    return all(_is_held(number[1].decode()) for number in _NUMBERS.finditer(payload))


# The beginning of numbers in which orjson may lose digits: 16 digits around a point or before an exponent, 65 bits, an
# exponent near the ends of a double's range.
_LONG = (
    r"(?:^|[:,\[\s])(?:-?(?:\d*[.]\d{8}|\d{8,}[.]|\d{20}|\d{16,}[eE]|\d+(?:[.]\d+)?[eE][+-]?\d{3,}(?:[,\]}\s]|$))"
    r"|-9[2-9]\d{17})"
)
_LONG_NUMBER = re.compile(_LONG.encode())
_LARGE = 2048  # bytes from which RE2 finds it sooner than `re`: it is 16 times as fast, once it has begun
_NUMBERS = re.compile(rb"(?:^|[:,\[\s])(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?=[,\]}\s]|$)")


def _is_held(written: str) -> bool:
    if written.lstrip("-").isdecimal():
        return len(written) < 19 or (len(written) < 22 and -_2_63 <= int(written) < _2_64)  # noqa: PLR2004
    shortest = repr(float(written))
    try:
        return shortest == written or Decimal(shortest) == Decimal(written)
    except ArithmeticError:  # an exponent of 19 digits
        return False


def _number(written: str) -> float | Decimal:
    try:
        return float(written) if _is_held(written) else Decimal(written)
    except ArithmeticError:
        raise ValueError(f"the exponent of {written:.40}") from None


def _refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python's parser accepts."""
    raise ValueError(f"{name} is not JSON")


def _guess(payload: bytes) -> str:
    if looks_compressed(payload):
        return " (it looks compressed: set 'valueCompression' to TiCDC's large-message-handle-compression)"
    if payload[:1] in (b"{", b"["):
        return " (is the message cut short?)"
    return " (it does not begin like JSON)"


def parse_object(payload: bytes) -> JSONObject:
    """Parse one JSON object as `parse_json`.

    Raises:
        ValueError: the bytes are not JSON, or not an object.
    """
    return _object(parse_json(payload))


def parse_exact(payload: bytes) -> JSONObject:
    """Parse one JSON object as `parse_exact_json`; see `parse_object`."""
    return _object(parse_exact_json(payload))


def _object(parsed: object) -> JSONObject:
    if type(parsed) is not dict:
        raise ValueError(f"a JSON {type(parsed).__name__} where an object is expected")
    return parsed


def exact(value: object) -> tuple[bytes, object]:
    """Return a key that is equal only for JSON values of equal type; to Python, 1, 1.0 and True are equal.

    The bytes alone are not enough: a Decimal is text there.
    """
    try:
        return orjson.dumps(value, default=str), value
    except TypeError:  # text that is not UTF-8, or an integer of more than 64 bits
        return json.dumps(value, default=str).encode(), value


def tso(value: object) -> int:
    """Check a commit-ts or watermark.

    Raises:
        TypeError: it is not a JSON integer.
        ValueError: it is not a TSO, which is not negative and has 63 bits.
    """
    if type(value) is int and 0 <= value < _2_63:
        return value
    raise (ValueError if type(value) is int else TypeError)(f"a timestamp {value!r}")


def commit_ts_or_time(commit_ts: object, time: object) -> tuple[int | None, bool]:
    """Return a commit-ts and False; without one, a lower bound from the event's time in ms, and True."""
    if commit_ts is not None:
        return tso(commit_ts), False
    event_time = milliseconds(time)
    return None if event_time is None else of_ms(event_time), True


def milliseconds(value: object) -> int | None:
    """Check a wall-clock time in ms since the epoch; null and 0 mean none.

    Raises:
        TypeError: it is not a JSON integer.
        ValueError: it is negative, or too large for a TSO.
    """
    if type(value) is int and 0 < value < _MOST_MS:
        return value
    if not value:
        return None
    raise (ValueError if type(value) is int else TypeError)(f"a time {value!r}")


def whole_number(value: object) -> int | None:
    """Check a length or a scale; null and TiDB's -1 mean none.

    Raises:
        TypeError: it is not a JSON integer.
    """
    if value is None or value == -1:
        return None
    if type(value) is not int:
        raise TypeError(f"a length {value!r}")
    return value


def text(value: object) -> str:
    """Check a name.

    Raises:
        TypeError: it is not a JSON string.
        ValueError: it is not UTF-8.
    """
    if type(value) is not str:
        raise TypeError(f"{value!r} where a name is expected")
    if not value.isascii():
        value.encode()
    return value


def table_name(database: object, table: object) -> TableName:
    return TableName(text("" if database is None else database), text("" if table is None else table))


def readable(value: object) -> str:
    """Make text for people, such as SQL, valid: U+FFFD replaces each byte that is not UTF-8."""
    return _SURROGATE.sub("\ufffd", str(value))


_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_TO_ESCAPE = re.compile("[<>&\u2028\u2029]")


def written_name(name: str) -> bytes:
    """Write a name as TiCDC's JSON does: Go escapes HTML markup (encoding/json, HTMLEscape)."""
    return _TO_ESCAPE.sub(lambda mark: _ESCAPED[mark[0]], orjson.dumps(name).decode()).encode()


def failure_detail(error: Exception) -> str:
    """Describe an error of `MALFORMED` in one line."""
    detail = f"no member {error}" if isinstance(error, KeyError) else str(error)
    return detail.splitlines()[0] if detail else type(error).__name__


def message_of_schema_file(message_of: Callable[[JSONObject], bytes | None]) -> Callable[[bytes], bytes | None]:
    """Make `FileFormat.of_schema` from a function of a schema file's parsed JSON."""

    def of_schema(data: bytes) -> bytes | None:
        try:
            return message_of(parse_object(data))
        except MALFORMED as error:
            raise ValueError(failure_detail(error)) from None

    return of_schema


def parse_failure(error: Exception, what: str) -> DecodeError:
    return error if isinstance(error, DecodeError) else DecodeError(f"not {what}: {failure_detail(error)}")
