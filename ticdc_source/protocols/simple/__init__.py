"""The simple decoder, for both encodings (`encoding-format`).

A message is one JSON object, or the same in Avro (pingcap/ticdc pkg/sink/codec/simple). Rows have no types, but name
their table's version, which a DDL or BOOTSTRAP message defines (`definitions`; docs/wire.md, items 115 to 120).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from ticdc_source.errors import DecodeError
from ticdc_source.kernels.contract import Branch, Const, Image, Number, Program, Row, SetOperation, Slot, Step, Way
from ticdc_source.kernels.wire import Cells
from ticdc_source.protocols.base import LearnedTable, ProtocolFacts
from ticdc_source.protocols.checksums import verify
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.decoding import ColumnRuns, ReadEvent, number_after
from ticdc_source.protocols.events import Split, TableEvents, WatermarkEvent
from ticdc_source.protocols.images import Images, Parsed, with_old_columns
from ticdc_source.protocols.large_messages import Marks
from ticdc_source.protocols.messages import (
    MALFORMED,
    JSONObject,
    milliseconds,
    readable,
    table_name,
    text,
    tso,
    whole_number,
)
from ticdc_source.protocols.prefix_match import JSONDecoder, PrefixMatch, object_bytes, plain_bytes
from ticdc_source.protocols.simple.avro import (
    commit_ts_of_row,
    is_avro,
    message_of,
    parse_avro,
    row_as_json,
    table_of_row,
)
from ticdc_source.protocols.simple.kernels import KERNELS, LOCAL, wrong_checksum, zoned_columns
from ticdc_source.protocols.templates import BUILD_TS, COMMIT_TS, DELETE, INSERT, START_TS, UPDATE, Template, heads_of
from ticdc_source.schema.ddl_event import DDLEvent, Moment, database_of
from ticdc_source.schema.model import Column, ColumnFacts, Definitions, Key, TableSchema, handle_key
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import BINARY_OF, MAY_BE_UNSIGNED, ColumnType, declared_type, parse_type
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
_BEGINNING = re.compile(rb'\{\s*"version"\s*:')  # of a message of any kind
_COMMIT_TS = (
    r'^\{"version":\d+,"database":"[^"\\]*","table":"[^"\\]*",(?:"tableID":\d+,)?"type":"[A-Z]+",'
    r'"commitTs":(?P<n>[1-9]\d{0,17}),'
)


# The `tableSchema` of a DDL or BOOTSTRAP message defines the columns of one version of a table. RENAME TABLE does not
# change the version, so the key of a definition is the table's name and the version (docs/wire.md, items 44 and 115).
_BINARY = "binary"  # a character set


def table_of(schema: JSONObject) -> TableName:
    """The JSON encoding calls the database `schema`, Avro `database`."""
    return table_name(schema.get("schema", schema.get("database")), schema["table"])


def definitions_of(events: Iterable[DDLEvent]) -> Definitions:
    schemas = (schema for event in events for schema in event.table_changes or ())
    return {(table_of(schema).folded, tso(schema["version"])): _defined_columns(schema) for schema in schemas}


def _defined_columns(schema: JSONObject) -> tuple[Column, ...]:
    keys = [
        Key(
            readable(index.get("name") or "").lower(),
            tuple(text(name) for name in index.get("columns") or ()),
            unique=bool(index.get("unique")),
            primary=bool(index.get("primary")),
        )
        for index in schema.get("indexes") or ()
    ]
    columns = schema["columns"]
    nullable = {text(column["name"]) for column in columns if column.get("nullable")}
    names = {name.lower(): name for name in (text(column["name"]) for column in columns)}
    keys = [key._replace(columns=tuple(names.get(name.lower(), "") for name in key.columns)) for key in keys]
    without_doubt = [key for key in keys if not _may_be_invented(key, keys)]
    handle, is_known = handle_key(keys, nullable), True
    primary: frozenset[str] | None = frozenset(name for key in keys if key.primary for name in key.columns)
    if len(without_doubt) < len(keys):
        primary, is_known = None, handle == handle_key(without_doubt, nullable)
    unique = frozenset(name for key in keys if key.unique and not key.primary for name in key.columns)
    return tuple(
        Column(
            column["name"],
            _type_of(column["dataType"]),
            key=is_known and column["name"] in handle,
            facts=ColumnFacts(
                primary_key=None if primary is None else column["name"] in primary,
                handle_key=column["name"] in handle if is_known else None,
                unique_key=column["name"] in unique,
                nullable=column["name"] in nullable,
                default=_default(column.get("default")),
            ),
        )
        for column in columns
    )


def _may_be_invented(key: Key, keys: Iterable[Key]) -> bool:
    """Whether TiCDC may have invented this primary key, which repeats a unique key (docs/wire.md, item 119).

    A table with PRIMARY KEY and UNIQUE of the same columns looks alike; only DDL in the topic or `tableDDL` tells.
    """
    return key.primary and any(one.unique and not one.primary and one.columns == key.columns for one in keys)


def _default(value: object) -> str | None:
    return None if value is None else readable(value) if isinstance(value, str) else readable(str(value))


def _type_of(declared: JSONObject) -> ColumnType:
    type_ = parse_type(text(declared["mysqlType"]))
    if declared.get("charset") == _BINARY:
        type_ = replace(type_, name=BINARY_OF.get(type_.name, type_.name))
    # TiCDC also sets the flag on YEAR and BIT.
    unsigned = type_.name in MAY_BE_UNSIGNED and declared.get("unsigned") is True
    decimal = whole_number(declared.get("decimal"))
    return declared_type(
        replace(type_, unsigned=unsigned),
        length=whole_number(declared.get("length")),
        scale=decimal,
        fraction=decimal,
        labels=_labels(declared.get("elements")),
    )


def _labels(elements: object) -> tuple[str, ...] | None:
    return tuple(text(label) for label in elements) if isinstance(elements, list) and elements else None


def _recognizes(key: bytes | None, value: bytes | None) -> bool:  # noqa: ARG001 (the value is enough)
    plain = object_bytes(value, Compression())
    if not plain:
        return is_avro(plain_bytes(value, Compression()))
    return _BEGINNING.match(plain) is not None and b'"commitTs"' in plain and b'"buildTs"' in plain


class Simple(JSONDecoder):
    """The decoder of simple, in both encodings."""

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
        """Search JSON for the address; parse Avro. The key is empty or null."""
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
            raise ValueError(f"message type {type_!r}")

    def _shown(self, schemas: list[TableSchema], images: Images) -> list[TableSchema]:
        """Complete TIMESTAMPs by the zone that their values name."""
        return [
            replace(schema, columns=tuple(_with_zone(column, cells[column.name]) for column in schema.columns))
            for schema, cells in zip(schemas, map(images.cells, images.spans()), strict=True)
        ]

    def commit_versions(self, events: TableEvents) -> pa.Int64Array:
        if any(map(is_avro, events.payloads)):
            return pa.array(map(commit_ts_of_row, events.payloads), pa.int64())
        return number_after(events.payload_array(), _COMMIT_TS)

    def _reader(self, events: TableEvents, parsed: Parsed, learned: LearnedTable) -> ReadEvent:
        plan, learn, table = learned.plan, parsed.learn, events.table
        runs = ColumnRuns(events, parsed, plan)
        decompressed = self.settings.compression.decompressed
        needs_types = bool(plan.fields) or plan.documents
        mode = self.settings.options.verify_checksum
        verifies = needs_types and mode != "off"

        def columns_of(row: JSONObject, version: int) -> tuple[Column, ...]:
            definition = learned.definition(table, tso(version))
            if definition is None and needs_types:
                raise _undefined(table, version)
            return _columns(definition, row, version)

        def read(event: int, payload: bytes) -> None:
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
                raise TypeError(f"type {type_} without {'old' if type_ == 'DELETE' else 'data'}")
            row = described if type_ != "UPDATE" else with_old_columns(described, before)
            version = message["schemaVersion"]
            # Keys compare as a set: a row in Avro has its members in any order.
            columns = runs.columns(event, (version, row.keys()), lambda: columns_of(row, version))
            if is_avro(payload):
                described = row_as_json(described, columns)
                before = None if before is None else row_as_json(before, columns)
            if verifies and "checksum" in message and not message.get("handleKeyOnly"):
                pair = {"previous": described if type_ == "DELETE" else before, "current": after and described}
                verify(event, parsed, mode, lambda: wrong_checksum(message, pair, columns, plan.settings))
            parsed.images.add(event, 0, _OPERATIONS[type_], described, before, plan)
            if learn is not None and row.keys() == described.keys():
                places = {column.name: column for column in columns}
                template = None if verifies and "checksum" in message else template_of(payload, described)
                learn(template, 0, tuple(places[name] for name in described))

        return read


def _marks_of(message: JSONObject) -> Marks:
    identity = [*map(message.get, ("database", "table", "type", "commitTs"))]
    return Marks(message.get("claimCheckLocation"), message.get("handleKeyOnly"), identity)


def _undefined(table: TableName, version: int) -> DecodeError:
    return DecodeError(
        f"version {version} of {table} is not known: no DDL or BOOTSTRAP message that was read defines it. Read from "
        "an earlier offset: TiCDC sends a BOOTSTRAP of each table before its first row, and then every 2 minutes "
        "(send-bootstrap-interval-in-sec) or 10,000 rows (send-bootstrap-in-msg-count)"
    )


def _with_zone(column: Column, cells: Cells) -> Column:
    if column.type is None or column.type.name != "timestamp":
        return column
    return replace(column, is_local=any(isinstance(cell, dict) and cell.get("location") == LOCAL for cell in cells))


def _columns(definition: Sequence[Column] | None, row: JSONObject, version: int) -> tuple[Column, ...]:
    """Return a row's columns, in its spelling and the table's order, then those that the definition lacks.

    Columns of two unknown versions differ, so that the survey of a DataFrame keeps a row of each.
    """
    names = {column.name for column in definition or ()}
    spelt = {name.lower(): name for name in row if name not in names}
    named = [replace(each, name=spelt.get(each.name.lower(), each.name)) for each in definition or ()]
    defined = [column for column in named if column.name in row]
    names = {column.name for column in defined}
    return (*defined, *(Column(text(name), since=Moment(version)) for name in row if name not in names))


# The template of a row message as TiCDC writes it (pingcap/ticdc pkg/sink/codec/simple/message.go): within a version of
# a table, only the type, numbers and values change.
_MESSAGE = re.compile(
    rb'(\{"version":1,"database":"[^"\\]*","table":"[^"\\]*",)((?:"tableID":[1-9]\d*,)?)"type":"(?:INSERT|UPDATE|DELETE)",'
    rb'"commitTs":[1-9]\d*,((?:"startTs":[1-9]\d*,)?)"buildTs":[1-9]\d*,"schemaVersion":([1-9]\d*),'
    rb'((?:"checksum":\{"version":\d+,"corrupted":false,"current":\d+,"previous":\d+\},)?)"(?:data|old)":\{'
)
_MOST_CRC = (1 << 32) - 1
_MOST_ID = (1 << 53) - 1


def _digits(most: int) -> Branch:
    """Match an unused number, maybe 0."""
    return Branch([Way(b"0", []), Way(b"", [Number(Slot.IGNORED, most)])])


_CHECKSUM: tuple[Step, ...] = (
    Const(b'"checksum":{"version":'),
    _digits(_MOST_CRC),
    Const(b',"corrupted":false,"current":'),
    _digits(_MOST_CRC),
    Const(b',"previous":'),
    _digits(_MOST_CRC),
    Const(b"},"),
)


def template_of(payload: bytes, row: JSONObject) -> Template | None:
    match = _MESSAGE.match(payload)
    if match is None:
        return None
    head, table_id, start_ts, version, checksum = match.groups()
    has_id, has_start_ts, has_checksum = bool(table_id), bool(start_ts), bool(checksum)
    heads, cells = heads_of(row), zoned_columns(row)

    def program(_variants: Sequence[Sequence[bytes]]) -> Program:
        number: list[Step] = [Const(b'"tableID":'), Number(Slot.IGNORED, _MOST_ID), Const(b",")] if has_id else []

        def row(begin: bytes, operation: SetOperation, rest: Sequence[Step]) -> Way:
            before: list[Step] = [
                operation,
                Const(b'","commitTs":'),
                COMMIT_TS,
                *((Const(b',"startTs":'), START_TS) if has_start_ts else ()),
                Const(b',"buildTs":'),
                BUILD_TS,
                Const(b',"schemaVersion":' + version + b","),
                *(_CHECKSUM if has_checksum else ()),
            ]
            return Way(begin, [*before, *rest])

        main: list[Step] = [Row(Image.MAIN), Const(b"}}")]
        both: list[Step] = [Row(Image.MAIN), Const(b'},"old":{'), Row(Image.PREIMAGE), Const(b"}}")]
        ways = [
            row(b"INSERT", INSERT, [Const(b'"data":{'), *main]),
            row(b"UPDATE", UPDATE, [Const(b'"data":{'), *both]),
            row(b"DELETE", DELETE, [Const(b'"old":{'), *main]),
        ]
        steps: list[Step] = [Const(head), *number, Const(b'"type":"'), Branch(ways)]
        return Program(steps, heads, tail=b"", partial=False)

    identity = (head, has_id, has_start_ts, version, has_checksum, heads, cells)
    return Template(identity=identity, program=program, cells=cells)
