"""debezium JSON, TiCDC's and native Debezium's (docs/wire.md, items 77 to 91; pingcap/ticdc pkg/sink/codec/debezium).

    {"payload": {"source": {…}, "ts_ms": …, "op": "c", "before": {…}, "after": {…}}, "schema": {…}}

`schema` may be off (`debezium-disable-schema`); native Debezium then leaves out the wrapper too. Types come from
the schema, from `tidb_type` where the TiDB extension is on, and from the `tableChanges` of DDL events.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from ticdc_source.events import Chunk, DDLEvent, Split, TableEvents, TableName, Wants, WatermarkEvent, every_table
from ticdc_source.kernels import Wire
from ticdc_source.options.options import Options
from ticdc_source.protocols.base import Decoded, Learned, LearnedTable
from ticdc_source.protocols.cast import cast_images
from ticdc_source.protocols.compression import decompressed
from ticdc_source.protocols.debezium.columnar import DebeziumColumns
from ticdc_source.protocols.debezium.kernels import KERNELS
from ticdc_source.protocols.debezium.types import (
    declared_columns,
    described_columns,
    type_versions,
    wire_column,
    wire_of,
)
from ticdc_source.protocols.describe import describe_images
from ticdc_source.protocols.images import Images, Parsed
from ticdc_source.protocols.messages import (
    MALFORMED,
    milliseconds,
    parse_failure,
    parse_object,
    readable,
    table_name,
    text,
    tso,
)
from ticdc_source.protocols.plan import Plan
from ticdc_source.protocols.prefix_match import PrefixMatch, object_bytes, split_by_prefix
from ticdc_source.schema.model import Column, ReadField, TableSchema, TypeVersions
from ticdc_source.schema.types import ColumnType

__all__ = ["Debezium"]

_TICDC = ("TiCDC", None)  # source.connector; without one the messages are taken for TiCDC's
_ROW_OPS = frozenset({"c", "u", "d", "r"})
_WATERMARK, _TRUNCATE = "m", "t"

# The beginning of a row message as TiCDC writes it; anything else takes the general path: a whole parse.
_PREFIX = PrefixMatch(
    rb'\{"payload":\{"source":\{"version":"[^"\\]*","connector":"[^"\\]*","name":"[^"\\]*","ts_ms":\d+,'
    rb'"snapshot":"[^"\\]*","db":"([^"\\]*)","table":"([^"\\]*)",[^{}]*\},"ts_ms":\d+,"transaction":null,"op":"([cudr])",',
    operations=(b"c", b"u", b"d", b"r"),
)


@dataclass(frozen=True)
class Debezium:
    """The debezium decoder.

    Attributes:
        codec: the option `valueCompression`.
    """

    codec: str = "auto"

    name: ClassVar[str] = "debezium"
    kernels: ClassVar[Mapping[str, Wire]] = KERNELS
    options: ClassVar[frozenset[str]] = frozenset({"valueCompression"})  # it has no large messages
    chunk_records: ClassVar[int] = 4000
    ddl_partition: ClassVar[int | None] = None
    watermarks_need: ClassVar[str | None] = "enable-tidb-extension=true in the new architecture (since v8.5.4)"
    types_in_ddl: ClassVar[bool] = True

    @classmethod
    def of(cls, options: Options) -> Debezium:
        """Return the decoder that these options ask for."""
        return cls(options.value_compression)

    def recognizes(self, key: bytes | None, value: bytes | None) -> bool:  # noqa: ARG002 (the value tells)
        """Tell by members that only debezium has."""
        value = object_bytes(value, self.codec)
        return b'"source"' in value and (b'"op"' in value or b'"ddl"' in value)

    def claim_checks(self, key: bytes | None, value: bytes | None) -> int:  # noqa: ARG002 (it has no large messages)
        """Return 0."""
        return 0

    def split(self, chunk: Chunk, wants: Wants = every_table, learned: Learned | None = None) -> Split:
        """PrefixMatch at the table of each message; parse the few that are no plain rows."""
        return split_by_prefix(
            chunk, _PREFIX, _sort, "a debezium message", codec=self.codec, tombstones=True, wants=wants, learned=learned
        )

    def describe(
        self,
        events: TableEvents,
        ddl: Sequence[DDLEvent] = (),
        declared: Mapping[str, TypeVersions] | None = None,  # noqa: ARG002 (tableChanges tell as much)
    ) -> list[TableSchema]:
        """Say what schema, tidb_type and the tableChanges of this table tell; key columns from the Kafka key."""
        versions = self.declared(events.table, ddl)
        fields = tuple(ReadField(name, pa.null(), versions=types) for name, types in versions.items())
        decoded = self._parse(events, LearnedTable(Plan(fields)))  # the fields make it split runs where versions begin
        keys = _key_columns(events, self.codec)
        events_of = decoded.images.events
        firsts = [decoded.commit_ts[events_of[start]] or 0 for start, _, _ in decoded.images.spans()]
        return [
            TableSchema(schema.table, described_columns(schema.columns, versions, first, keys))
            for schema, first in zip(describe_images(events.table, decoded.images), firsts, strict=True)
        ]

    def declared(self, table: TableName, ddl: Sequence[DDLEvent]) -> dict[str, TypeVersions]:
        """Return the types that the `tableChanges` of DDL events gave a table's columns."""
        changes = sorted(
            ((event.commit_ts or 0, _declared(event, table)) for event in ddl), key=lambda change: change[0]
        )
        return type_versions([(start, columns) for start, columns in changes if columns])

    def decode(self, events: TableEvents, plan: Plan, learned: Learned | None = None) -> Decoded:
        """Parse messages and turn them to columns."""
        table = (Learned() if learned is None else learned).of_table(events.table, plan)
        columns = table.layouts(DebeziumColumns)
        read = columns.decode(events, table, wire_of) if plan.fast_path else None
        if read is not None:
            return read
        decoded = self._parse(events, table)
        columns.observe(decoded.images)
        if plan.documents:  # which say what the handle key is
            self._mark_keys(decoded.images, events)
        return cast_images(decoded, events, table, wire_of)

    def _mark_keys(self, images: Images, events: TableEvents) -> None:
        """Mark the handle-key columns of each image: the members of its record's key; a DDL may change them."""
        keys = [_members(events.chunk.keys[events.positions[event]], self.codec) for event in images.events]
        runs: list[tuple[int, tuple[Column, ...]]] = []
        for start, end, columns in images.spans():
            for place in range(start, end):
                if place == start or keys[place] != keys[place - 1]:
                    marked = tuple(replace(column, key=column.name in keys[place]) for column in columns)
                    runs.append((place, marked))
        images.runs = runs

    def _parse(self, events: TableEvents, table: LearnedTable) -> Parsed:
        decoded, plan = Parsed.of(len(events)), table.plan
        images = decoded.images
        fast_path = table.layouts(DebeziumColumns)
        schema: Any = None
        names: tuple[str, ...] | None = None
        by: Any = None
        boundaries, since = plan.boundaries(), 0
        for event in fast_path.unread(events, decoded, plan) if plan.fast_path else range(len(events)):
            value = events.payloads[event]
            known = len(images.rows)
            try:
                message = parse_object(value)
                payload = _payload(message)
                decoded.commit_ts[event] = _commit_ts(payload)
                decoded.build_ts[event] = milliseconds(payload.get("ts_ms"))
                cluster_id = payload["source"].get("cluster_id")
                decoded.cluster_id[event] = None if cluster_id is None else text(cluster_id)
                op, before, after = payload["op"], payload.get("before"), payload.get("after")
                described = before if op == "d" else after
                if not isinstance(described, dict):
                    msg = f"op {op!r} without {'before' if op == 'd' else 'after'}"
                    raise TypeError(msg)
                fields = _row_fields(message)
                begun = bisect_left(boundaries, decoded.commit_ts[event] or 0) if boundaries else 0
                native = payload["source"].get("connector") not in _TICDC
                if fields != schema or tuple(described) != names or begun != since or native is not by:
                    columns = _columns(fields, described, boundaries[begun - 1] if begun else 0, native=native)
                    schema, names, since, by = fields, tuple(described), begun, native
                images.continue_run(columns)
                if op == "d":
                    images.add(event, 0, described, None, plan, update=False)
                else:
                    images.add(event, 0, before if op == "u" else None, described, plan, update=op == "u")
                if plan.fast_path:
                    fast_path.learn(value, described, cluster_id, begun, columns)
            except MALFORMED as error:
                images.truncate(known)
                decoded.failures[event] = parse_failure(error, "a debezium row message").at(events.address(event))
        return decoded


def _sort(split: Split, chunk: Chunk, position: int, value: bytes) -> None:
    payload = _payload(parse_object(value))
    source, op = payload.get("source"), payload.get("op")
    if source is None and op is None and ("ts_ms" in payload or "status" in payload):
        split.skipped += 1  # native Debezium's heartbeats and transaction boundaries
        return
    if not isinstance(source, dict):
        msg = "no 'source'"
        raise TypeError(msg)
    table = table_name(source.get("db"), source.get("table"))
    if op in _ROW_OPS:
        split.table_events(chunk, table).append(position, 0, value)
    elif op == _WATERMARK:
        split.watermarks.append(WatermarkEvent(position, 0, tso(source["commit_ts"])))
    elif op == _TRUNCATE:
        split.ddl.append(DDLEvent(position, 0, _commit_ts(payload), table, "", "TRUNCATE"))
    elif op is None and "ddl" in payload:
        changes = payload.get("tableChanges") or []
        kind = readable(changes[0].get("type")) if changes else "QUERY"
        json.dumps(changes, allow_nan=False)  # a number beyond a double's range could not be written again
        query = readable(payload.get("ddl") or "")
        split.ddl.append(DDLEvent(position, 0, _commit_ts(payload), table, query, kind, None, changes))
    else:
        msg = f"op {op!r}"
        raise ValueError(msg)


def _declared(event: DDLEvent, table: TableName) -> Mapping[str, ColumnType]:
    """Return what a DDL event declares; nothing where its description is broken: DDL never fails a read."""
    try:
        return declared_columns(event.table_changes, table)
    except MALFORMED:
        return {}


def _payload(message: dict[str, Any]) -> dict[str, Any]:
    """Return what is inside the wrapper, or the message where there is none."""
    payload = message.get("payload", message) if "op" not in message else message
    if not isinstance(payload, dict):
        msg = "'payload' is not an object"
        raise TypeError(msg)
    return payload


def _commit_ts(payload: dict[str, Any]) -> int | None:
    """Return the commit-ts; native Debezium has none: a lower bound from the event's time (ms)."""
    source = payload["source"]
    if source.get("commit_ts") is not None:
        return tso(source["commit_ts"])
    event_time = milliseconds(source.get("ts_ms"))
    return None if event_time is None else event_time << 18


def _row_fields(message: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the schema of a row, None where the message has none."""
    schema = message.get("schema")
    if not schema:
        return None
    structs = {field["field"]: field.get("fields") for field in schema["fields"]}
    return structs.get("after") or structs.get("before")


def _columns(
    fields: list[dict[str, Any]] | None, row: dict[str, Any], since: int, *, native: bool
) -> tuple[Column, ...]:
    by_name = {field["field"]: field for field in fields or ()}  # virtual columns are listed, twice, and not sent
    return tuple(replace(wire_column(name, by_name.get(name), native=native), since=since) for name in map(text, row))


def _key_columns(events: TableEvents, codec: str) -> frozenset[str]:
    """Return the handle-key columns: the members of the first Kafka key that can be read."""
    found = (_members(events.chunk.keys[position], codec) for position in events.positions)
    return next((names for names in found if names), frozenset())


def _members(key: bytes | None, codec: str) -> frozenset[str]:
    """Return the names in a Kafka key's payload, none where it cannot be read."""
    try:
        return frozenset(_payload(parse_object(decompressed(key or b"{}", codec))))
    except MALFORMED:
        return frozenset()
