"""Kernels whose result is JSON: for values that have no column of their own.

Integers, decimals and floats are numbers with all their digits, binary is base64, all else MySQL's text. Text that
is not UTF-8 is an object, `{"base64": "…"}`, so that it cannot be taken for a text. A cell that is not what its type
promises is written as the message has it: nothing here fails.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ticdc_source.kernels.base import Cells, Kernel, Settings, Wire, kernel
from ticdc_source.schema.types import ColumnType

__all__ = ["JSONKernel", "base64_object", "json_kernel", "json_text"]

# Turns the cells of a column into one JSON text each; "null" for NULL.
JSONKernel = Callable[[Cells], list[str]]

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBERS = frozenset({"number", "float", "bit"})
_MEMBERS = frozenset({"enum", "set"})


def json_text(value: Any) -> str:
    """Write what JSON gave as JSON again; a text with bytes that are no UTF-8 (lone surrogates) as their base64."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:
        if isinstance(value, str):
            return base64_object(value.encode(errors="surrogateescape" if _is_bytes(value) else "surrogatepass"))
        return json.dumps(value)
    except ValueError:  # a number beyond a double's range
        return json.dumps(str(value))
    return text


def _is_bytes(text: str) -> bool:
    """Tell whether each surrogate of a text stands for a byte (PEP 383)."""
    return all("\udc80" <= char <= "\udcff" for char in text if "\ud800" <= char <= "\udfff")


def base64_object(data: bytes) -> str:
    """Write bytes that should have been text."""
    return f'{{"base64":{_base64(data)}}}'


def _base64(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


def _text_or_bytes(data: bytes) -> str:
    try:
        return json_text(data.decode())
    except UnicodeDecodeError:
        return base64_object(data)


def _number(text: str) -> str:
    return text if _NUMBER.fullmatch(text) else json_text(text)


def json_kernel(wire: Wire | None, type_: ColumnType, settings: Settings) -> JSONKernel:
    """Make the kernel for a column of `type_`, written as `wire`; without a wire form the cells stay what they are."""
    if wire is None:
        return lambda cells: [json_text(cell) for cell in cells]
    run: Kernel
    write: Callable[[Any], str]
    if type_.family == "binary":
        run, write = kernel(wire, type_, pa.binary(), settings), _base64
    elif wire.raw is not None:
        run, write = wire.raw(type_, settings), _text_or_bytes
    else:
        numeric = type_.family in _NUMBERS or (type_.family in _MEMBERS and type_.labels is None)
        run, write = kernel(wire, type_, pa.string(), settings), _number if numeric else json_text

    def cast(cells: Cells) -> list[str]:
        try:
            return ["null" if value is None else write(value) for value in run(cells).to_pylist()]
        except Exception:  # noqa: BLE001 (whatever a kernel raises on garbage: what is there is kept as it is)
            return [json_text(cells[0])] if len(cells) == 1 else [text for cell in cells for text in cast([cell])]

    return cast
