"""The canal-json decoder, for TiCDC's messages and official Canal's (docs/wire.md, items 68 to 76).

A message is one JSON object (pingcap/ticdc pkg/sink/codec/canal). Every value of a row is text. `mysqlType` and
`sqlType` describe the columns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DecodeError
from ticdc_source.events import Chunk, DDLEvent, Split, TableEvents, TableName, Wants, WatermarkEvent, every_table
from ticdc_source.kernels import Wire
from ticdc_source.options.options import Options
from ticdc_source.protocols.base import Decoded, Learned, LearnedTable, no_origins, number_after
from ticdc_source.protocols.canal_json.kernels import EXACT_FLOAT_TEXT, KERNELS
from ticdc_source.protocols.canal_json.redaction import redacted
from ticdc_source.protocols.canal_json.settings import CanalJSONSettings
from ticdc_source.protocols.canal_json.template import template_of
from ticdc_source.protocols.cast import cast_images
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.describe import describe_images, plan_of
from ticdc_source.protocols.images import Images, Parsed, Row
from ticdc_source.protocols.large_messages import LargeMessages
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
from ticdc_source.schema.model import NO_FACTS, Column, ColumnFacts, ReadField, TableSchema, TypeVersions
from ticdc_source.schema.types import TYPES, ColumnType, convertible, parse_type, type_of

__all__ = ["CanalJSON"]

_ROW_TYPES = frozenset({"INSERT", "UPDATE", "DELETE"})
_WATERMARK = "TIDB_WATERMARK"
_CLAIM_CHECK = b'"claimCheckLocation":"'

# What row messages begin with, as TiCDC writes them. Other messages are parsed.
_PREFIX = PrefixMatch(
    rb'\{"id":\d+,"database":"([^"\\]*)","table":"([^"\\]*)","pkNames":(?:null|\[[^\]]*\]),"isDdl":false,'
    rb'"type":"(INSERT|UPDATE|DELETE)",',
    marker=b'"type":"',
    follows=b'"es":',
)

# The sqlType (java.sql.Types) of binary columns, whatever mysqlType says (docs/wire.md, item 16).
_BLOB = 2004
_TEXT_TO_BINARY = {
    "char": "binary", "varchar": "varbinary", "tinytext": "tinyblob", "text": "blob", "mediumtext": "mediumblob",
    "longtext": "longblob",
}  # fmt: skip
# TiCDC before v5.4 never wrote "unsigned" and always wrote the sqlType of the next larger type (docs/wire.md, item 75).
# These messages do not say the sign, so the column gets the unsigned type, which holds both. Later releases
# never write the larger sqlType for a signed column.
_BEFORE_5_4 = "before v5.4"  # `Column.wire`
_PROMOTED = {"tinyint": 5, "smallint": 4, "int": -5, "bigint": 3}
_SIGNED = frozenset({*_PROMOTED, "mediumint", "decimal", "float", "double"})
_BINARIES = frozenset(_TEXT_TO_BINARY.values())
_TEXTS = frozenset(_TEXT_TO_BINARY)


class _Behind(NamedTuple):
    """What a sqlType says of a column that mysqlType lacks: the type that holds all values, and what it may be."""

    type: ColumnType
    names: frozenset[str] = frozenset()


def _number(name: str, *names: str) -> _Behind:
    return _Behind(ColumnType(name, unsigned=True), frozenset(names or (name,)))


# Several types share a code, and the code of an unsigned integer depends on its value (docs/wire.md, items 19, 71, 75).
_BEHIND = {
    -7: _number("bigint", "bit", "set"),
    -6: _number("tinyint"),
    5: _number("smallint", "smallint", "tinyint"),
    4: _number("int", "int", "mediumint", "smallint", "enum"),
    -5: _number("bigint", "bigint", "int"),
    3: _Behind(ColumnType("decimal"), frozenset({"decimal", "bigint"})),
    7: _number("float"),
    8: _number("double"),
    1: _Behind(ColumnType("char")),
    12: _Behind(ColumnType("varchar"), _TEXTS | {"year", "json", "vector"}),
    2005: _Behind(ColumnType("longtext"), _TEXTS - {"char", "varchar"}),
    _BLOB: _Behind(ColumnType("longblob"), _BINARIES),
    91: _Behind(ColumnType("date")),
    92: _Behind(ColumnType("time")),
    93: _Behind(ColumnType("datetime"), frozenset({"datetime", "timestamp"})),
}


@dataclass(frozen=True)
class CanalJSON:
    """The canal-json decoder.

    Attributes:
        compression: how messages are decompressed.
        large: how messages are read that were too large for Kafka.
    """

    compression: Compression = field(default_factory=Compression)
    large: LargeMessages = field(default_factory=LargeMessages)

    name: ClassVar[str] = "canal-json"
    options: ClassVar[frozenset[str]] = frozenset(
        {"valueCompression", "maxMessageBytes", "maxBytesPerBatch", "claimCheckLocation", "onHandleKeyOnly"}
    )
    kernels: ClassVar[Mapping[str, Wire]] = KERNELS
    chunk_records: ClassVar[int] = 4000
    ddl_partition: ClassVar[int | None] = 0
    watermarks_need: ClassVar[str | None] = "enable-tidb-extension=true"
    types_in_ddl: ClassVar[bool] = False
    zoned_timestamps: ClassVar[bool] = False

    @classmethod
    def of(cls, options: Options) -> CanalJSON:
        """Return the decoder that these options ask for."""
        return cls(Compression.of(options), LargeMessages.of(options))

    def recognizes(self, key: bytes | None, value: bytes | None) -> bool:  # noqa: ARG002 (the value is enough)
        """Look for members that only canal-json has."""
        plain = object_bytes(value, self.compression)
        return b'"isDdl"' in plain and (b'"mysqlType"' in plain or b'"sqlType"' in plain)

    def claim_checks(self, key: bytes | None, value: bytes | None) -> int:
        """Look for the address in the value; a record of this wire format has an empty key, or none."""
        try:
            return 0 if key else int(_CLAIM_CHECK in self.compression.decompressed(value or b""))
        except DecodeError:  # `split` reports it
            return 0

    def split(self, chunk: Chunk, wants: Wants = every_table, learned: Learned | None = None) -> Split:
        """Compare the first bytes of messages; parse those that are not plain rows."""
        return split_by_prefix(
            chunk,
            _PREFIX,
            _classify,
            "a canal-json message",
            compression=self.compression,
            tombstones=False,
            wants=wants,
            learned=learned,
        )

    def settings(self) -> CanalJSONSettings:
        """Return what looks for the settings of the changefeed."""
        return CanalJSONSettings()

    def without_files(self) -> CanalJSON:
        """Return the decoder that takes large messages as they are."""
        return replace(self, large=self.large.without_files())

    def redact(self, key: bytes | None, value: bytes | None, redactor: Redactor) -> tuple[bytes | None, bytes | None]:
        """Return key and value with the values of columns redacted."""
        return redacted(key, value, redactor)

    def describe(
        self,
        events: TableEvents,
        ddl: Sequence[DDLEvent] = (),  # noqa: ARG002 (`declared` has what their texts say)
        declared: Mapping[str, TypeVersions] | None = None,
    ) -> list[TableSchema]:
        """Return what mysqlType and sqlType say, completed by values and by DDL."""
        parsed = self._parse(events, LearnedTable(plan_of(declared)))
        return describe_images(events.table, parsed.images, parsed.commit_ts, declared)

    def declared(self, table: TableName, ddl: Sequence[DDLEvent]) -> Mapping[str, TypeVersions]:  # noqa: ARG002
        """Return nothing: DDL events say no types beside their SQL text."""
        return {}

    def decode(self, events: TableEvents, plan: Plan, learned: Learned | None = None) -> Decoded:
        """Read messages in native code if possible; else parse them and cast the rows."""
        learned_table = (Learned() if learned is None else learned).of_table(events.table, plan)

        def general(some: TableEvents, learn: Learn | None = None) -> Decoded:
            return cast_images(self._parse(some, learned_table, learn), some, learned_table, _wire_of)

        if learned_table.native:
            return learned_table.kept(Templates).decode(events, learned_table, _wire_of, general)
        return general(events)

    def origins(self, events: TableEvents) -> pa.StructArray:
        """Return that messages say nothing, and that TiCDC sends no snapshots."""
        return no_origins(len(events))

    def commit_versions(self, events: TableEvents) -> pa.Int64Array:
        """Look for the TiDB extension near the end of each message."""
        ends = pc.binary_slice(events.payload_array(), -_LONGEST_EXTENSION, None)
        return number_after(ends, _EXTENSION)

    def _parse(self, events: TableEvents, learned: LearnedTable, learn: Learn | None = None) -> Parsed:
        parsed, plan = Parsed.of(len(events)), learned.plan
        images = parsed.images
        boundaries = plan.boundaries()
        last_signature: tuple[object, ...] | None = None
        for event, payload in enumerate(events.payloads):
            images_before = len(images.rows)
            try:
                message = parse_object(payload)
                extension = message.get("_tidb")
                if extension and ("claimCheckLocation" in extension or "onlyHandleKey" in extension):
                    message = self._whole_message(message, parsed)
                rows = message["data"]
                parsed.commit_ts[event] = _commit_ts(message)
                parsed.build_ts[event] = milliseconds(message.get("ts"))  # 0 before v5.4
                if not rows:
                    msg = "a row message without 'data'"
                    raise ValueError(msg)
                version = bisect_left(boundaries, parsed.commit_ts[event] or 0) if boundaries else 0
                types, codes, keys = message.get("mysqlType"), message.get("sqlType"), message.get("pkNames")
                signature = (types, codes, keys, version, tuple(rows[0]))
                if signature != last_signature:
                    columns = _columns(message, rows)
                    if version:
                        columns = tuple(replace(column, since=boundaries[version - 1]) for column in columns)
                    last_signature = signature
                images.continue_run(columns)
                _add(images, event, message, rows, plan)
                if learn is not None:
                    fixed_codes = any(column.wire == _BEFORE_5_4 for column in columns)
                    learn(template_of(payload, rows[0], fixed_codes=fixed_codes), version, columns)
            except MALFORMED as error:
                images.truncate(images_before)
                parsed.failures[event] = parse_failure(error, "a canal-json row message").at(events.address(event))
        return parsed

    def _whole_message(self, message: JSONObject, parsed: Parsed) -> JSONObject:
        """Return the whole message for a large one; the large one itself if the key columns are all there is."""
        extension = message["_tidb"]
        claimed = extension.get("claimCheckLocation")
        if claimed and self.large.reads_files:
            message = self.large.claimed(claimed, lambda _, value: self._claimed(value, message))
            parsed.claimed += 1
        elif claimed or extension.get("onlyHandleKey"):
            self.large.accept_key_only()
            parsed.key_only += 1
        return message

    def _claimed(self, value: bytes, expected: JSONObject) -> JSONObject:
        """Return the message in a claim-check file.

        Args:
            value: the Kafka value in the file.
            expected: the message that names the file.

        Raises:
            DecodeError, ValueError: the file does not hold that message.
        """
        whole = parse_object(self.compression.decompressed(value))
        extension = whole.get("_tidb") or {}
        same = all(whole.get(member) == expected.get(member) for member in ("database", "table", "type"))
        if not same or extension.get("commitTs") != expected["_tidb"].get("commitTs"):
            msg = "it holds another event than the message says"
            raise ValueError(msg)
        if extension.get("claimCheckLocation") or extension.get("onlyHandleKey"):
            msg = "the row is not there either"
            raise ValueError(msg)
        return whole


# The TiDB extension ends a message. A text has a backslash before each quote, so none looks like this.
_EXTENSION, _LONGEST_EXTENSION = r'"_tidb":\{"commitTs":(?P<n>[1-9]\d{0,17})[,}]', 512


def _classify(split: Split, chunk: Chunk, position: int, value: bytes) -> None:
    """Parse a message and add its event to the split."""
    if not value:
        msg = "the value is empty"
        raise ValueError(msg)
    message = parse_object(value)
    message_type = message["type"]
    if message["isDdl"]:
        table = table_name(message.get("database"), message.get("table"))
        query = readable(message.get("sql") or "")
        ddl_type, commit_ts = readable(message_type), _commit_ts(message)
        split.ddl.append(
            DDLEvent(
                position=position,
                index=0,
                commit_ts=commit_ts,
                table=table,
                query=query,
                type=ddl_type,
                build_ts=milliseconds(message.get("ts")),
            )
        )
    elif message_type == _WATERMARK:
        watermark = tso(message["_tidb"]["watermarkTs"])
        split.watermarks.append(WatermarkEvent(position, 0, watermark, milliseconds(message.get("ts"))))
    elif message_type in _ROW_TYPES:
        split.table_events(chunk, table_name(message["database"], message["table"])).append(position, 0, value)
    else:
        msg = f"message type {message_type!r}"
        raise ValueError(msg)


def _commit_ts(message: JSONObject) -> int | None:
    """Return the commit-ts; without the TiDB extension a lower bound of it, made of `es` (ms)."""
    extension = message.get("_tidb")
    if extension and extension.get("commitTs") is not None:
        return tso(extension["commitTs"])
    event_time = milliseconds(message.get("es"))
    return None if event_time is None else event_time << 18


def _add(images: Images, event: int, message: JSONObject, rows: list[Row], plan: Plan) -> None:
    """Add the images of a message. Official Canal's messages may hold several rows."""
    message_type, olds = message["type"], message.get("old")
    for index, row in enumerate(rows):
        if type(row) is not dict:
            msg = f"a row of 'data' is {row!r}"
            raise TypeError(msg)
        if index and row.keys() != rows[0].keys():  # the columns are those of the first row
            msg = "the rows of 'data' have different columns"
            raise ValueError(msg)
        if message_type == "INSERT":
            images.add(event, index, None, row, plan, update=False)
        elif message_type == "DELETE":  # the row is in `data`, before v5.4 in `old` too
            images.add(event, index, row, None, plan, update=False)
        else:
            old = olds[index] if olds else None
            # `old` may have the changed columns only. The others have the new values (docs/wire.md, item 11).
            images.add(event, index, None if old is None else {**row, **old}, row, plan, update=True)


def _columns(message: JSONObject, rows: list[Row]) -> tuple[Column, ...]:
    types = message.get("mysqlType") or {}
    codes = message.get("sqlType") or {}
    key = message.get("pkNames")
    keys = frozenset(key or ())
    keyed = None if key is None else bool(keys)
    names = list(map(text, rows[0]))
    columns = tuple(_column(name, types.get(name), codes.get(name), name in keys, keyed) for name in names)
    if any(column.is_open and column.wire == _BEFORE_5_4 for column in columns):  # it says the sign of no number
        columns = tuple(
            _open_sign(column) if column.type and column.type.name in _SIGNED and not column.is_open else column
            for column in columns
        )
    return columns


@lru_cache(maxsize=4096)
def _column(name: str, mysql_type: str | None, code: int | None, key: bool, keyed: bool | None) -> Column:  # noqa: FBT001
    """Return a column. `keyed` is whether the table has a primary key, if the message tells.

    Without a primary key, the handle key may be another one, which is not named (docs/wire.md, item 42).
    """
    facts = NO_FACTS if keyed is None else ColumnFacts(primary_key=key, handle_key=key if keyed else None)
    type_ = None if mysql_type is None else parse_type(mysql_type)
    if type_ is None or (code == _BLOB and type_.name not in TYPES):
        behind = _BEHIND.get(code) if code is not None else None
        if behind is None:
            return Column(name, key=key, facts=facts)
        vague = bool(behind.names)
        return Column(name, behind.type, key=key, vague=vague, behind=behind.names, facts=facts, coded=True)
    if code == _BLOB and type_.name in _TEXT_TO_BINARY:
        type_ = ColumnType(_TEXT_TO_BINARY[type_.name], length=type_.length)
    column = Column(name, type_, key=key, facts=facts)
    if type_.unsigned or code is None or _PROMOTED.get(type_.name) != code:
        return column
    return replace(_open_sign(column), wire=_BEFORE_5_4)


def _open_sign(column: Column) -> Column:
    """Return the column with the type that holds both signs."""
    if column.type is None:
        return column
    type_ = replace(column.type, unsigned=True)
    return replace(column, type=type_, vague=True, behind=frozenset({type_.name}))


def _wire_of(column: Column, read_field: ReadField) -> tuple[Wire | None, ColumnType]:
    declared = read_field.type_since(column.since)
    if column.is_open and declared is not None and declared.name in column.behind:
        return KERNELS[declared.name], declared
    if column.coded and column.type and not convertible(column.type.arrow, read_field.arrow):
        type_ = type_of(read_field.arrow)
        return (EXACT_FLOAT_TEXT if type_.family == "float" else KERNELS[type_.name]), type_
    type_ = column.type.refined_by(declared) if column.type else declared or type_of(read_field.arrow)
    return KERNELS.get(type_.name), type_
