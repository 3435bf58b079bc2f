"""The simple decoder, for both encodings (`encoding-format`).

A message is one JSON object, or the same in Avro (pingcap/ticdc pkg/sink/codec/simple). Rows have no types: a row names
the version of its table, which a DDL or a BOOTSTRAP message defines (`definitions`; docs/wire.md, items 115 to 120).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from ticdc_source.errors import DecodeError
from ticdc_source.kernels.wire import Cells
from ticdc_source.protocols.base import LearnedTable, ProtocolFacts
from ticdc_source.protocols.checksums import WARN_INSTEAD
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.decoding import ReadEvent, number_after
from ticdc_source.protocols.events import Split, TableEvents, WatermarkEvent
from ticdc_source.protocols.images import Images, Parsed, with_old_columns
from ticdc_source.protocols.large_messages import Marks
from ticdc_source.protocols.messages import MALFORMED, JSONObject, milliseconds, readable, table_name, text, tso
from ticdc_source.protocols.plan import Plan
from ticdc_source.protocols.prefix_match import JSONDecoder, PrefixMatch, object_bytes, plain_bytes
from ticdc_source.protocols.simple.avro import (
    commit_ts_of_row,
    is_avro,
    message_of,
    parse_avro,
    row_as_json,
    table_of_row,
)
from ticdc_source.protocols.simple.definitions import definitions_of, table_of
from ticdc_source.protocols.simple.kernels import KERNELS, LOCAL, wrong_checksum
from ticdc_source.protocols.simple.template import template_of
from ticdc_source.protocols.templates import KeepTemplate
from ticdc_source.schema.ddl_event import DDLEvent, Moment
from ticdc_source.schema.ddl_kinds import database_of
from ticdc_source.schema.model import Column, TableSchema
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import Chunk

_OPERATIONS = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}
_WATERMARK, _BOOTSTRAP = "WATERMARK", "BOOTSTRAP"
_DDL_TYPES = frozenset({"CREATE", "RENAME", "CINDEX", "DINDEX", "ERASE", "TRUNCATE", "ALTER", "QUERY"})
_CLAIM_CHECK = b'"claimCheckLocation":"'

# How a row message in JSON begins, as TiCDC writes it. `_classify` gets the others.
_PREFIX = PrefixMatch(
    rb'\{"version":\d+,"database":"([^"\\]*)","table":"([^"\\]*)",(?:"tableID":\d+,)?"type":"(INSERT|UPDATE|DELETE)",',
    marker=b'"type":"',
)
_COMMIT_TS = (
    r'^\{"version":\d+,"database":"[^"\\]*","table":"[^"\\]*",(?:"tableID":\d+,)?"type":"[A-Z]+",'
    r'"commitTs":(?P<n>[1-9]\d{0,17}),'
)


def _recognizes(key: bytes | None, value: bytes | None) -> bool:  # noqa: ARG001 (the value is enough)
    """Look at the first bytes, and for members that each message has."""
    plain = object_bytes(value, Compression())
    if not plain:
        return is_avro(plain_bytes(value, Compression()))
    return plain.startswith(b'{"version":') and b'"commitTs":' in plain and b'"buildTs":' in plain


class Simple(JSONDecoder):
    """The simple decoder."""

    facts = ProtocolFacts(
        name="simple",
        recognizes=_recognizes,
        kernels=KERNELS,
        definitions=definitions_of,
        zoned_timestamps=True,
        has_checksums=True,
    )
    prefix = _PREFIX

    def claim_checks(self, key: bytes | None, value: bytes | None) -> int:
        """Search JSON for the address; parse Avro. A record of this wire format has an empty key, or none."""
        plain = plain_bytes(value, self.settings.compression)
        if not is_avro(plain):
            return 0 if key else int(_CLAIM_CHECK in plain)
        try:
            return int("claimCheckLocation" in parse_avro(plain))
        except MALFORMED:  # `split` reports it
            return 0

    def _classify(self, split: Split, chunk: Chunk, position: int, value: bytes) -> None:
        table = table_of_row(value)
        if table is not None:
            split.table_events(chunk, table).append(position, 0, value)
            return
        message = message_of(value)
        type_, commit_ts = message["type"], tso(message["commitTs"])
        if type_ in _OPERATIONS:
            split.table_events(chunk, table_name(message.get("database"), message["table"])).append(position, 0, value)
        elif type_ == _WATERMARK:
            split.watermarks.append(WatermarkEvent(position, 0, commit_ts, milliseconds(message.get("buildTs"))))
        elif type_ == _BOOTSTRAP or type_ in _DDL_TYPES:
            schemas = [message[name] for name in ("tableSchema", "preTableSchema") if message.get(name) is not None]
            query = readable(message.get("sql") or "")
            event = DDLEvent(
                position=position,
                index=0,
                table=table_of(schemas[0]) if schemas else TableName(database_of(query), ""),
                query=query,
                type=type_,
                commit_ts=commit_ts or None,
                table_changes=schemas or None,
                build_ts=milliseconds(message.get("buildTs")),
            )
            definitions_of([event])  # a broken definition makes a bad record
            (split.bootstraps if type_ == _BOOTSTRAP else split.ddl).append(event)
        else:
            msg = f"message type {type_!r}"
            raise ValueError(msg)

    def _shown(self, schemas: list[TableSchema], images: Images) -> list[TableSchema]:
        """Complete TIMESTAMPs by the zone that their values name."""
        return [
            replace(schema, columns=tuple(_with_zone(column, cells[column.name]) for column in schema.columns))
            for schema, cells in zip(schemas, map(images.cells, images.spans()), strict=True)
        ]

    def commit_versions(self, events: TableEvents) -> pa.Int64Array:
        """Search near the start of each message."""
        if any(map(is_avro, events.payloads)):
            return pa.array(map(commit_ts_of_row, events.payloads), pa.int64())
        return number_after(events.payload_array(), _COMMIT_TS)

    def _reader(
        self, events: TableEvents, parsed: Parsed, learned: LearnedTable, learn: KeepTemplate | None
    ) -> ReadEvent:
        plan, images, table = learned.plan, parsed.images, events.table
        decompressed = self.settings.compression.decompressed
        needs_types = bool(plan.fields) or plan.documents
        verifies = needs_types and self.settings.verify_checksum != "off"
        columns: tuple[Column, ...] = ()
        last_signature: tuple[object, ...] | None = None

        def read(event: int, payload: bytes) -> None:
            nonlocal columns, last_signature
            message = message_of(payload, parsed.parse)
            if "claimCheckLocation" in message or "handleKeyOnly" in message:
                message = self.settings.large.whole_message(
                    message, _marks_of, lambda value: message_of(decompressed(value), parsed.parse), parsed
                )
            parsed.commit_ts[event] = tso(message["commitTs"])
            parsed.start_ts[event] = tso(message.get("startTs", 0)) or None
            parsed.build_ts[event] = milliseconds(message.get("buildTs"))
            type_, before, after = message["type"], message.get("old"), message.get("data")
            described = before if type_ == "DELETE" else after
            if type(described) is not dict:
                msg = f"type {type_} without {'old' if type_ == 'DELETE' else 'data'}"
                raise TypeError(msg)
            row = described if type_ != "UPDATE" else with_old_columns(described, before)
            signature = (
                message["schemaVersion"],
                row.keys(),
            )  # keys compare as a set: a row in Avro has its members in any order
            if signature != last_signature:
                definition = learned.definition(table, tso(message["schemaVersion"]))
                if definition is None and needs_types:
                    raise _undefined(table, message["schemaVersion"])
                columns, last_signature = _columns(definition, row, signature[0]), signature
                images.continue_run(columns)
            if is_avro(payload):
                described = row_as_json(described, columns)
                before = None if before is None else row_as_json(before, columns)
            if verifies and "checksum" in message and not message.get("handleKeyOnly"):
                pair = {"previous": described if type_ == "DELETE" else before, "current": after and described}
                self._verify(event, message, pair, columns, parsed, plan)
            images.add(event, 0, _OPERATIONS[type_], described, before, plan)
            if learn is not None and row.keys() == described.keys():
                places = {column.name: column for column in columns}
                template = None if verifies and "checksum" in message else template_of(payload, described)
                learn(template, 0, tuple(places[name] for name in described))

        return read

    def _verify(
        self,
        event: int,
        message: JSONObject,
        images: Mapping[str, object],
        columns: Sequence[Column],
        parsed: Parsed,
        plan: Plan,
    ) -> None:
        parsed.verified += 1
        try:
            wrong = wrong_checksum(message, images, columns, plan.settings)
        except (ValueError, TypeError, KeyError):  # a cell does not fit its type: casting it says so, with its column
            return
        if wrong is None:
            return
        if self.settings.verify_checksum == "fail":
            msg = f"{wrong}. {WARN_INSTEAD}"
            raise DecodeError(msg)
        parsed.suspect[event] = wrong


def _marks_of(message: JSONObject) -> Marks:
    identity = [*map(message.get, ("database", "table", "type", "commitTs"))]
    return Marks(message.get("claimCheckLocation"), message.get("handleKeyOnly"), identity)


def _undefined(table: TableName, version: int) -> DecodeError:
    return DecodeError(
        f"version {version} of {table} is not known: no DDL or BOOTSTRAP message that was read defines it. TiCDC sends "
        "a BOOTSTRAP of each table before its first row, and then every 2 minutes (send-bootstrap-interval-in-sec) or "
        "10,000 rows (send-bootstrap-in-msg-count): read from an earlier offset"
    )


def _with_zone(column: Column, cells: Cells) -> Column:
    """Return a TIMESTAMP with what its cells say of its zone."""
    if column.type is None or column.type.name != "timestamp":
        return column
    return replace(column, is_local=any(isinstance(cell, dict) and cell.get("location") == LOCAL for cell in cells))


def _columns(definition: Sequence[Column] | None, row: JSONObject, version: int) -> tuple[Column, ...]:
    """Return the columns of a row, with its spelling, in the order of the table, then those that the definition lacks.

    Rows of two unknown versions differ: the survey of a DataFrame keeps one of each.
    """
    names = {column.name for column in definition or ()}
    spelt = {name.lower(): name for name in row if name not in names}
    named = [replace(each, name=spelt.get(each.name.lower(), each.name)) for each in definition or ()]
    defined = [column for column in named if column.name in row]
    names = {column.name for column in defined}
    return (*defined, *(Column(text(name), since=Moment(version)) for name in row if name not in names))
