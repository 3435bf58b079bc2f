"""Row images as JSON documents, for `outputFormat=event`: any table, whatever its columns.

`kernels.json_documents` says how each type is written.
"""

from __future__ import annotations

import pyarrow as pa

from ticdc_source.errors import DecodeError, SchemaError
from ticdc_source.events import TableEvents
from ticdc_source.kernels import Cell, failing_cells
from ticdc_source.kernels.json_documents import JSONWriter, json_object, json_writer, member_name
from ticdc_source.protocols.images import Images
from ticdc_source.protocols.plan import Plan, WireOf
from ticdc_source.schema.model import Column, ReadField

__all__ = ["DOCUMENT", "KEY_DOCUMENT", "document_images"]

# The columns that document_images returns: a whole row, and its handle key (NULL if the wire names none).
DOCUMENT, KEY_DOCUMENT = "row", "key"


def document_images(
    images: Images, events: TableEvents, plan: Plan, wire_of: WireOf
) -> tuple[dict[str, pa.Array], dict[int, DecodeError]]:
    """Write each image as a JSON object, its members in the message's order of columns.

    The plan's fields hold what is known of columns beside the messages: labels, precision, and all types of messages
    that carry none.

    Returns:
        The two columns, and the errors of events with a bad value (whose images are still there).

    Raises:
        SchemaError: the type of a column is not supported, with the address of the first event that shows it.
    """
    fields = {field.name.lower(): field for field in plan.fields}
    failures: dict[int, DecodeError] = {}
    documents: list[str] = []
    keys: list[str | None] = []
    for start, end, columns in images.spans():
        rows = images.rows[start:end]
        image_events = images.events[start:end]
        members: list[tuple[str, str, list[str]]] = []  # a column's name, this name as JSON, the JSON of its values
        for column in columns:
            field = fields.get(column.name.lower()) or ReadField(column.name, pa.string())
            write = _writer(column, field, image_events[0], events, plan, wire_of)
            cells = [row.get(column.name) for row in rows]
            values = _written(write, cells, column, image_events, events, failures)
            members.append((column.name, member_name(column.name), values))
        key_members = [member for member, column in zip(members, columns, strict=True) if column.key]
        for index, row in enumerate(rows):
            documents.append(json_object([name + values[index] for column, name, values in members if column in row]))
            key = [name + values[index] for column, name, values in key_members if column in row]
            keys.append(json_object(key) if key else None)
    return {DOCUMENT: pa.array(documents, pa.string()), KEY_DOCUMENT: pa.array(keys, pa.string())}, failures


def _writer(
    column: Column, field: ReadField, first_event: int, events: TableEvents, plan: Plan, wire_of: WireOf
) -> JSONWriter:
    try:
        wire, type_ = wire_of(column, field)
        return json_writer(wire, type_, plan.settings)
    except SchemaError as error:
        msg = f"Column {column.name}: {error} ({events.address(first_event)})"
        raise type(error)(msg) from None


def _written(
    write: JSONWriter,
    cells: list[Cell],
    column: Column,
    image_events: list[int],
    events: TableEvents,
    failures: dict[int, DecodeError],
) -> list[str]:
    """Write a column's cells, one an image; note the event of each cell that is refused, and write null for it."""
    try:
        return write(cells)
    except Exception:  # noqa: BLE001 (whatever a kernel raises on garbage gets its address here)
        refused = failing_cells(lambda some: pa.array(write(some), pa.string()), cells)
    for index, reason in refused.items():
        event = image_events[index]
        failures.setdefault(event, DecodeError(f"value {reason}", events.address(event, column.name)))
        cells[index] = None
    return write(cells)
