"""For each `outputFormat`: the events of a chunk → the rows to assemble, and the events that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DecodeError
from ticdc_source.kernels.arrays import are_all, as_indices, repeated, row_indices, taken
from ticdc_source.kernels.json_documents import json_object, member_name
from ticdc_source.kernels.variants import variants
from ticdc_source.kernels.wire import json_text
from ticdc_source.pipeline.assemble import ORIGIN_COLUMN, Rows, concatenated, in_order, row_facts
from ticdc_source.pipeline.metadata import FORMAT_COLUMNS, NAMES
from ticdc_source.pipeline.spec import ReadSpec, ReadState, decode_events, events_of_one_table, rows_of
from ticdc_source.pipeline.survey import Survey
from ticdc_source.protocols.cast import DOCUMENT, KEY_DOCUMENT
from ticdc_source.protocols.events import Corrupt, Split, WatermarkEvent
from ticdc_source.protocols.messages import readable
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema import change_order
from ticdc_source.schema.ddl_event import DDLEvent, ddl_kind
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import VARIANT
from ticdc_source.sources.chunk import Chunk

_MOST = pa.scalar((1 << 63) - 1, pa.int64())  # more than any commit-ts

# Builds the rows of a chunk, and lists the events that cannot be read.
Format = Callable[[Chunk, Split, ReadSpec, ReadState], tuple[Rows, list[Corrupt]]]


class Folded(NamedTuple):
    """Row images, paired: one row per event.

    `rows` have the facts of each event's last image, and no columns. `before` and `after` are the row indexes of its
    images: int32, NULL for none.
    """

    rows: Rows
    before: pa.Array
    after: pa.Array


def fold(images: Rows) -> Folded:
    """Pair the before and after images of each event: rows of `outputFormat=changelog` → one row per event."""
    no_row = pa.scalar(None, pa.int32())
    last, old = row_indices(len(images)), no_row
    rows = images
    is_old = pc.equal(images.change_types, change_order.UPDATE_PREIMAGE)
    if is_old.true_count:  # each preimage is directly followed by its postimage
        new = pc.invert(is_old)
        last = last.filter(new)
        rows = images.at(last)
        follows = pa.concat_arrays([pa.array([False]), is_old[:-1]]).filter(new)
        updated = pc.and_(follows, pc.equal(rows.change_types, change_order.UPDATE_POSTIMAGE))
        old = pc.if_else(updated, pc.subtract(last, pa.scalar(1, pa.int32())), no_row)
    deleted = pc.equal(rows.change_types, change_order.DELETE)
    rows = replace(rows, columns={})
    return Folded(rows, pc.if_else(deleted, last, old), pc.if_else(deleted, no_row, last))


def _changelog(chunk: Chunk, split: Split, spec: ReadSpec, state: ReadState) -> tuple[Rows, list[Corrupt]]:
    table_events = events_of_one_table(split.tables, chunk, spec, state)
    decoded, failed = decode_events(table_events, spec.plan, spec, state)
    return _to_merge(rows_of(table_events, decoded, spec, state), spec.scope.merged_by), failed


def _to_merge(rows: Rows, keys: Sequence[str]) -> Rows:
    """Leave out the pre-images with the key of their post-images: a merge by the key takes only these."""
    if not keys:
        return rows
    is_old = pc.equal(rows.change_types, change_order.UPDATE_PREIMAGE)
    columns = {name.lower(): column for name, column in rows.columns.items()}
    if not is_old.true_count or not columns.keys() >= {key.lower() for key in keys}:
        return rows
    # Each pre-image is directly followed by its post-image.
    is_new = pc.equal(rows.change_types, change_order.UPDATE_POSTIMAGE)
    needless = pc.and_(is_old[:-1], is_new[1:])
    for key in keys:
        column = columns[key.lower()]
        if pa.types.is_nested(column.type):  # Arrow does not compare them
            return rows
        needless = pc.and_(needless, pc.fill_null(pc.equal(column[:-1], column[1:]), False))  # noqa: FBT003 (Arrow's)
    return rows.filtered(pa.concat_arrays([pc.invert(needless), pa.array([True])]))


def _envelope(chunk: Chunk, split: Split, spec: ReadSpec, state: ReadState) -> tuple[Rows, list[Corrupt]]:
    table_events = events_of_one_table(split.tables, chunk, spec, state)
    decoded, failed = decode_events(table_events, spec.plan, spec, state)
    images = rows_of(table_events, decoded, spec, state)
    folded = fold(images)
    by_name = {name.lower(): array for name, array in images.columns.items()}
    columns = {}
    if {"source", "op"} & set(spec.layout.metadata.values()):
        events = taken(decoded.events, pc.coalesce(folded.after, folded.before))
        columns[ORIGIN_COLUMN] = taken(spec.decoder.origins(table_events), events)
    for image, rows in (("before", folded.before), ("after", folded.after)):
        name = spec.layout.own.get(image)
        if name is not None:
            fields = list(spec.layout.schema.field(name).type)
            children = [by_name[field.name.lower()].take(rows) for field in fields]
            columns[name] = pa.StructArray.from_arrays(children, fields=fields, mask=rows.is_null())
    if spec.layout.rescued is not None:
        saved = images.columns[spec.layout.rescued]
        columns[spec.layout.rescued] = _rescued(saved.take(folded.before), saved.take(folded.after))
    return replace(folded.rows, columns=columns), failed


def _rescued(before: pa.Array, after: pa.Array) -> pa.Array:
    """Combine the rescued values of both images into one JSON object, `{"before": …, "after": …}`."""
    if before.null_count + after.null_count == 2 * len(after):
        return after
    texts: list[str | None] = []
    for old, new in zip(before.to_pylist(), after.to_pylist(), strict=True):
        members = [member_name(image) + text for image, text in (("before", old), ("after", new)) if text is not None]
        texts.append(json_object(members) if members else None)
    return pa.array(texts, pa.string())


def _event(chunk: Chunk, split: Split, spec: ReadSpec, state: ReadState) -> tuple[Rows, list[Corrupt]]:
    parts: list[Rows] = []
    failed: list[Corrupt] = []
    for table, table_events in split.tables.items():
        if spec.tables.matches(table):
            decoded, bad = decode_events(table_events, _event_plan(table, spec, state), spec, state)
            failed += bad
            parts.append(_table_events(rows_of(table_events, decoded, spec, state), table))
    parts += (_ddl_events(chunk, split, spec), _bootstraps(chunk, split, spec), _watermarks(chunk, split, spec))
    return _in_written_order(chunk, parts, spec), failed


def _event_plan(table: TableName, spec: ReadSpec, state: ReadState) -> Plan:
    plan = state.plans.get(table)
    if plan is None:
        plan = state.plans[table] = spec.plan_of(table)
    return plan


# The Arrow types, by name, of the event columns that this module builds; the assembly derives the others.
_OWN = {column.name: column.arrow for column in FORMAT_COLUMNS["event"] if not column.fill}


def _with_columns(rows: Rows, columns: Mapping[str, pa.Array]) -> Rows:
    """Return the rows with these columns; other columns that this module builds are NULL."""
    nulls = {name: pa.nulls(len(rows), arrow) for name, arrow in _OWN.items() if name not in columns}
    return replace(rows, columns={**nulls, **columns})


def _table_events(images: Rows, table: TableName) -> Rows:
    folded = fold(images)
    document, key = images.columns[DOCUMENT], images.columns[KEY_DOCUMENT]
    return _with_columns(folded.rows, {
        "database": folded.rows.repeated(table.database, pa.string()),
        "table": folded.rows.repeated(table.table, pa.string()),
        "key": key.take(pc.coalesce(folded.after, folded.before)),
        "before": document.take(folded.before),
        "after": document.take(folded.after),
    })  # fmt: skip


def _ddl_events(chunk: Chunk, split: Split, spec: ReadSpec) -> Rows:
    events = [event for event in split.ddl if spec.tables.matches_ddl(event.table) and spec.keeps_ddl(chunk, event)]
    rows = _rows_of_events(chunk, change_order.DDL, events, [event.commit_ts for event in events], spec)
    return _with_columns(rows, {
        **_definitions(events),
        "ddl_kind": pa.array([ddl_kind(event) for event in events], pa.string()),
        "ddl_type": pa.array([event.type or None for event in events], pa.string()),
        "ddl_type_code": pa.array([event.type_code for event in events], pa.int32()),
        "ddl_query": pa.array([event.query for event in events], pa.string()),
    })  # fmt: skip


def _bootstraps(chunk: Chunk, split: Split, spec: ReadSpec) -> Rows:
    events = [event for event in split.bootstraps if spec.tables.matches(event.table)]
    rows = _rows_of_events(chunk, change_order.BOOTSTRAP, events, [event.commit_ts for event in events], spec)
    return _with_columns(rows, _definitions(events))


def _definitions(events: Sequence[DDLEvent]) -> dict[str, pa.Array]:
    """Return table names, and the wire format's descriptions of the tables as JSON."""
    changes = [None if event.table_changes is None else list(event.table_changes) for event in events]
    texts = {
        "database": [event.table.database or None for event in events],
        "table": [event.table.table or None for event in events],
        "table_changes": [None if each is None else readable(json_text(each)) for each in changes],
    }
    return {name: pa.array(values, pa.string()) for name, values in texts.items()}


def _watermarks(chunk: Chunk, split: Split, spec: ReadSpec) -> Rows:
    marks = [event.ts for event in split.watermarks]
    rows = _rows_of_events(chunk, change_order.WATERMARK, split.watermarks, marks, spec)
    return _with_columns(rows, {"watermark_ts": pa.array(marks, pa.int64())})


def _rows_of_events(
    chunk: Chunk,
    change_type: int,
    events: Sequence[DDLEvent] | Sequence[WatermarkEvent],
    commit_ts: Sequence[int | None],
    spec: ReadSpec,
) -> Rows:
    count = len(events)
    facts = row_facts(  # TiCDC writes a start-ts for rows only
        count,
        position=pa.array([event.position for event in events], pa.int32()),
        index=pa.array([event.index for event in events], pa.int32()),
        change_type=repeated(change_type, pa.int8(), count),
        commit_ts=pa.array(commit_ts, pa.int64()),
        build_ts=pa.array([event.build_ts for event in events], pa.int64()),
        cluster_id=pa.array([event.cluster_id for event in events], pa.string()),
        placed=pa.array([isinstance(event, DDLEvent) and event.place is not None for event in events], pa.bool_()),
    )
    return Rows(chunk=chunk, protocol=spec.decoder.facts.name, table=None, facts=facts, columns={})


def _in_written_order(chunk: Chunk, parts: Sequence[Rows], spec: ReadSpec) -> Rows:
    facts = concatenated([part.facts for part in parts])
    order = in_order(facts)
    columns = {
        shown: _typed(pa.concat_arrays([part.columns[name] for part in parts]).take(order), shown, spec)
        for name, shown in spec.layout.own.items()
    }
    return Rows(chunk=chunk, protocol=spec.decoder.facts.name, table=None, facts=facts.take(order), columns=columns)


def _typed(column: pa.Array, name: str, spec: ReadSpec) -> pa.Array:
    return variants(column) if spec.layout.schema.field(name).type == VARIANT else column


_EVENT_COLUMNS = ["position", "tables", "event_types", "commit_ts", "watermark_ts"]
_NAMED = [(name, "distinct", pc.CountOptions("only_valid")) for name in ("tables", "event_types")]
_LEAST = [(name, "min", pc.ScalarAggregateOptions(skip_nulls=False)) for name in ("commit_ts", "watermark_ts")]


def _events_at(
    positions: Sequence[int],
    event_type: str | None,
    table: TableName | None = None,
    *,
    commit_ts: pa.Int64Array = _MOST,
    watermark_ts: pa.Int64Array = _MOST,
) -> pa.Table:
    """Return events of one type, by record; a commit-ts may be NULL."""
    count = len(positions)
    names = [repeated(name, pa.string(), count) for name in (None if table is None else str(table), event_type)]
    numbers = [pa.repeat(each, count) if each is _MOST else each for each in (commit_ts, watermark_ts)]
    return pa.table([as_indices(positions), *names, *numbers], names=_EVENT_COLUMNS)


def _by_record(count: int, events: Sequence[pa.Table]) -> dict[str, pa.Array]:
    """Return each record's names and smallest numbers; a number is NULL if there is none or one is unknown."""
    if sum(each.num_rows for each in events) == count:
        table = pa.concat_tables(events)
        order = pc.sort_indices(table.column("position"))
        if are_all(table.column("position").combine_chunks().take(order), count):  # each record has one event
            return _alone(table.take(order))
    # With each record once, the groups are all records. Without threads, groups and names keep the order in which they
    # first occur.
    table = pa.concat_tables([_events_at(range(count), None), *events])
    records = table.group_by("position", use_threads=False).aggregate(_LEAST + _NAMED)
    named = {name: records.column(f"{name}_distinct").combine_chunks().cast(NAMES) for name, _, _ in _NAMED}
    return named | {name: _known(records.column(f"{name}_min")) for name, _, _ in _LEAST}


def _alone(events: pa.Table) -> dict[str, pa.Array]:
    """Return the names and numbers of records, each with one event."""
    named = {}
    for name, _, _ in _NAMED:
        names = events.column(name).combine_chunks()
        ends = pc.cumulative_sum(names.is_valid().cast(pa.int32()))
        named[name] = pa.ListArray.from_arrays(pa.concat_arrays([pa.array([0], pa.int32()), ends]), names.drop_null())
    return {name: array.cast(NAMES) for name, array in named.items()} | {
        name: _known(events.column(name)) for name, _, _ in _LEAST
    }


def _known(numbers: pa.ChunkedArray) -> pa.Int64Array:
    return pc.if_else(pc.equal(numbers, _MOST), pa.scalar(None, pa.int64()), numbers).combine_chunks()


def record_rows(chunk: Chunk, splits: Iterable[Split], spec: ReadSpec, survey: Survey | None = None) -> Rows:
    """Return one row for each record of a chunk.

    With the option `tables` or a range of commit-ts, tombstones and records without wanted events are left out. A
    record that cannot be split is always kept, because its tables are unknown. With a survey, the column `told` says
    which records tell something new.

    Raises:
        DecodeError: a record could not be extracted from its record batch.
    """
    if chunk.failure is not None:
        raise DecodeError(chunk.failure, chunk.address(0))
    count = len(chunk)
    found: list[pa.Table] = []
    telling: set[int] = set()
    for split in splits:
        if survey is not None:
            telling |= survey.told_by_split(split)
        for table, events in split.tables.items():
            found.append(_events_at(events.positions, "row", table, commit_ts=spec.decoder.commit_versions(events)))
        for event in split.ddl:
            if spec.tables.matches_ddl(event.table):
                table_of_ddl = event.table if event.table.table else None
                commit_ts = pa.array([event.commit_ts], pa.int64())
                found.append(_events_at([event.position], "ddl", table_of_ddl, commit_ts=commit_ts))
        bootstraps = (event for event in split.bootstraps if spec.tables.matches(event.table))
        found += (_events_at([event.position], "bootstrap", event.table) for event in bootstraps)
        marks = pa.array([event.ts for event in split.watermarks], pa.int64())
        found.append(_events_at([event.position for event in split.watermarks], "watermark", watermark_ts=marks))
        found.append(_events_at([item.position for item in split.corrupt], "corrupt"))
    columns = _by_record(count, found)
    facts = row_facts(
        count,
        position=row_indices(count),
        index=repeated(0, pa.int32(), count),
        change_type=repeated(change_order.INSERT, pa.int8(), count),
        commit_ts=columns.pop("commit_ts"),
        placed=repeated(False, pa.bool_(), count),  # noqa: FBT003 (a value)
    )
    partitions = repeated(spec.scope.partitions, pa.int32(), count)
    if spec.scope.one_watermark:
        partitions = pc.if_else(columns["watermark_ts"].is_valid(), partitions, pa.scalar(0, pa.int32()))
    columns["partitions"] = partitions
    if survey is not None:
        columns["told"] = pc.is_in(row_indices(count), pa.array(sorted(telling), pa.int32()))
    rows = Rows(
        chunk=chunk,
        protocol=spec.decoder.facts.name,
        table=None,
        facts=facts,
        columns={spec.layout.own[name]: array for name, array in columns.items() if name in spec.layout.own},
    )
    if spec.tables.patterns or spec.commits:
        return rows.filtered(pc.greater(pc.list_value_length(columns["event_types"]), 0))
    return rows


OUTPUT_FORMATS: dict[str, Format] = {"changelog": _changelog, "envelope": _envelope, "event": _event}
