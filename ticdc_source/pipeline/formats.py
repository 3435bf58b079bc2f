"""What each `outputFormat` makes of a split chunk: the rows to assemble, and what could not be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.events import (
    DDL,
    DELETE,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
    WATERMARK,
    Chunk,
    Corrupt,
    DDLEvent,
    Split,
    TableName,
    repeated,
    row_indices,
)
from ticdc_source.kernels.json_documents import json_object, member_name
from ticdc_source.kernels.variants import variants
from ticdc_source.pipeline.assemble import Rows, in_order
from ticdc_source.pipeline.metadata import FORMAT_COLUMNS
from ticdc_source.pipeline.wanted import Reading, chosen_events, decode_events, rows_of
from ticdc_source.protocols.documents import DOCUMENT, KEY_DOCUMENT
from ticdc_source.protocols.messages import readable
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.types import VARIANT

__all__ = ["OUTPUT_FORMATS", "Folded", "fold"]


class Folded(NamedTuple):
    """Image rows by event.

    Attributes:
        rows: one row an event, with the metadata of its last image, and no columns.
        before: the place of each event's before image, NULL without one.
        after: likewise.
    """

    rows: Rows
    before: pa.Array
    after: pa.Array


def fold(images: Rows) -> Folded:
    """Fold the rows of `outputFormat=changelog` into one row an event."""
    nothing = pa.scalar(None, pa.int32())
    last, old = row_indices(len(images.change_types)), nothing
    rows = images
    is_old = pc.equal(images.change_types, UPDATE_PREIMAGE)
    if is_old.true_count:  # the postimage of each follows at once
        new = pc.invert(is_old)
        last = last.filter(new)
        rows = images.at(last)
        follows = pa.concat_arrays([pa.array([False]), is_old[:-1]]).filter(new)
        updated = pc.and_(follows, pc.equal(rows.change_types, UPDATE_POSTIMAGE))
        old = pc.if_else(updated, pc.subtract(last, pa.scalar(1, pa.int32())), nothing)
    deleted = pc.equal(rows.change_types, DELETE)
    rows = replace(rows, columns={})
    return Folded(rows, pc.if_else(deleted, last, old), pc.if_else(deleted, nothing, last))


Made = tuple[Rows, list[Corrupt]]


def _changelog(chunk: Chunk, split: Split, reading: Reading) -> Made:
    table_events = chosen_events(split.tables, chunk, reading)
    decoded, failed = decode_events(table_events, reading.plan, reading)
    reading.counters.count_events(len(table_events))
    return rows_of(table_events, decoded, reading), failed


def _envelope(chunk: Chunk, split: Split, reading: Reading) -> Made:
    images, failed = _changelog(chunk, split, reading)
    folded = fold(images)
    by_name = {name.lower(): array for name, array in images.columns.items()}
    columns = {}
    for image, rows in (("before", folded.before), ("after", folded.after)):
        name = reading.layout.own.get(image)
        if name is not None:
            fields = list(reading.layout.schema.field(name).type)
            children = [by_name[field.name.lower()].take(rows) for field in fields]
            columns[name] = pa.StructArray.from_arrays(children, fields=fields, mask=rows.is_null())
    if reading.layout.rescued is not None:
        saved = images.columns[reading.layout.rescued]
        columns[reading.layout.rescued] = _rescued(saved.take(folded.before), saved.take(folded.after))
    folded.rows.columns = columns
    return folded.rows, failed


def _rescued(before: pa.Array, after: pa.Array) -> pa.Array:
    """Put what was rescued of both images into one JSON object, `{"before": …, "after": …}`."""
    if before.null_count + after.null_count == 2 * len(after):
        return after
    texts: list[str | None] = []
    for old, new in zip(before.to_pylist(), after.to_pylist(), strict=True):
        members = [member_name(image) + text for image, text in (("before", old), ("after", new)) if text is not None]
        texts.append(json_object(members) if members else None)
    return pa.array(texts, pa.string())


def _event(chunk: Chunk, split: Split, reading: Reading) -> Made:
    """Bring all events of a chunk into the order that they were written in."""
    parts: list[Rows] = []
    failed: list[Corrupt] = []
    for table, table_events in split.tables.items():
        if reading.tables.matches(table):
            decoded, bad = decode_events(table_events, _plan(table, reading), reading)
            failed += bad
            reading.counters.count_events(len(table_events))
            parts.append(_table_events(rows_of(table_events, decoded, reading), table))
    parts += (_ddl_events(chunk, split, reading), _watermarks(chunk, split, reading))
    rows = _joined(chunk, parts, reading)
    return rows, failed


def _plan(table: TableName, reading: Reading) -> Plan:
    plan = reading.plans.get(table)
    if plan is None:
        assert reading.plan_of is not None  # noqa: S101 (planning sets it for this format)
        plan = reading.plans[table] = reading.plan_of(table)
    return plan


# What is not filled from what every row has, by the column's name in `FORMAT_COLUMNS`.
_OWN = {column.name: column.arrow for column in FORMAT_COLUMNS["event"] if not column.fill}


def _with(rows: Rows, columns: Mapping[str, pa.Array]) -> Rows:
    count = len(rows.positions)
    rows.columns = {name: columns[name] if name in columns else pa.nulls(count, arrow) for name, arrow in _OWN.items()}
    return rows


def _table_events(images: Rows, table: TableName) -> Rows:
    folded = fold(images)
    document, key = images.columns[DOCUMENT], images.columns[KEY_DOCUMENT]
    return _with(folded.rows, {
        "database": folded.rows.repeated(table.database, pa.string()),
        "table": folded.rows.repeated(table.table, pa.string()),
        "key": key.take(pc.coalesce(folded.after, folded.before)),
        "before": document.take(folded.before),
        "after": document.take(folded.after),
    })  # fmt: skip


def _ddl_events(chunk: Chunk, split: Split, reading: Reading) -> Rows:
    events = [event for event in split.ddl if reading.takes_ddl and _wants_ddl(event, reading)]
    rows = _other(chunk, DDL, events, [event.commit_ts for event in events], reading)
    return _with(rows, {
        "database": pa.array([event.table.database or None for event in events], pa.string()),
        "table": pa.array([event.table.table or None for event in events], pa.string()),
        "ddl_type": pa.array([event.type or None for event in events], pa.string()),
        "ddl_type_code": pa.array([event.type_code for event in events], pa.int32()),
        "ddl_query": pa.array([event.query for event in events], pa.string()),
        "table_changes": pa.array([
            None if event.table_changes is None else readable(json.dumps(event.table_changes, ensure_ascii=False))
            for event in events
        ], pa.string()),
    })  # fmt: skip


def _wants_ddl(event: DDLEvent, reading: Reading) -> bool:
    if event.table.table:
        return reading.tables.matches(event.table)
    return reading.tables.matches_database(event.table.database)


def _watermarks(chunk: Chunk, split: Split, reading: Reading) -> Rows:
    marks = [event.ts for event in split.watermarks]
    rows = _other(chunk, WATERMARK, split.watermarks, marks, reading)
    return _with(rows, {"watermark_ts": pa.array(marks, pa.int64())})


def _other(chunk: Chunk, kind: int, events: Any, commit_ts: Sequence[int | None], reading: Reading) -> Rows:
    count = len(events)
    return Rows(
        chunk, reading.decoder.name, None,
        pa.array([event.position for event in events], pa.int32()),
        pa.array([event.index for event in events], pa.int32()),
        repeated(kind, pa.int8(), count),
        pa.array(commit_ts, pa.int64()), pa.nulls(count, pa.int64()), pa.nulls(count, pa.string()), {},
    )  # fmt: skip


def _joined(chunk: Chunk, parts: list[Rows], reading: Reading) -> Rows:

    def whole(attribute: str) -> pa.Array:
        return pa.concat_arrays([getattr(part, attribute) for part in parts])

    rows = Rows(
        chunk, reading.decoder.name, None, whole("positions"), whole("indexes"), whole("change_types"),
        whole("commit_ts"), whole("build_ts"), whole("cluster_id"), {},
    )  # fmt: skip
    order = in_order(rows.positions, rows.indexes)
    rows = rows.at(order)
    rows.columns = {
        shown: _typed(pa.concat_arrays([part.columns[name] for part in parts]).take(order), shown, reading)
        for name, shown in reading.layout.own.items()
    }
    return rows


def _typed(column: pa.Array, name: str, reading: Reading) -> pa.Array:
    """Turn JSON text into VARIANT where the schema wants it."""
    return variants(column) if reading.layout.schema.field(name).type == VARIANT else column


OUTPUT_FORMATS: dict[str, Callable[[Chunk, Split, Reading], Made]] = {
    "changelog": _changelog,
    "envelope": _envelope,
    "event": _event,
}
