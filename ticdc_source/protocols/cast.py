"""Casting: parsed row images → one Arrow array per field of the plan, or one JSON document per image."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DecodeError, SchemaError
from ticdc_source.kernels.json_documents import JSONWriter, base64_object, json_object, json_writer, member_name
from ticdc_source.kernels.wire import Cell, Cells, failing_cells
from ticdc_source.options.hints import spark_name, string_hint
from ticdc_source.protocols.base import Decoded, LearnedTable
from ticdc_source.protocols.events import TableEvents
from ticdc_source.protocols.images import ABSENT, Images, Parsed, Span
from ticdc_source.protocols.messages import have_long_numbers
from ticdc_source.protocols.plan import Plan, PlannedColumn, WireOf
from ticdc_source.schema.model import Column, ReadField

# The columns that `cast_images` returns for documents: a whole row, and its handle key (NULL if the wire names none).
DOCUMENT, KEY_DOCUMENT = "row", "key"


@dataclass(slots=True, kw_only=True)
class _Cast:
    """The images of one table's events while they are cast; `rescued` has JSON members by image."""

    images: Images
    events: TableEvents
    plan: Plan
    failures: dict[int, DecodeError] = field(default_factory=dict)
    rescued: dict[int, list[str]] = field(default_factory=dict)
    replaced: int = 0

    def rescue(self, image: int, name: str, value: str) -> None:
        self.rescued.setdefault(image, []).append(member_name(name) + value)

    def rescued_column(self) -> pa.Array:
        rescued = (self.rescued.get(image) for image in range(len(self.images.rows)))
        return pa.array([None if members is None else json_object(members) for members in rescued], pa.string())


def loses_digits(parsed: Parsed, events: TableEvents, plan: Plan) -> bool:
    """Whether cells may be doubles that lost digits, in columns that are not doubles."""
    doubles = {field.name.lower() for field in plan.fields if pa.types.is_floating(field.arrow)}
    images = parsed.images
    for span in images.spans():
        cells = images.cells_or_absent(span)
        for column in span.columns:
            if (column.type and column.name.lower() in doubles) or (plan.documents and _is_double(column)):
                continue
            if not (_INEXACT if column.type else _INEXACT_UNTYPED).isdisjoint(map(type, cells[column.name])):
                return parsed.claimed > 0 or have_long_numbers(events.payloads)
    return False


_INEXACT, _INEXACT_UNTYPED = frozenset({float}), frozenset({float, list, dict})


def _is_double(column: Column) -> bool:
    return column.type is not None and column.type.family == "float" and not column.vague


def cast_images(parsed: Parsed, events: TableEvents, learned: LearnedTable, wire_of: WireOf) -> Decoded:
    """Turn parsed images into one array per field of the plan. An event with a bad value fails and has no images.

    Raises:
        SchemaError: as `Plan.for_columns`, with the address of the first such event.
    """
    images, plan = parsed.images, learned.plan
    if plan.documents:
        arrays, failures = _documents(images, events, plan, wire_of)
        return _without(failures | parsed.failures, parsed.decoded(arrays))
    cast = _Cast(images=images, events=events, plan=plan)
    parts: dict[str, list[pa.Array]] = {item.name: [] for item in plan.fields}
    for span in images.spans():
        try:
            planned = learned.planned(span.columns, wire_of, dropped=_lacks_dropped_columns(span, parsed, plan))
        except SchemaError as error:
            raise type(error)(f"{error} ({events.address(images.events[span.start])})") from None
        cells_or_absent = images.cells_or_absent(span)
        cells = images.with_nulls(cells_or_absent)
        for column in planned.columns:
            parts[column.field.name].append(_cast(column, cells, span, cast))
        for name, write in planned.unknown.items():
            for row, (cell, value) in enumerate(zip(cells_or_absent[name], write(cells[name]), strict=True)):
                if cell is not ABSENT:
                    cast.rescue(span.start + row, name, value)
    arrays = {
        item.name: _concatenated(parts[item.name]) if parts[item.name] else pa.array([], item.arrow)
        for item in plan.fields
    }
    if plan.rescued is not None:
        arrays[plan.rescued] = cast.rescued_column()
    decoded = parsed.decoded(arrays)
    decoded.replaced = cast.replaced
    return _without(cast.failures | parsed.failures, decoded)


def _lacks_dropped_columns(span: Span, parsed: Parsed, plan: Plan) -> bool:
    """Whether the plan lacks columns of a span because TiDB dropped them before telling the others."""
    told_at = plan.told_at
    if told_at is None or not plan.unknown(span.columns):
        return False
    times = (parsed.commit_ts[event] for event in parsed.images.events[span.start : span.end])
    return all(ts is not None and ts <= told_at for ts in times)


def _without(failures: dict[int, DecodeError], decoded: Decoded) -> Decoded:
    if failures:
        keep = pc.invert(pc.is_in(decoded.events, value_set=pa.array(list(failures), pa.int32())))
        decoded.change_types, decoded.events, decoded.indexes = (
            array.filter(keep) for array in (decoded.change_types, decoded.events, decoded.indexes)
        )
        decoded.columns = {name: array.filter(keep) for name, array in decoded.columns.items()}
        decoded.parsed = len(decoded.events)
        decoded.failures.update(failures)
    return decoded


def _concatenated(parts: list[pa.Array]) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _cast(column: PlannedColumn, columns: dict[str, Cells], span: Span, cast: _Cast) -> pa.Array:
    """Cast one column of a run. A cell that does not fit becomes NULL, and is rescued, or fails its event."""
    start, name = span.start, column.source
    if column.run is None or name is None:
        return pa.nulls(span.end - start, column.field.arrow)
    cells = columns[name]
    try:
        array = column.run(cells)
    except Exception:  # noqa: BLE001 (a kernel may raise anything on garbage; the address is added here)
        bad = failing_cells(column.run, cells)
    else:
        _keep_bytes(column, name, cells, array, start, cast)
        return array
    cells = list(cells)
    for row, reason in bad.items():
        event = cast.images.events[start + row]
        if column.rescue is not None:
            cast.rescue(start + row, name, column.rescue([cells[row]])[0])
        else:
            message = f"value {reason}. It does not fit {spark_name(column.field.arrow)}"
            if column.field.arrow != pa.string():
                message += f": {string_hint(name, user_schema=column.field.user_schema)}"
            if not column.field.user_schema:
                message += "; if the column was altered, load the source again, a stream by restarting its query"
            cast.failures.setdefault(event, DecodeError(message, cast.events.address(event, name)))
        cells[row] = None
    try:
        array = column.run(cells)
    except Exception as error:
        raise DecodeError(
            f"the values from here on do not make a column: {error}",
            cast.events.address(cast.images.events[start], name),
        ) from error
    _keep_bytes(column, name, cells, array, start, cast)
    return array


_REPLACEMENT = "\ufffd"
_REPLACEMENT_BYTES = _REPLACEMENT.encode()


def _keep_bytes(column: PlannedColumn, name: str, cells: Cells, array: pa.Array, start: int, cast: _Cast) -> None:
    """Count the texts in which a kernel replaced bytes that are not UTF-8, and rescue their bytes.

    A search through the column finds U+FFFD; as texts may have that character itself, their bytes are checked.
    """
    data = array.buffers()[2] if column.raw is not None else None
    if column.raw is None or data is None or _REPLACEMENT_BYTES not in data.to_pybytes():
        return
    for row in pc.indices_nonzero(pc.match_substring(array, _REPLACEMENT)).to_pylist():
        raw = column.raw([cells[row]])[0].as_py()
        try:
            raw.decode()
        except UnicodeDecodeError:
            cast.replaced += 1
            if cast.plan.rescued is not None:
                cast.rescue(start + row, name, base64_object(raw))


def _documents(
    images: Images, events: TableEvents, plan: Plan, wire_of: WireOf
) -> tuple[dict[str, pa.Array], dict[int, DecodeError]]:
    """Write each image as a JSON object, in the message's order of columns, for `outputFormat=event`.

    The plan's fields have what messages lack: labels, precision, and types if messages have none.

    Returns:
        The two columns, and the errors of events with bad values, whose images are included.
    """
    fields = {field.name.lower(): field for field in plan.fields}
    failures: dict[int, DecodeError] = {}
    documents: list[str] = []
    keys: list[str | None] = []
    for span in images.spans():
        cells_or_absent = images.cells_or_absent(span)
        cells = images.with_nulls(cells_or_absent)
        image_events = images.events[span.start : span.end]
        members: list[list[str | None]] = []  # per column, a member of each row's document; None if the row lacks it
        key_members: list[list[str | None]] = []
        for column in span.columns:
            field = fields.get(column.name.lower()) or ReadField(column.name, pa.string())
            write = _writer(column, field, image_events[0], events, plan, wire_of)
            values = _written(write, list(cells[column.name]), column, image_events, events, failures)
            name, pairs = member_name(column.name), zip(cells_or_absent[column.name], values, strict=True)
            members.append([None if cell is ABSENT else name + value for cell, value in pairs])
            key_members += members[-1:] if column.key else []
        for index in range(len(image_events)):
            documents.append(json_object([member for each in members if (member := each[index]) is not None]))
            key = [member for each in key_members if (member := each[index]) is not None]
            keys.append(json_object(key) if key else None)
    return {DOCUMENT: pa.array(documents, pa.string()), KEY_DOCUMENT: pa.array(keys, pa.string())}, failures


def _writer(
    column: Column, field: ReadField, first_event: int, events: TableEvents, plan: Plan, wire_of: WireOf
) -> JSONWriter:
    try:
        wire, type_ = wire_of(column, field)
        return json_writer(wire, type_, plan.settings)
    except SchemaError as error:
        raise type(error)(f"Column {column.name}: {error} ({events.address(first_event)})") from None


def _written(
    write: JSONWriter,
    cells: list[Cell],
    column: Column,
    image_events: list[int],
    events: TableEvents,
    failures: dict[int, DecodeError],
) -> list[str]:
    """Write a column's cells, one per image; null for a refused cell, whose event fails."""
    try:
        return write(cells)
    except Exception:  # noqa: BLE001 (whatever a kernel raises on garbage gets its address here)
        refused = failing_cells(lambda some: pa.array(write(some), pa.string()), cells)
    for index, reason in refused.items():
        event = image_events[index]
        failures.setdefault(event, DecodeError(f"value {reason}", events.address(event, column.name)))
        cells[index] = None
    return write(cells)
