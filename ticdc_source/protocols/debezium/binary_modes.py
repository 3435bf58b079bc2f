"""How binary values are written in texts: no message tells whether in base64, URL-safe base64 or hex.

Kafka Connect's own `bytes` is always base64 (docs/wire.md, item 85).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ticdc_source.errors import warn
from ticdc_source.kernels import strings
from ticdc_source.kernels.contract import PlainCast
from ticdc_source.kernels.strings import base64_bytes
from ticdc_source.kernels.wire import Cells, Wire
from ticdc_source.schema.model import TableSchema
from ticdc_source.schema.types import BINARIES

__all__ = ["binary_wire_of", "warn_of_hex"]

_OPTION = "debezium.binaryHandlingMode"
_BASE64, _BYTES = "base64", "bytes"
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})*", re.ASCII)
_URL_SAFE = re.compile(r"[0-9A-Za-z_-]*={0,2}", re.ASCII)
_TO_STANDARD = str.maketrans("-_", "+/")


def _of_hex(cell: str) -> bytes:
    if _HEX.fullmatch(cell) is None:  # `bytes.fromhex` takes blanks
        msg = "not hex"
        raise ValueError(msg)
    return bytes.fromhex(cell)


def _of_url_safe(cell: str) -> bytes:
    if _URL_SAFE.fullmatch(cell) is None:
        msg = "not URL-safe base64"
        raise ValueError(msg)
    text = cell.translate(_TO_STANDARD)
    return base64_bytes(text if "=" in text else text + "=" * (-len(text) % 4))


_MODES = {_BASE64: base64_bytes, "base64-url-safe": _of_url_safe, "hex": _of_hex}


def _fits(mode: str, cell: str) -> bool:
    try:
        _MODES[mode](cell)
    except ValueError:
        return False
    return True


def _decoder(mode: str) -> Callable[[str], bytes]:
    decode = _MODES[mode]

    def run(cell: str) -> bytes:
        try:
            return decode(cell)
        except ValueError:
            others = " or ".join(other for other in _MODES if other != mode and _fits(other, cell))
            advice = f"set it to {others}, if the changefeed has that" if others else "it fits no other mode"
            msg = f"not {mode}, which the option '{_OPTION}' stands for: {advice}"
            raise ValueError(msg) from None

    return run


_WIRES: Mapping[str, Wire] = {
    _BASE64: strings.binary_wire(_decoder(_BASE64), strings.base64_array, PlainCast.BASE64),
    **{mode: strings.binary_wire(_decoder(mode)) for mode in _MODES if mode != _BASE64},
}


def binary_wire_of(mode: str | None, connect: str) -> Wire:
    """Return how the binary values of a column are written.

    Args:
        mode: the option `debezium.binaryHandlingMode`.
        connect: Kafka Connect's type of the column; empty if the message has no schema.
    """
    return strings.BASE64_BINARY if connect == _BYTES else _WIRES.get(mode or _BASE64, _WIRES[_BASE64])


def warn_of_hex(schema: TableSchema, cells: Mapping[str, Cells]) -> None:
    """Warn about binary columns whose sampled values are base64 and hex alike.

    Args:
        schema: a version of a table.
        cells: the values of its columns.
    """
    for column in schema.columns:
        if column.type is None or column.type.name not in BINARIES or column.wire == _BYTES:
            continue
        texts = [cell for cell in cells[column.name] if isinstance(cell, str) and cell]
        if texts and all(_fits("hex", text) and _fits(_BASE64, text) for text in texts):
            warn(
                f"Column {column.name} of {schema.table}: its values are base64 and hex alike, and are read as base64. "
                f"Set the option '{_OPTION}' to the changefeed's debezium-binary-handling-mode (by default base64)"
            )
