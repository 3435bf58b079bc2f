"""What only native Debezium writes: Kafka Connect's own logical types, and more of Debezium's.

The facts come from the documentation of Debezium's MySQL connector, "Data type mappings" (debezium/debezium
documentation/modules/ROOT/partials/modules/all-connectors/shared-mariadb-mysql.adoc; docs/wire.md, items 86 to 91). The
settings `decimal.handling.mode`, `bigint.unsigned.handling.mode`, `binary.handling.mode` and `time.precision.mode`
choose the forms.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ticdc_source.kernels import strings
from ticdc_source.kernels.wire import Cell, Kernel, Settings, Wire, no_cast
from ticdc_source.protocols.debezium import kernels
from ticdc_source.protocols.messages import JSONObject
from ticdc_source.schema.types import BIGINT_UNSIGNED, DECIMAL_MAX, ColumnType

__all__ = ["DECIMAL", "NATIVE", "NATIVE_STRING", "Native", "decimal_type", "payload_of", "wire_name"]

DECIMAL = "org.apache.kafka.connect.data.Decimal"
_MOST_DIGITS = 65  # of MySQL's DECIMAL

# A string that Debezium itself wrote: text, a decimal with decimal.handling.mode=string, or a binary. Nothing says
# whether the binary is base64, base64-url-safe or hex (binary.handling.mode), so it stays text.
NATIVE_STRING = "string of native Debezium"


class Native(NamedTuple):
    """A semantic type of a Connect schema.

    Attributes:
        behind: the MySQL types that it may stand for, the likely one first.
        wire: returns how it is written, given the type in the message; None if KERNELS has that.
        fraction: the digits of fraction that the unit of a DATETIME can hold.
    """

    behind: tuple[str, ...]
    wire: Callable[[ColumnType], Wire] | None = None
    fraction: int | None = None


def _through(wire: Wire, change: Callable[[Cell], Cell]) -> Wire:
    """Return the wire form of cells that `change` turns into cells of `wire`."""

    def made(maker: Callable[[ColumnType, Settings], Kernel]) -> Callable[[ColumnType, Settings], Kernel]:
        def make(type_: ColumnType, settings: Settings) -> Kernel:
            run = maker(type_, settings)
            return lambda cells: run([None if cell is None else change(cell) for cell in cells])

        return make

    return replace(
        wire,
        natural=made(wire.natural),
        text=made(wire.text),
        number=None if wire.number is None else made(wire.number),
        raw=None if wire.raw is None else made(wire.raw),
        arrays=None,
        cast=no_cast,
        text_cast=None,
    )


def _times(factor: int) -> Callable[[Cell], Cell]:
    """Return what converts a number to another unit. Other cells stay as they are: the kernel refuses them."""

    def change(cell: Cell) -> Cell:
        return cell * factor if type(cell) is int else cell

    return change


def _thousandth(cell: Cell) -> Cell:
    """Convert nanoseconds to microseconds, which is all that MySQL has."""
    return cell // 1000 if type(cell) is int else cell


def _decimal(type_: ColumnType) -> Wire:
    """Return how Connect's Decimal is written: base64 of the unscaled number, in big-endian two's complement.

    The schema has the scale. The converter's decimal.format=NUMERIC writes a number instead.
    """
    scale = type_.scale or 0

    def text(cell: Cell) -> Cell:
        if type(cell) is not str:
            return cell
        if not 0 <= scale <= _MOST_DIGITS:
            msg = f"a decimal of scale {scale}, which MySQL does not have"
            raise ValueError(msg)
        digits = str(int.from_bytes(strings.base64_bytes(cell), "big", signed=True))
        sign, digits = ("-", digits[1:]) if digits[0] == "-" else ("", digits)
        digits = digits.rjust(scale + 1, "0")
        return f"{sign}{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}" if scale else sign + digits

    return _through(kernels.DECIMAL_NUMBER, text)


def decimal_type(field: JSONObject) -> ColumnType:
    """Return the type behind a field that is Connect's Decimal.

    Debezium writes the precision of a DECIMAL. A field of scale 0 without one is a BIGINT UNSIGNED with
    bigint.unsigned.handling.mode=precise.
    """
    parameters = field.get("parameters") or {}
    precision, scale = parameters.get("connect.decimal.precision"), int(parameters.get("scale", 0))
    if precision is None:
        precision = DECIMAL_MAX if scale else BIGINT_UNSIGNED.precision
    return ColumnType("decimal", length=int(precision), scale=scale)


def wire_name(field: JSONObject, *, native: bool) -> str:
    """Return the name of a field's type: its semantic type, or else its literal one.

    Args:
        field: the field of the schema.
        native: whether Debezium itself wrote the message.
    """
    name, literal = field.get("name"), field["type"]
    if name == _TIME and literal == "int64":
        return _MICROSECONDS
    return str(name or (NATIVE_STRING if native and literal == "string" else literal))


def _numbers_in_text(cell: Cell) -> Cell:
    return json.dumps(cell) if type(cell) is list else cell


# Kafka Connect's own Time has 32 bits and milliseconds. Debezium's documentation says 64 bits and microseconds.
_TIME = "org.apache.kafka.connect.data.Time"
_MICROSECONDS = f"{_TIME} int64"
_MILLISECOND_TIME = _through(kernels.TIME, _times(1000))

NATIVE: Mapping[str, Native] = {
    DECIMAL: Native(("decimal",), _decimal),
    "org.apache.kafka.connect.data.Date": Native(("date",)),
    _TIME: Native(("time",), lambda _: _MILLISECOND_TIME),
    _MICROSECONDS: Native(("time",)),
    "org.apache.kafka.connect.data.Timestamp": Native(("datetime",), None, 3),
    "io.debezium.time.Time": Native(("time",), lambda _: _MILLISECOND_TIME),
    "io.debezium.time.NanoTime": Native(("time",), lambda _: _through(kernels.TIME, _thousandth)),
    "io.debezium.time.NanoTimestamp": Native(("datetime",), lambda _: _through(kernels.DATETIME, _thousandth), 6),
    "io.debezium.data.FloatVector": Native(("vector",), lambda _: _through(strings.VECTOR_TEXT, _numbers_in_text)),
}


def payload_of(message: JSONObject) -> JSONObject:
    """Return the member `payload`, or the message if it is the payload itself."""
    payload = message.get("payload", message) if "op" not in message else message
    if not isinstance(payload, dict):
        msg = "'payload' is not an object"
        raise TypeError(msg)
    return payload
