"""The debezium decoder, for TiCDC's messages and native Debezium's (docs/wire.md, items 77 to 91).

    {"payload": {"source": {…}, "ts_ms": …, "op": "c", "before": {…}, "after": {…}}, "schema": {…}}

Without `schema` (`debezium-disable-schema`), native Debezium's messages have no `payload` around them either. Types
come from the schema, from `tidb_type` with the TiDB extension, and from the `tableChanges` of DDL events (pingcap/ticdc
pkg/sink/codec/debezium).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels.contract import Branch, Const, Image, Number, Program, Row, Slot, Step, Way
from ticdc_source.kernels.strings import BASE64_BINARY
from ticdc_source.kernels.wire import Wire, json_text
from ticdc_source.protocols.base import ORIGIN, Learned, LearnedTable, ProtocolFacts
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.debezium.column_types import (
    declared_columns,
    declared_facts,
    described_columns,
    type_versions,
    wire_column,
    wire_of,
)
from ticdc_source.protocols.debezium.kernels import KERNELS, binary_wire_of, warn_of_hex
from ticdc_source.protocols.decoding import ColumnRuns, ReadEvent, describe_images, number_after
from ticdc_source.protocols.events import Split, TableEvents, WatermarkEvent
from ticdc_source.protocols.images import Images, Parse, Parsed, with_old_columns
from ticdc_source.protocols.messages import (
    MALFORMED,
    JSONObject,
    commit_ts_or_time,
    exact,
    milliseconds,
    parse_exact,
    parse_object,
    readable,
    table_name,
    text,
    tso,
)
from ticdc_source.protocols.prefix_match import JSONDecoder, PrefixMatch, object_bytes
from ticdc_source.protocols.templates import (
    BUILD_TS,
    COMMIT_TS,
    DELETE,
    INSERT,
    MOST_TSO,
    START_TS,
    UPDATE,
    KeepTemplate,
    Template,
    heads_of,
)
from ticdc_source.schema.ddl_event import DDLEvent, Moment
from ticdc_source.schema.model import Column, ColumnFacts, ReadField, TableSchema, TypeVersions
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import ColumnType
from ticdc_source.sources.chunk import Chunk

Said = TypeVar("Said")

_TICDC = ("TiCDC", None)  # `source.connector`; a message without one is taken for TiCDC's
_OPERATIONS = {"c": "insert", "u": "update", "d": "delete", "r": "insert"}
_WATERMARK, _TRUNCATE = "m", "t"
# Native Debezium's heartbeats and the boundaries of transactions (docs/wire.md, item 133).
_MARKER = re.compile(
    rb'^\{"ts_ms":\d+\}$|"io\.debezium\.connector\.common\.(?:Heartbeat|TransactionMetadataValue)"|'
    rb'^\{(?=.*"id":)(?=.*"event_count":)(?=.*"data_collections":)"status":"(?:BEGIN|END)"',
    re.DOTALL,
)

# What row messages begin with, as TiCDC writes them. Other messages are parsed.
_PREFIX = PrefixMatch(
    rb'\{"payload":\{"source":\{"version":"[^"\\]*","connector":"[^"\\]*","name":"[^"\\]*","ts_ms":\d+,'
    rb'"snapshot":"[^"\\]*","db":"([^"\\]*)","table":"([^"\\]*)",[^{}]*\},"ts_ms":\d+,"transaction":null,"op":"([cudr])",',
    marker=b'"op":"',
)

# The members of `source`, and the op, that say where a message comes from.
_FIELDS = list(ORIGIN)
# From `source` to the op, as TiCDC and Debezium write it. No text looks like this, because its quotes have backslashes.
_SOURCE = (
    r'"source":\{"version":"(?P<version>[^"\\]*)","connector":"(?P<connector>[^"\\]*)","name":"(?P<name>[^"\\]*)",'
    r'"ts_ms":\d+,"snapshot":"(?P<snapshot>[^"\\]*)",[^{}]*\},(?:"ts_ms":\d+,|"transaction":null,)*"op":"(?P<op>[a-z])"'
)


def _recognizes(key: bytes | None, value: bytes | None) -> bool:  # noqa: ARG001 (the value is enough)
    plain = object_bytes(value, Compression())
    if b'"source"' in plain:
        return b'"op"' in plain or b'"ddl"' in plain
    return _MARKER.search(plain) is not None


def _types_in_ddl(table: TableName, ddl: Sequence[DDLEvent]) -> dict[str, TypeVersions]:
    changes = ((event.moment, _said(declared_columns, event, table)) for event in _in_order(ddl))
    return type_versions([(start, columns) for start, columns in changes if columns])


def shows_extension(message: JSONObject) -> bool | None:
    """Whether a row's schema has TiDB's types; None without a schema, or if TiCDC did not write it."""
    is_native = payload_of(message)["source"].get("connector") not in _TICDC
    fields = None if is_native else row_fields(message)
    return None if fields is None else any("tidb_type" in field for field in fields)


class Debezium(JSONDecoder):
    """The decoder of debezium, which has no large messages."""

    facts = ProtocolFacts(
        name="debezium",
        recognizes=_recognizes,
        kernels=KERNELS,
        watermarks_need="enable-tidb-extension=true in the new architecture (since v8.5.4)",
        types_in_ddl=_types_in_ddl,
        commit_ts_needs="TiCDC writes it, and Debezium's own connectors do not",
        zoned_timestamps=True,
        old_rows_need="debezium.output-old-value=true",
        shows_extension=lambda value, _: shows_extension(parse_object(value)),
    )
    prefix = _PREFIX

    def _classify(self, split: Split, chunk: Chunk, position: int, value: bytes) -> None:
        message = parse_object(value)
        is_row = "op" in payload_of(message)
        add_event(split, chunk, position, value, payload_of(message if is_row else parse_exact(value)))

    def describe(
        self,
        events: TableEvents,
        ddl: Sequence[DDLEvent] = (),
        declared: Mapping[str, TypeVersions] | None = None,  # noqa: ARG002 (`tableChanges` say as much)
        learned: Learned | None = None,  # noqa: ARG002 (values of any kind tell)
    ) -> list[TableSchema]:
        """Combine schema, `tidb_type`, `tableChanges` and, for key columns, the Kafka key."""
        versions = _types_in_ddl(events.table, ddl)
        parsed = self._sampled(events, versions)
        keys = self._key_columns(events)
        images = parsed.images
        starts = [images.events[span.start] for span in images.spans()]
        firsts = [events.moment(event, parsed.commit_ts[event]) for event in starts]
        schemas = [
            TableSchema(
                schema.table,
                described_columns(schema.columns, versions, _facts_before(first, ddl, events.table), first, keys),
            )
            for schema, first in zip(describe_images(events.table, images), firsts, strict=True)
        ]
        if self.settings.options.debezium_binary_handling_mode is None:
            for schema, span in zip(schemas, images.spans(), strict=True):
                warn_of_hex(schema, images.cells(span))
        return schemas

    def origins(self, events: TableEvents) -> pa.StructArray:
        array = events.payload_array()
        members = pc.extract_regex(array, _SOURCE)
        try:
            texts = [members.field(field.name).cast(pa.string()) for field in _FIELDS]
        except pa.ArrowInvalid:  # one of them is not UTF-8
            return pa.array(map(self._origin, events.payloads), ORIGIN)
        matched = pa.StructArray.from_arrays(texts, fields=_FIELDS)
        if not members.null_count:
            return matched
        each = matched.to_pylist()
        for index in pc.indices_nonzero(members.is_null()).to_pylist():  # written differently
            each[index] = self._origin(events.payloads[index])
        return pa.array(each, ORIGIN)

    def _origin(self, value: bytes) -> dict[str, str | None] | None:
        try:
            payload = payload_of(self._message(value))
            values = {**payload["source"], "op": payload.get("op")}
            return {field.name: _shown(values.get(field.name)) for field in _FIELDS}
        except MALFORMED:  # decoding reports it
            return None

    def commit_versions(self, events: TableEvents) -> pa.Int64Array:
        return number_after(events.payload_array(), _COMMIT_TS)

    def _parse(
        self, events: TableEvents, learned: LearnedTable, learn: KeepTemplate | None = None, parse: Parse = parse_object
    ) -> Parsed:
        parsed = super()._parse(events, learned, learn, parse)
        if learned.plan.documents:  # they show the handle key
            self._mark_keys(parsed.images, events)
        return parsed

    def _mark_keys(self, images: Images, events: TableEvents) -> None:
        """Mark each image's handle-key columns: the members of its record's key, which DDL may change."""
        keys_of_records = events.chunk.keys
        keys = [self._members(keys_of_records[events.positions[event]]) for event in images.events]
        runs: list[tuple[int, tuple[Column, ...]]] = []
        for span in images.spans():
            for image in range(span.start, span.end):
                if image == span.start or keys[image] != keys[image - 1]:
                    marked = tuple(replace(column, key=column.name in keys[image]) for column in span.columns)
                    runs.append((image, marked))
        images.runs = runs

    def _reader(self, events: TableEvents, parsed: Parsed, learned: LearnedTable) -> ReadEvent:
        plan, learn, runs = learned.plan, parsed.learn, ColumnRuns(events, parsed, learned.plan)

        def read(event: int, value: bytes) -> None:
            message = self._message(value, parsed.parse)
            payload = payload_of(message)
            parsed.commit_ts[event], parsed.placed[event] = commit_ts_of(payload)
            parsed.start_ts[event] = _start_ts(payload)
            parsed.build_ts[event], cluster_id = _written(payload)
            parsed.cluster_id[event] = cluster_id
            op, before, after = payload["op"], payload.get("before"), payload.get("after")
            described = before if op == "d" else after
            if not isinstance(described, dict):
                raise TypeError(f"op {op!r} without {'before' if op == 'd' else 'after'}")
            row = described if op != "u" else with_old_columns(described, before)
            fields, native = row_fields(message), payload["source"].get("connector") not in _TICDC
            signature = (exact(fields), tuple(row), native)
            columns = runs.columns(event, signature, lambda: _columns(fields, row, native=native))
            parsed.images.add(event, 0, _OPERATIONS[op], described, before, plan)
            if learn is not None and row is described:
                learn(template_of(value, described, cluster_id), runs.version, columns)

        return read

    def _message(self, value: bytes, parse: Parse = parse_object) -> JSONObject:
        return parse(value)

    def _key_columns(self, events: TableEvents) -> frozenset[str]:
        each = (self._members(events.chunk.keys[position]) for position in events.positions)
        return next((names for names in each if names), frozenset())

    def _members(self, key: bytes | None) -> frozenset[str]:
        try:
            return frozenset(payload_of(parse_object(self.settings.compression.decompressed(key or b"{}"))))
        except MALFORMED:
            return frozenset()

    def _wire_of(self, column: Column, read_field: ReadField) -> tuple[Wire | None, ColumnType]:
        wire, type_ = wire_of(column, read_field)
        if wire is BASE64_BINARY:
            wire = binary_wire_of(self.settings.options.debezium_binary_handling_mode, column.wire)
        return wire, type_


# In `source`, which begins TiCDC's messages. A text that ends it before its commit-ts would have a brace.
_COMMIT_TS = r'^\{"payload":\{"source":\{[^{}\\]*"commit_ts":(?P<n>[1-9]\d{0,17})[,}]'


def add_event(split: Split, chunk: Chunk, position: int, value: bytes, payload: JSONObject) -> None:
    """Add the event of a message to a split; errors are in `MALFORMED`."""
    source, op = payload.get("source"), payload.get("op")
    if source is None and op is None and ("ts_ms" in payload or "status" in payload):
        split.skipped += 1  # native Debezium's heartbeats and transaction boundaries
        return
    if not isinstance(source, dict):
        raise TypeError("no 'source'")
    table = table_name(source.get("db"), source.get("table"))
    if op in _OPERATIONS:
        split.table_events(chunk, table).append(position, 0, value)
    elif op == _WATERMARK:
        split.watermarks.append(WatermarkEvent(position, 0, tso(source["commit_ts"]), *_written(payload)))
    else:
        build_ts, cluster_id = _written(payload)
        type_, query, changes = _ddl_of(op, payload)
        commit_ts, placed = commit_ts_of(payload)
        split.ddl.append(
            DDLEvent(
                position=position,
                index=0,
                table=table,
                query=query,
                type=type_,
                commit_ts=commit_ts,
                place=chunk.place(position) if placed else None,
                table_changes=changes,
                build_ts=build_ts,
                cluster_id=cluster_id,
            )
        )


def _ddl_of(op: object, payload: JSONObject) -> tuple[str, str, Sequence[JSONObject] | None]:
    if op == _TRUNCATE:
        return "TRUNCATE", "", None
    if op is not None or "ddl" not in payload:
        raise ValueError(f"op {op!r}")
    changes = payload.get("tableChanges") or []
    type_ = readable(changes[0].get("type") or "") if changes else ""  # docs/wire.md, item 83
    json_text(changes)  # raises an error for what cannot be written again
    return type_, readable(payload.get("ddl") or ""), changes


def _said(
    read: Callable[[Sequence[JSONObject] | None, TableName], Mapping[str, Said]], event: DDLEvent, table: TableName
) -> Mapping[str, Said]:
    """Return what a DDL event says about a table; empty if it is broken, so that DDL never fails a read."""
    try:
        return read(event.table_changes, table)
    except MALFORMED:
        return {}


def _facts_before(moment: Moment, ddl: Sequence[DDLEvent], table: TableName) -> Mapping[str, ColumnFacts]:
    """Return the facts beside types of the last DDL event before a moment that describes the table."""
    before = [event for event in _in_order(ddl) if event.moment < moment]
    each = (_said(declared_facts, event, table) for event in reversed(before))
    return next((facts for facts in each if facts), {})


def _in_order(ddl: Sequence[DDLEvent]) -> list[DDLEvent]:
    return sorted(ddl, key=lambda event: event.moment)


def commit_ts_of(payload: JSONObject) -> tuple[int | None, bool]:
    return commit_ts_or_time(payload["source"].get("commit_ts"), payload["source"].get("ts_ms"))


def _start_ts(payload: JSONObject) -> int | None:
    """Return the transaction's start-ts, if present and not 0 (docs/wire.md, item 78)."""
    start_ts = payload["source"].get("start_ts")
    return None if start_ts is None else tso(start_ts) or None


def _written(payload: JSONObject) -> tuple[int | None, str | None]:
    """Return when a message was encoded, in ms since the epoch, and TiCDC's cluster id."""
    cluster_id = payload["source"].get("cluster_id")
    return milliseconds(payload.get("ts_ms")), None if cluster_id is None else text(cluster_id)


def payload_of(message: JSONObject) -> JSONObject:
    payload = message.get("payload", message) if "op" not in message else message
    if not isinstance(payload, dict):
        raise TypeError("'payload' is not an object")
    return payload


def row_fields(message: JSONObject) -> list[JSONObject] | None:
    schema = message.get("schema")
    if not schema:
        return None
    structs = {field["field"]: field.get("fields") for field in schema["fields"]}
    return structs.get("after") or structs.get("before")


def _columns(fields: list[JSONObject] | None, row: JSONObject, *, native: bool) -> tuple[Column, ...]:
    by_name = {field["field"]: field for field in fields or ()}  # virtual columns have fields, even two, and no values
    return tuple(wire_column(name, by_name.get(name), native=native) for name in map(text, row))


def _shown(value: object) -> str | None:
    """Return a member as text. Debezium before 1.5 wrote `snapshot` as a boolean."""
    if isinstance(value, bool):
        return str(value).lower()
    return readable(value) if isinstance(value, str) else None


# The template of a message as TiCDC writes it. The schema is five sixths of a message and never changes within a
# version of the table; in `source` only numbers change (pingcap/ticdc pkg/sink/codec/debezium/codec.go).
# From the start to the op, without a backslash: texts end at the next quote.
_HEAD = re.compile(
    rb'(\{"payload":\{"source":\{[^{}\\]*"ts_ms":)([1-9]\d*)(,[^{}\\]*"commit_ts":)([1-9]\d*)((?:,"start_ts":)?)([1-9]\d*)?'
    rb'(,"cluster_id":(?:null|"[^{}"\\]*")\},"ts_ms":)([1-9]\d*)(,"transaction":null,"op":")[cudr]",'
)
_SCHEMA = b'},"schema":{'
_ROW = (Row(Image.MAIN), Const(b"}"))
_OLD_ROW = (Row(Image.PREIMAGE), Const(b'},"after":{'))
_CHANGE = Branch(
    [
        Way(b'c","before":null,"after":{', [INSERT, *_ROW]),
        Way(b'u","before":{', [UPDATE, *_OLD_ROW, *_ROW]),
        Way(b'u","after":{', [UPDATE, *_ROW]),
        Way(b'd","after":null,"before":{', [DELETE, *_ROW]),
        Way(b'r","before":null,"after":{', [INSERT, *_ROW]),
    ]
)


def template_of(value: bytes, names: Iterable[str], cluster_id: str | None) -> Template | None:
    """Return the template of a message; None if TiCDC writes no such messages."""
    match = _HEAD.match(value)
    if match is None:
        return None
    end = value.find(_SCHEMA, match.end()) + 1 or len(value) - 1
    tail = value[end:]
    if tail != b"}" and not _is_schema(tail):
        return None
    begin, _, to_commit, _, to_start, start, to_build, _, to_op = match.groups()
    heads = heads_of(names)

    def program(_variants: Sequence[Sequence[bytes]]) -> Program:
        started: list[Step] = [Const(to_start), START_TS] if start else []
        steps = [
            Const(begin),
            Number(Slot.IGNORED, MOST_TSO),
            Const(to_commit),
            COMMIT_TS,
            *started,
            Const(to_build),
            BUILD_TS,
            Const(to_op),
            _CHANGE,
            Const(b"}" + tail),  # the end of the payload
        ]
        return Program(steps, heads, tail=b"", partial=False)

    return Template(
        identity=(begin, to_commit, to_start, to_build, tail, heads), program=program, cluster_id=cluster_id
    )


def _is_schema(tail: bytes) -> bool:
    try:
        return bool(orjson.loads(b"{" + tail[1:]).keys() == {"schema"})
    except orjson.JSONDecodeError:
        return False
