"""Row images as JSON documents, for `outputFormat=event`: any table, whatever its columns.

Integers and decimals are numbers with all their digits, binary is base64, dates and times are MySQL's text
(TIMESTAMP in UTC), enum and set their labels where these are known and their number elsewhere, all other types
MySQL's text.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from ticdc_source.errors import DecodeError, SchemaError
from ticdc_source.events import TableEvents
from ticdc_source.kernels import Cells, Settings, Wire, failing_cells, kernel
from ticdc_source.kernels.base import texts
from ticdc_source.kernels.strings import LABEL
from ticdc_source.protocols.images import Images
from ticdc_source.protocols.plan import Plan, WireOf
from ticdc_source.schema.model import Column, ReadField
from ticdc_source.schema.types import TIMESTAMP, ColumnType

__all__ = ["DOCUMENT", "KEY_DOCUMENT", "document_images"]

# The columns that document_images gives: a whole row, and its handle key (NULL where the wire names none).
DOCUMENT, KEY_DOCUMENT = "row", "key"

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_FAMILIES = frozenset({"number", "float", "bit"})

# Gives of each cell its JSON text, None for NULL.
Writer = Callable[[Cells], list[str | None]]


def document_images(
    images: Images, events: TableEvents, plan: Plan, wire_of: WireOf
) -> tuple[dict[str, pa.Array], dict[int, DecodeError]]:
    """Write each image as a JSON object, its members in the message's order of columns.

    The plan's fields are what is known of columns beside the messages (labels, precision, the types of schema-less
    debezium).

    Returns:
        The two columns, and the errors of events with a bad value (whose images are still there).
    """
    known = {wanted.name.lower(): wanted for wanted in plan.fields}
    failures: dict[int, DecodeError] = {}
    documents: list[str] = []
    keys: list[str | None] = []
    for start, end, columns in images.spans():
        rows = images.rows[start:end]
        members: list[list[str | None]] = []
        for column in columns:
            wanted = known.get(column.name.lower()) or ReadField(column.name, pa.string())
            cells = [row.get(column.name) for row in rows]
            members.append(_written(column, wanted, cells, start, images, events, plan, wire_of, failures))
        names = [json.dumps(column.name, ensure_ascii=False) + ":" for column in columns]
        in_key = [place for place, column in enumerate(columns) if column.key]
        for place, row in enumerate(rows):
            parts = [
                name + (values[place] or "null")
                for name, values, column in zip(names, members, columns, strict=True)
                if column.name in row
            ]
            documents.append("{" + ",".join(parts) + "}")
            key = [names[item] + (members[item][place] or "null") for item in in_key if columns[item].name in row]
            keys.append("{" + ",".join(key) + "}" if key else None)
    return {DOCUMENT: pa.array(documents, pa.string()), KEY_DOCUMENT: pa.array(keys, pa.string())}, failures


def _written(
    column: Column, wanted: ReadField, cells: list[Any], start: int, images: Images, events: TableEvents,
    plan: Plan, wire_of: WireOf, failures: dict[int, DecodeError],
) -> list[str | None]:  # fmt: skip
    try:
        wire, type_ = wire_of(column, wanted)
        write = _writer(wire, type_, plan)
    except SchemaError as error:
        msg = f"Column {column.name}: {error} ({events.address(images.events[start])})"
        raise type(error)(msg) from None
    try:
        return write(cells)
    except Exception:  # noqa: BLE001 (whatever a kernel raises on garbage gets its address here)
        bad = failing_cells(lambda some: pa.array(write(some), pa.string()), cells)
    for place, reason in bad.items():
        event = images.events[start + place]
        failures.setdefault(event, DecodeError(f"value {reason}", events.address(event, column.name)))
        cells[place] = None
    return write(cells)


def _writer(wire: Wire | None, type_: ColumnType, plan: Plan) -> Writer:
    if wire is None:
        return _by_shape(plan.settings)
    if type_.family == "binary":
        run = kernel(wire, type_, type_.arrow, plan.settings)
        return lambda cells: [
            None if value is None else f'"{base64.b64encode(value).decode()}"' for value in run(cells).to_pylist()
        ]
    text = kernel(wire, type_, pa.string(), plan.settings)
    if type_.family == "timestamp":
        return _in_utc(kernel(wire, type_, TIMESTAMP, plan.settings), text)
    if type_.name == "year":
        return lambda cells: [None if value is None else str(int(value)) for value in text(cells).to_pylist()]
    if type_.family in _NUMBER_FAMILIES:
        return lambda cells: [None if value is None else _number(value) for value in text(cells).to_pylist()]
    if type_.family in ("enum", "set"):
        show = _number if type_.labels is None and wire is not LABEL else _quoted
        if type_.labels is not None:
            text = kernel(wire, type_, type_.arrow, plan.settings)
        return lambda cells: [None if value is None else show(value) for value in text(cells).to_pylist()]
    return lambda cells: [None if value is None else _quoted(value) for value in text(cells).to_pylist()]


def _number(text: str) -> str:
    """Return a number's text as JSON; zerofill's leading zeros are no part of the value. What is none is a text."""
    if _NUMBER.fullmatch(text):
        return text
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text.removeprefix("+"))
    shorter = digits.lstrip("0")
    if not shorter[:1].isdecimal():
        shorter = "0" + shorter
    number = sign + shorter
    return number if digits and _NUMBER.fullmatch(number) else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _by_shape(settings: Settings) -> Writer:
    """Make what writes what the JSON held, of columns whose type nothing tells; numbers beyond a double are refused."""

    def write(cells: Cells) -> list[str | None]:
        written = [None if cell is None else json.dumps(cell, ensure_ascii=False, allow_nan=False) for cell in cells]
        shown: list[str | None] = texts(written, settings).to_pylist()
        return shown

    return write


def _in_utc(run: Callable[[Cells], pa.Array], text: Callable[[Cells], pa.Array]) -> Writer:
    """Write TIMESTAMP in UTC, with the digits of fraction that the message has; zero dates as they are."""

    def write(cells: Cells) -> list[str | None]:
        texts: Sequence[str | None] = text(cells).to_pylist()
        return [
            None if shown is None else _quoted(shown if moment is None else _moment(moment, shown))
            for moment, shown in zip(run(cells).to_pylist(), texts, strict=True)
        ]

    return write


def _moment(moment: datetime, shown: str) -> str:
    digits = len(shown.partition(".")[2].rstrip("Z"))
    fraction = f".{moment.microsecond:06d}"[: 1 + digits] if digits else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}".rjust(19, "0") + fraction
