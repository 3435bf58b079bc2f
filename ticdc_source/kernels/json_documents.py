"""The one writer of JSON: for `outputFormat=event` and for rescued columns.

Integers, decimals, floats and bits are numbers with all digits. Binary is base64. Dates and times are MySQL's text,
TIMESTAMP in UTC. ENUM and SET are labels if known, otherwise numbers. All other types are MySQL's text. A value of an
unknown type is kept as the JSON it is.

`json_writer` raises on a value that does not fit its type. `rescue_writer` never raises: it keeps what the message has.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

import pyarrow as pa

from ticdc_source.kernels.wire import Cell, Cells, Kernel, Settings, Wire, json_text, reading, texts
from ticdc_source.schema.types import TIMESTAMP, ColumnType

# Turns the cells of a column into one JSON text each; "null" for NULL.
JSONWriter: TypeAlias = Callable[[Cells], list[str]]

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

_quoted = json.JSONEncoder(ensure_ascii=False).encode


def member_name(name: str) -> str:
    return _quoted(name) + ":"


def json_object(members: Iterable[str]) -> str:
    """Join members that are JSON already (`member_name` and value)."""
    return "{" + ",".join(members) + "}"


def base64_object(data: bytes) -> str:
    """Return `{"base64": "…"}` for bytes that should have been text."""
    return json_object([member_name("base64") + _base64(data)])


def json_writer(wire: Wire | None, type_: ColumnType, settings: Settings) -> JSONWriter:
    """Make the writer for a column of `type_`, written as `wire` (None if the type is unknown).

    The writer raises what kernels raise on values that do not fit.
    """
    if wire is None:
        return _untyped(settings)
    return _FORMS.get(type_.family, _texts)(wire, type_, settings)


def rescue_writer(wire: Wire | None, type_: ColumnType, settings: Settings) -> JSONWriter:
    """Make the writer for the rescued column, which never raises.

    It writes what `json_writer` writes, except text that is not UTF-8 (`{"base64": "…"}`) and values that do not fit
    their type (as the message has them).
    """
    if wire is None:
        return lambda cells: [_as_it_is(cell) for cell in cells]
    if wire.raw is not None:
        write = _column_writer(wire.raw(type_, settings), _text_or_bytes)
    else:
        write = json_writer(wire, type_, settings._replace(invalid_utf8="fail"))

    def write_any(cells: Cells) -> list[str]:
        try:
            return write(cells)
        except Exception:  # noqa: BLE001 (whatever a kernel raises on garbage; the value is kept as it is)
            if len(cells) > 1:
                return [text for cell in cells for text in write_any([cell])]
            return [_as_it_is(cell) for cell in cells]

    return write_any


def _column_writer(run: Kernel, write: Callable[[str], str] | Callable[[bytes], str]) -> JSONWriter:
    return lambda cells: ["null" if value is None else write(value) for value in run(cells).to_pylist()]


def _numbers(wire: Wire, type_: ColumnType, settings: Settings) -> JSONWriter:
    return _column_writer(reading(wire, type_, pa.string(), settings).run, _number)


def _texts(wire: Wire, type_: ColumnType, settings: Settings) -> JSONWriter:
    return _column_writer(reading(wire, type_, pa.string(), settings).run, _quoted)


def _binaries(wire: Wire, type_: ColumnType, settings: Settings) -> JSONWriter:
    return _column_writer(reading(wire, type_, pa.binary(), settings).run, _base64)


def _members(wire: Wire, type_: ColumnType, settings: Settings) -> JSONWriter:
    """Write ENUM and SET: labels if sent or known, otherwise numbers; numbers beyond the known labels, too."""
    if wire.labels:
        return _texts(wire, type_, settings)
    numbers = _numbers(wire, replace(type_, labels=None), settings)
    if type_.labels is None:
        return numbers
    labels = _texts(wire, type_, settings)

    def write(cells: Cells) -> list[str]:
        try:
            return labels(cells)
        except ValueError:
            return numbers(cells) if len(cells) == 1 else [text for cell in cells for text in write([cell])]

    return write


def _timestamps(wire: Wire, type_: ColumnType, settings: Settings) -> JSONWriter:
    """Write TIMESTAMP in UTC, with the digits of fraction that the message has; zero dates as they are."""
    moments, shown = reading(wire, type_, TIMESTAMP, settings).run, reading(wire, type_, pa.string(), settings).run

    def write(cells: Cells) -> list[str]:
        return [
            "null" if text is None else _quoted(text if moment is None else _utc_text(moment, text))
            for moment, text in zip(moments(cells).to_pylist(), shown(cells).to_pylist(), strict=True)
        ]

    return write


def _utc_text(moment: datetime, shown: str) -> str:
    digits = len(shown.partition(".")[2].rstrip("Z"))
    fraction = f".{moment.microsecond:06d}"[: 1 + digits] if digits else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}".rjust(19, "0") + fraction


# How the values of a family of `schema.types.TYPES` are written, if not as MySQL's text.
_FORMS: dict[str, Callable[[Wire, ColumnType, Settings], JSONWriter]] = {
    "number": _numbers,
    "float": _numbers,
    "bit": _numbers,
    "timestamp": _timestamps,
    "binary": _binaries,
    "enum": _members,
    "set": _members,
}


def _untyped(settings: Settings) -> JSONWriter:
    def write(cells: Cells) -> list[str]:
        written: list[str] = texts([json_text(cell) for cell in cells], settings).to_pylist()
        return written

    return write


def _number(text: str) -> str:
    """Write the text of a number as a JSON number, without ZEROFILL's zeros, and any other text as a JSON string."""
    if _NUMBER.fullmatch(text):
        return text
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text.removeprefix("+"))
    shorter = digits.lstrip("0")
    if not shorter[:1].isdecimal():
        shorter = "0" + shorter
    number = sign + shorter
    return number if digits and _NUMBER.fullmatch(number) else _quoted(text)


def _base64(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


def _text_or_bytes(data: bytes) -> str:
    try:
        return _quoted(data.decode())
    except UnicodeDecodeError:
        return base64_object(data)


def _as_it_is(value: Cell) -> str:
    if isinstance(value, bytes):
        return base64_object(value)
    try:
        text = json_text(value)
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate: a byte that is not UTF-8 (PEP 383), or a JSON escape
        if isinstance(value, str):
            return base64_object(value.encode(errors="surrogateescape" if _are_bytes(value) else "surrogatepass"))
        return json.dumps(value)
    except ValueError:  # a number beyond the range of a double
        return _quoted(str(value))
    return text


def _are_bytes(text: str) -> bool:
    """Whether each surrogate of a text stands for a byte (PEP 383)."""
    return all("\udc80" <= char <= "\udcff" for char in text if "\ud800" <= char <= "\udfff")
