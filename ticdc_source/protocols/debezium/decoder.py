"""The debezium decoder, for TiCDC's messages and native Debezium's (docs/wire.md, items 77 to 91).

    {"payload": {"source": {…}, "ts_ms": …, "op": "c", "before": {…}, "after": {…}}, "schema": {…}}

Messages may have no `schema` (`debezium-disable-schema`); native Debezium's then have no `payload` around them either.
Types come from the schema, from `tidb_type` with the TiDB extension, and from the `tableChanges` of DDL events
(pingcap/ticdc pkg/sink/codec/debezium).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pyarrow as pa

from ticdc_source.events import Chunk, DDLEvent, Split, TableEvents, TableName, Wants, WatermarkEvent, every_table
from ticdc_source.kernels import Wire
from ticdc_source.options.options import Options
from ticdc_source.protocols.base import Decoded, Learned, LearnedTable, number_after
from ticdc_source.protocols.cast import cast_images
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.debezium.kernels import KERNELS
from ticdc_source.protocols.debezium.native import payload_of
from ticdc_source.protocols.debezium.origins import origins
from ticdc_source.protocols.debezium.redaction import redacted
from ticdc_source.protocols.debezium.settings import DebeziumSettings
from ticdc_source.protocols.debezium.template import template_of
from ticdc_source.protocols.debezium.types import (
    declared_columns,
    declared_facts,
    described_columns,
    type_versions,
    wire_column,
    wire_of,
)
from ticdc_source.protocols.describe import describe_images, plan_of
from ticdc_source.protocols.images import Images, Parsed
from ticdc_source.protocols.messages import (
    MALFORMED,
    JSONObject,
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
from ticdc_source.protocols.redaction import Redactor
from ticdc_source.protocols.templates import Learn, Templates
from ticdc_source.schema.model import Column, ColumnFacts, TableSchema, TypeVersions
from ticdc_source.schema.types import ColumnType

__all__ = ["Debezium"]

_TICDC = ("TiCDC", None)  # `source.connector`; a message without one is taken for TiCDC's
_ROW_OPS = frozenset({"c", "u", "d", "r"})
_WATERMARK, _TRUNCATE = "m", "t"

# What row messages begin with, as TiCDC writes them. Other messages are parsed.
_PREFIX = PrefixMatch(
    rb'\{"payload":\{"source":\{"version":"[^"\\]*","connector":"[^"\\]*","name":"[^"\\]*","ts_ms":\d+,'
    rb'"snapshot":"[^"\\]*","db":"([^"\\]*)","table":"([^"\\]*)",[^{}]*\},"ts_ms":\d+,"transaction":null,"op":"([cudr])",',
    marker=b'"op":"',
)


@dataclass(frozen=True)
class Debezium:
    """The debezium decoder.

    Attributes:
        compression: how messages are decompressed.
    """

    compression: Compression = field(default_factory=Compression)

    name: ClassVar[str] = "debezium"
    options: ClassVar[frozenset[str]] = frozenset(
        {"valueCompression", "maxMessageBytes", "maxBytesPerBatch"}
    )  # it has no large messages
    kernels: ClassVar[Mapping[str, Wire]] = KERNELS
    chunk_records: ClassVar[int] = 4000
    ddl_partition: ClassVar[int | None] = None
    watermarks_need: ClassVar[str | None] = "enable-tidb-extension=true in the new architecture (since v8.5.4)"
    types_in_ddl: ClassVar[bool] = True
    zoned_timestamps: ClassVar[bool] = True

    @classmethod
    def of(cls, options: Options) -> Debezium:
        """Return the decoder that these options ask for."""
        return cls(Compression.of(options))

    def recognizes(self, key: bytes | None, value: bytes | None) -> bool:  # noqa: ARG002 (the value is enough)
        """Look for members that only debezium has."""
        plain = object_bytes(value, self.compression)
        return b'"source"' in plain and (b'"op"' in plain or b'"ddl"' in plain)

    def claim_checks(self, key: bytes | None, value: bytes | None) -> int:  # noqa: ARG002 (it has no large messages)
        """Return 0."""
        return 0

    def split(self, chunk: Chunk, wants: Wants = every_table, learned: Learned | None = None) -> Split:
        """Compare the first bytes of messages; parse those that are not plain rows."""
        return split_by_prefix(
            chunk,
            _PREFIX,
            _classify,
            "a debezium message",
            compression=self.compression,
            tombstones=True,
            wants=wants,
            learned=learned,
        )

    def settings(self) -> DebeziumSettings:
        """Return what looks for the settings of the changefeed."""
        return DebeziumSettings(self.compression)

    def without_files(self) -> Debezium:
        """Return itself: it has no large messages."""
        return self

    def redact(self, key: bytes | None, value: bytes | None, redactor: Redactor) -> tuple[bytes | None, bytes | None]:
        """Return key and value with the values of columns redacted."""
        return redacted(key, value, redactor)

    def describe(
        self,
        events: TableEvents,
        ddl: Sequence[DDLEvent] = (),
        declared: Mapping[str, TypeVersions] | None = None,  # noqa: ARG002 (`tableChanges` say as much)
    ) -> list[TableSchema]:
        """Return what schema, `tidb_type` and the `tableChanges` of this table say; key columns from the Kafka key."""
        versions = self.declared(events.table, ddl)
        parsed = self._parse(events, LearnedTable(plan_of(versions)))
        keys = _key_columns(events, self.compression)
        events_of_images = parsed.images.events
        firsts = [parsed.commit_ts[events_of_images[start]] or 0 for start, _, _ in parsed.images.spans()]
        return [
            TableSchema(
                schema.table,
                described_columns(schema.columns, versions, _facts_before(first, ddl, events.table), first, keys),
            )
            for schema, first in zip(describe_images(events.table, parsed.images), firsts, strict=True)
        ]

    def declared(self, table: TableName, ddl: Sequence[DDLEvent]) -> dict[str, TypeVersions]:
        """Return the types that the `tableChanges` of DDL events give a table's columns."""
        changes = sorted(
            ((event.commit_ts or 0, _declared(event, table)) for event in ddl), key=lambda change: change[0]
        )
        return type_versions([(start, columns) for start, columns in changes if columns])

    def decode(self, events: TableEvents, plan: Plan, learned: Learned | None = None) -> Decoded:
        """Read messages in native code if possible; else parse them and cast the rows."""
        learned_table = (Learned() if learned is None else learned).of_table(events.table, plan)

        def general(some: TableEvents, learn: Learn | None = None) -> Decoded:
            parsed = self._parse(some, learned_table, learn)
            if plan.documents:  # they show the handle key
                self._mark_keys(parsed.images, some)
            return cast_images(parsed, some, learned_table, wire_of)

        if learned_table.native:
            return learned_table.kept(Templates).decode(events, learned_table, wire_of, general)
        return general(events)

    def origins(self, events: TableEvents) -> pa.StructArray:
        """Return what `source` and `op` say."""
        return origins(events.payloads)

    def commit_versions(self, events: TableEvents) -> pa.Int64Array:
        """Look into `source`, with which TiCDC begins each message."""
        return number_after(events.payload_array(), _COMMIT_TS)

    def _mark_keys(self, images: Images, events: TableEvents) -> None:
        """Mark the handle-key columns of each image: the members of its record's key. DDL may change them."""
        keys = [_members(events.chunk.keys[events.positions[event]], self.compression) for event in images.events]
        runs: list[tuple[int, tuple[Column, ...]]] = []
        for start, end, columns in images.spans():
            for image in range(start, end):
                if image == start or keys[image] != keys[image - 1]:
                    marked = tuple(replace(column, key=column.name in keys[image]) for column in columns)
                    runs.append((image, marked))
        images.runs = runs

    def _parse(self, events: TableEvents, learned: LearnedTable, learn: Learn | None = None) -> Parsed:
        parsed, plan = Parsed.of(len(events)), learned.plan
        images = parsed.images
        boundaries = plan.boundaries()
        last_signature: tuple[object, ...] | None = None
        for event, value in enumerate(events.payloads):
            images_before = len(images.rows)
            try:
                message = parse_object(value)
                payload = payload_of(message)
                parsed.commit_ts[event] = _commit_ts(payload)
                parsed.build_ts[event], cluster_id = _written(payload)
                parsed.cluster_id[event] = cluster_id
                op, before, after = payload["op"], payload.get("before"), payload.get("after")
                described = before if op == "d" else after
                if not isinstance(described, dict):
                    msg = f"op {op!r} without {'before' if op == 'd' else 'after'}"
                    raise TypeError(msg)
                fields = _row_fields(message)
                version = bisect_left(boundaries, parsed.commit_ts[event] or 0) if boundaries else 0
                native = payload["source"].get("connector") not in _TICDC
                signature = (fields, tuple(described), version, native)
                if signature != last_signature:
                    columns = _columns(fields, described, boundaries[version - 1] if version else 0, native=native)
                    last_signature = signature
                images.continue_run(columns)
                if op == "d":
                    images.add(event, 0, described, None, plan, update=False)
                else:
                    images.add(event, 0, before if op == "u" else None, described, plan, update=op == "u")
                if learn is not None:
                    learn(template_of(value, described, cluster_id), version, columns)
            except MALFORMED as error:
                images.truncate(images_before)
                parsed.failures[event] = parse_failure(error, "a debezium row message").at(events.address(event))
        return parsed


# A text that ends `source` before its commit-ts would have a brace.
_COMMIT_TS = r'^\{"payload":\{"source":\{[^{}\\]*"commit_ts":(?P<n>[1-9]\d{0,17})[,}]'


def _classify(split: Split, chunk: Chunk, position: int, value: bytes) -> None:
    """Parse a message and add its event to the split."""
    payload = payload_of(parse_object(value))
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
        split.watermarks.append(WatermarkEvent(position, 0, tso(source["commit_ts"]), *_written(payload)))
    elif op == _TRUNCATE:
        build_ts, cluster_id = _written(payload)
        split.ddl.append(
            DDLEvent(
                position=position,
                index=0,
                commit_ts=_commit_ts(payload),
                table=table,
                query="",
                type="TRUNCATE",
                build_ts=build_ts,
                cluster_id=cluster_id,
            )
        )
    elif op is None and "ddl" in payload:
        changes = payload.get("tableChanges") or []
        ddl_type = readable(changes[0].get("type") or "") if changes else ""  # docs/wire.md, item 83
        json.dumps(changes, allow_nan=False)  # refuses numbers beyond a double's range: they could not be written again
        query = readable(payload.get("ddl") or "")
        build_ts, cluster_id = _written(payload)
        split.ddl.append(
            DDLEvent(
                position=position,
                index=0,
                commit_ts=_commit_ts(payload),
                table=table,
                query=query,
                type=ddl_type,
                table_changes=changes,
                build_ts=build_ts,
                cluster_id=cluster_id,
            )
        )
    else:
        msg = f"op {op!r}"
        raise ValueError(msg)


def _declared(event: DDLEvent, table: TableName) -> Mapping[str, ColumnType]:
    """Return what a DDL event declares; nothing if its description is broken, so that DDL never fails a read."""
    try:
        return declared_columns(event.table_changes, table)
    except MALFORMED:
        return {}


def _facts_before(commit_ts: int, ddl: Sequence[DDLEvent], table: TableName) -> Mapping[str, ColumnFacts]:
    """Return what the last DDL event before a commit-ts that describes a table says beside types; if any does."""
    before = sorted(
        (event for event in ddl if (event.commit_ts or 0) < commit_ts), key=lambda event: event.commit_ts or 0
    )
    for event in reversed(before):
        try:
            found = declared_facts(event.table_changes, table)
        except MALFORMED:
            continue
        if found:
            return found
    return {}


def _commit_ts(payload: JSONObject) -> int | None:
    """Return the commit-ts; for native Debezium, which has none, a lower bound made of the event's time (ms)."""
    source = payload["source"]
    if source.get("commit_ts") is not None:
        return tso(source["commit_ts"])
    event_time = milliseconds(source.get("ts_ms"))
    return None if event_time is None else event_time << 18


def _written(payload: JSONObject) -> tuple[int | None, str | None]:
    """Return when a message was encoded, in ms since the epoch, and TiCDC's cluster id; None if it lacks one."""
    cluster_id = payload["source"].get("cluster_id")
    return milliseconds(payload.get("ts_ms")), None if cluster_id is None else text(cluster_id)


def _row_fields(message: JSONObject) -> list[JSONObject] | None:
    """Return the fields of a row's schema; None if the message has no schema."""
    schema = message.get("schema")
    if not schema:
        return None
    structs = {field["field"]: field.get("fields") for field in schema["fields"]}
    return structs.get("after") or structs.get("before")


def _columns(fields: list[JSONObject] | None, row: JSONObject, since: int, *, native: bool) -> tuple[Column, ...]:
    by_name = {field["field"]: field for field in fields or ()}  # virtual columns have fields, even two, and no values
    return tuple(replace(wire_column(name, by_name.get(name), native=native), since=since) for name in map(text, row))


def _key_columns(events: TableEvents, compression: Compression) -> frozenset[str]:
    """Return the handle-key columns: the members of the first Kafka key that has any."""
    found = (_members(events.chunk.keys[position], compression) for position in events.positions)
    return next((names for names in found if names), frozenset())


def _members(key: bytes | None, compression: Compression) -> frozenset[str]:
    """Return the names of the members of a Kafka key; none if it cannot be read."""
    try:
        return frozenset(payload_of(parse_object(compression.decompressed(key or b"{}"))))
    except MALFORMED:
        return frozenset()
