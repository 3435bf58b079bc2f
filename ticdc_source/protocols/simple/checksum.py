"""Verifying the checksums of simple: those in `checksum` of a message, over the cells of its JSON encoding."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels.wire import Settings, text_bytes
from ticdc_source.protocols.checksums import CORRUPTED, mismatch, row_checksum
from ticdc_source.protocols.messages import JSONObject
from ticdc_source.protocols.simple.kernels import KERNELS
from ticdc_source.schema.model import Column
from ticdc_source.schema.types import BINARIES, INTEGERS, TIMESTAMP_NTZ, ColumnType

__all__ = ["wrong_checksum"]

_INTEGERS = frozenset({*INTEGERS, "year", "bit", "enum", "set"})
_REPLACED = "\ufffd"  # TiCDC's JSON has it for bytes that are not UTF-8, and the checksum is that of the bytes


def wrong_checksum(
    message: JSONObject, images: Mapping[str, object], columns: Sequence[Column], settings: Settings
) -> str | None:
    """Return what is wrong with the checksums of a row; None if nothing is, or if nothing can tell.

    Args:
        message: the message, which has a checksum.
        images: the rows that it has, as the JSON encoding has them: `previous` and `current`.
        columns: the columns, in the order of the table.
        settings: the time zone for a `location` that is `Local`.
    """
    checksum = message["checksum"]
    if checksum.get("corrupted"):
        return CORRUPTED
    for name, row in images.items():
        stated = checksum.get(name)
        if not isinstance(row, dict) or not stated:  # 0 if TiDB has computed none, and if all values are NULL
            continue
        cells = [(column.type, row.get(column.name)) for column in columns if column.type is not None]
        if any(_is_lossy(cell) for _, cell in cells):
            continue
        computed = row_checksum((type_, _value(cell, type_, settings)) for type_, cell in cells)
        if computed != stated:
            return mismatch(f"the {name} row", stated, computed)
    return None


def _is_lossy(cell: object) -> bool:
    """Return whether a cell may stand for several values: bytes that were replaced, or an hour that comes twice."""
    if isinstance(cell, dict):
        return _comes_twice(cell["value"], cell["location"])
    return isinstance(cell, str) and _REPLACED in cell


def _comes_twice(text: str, zone: str) -> bool:
    if zone in ("UTC", "Local"):
        return False
    try:
        pc.assume_timezone(pa.array([text]).cast(TIMESTAMP_NTZ), zone, ambiguous="raise")
    except ValueError:  # or a zero date, which has no instant
        return not text.startswith("0000")
    return False


def _value(cell: object, type_: ColumnType, settings: Settings) -> object:
    """Return what the checksum is computed of."""
    if cell is None:
        return None
    if type_.name == "timestamp":
        return KERNELS["timestamp"].text(type_, settings)([cell])[0].as_py().encode()
    if not isinstance(cell, str):
        msg = f"a value {cell!r:.40}"
        raise TypeError(msg)
    if type_.name in _INTEGERS:
        return int(cell)
    if type_.name == "float":  # TiDB has it in 32 bits
        return pa.scalar(float(cell), pa.float32()).as_py()
    if type_.name == "double":
        return float(cell)
    return base64.b64decode(cell) if type_.name in BINARIES else text_bytes(cell)
