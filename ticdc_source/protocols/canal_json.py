"""The canal-json decoder, for TiCDC's messages and official Canal's (docs/wire.md, items 68 to 76).

A message is one JSON object (pingcap/ticdc pkg/sink/codec/canal). Every value of a row is text. `mysqlType` and
`sqlType` describe the columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels import numbers, strings
from ticdc_source.kernels.contract import Branch, Choice, Const, Image, Members, PlainCast, Program, Row, Step, Way
from ticdc_source.kernels.wire import Cells, Kernel, Settings, Wire
from ticdc_source.protocols.base import Learned, LearnedTable, ProtocolFacts
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.decoding import ColumnRuns, ReadEvent, number_after
from ticdc_source.protocols.events import Split, TableEvents, WatermarkEvent
from ticdc_source.protocols.images import Images, Parsed, with_old_columns
from ticdc_source.protocols.large_messages import Marks
from ticdc_source.protocols.messages import (
    JSONObject,
    commit_ts_or_time,
    message_of_schema_file,
    milliseconds,
    parse_object,
    readable,
    table_name,
    text,
    tso,
)
from ticdc_source.protocols.plan import Plan
from ticdc_source.protocols.prefix_match import JSONDecoder, PrefixMatch, object_bytes, plain_bytes
from ticdc_source.protocols.sampling import telling
from ticdc_source.protocols.templates import (
    BUILD_TS,
    COMMIT_TS,
    DELETE,
    EVENT_TIME,
    INSERT,
    UPDATE,
    KeepTemplate,
    Template,
    heads_of,
)
from ticdc_source.schema.ddl_event import DDLEvent, is_ddl_text
from ticdc_source.schema.model import NO_FACTS, Column, ColumnFacts, ReadField
from ticdc_source.schema.tso import physical_ms
from ticdc_source.schema.types import (
    BINARIES,
    BINARY_OF,
    INTEGERS,
    MAY_BE_UNSIGNED,
    TYPES,
    ColumnType,
    convertible,
    parse_type,
    type_of,
)
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.storage.file_format import FileFormat, LineCutter


def _latin1(cell: str) -> bytes:
    """Return the bytes that canal-json writes as ISO-8859-1 text (docs/wire.md, item 16)."""
    try:
        return cell.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError("not binary as canal-json writes it: a character beyond U+00FF") from None


def _exact_floats(type_: ColumnType, settings: Settings) -> Kernel:
    """Read FLOAT and DOUBLE from another type's text; refuse more digits than they can hold."""
    read = numbers.FLOAT_TEXT.natural(type_, settings)

    def cast(cells: Cells) -> pa.Array:
        array = read(cells)
        for cell, shortest in zip(cells, array.cast(pa.string()).to_pylist(), strict=True):
            if shortest is not None and Decimal(str(cell)) != Decimal(shortest):
                raise ValueError(f"a {type_} cannot hold all of its digits")
        return array

    return cast


EXACT_FLOAT_TEXT = Wire(_exact_floats, numbers.FLOAT_TEXT.text)

LATIN1_BINARY = strings.binary_wire(_latin1, PlainCast.LATIN1)

KERNELS: dict[str, Wire] = {**strings.TEXT_KERNELS, **dict.fromkeys(BINARIES, LATIN1_BINARY)}


# Files of a storage sink hold one message a line, always with the TiDB extension (pingcap/ticdc
# pkg/sink/codec/canal/canal_json_txn_encoder.go). DDL and the checkpoint-ts are in other files; they become the
# messages that TiCDC sends to Kafka (canal_json_encoder.go, helper.go).
# Canal's word for TiDB's code of a DDL; `QUERY` for the others.
_WORDS = {
    **dict.fromkeys((3,), "CREATE"),
    **dict.fromkeys((14, 47), "RENAME"),
    **dict.fromkeys((7, 9, 32), "CINDEX"),
    **dict.fromkeys((8, 10, 33), "DINDEX"),
    **dict.fromkeys((5, 6, 12, 13, 15, 17, 18, 19, 20, 22, 23, 37, 38, 41, 61, 64, 71, 72), "ALTER"),
    **dict.fromkeys((4,), "ERASE"),
    **dict.fromkeys((11,), "TRUNCATE"),
}


def _file_message(database: str, table: str, *, is_ddl: bool, type_: str, ts: int, sql: str, **extension: int) -> bytes:
    message: dict[str, Any] = {
        "id": 0, "database": database, "table": table, "pkNames": None, "isDdl": is_ddl, "type": type_,
        "es": physical_ms(ts), "ts": 0, "sql": sql, "sqlType": None, "mysqlType": None, "data": None, "old": None,
        "_tidb": extension,
    }  # fmt: skip
    return orjson.dumps(message)


def _of_schema(schema: JSONObject) -> bytes | None:
    if not schema.get("Query"):
        return None  # the table before its first row; rows describe themselves
    version = tso(schema["TableVersion"])
    return _file_message(
        text(schema.get("Schema") or ""),
        text(schema.get("Table") or ""),
        is_ddl=True,
        type_=_WORDS.get(schema.get("Type", 0), "QUERY"),
        ts=version,
        sql=text(schema["Query"]),
        commitTs=version,
    )


def _of_checkpoint(ts: int) -> bytes:
    return _file_message("", "", is_ddl=False, type_="TIDB_WATERMARK", ts=ts, sql="", watermarkTs=ts)


_FILES = FileFormat(
    extension=".json",
    cutter=lambda _version, settings: LineCutter(settings.terminator),
    of_schema=message_of_schema_file(_of_schema),
    of_checkpoint=_of_checkpoint,
)


_OPERATIONS = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}
_WATERMARK = "TIDB_WATERMARK"
# Official Canal's other event types (docs/wire.md, item 132). A QUERY may be DDL, or the SQL text of a change.
_DDL_TYPES = frozenset({"CREATE", "ALTER", "ERASE", "RENAME", "TRUNCATE", "CINDEX", "DINDEX"})
_WITHOUT_ROWS = frozenset({"QUERY", "GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT"})
_NO_FIELDS = Plan(())
_CLAIM_CHECK = b'"claimCheckLocation":"'

# What row messages begin with, as TiCDC writes them. Other messages are parsed.
_PREFIX = PrefixMatch(
    rb'\{"id":\d+,"database":"([^"\\]*)","table":"([^"\\]*)","pkNames":(?:null|\[[^\]]*\]),"isDdl":false,'
    rb'"type":"(INSERT|UPDATE|DELETE)",',
    marker=b'"type":"',
)

# The sqlType (java.sql.Types) of binary columns, whatever mysqlType says (docs/wire.md, item 16).
_BLOB = 2004
# TiCDC before v5.4 never wrote "unsigned" and always wrote the sqlType of the next larger type (docs/wire.md, item 75).
# These messages do not say the sign, so the column gets the unsigned type, which holds both. Later releases never write
# the larger sqlType for a signed column.
_BEFORE_5_4 = "before v5.4"  # `Column.wire`
_PROMOTED = {name: TYPES[name].sql_types[1] for name in INTEGERS if len(TYPES[name].sql_types) > 1}


class _Behind(NamedTuple):
    """A column's type by sqlType, without mysqlType: the type that holds all values, and the possible types."""

    type: ColumnType
    names: frozenset[str]


def _behind(code: int, widest: str) -> _Behind:
    names = frozenset(name for name, row in TYPES.items() if code in row.sql_types)
    type_ = ColumnType(widest, unsigned=widest in MAY_BE_UNSIGNED and widest != "decimal")
    return _Behind(type_, names if type_.unsigned or len(names) > 1 else frozenset())


# Several types share a code, and the code of an unsigned integer depends on its value (docs/wire.md, items 19, 71, 75).
_WIDEST = {
    -7: "bigint", -6: "tinyint", 5: "smallint", 4: "int", -5: "bigint", 3: "decimal", 7: "float", 8: "double",
    1: "char", 12: "varchar", 2005: "longtext", _BLOB: "longblob", 91: "date", 92: "time", 93: "datetime",
}  # fmt: skip
_BEHIND = {code: _behind(code, widest) for code, widest in _WIDEST.items()}


def _recognizes(key: bytes | None, value: bytes | None) -> bool:  # noqa: ARG001 (the value is enough)
    plain = object_bytes(value, Compression())
    return b'"isDdl"' in plain and (b'"mysqlType"' in plain or b'"sqlType"' in plain)


def _shows_extension(message: JSONObject) -> bool | None:
    is_official = message.get("id") or "gtid" in message  # TiCDC writes 0, and no gtid
    return None if is_official else bool(message.get("_tidb"))


class CanalJSON(JSONDecoder):
    """The decoder of canal-json."""

    facts = ProtocolFacts(
        name="canal-json",
        recognizes=_recognizes,
        kernels=KERNELS,
        ddl_partition=0,
        watermarks_need="enable-tidb-extension=true",
        commit_ts_needs="TiCDC writes it with enable-tidb-extension=true",
        files=_FILES,
        shows_extension=lambda value, _: _shows_extension(parse_object(value)),
    )
    prefix = _PREFIX

    def claim_checks(self, key: bytes | None, value: bytes | None) -> int:
        """Search the value for the address; the key is empty or null."""
        return 0 if key else int(_CLAIM_CHECK in plain_bytes(value, self.settings.compression))

    def _classify(self, split: Split, chunk: Chunk, position: int, value: bytes) -> None:
        message = parse_object(value)
        message_type, is_ddl = message["type"], message["isDdl"]
        if message_type in _OPERATIONS and not is_ddl:
            split.table_events(chunk, table_name(message["database"], message["table"])).append(position, 0, value)
        elif message_type == _WATERMARK:
            watermark = tso(message["_tidb"]["watermarkTs"])
            split.watermarks.append(WatermarkEvent(position, 0, watermark, milliseconds(message.get("ts"))))
        elif (
            is_ddl or message_type in _DDL_TYPES or (message_type == "QUERY" and is_ddl_text(message.get("sql") or ""))
        ):
            commit_ts, placed = _commit_ts(message, message.get("_tidb"))
            split.ddl.append(
                DDLEvent(
                    position=position,
                    index=0,
                    table=table_name(message.get("database"), message.get("table")),
                    query=readable(message.get("sql") or ""),
                    type=readable(message_type),
                    commit_ts=commit_ts,
                    place=chunk.place(position) if placed else None,
                    build_ts=milliseconds(message.get("ts")),
                )
            )
        elif message_type in _WITHOUT_ROWS and not message.get("data"):
            split.skipped += 1
        else:
            raise ValueError(f"message type {message_type!r}")

    def commit_versions(self, events: TableEvents) -> pa.Int64Array:
        """Look for the TiDB extension near the end of each message, where it mostly has nothing else."""
        payloads = events.payload_array()
        begins = pc.equal(pc.binary_slice(payloads, -_LENGTH, _DIGITS.start), _BEFORE)
        if pc.all(pc.and_(begins, pc.equal(pc.binary_slice(payloads, _DIGITS.stop, None), _AFTER))).as_py():
            digits = pc.binary_slice(payloads, _DIGITS.start, _DIGITS.stop)
            if pc.all(pc.match_substring_regex(digits, r"^[1-9]\d{17}$")).as_py():
                return digits.cast(pa.string()).cast(pa.int64())
        return number_after(pc.binary_slice(payloads, -_LONGEST_EXTENSION, None), _EXTENSION)

    def _telling(self, events: TableEvents, learned: Learned) -> TableEvents:
        def parse(some: TableEvents, learn: KeepTemplate) -> None:
            self._parse(some, LearnedTable(_NO_FIELDS), learn)

        return telling(events, learned, parse)

    def _reader(self, events: TableEvents, parsed: Parsed, learned: LearnedTable) -> ReadEvent:
        plan, learn, decompressed = learned.plan, parsed.learn, self.settings.compression.decompressed
        runs = ColumnRuns(events, parsed, plan)

        def read(event: int, payload: bytes) -> None:
            message = parsed.parse(payload)
            extension = message.get("_tidb")
            if extension and ("claimCheckLocation" in extension or "onlyHandleKey" in extension):
                message = self.settings.large.whole_message(
                    message, _marks_of, lambda value: parsed.parse(decompressed(value)), parsed
                )
            rows = message["data"]
            commit_ts, placed = _commit_ts(message, extension)
            parsed.commit_ts[event], parsed.placed[event] = commit_ts, placed
            parsed.build_ts[event] = milliseconds(message.get("ts"))  # 0 before v5.4
            if not rows:
                raise ValueError("a row message without 'data'")
            described = rows[0]
            for old in message.get("old") or () if message["type"] == "UPDATE" else ():
                described = with_old_columns(described, old)
            signature = (message.get("mysqlType"), message.get("sqlType"), message.get("pkNames"), *described)
            columns = runs.columns(event, signature, lambda: _columns(message, described))
            _add(parsed.images, event, message, rows, plan)
            if learn is not None and described is rows[0]:
                fixed_codes = any(column.wire == _BEFORE_5_4 for column in columns)
                learn(template_of(payload, rows[0], fixed_codes=fixed_codes, placed=placed), runs.version, columns)

        return read

    def _wire_of(self, column: Column, read_field: ReadField) -> tuple[Wire | None, ColumnType]:
        declared = read_field.type_since(column.since)
        if column.is_open and declared is not None and declared.name in column.behind:
            return KERNELS[declared.name], declared
        if column.coded and column.type and not convertible(column.type.arrow, read_field.arrow):
            type_ = type_of(read_field.arrow)
            return (EXACT_FLOAT_TEXT if type_.family == "float" else KERNELS[type_.name]), type_
        type_ = column.type.refined_by(declared) if column.type else declared or type_of(read_field.arrow)
        return KERNELS.get(type_.name), type_


def _marks_of(message: JSONObject) -> Marks:
    extension = message.get("_tidb") or {}
    identity = [*map(message.get, ("database", "table", "type")), extension.get("commitTs")]
    return Marks(extension.get("claimCheckLocation"), extension.get("onlyHandleKey"), identity)


# The TiDB extension ends a message. A text has a backslash before each quote, so none looks like this.
# The end of a message whose extension has only a commit-ts, of 18 digits as those of the years 1996 to 2090.
_BEFORE, _AFTER = b'"_tidb":{"commitTs":', b"}}"
_DIGITS = slice(-18 - len(_AFTER), -len(_AFTER))
_LENGTH = len(_BEFORE) - _DIGITS.start
_EXTENSION, _LONGEST_EXTENSION = r'"_tidb":\{"commitTs":(?P<n>[1-9]\d{0,17})[,}]', 512


def _commit_ts(message: JSONObject, extension: JSONObject | None) -> tuple[int | None, bool]:
    return commit_ts_or_time((extension or {}).get("commitTs"), message.get("es"))


def _add(images: Images, event: int, message: JSONObject, rows: list[JSONObject], plan: Plan) -> None:
    """Add the images of a message; official Canal's may have several rows."""
    operation = _OPERATIONS[message["type"]]
    olds = message.get("old") if operation == "update" else None  # before v5.4, a DELETE has its row there too
    for index, row in enumerate(rows):
        if type(row) is not dict:  # also of an operation that is not wanted
            raise TypeError(f"a row of 'data' is {row!r}")
        images.add(event, index, operation, row, olds[index] if olds else None, plan)
        if index and row.keys() != rows[0].keys():  # the columns are those of the first row
            raise ValueError("the rows of 'data' have different columns")


def _columns(message: JSONObject, row: JSONObject) -> tuple[Column, ...]:
    types = message.get("mysqlType") or {}
    codes = message.get("sqlType") or {}
    key = message.get("pkNames")
    keys = frozenset(key or ())
    keyed = None if key is None else bool(keys)
    names = list(map(text, row))
    columns = tuple(_column(name, types.get(name), codes.get(name), name in keys, keyed) for name in names)
    if any(column.is_open and column.wire == _BEFORE_5_4 for column in columns):  # it says no sign
        columns = tuple(
            _open_sign(column) if column.type and column.type.name in MAY_BE_UNSIGNED and not column.is_open else column
            for column in columns
        )
    return columns


@lru_cache(maxsize=4096)
def _column(name: str, mysql_type: str | None, code: int | None, key: bool, keyed: bool | None) -> Column:  # noqa: FBT001
    """Return a column; `keyed` says whether the table has a primary key, None if unknown.

    Without one, the handle key may be a unique key, which messages do not name (docs/wire.md, item 42).
    """
    facts = NO_FACTS if keyed is None else ColumnFacts(primary_key=key, handle_key=key if keyed else None)
    type_ = None if mysql_type is None else parse_type(mysql_type)
    if type_ is None or (code == _BLOB and type_.name not in TYPES):
        behind = _BEHIND.get(code) if code is not None else None
        if behind is None:
            return Column(name, key=key, facts=facts)
        vague = bool(behind.names)
        return Column(name, behind.type, key=key, vague=vague, behind=behind.names, facts=facts, coded=True)
    if code == _BLOB and type_.name in BINARY_OF:
        type_ = ColumnType(BINARY_OF[type_.name], length=type_.length)
    column = Column(name, type_, key=key, facts=facts)
    if type_.unsigned or code is None or _PROMOTED.get(type_.name) != code:
        return column
    return replace(_open_sign(column), wire=_BEFORE_5_4)


def _open_sign(column: Column) -> Column:
    assert column.type is not None  # noqa: S101 (for mypy)
    type_ = replace(column.type, unsigned=True)
    return replace(column, type=type_, vague=True, behind=frozenset({type_.name}))


# The template of a message as TiCDC writes it: its members have one order (pingcap/ticdc
# pkg/sink/codec/canal/canal_json_encoder.go), except those of `mysqlType`, which come from a hash map.
# From the start to the type. The type and two times follow.
_TEMPLATE_HEAD = (
    rb'(\{"id":(?:0|[1-9]\d*),"database":"[^"\\]*","table":"[^"\\]*","pkNames":(?:null|\[[^\]]*\]),'
    rb'"isDdl":false,"type":")'
)
_TIMES = rb'(?:INSERT|UPDATE|DELETE)","es":[1-9]\d*,"ts":[1-9]\d*,"sql":"","sqlType":\{'
_ROW_MESSAGE = re.compile(_TEMPLATE_HEAD + _TIMES + rb'([^{}]*)\},"mysqlType":\{([^{}]*)\},"old":')
_CODE = re.compile(rb'("[^"\\]+":)(-?\d+)(?:,|$)')
_MEMBER = re.compile(rb'("[^"\\]+"):"[^"\\]*"(?:,|$)')  # such members, joined by commas, are JSON in any order


def template_of(payload: bytes, names: Iterable[str], *, fixed_codes: bool, placed: bool) -> Template | None:
    """Return the template of a message; None if TiCDC writes no such messages.

    With `fixed_codes`, one column's `sqlType` may change the others' types; `placed` is as in `Decoded`.
    """
    match = _ROW_MESSAGE.match(payload)
    if match is None:
        return None
    head, codes, types = match.groups()
    parts, members = _CODE.findall(codes), list(_MEMBER.finditer(types))
    # The parts must be all there is, and no member may repeat another.
    whole = b",".join(name + code for name, code in parts) == codes
    if not whole or b",".join(member[0].rstrip(b",") for member in members) != types:
        return None
    if len({member[1] for member in members}) < len(members):
        return None
    texts = sorted(member[0].rstrip(b",") for member in members)
    heads = heads_of(names)
    commit_ts: list[Step] = [Const(b'}],"_tidb":{"commitTs":'), COMMIT_TS, Const(b"}}")]
    extension = [Const(b"}]}")] if placed else commit_ts
    code_names, code_values = tuple(name for name, _ in parts), tuple(code for _, code in parts)

    def program(variants: Sequence[Sequence[bytes]]) -> Program:
        code_steps: list[Step] = []
        for index, (name, seen) in enumerate(zip(code_names, variants, strict=True)):
            code_steps += [
                Const((b"," if index else b"") + name),
                Choice(sorted(seen, key=len, reverse=True)),
            ]  # 1 begins 12
        steps = [
            Const(head),
            Branch([Way(b"INSERT", [INSERT]), Way(b"UPDATE", [UPDATE]), Way(b"DELETE", [DELETE])]),
            Const(b'","es":'),
            EVENT_TIME,
            Const(b',"ts":'),
            BUILD_TS,
            Const(b',"sql":"","sqlType":{'),
            *code_steps,
            Const(b'},"mysqlType":{'),
            Members(texts),
            Const(b'},"old":'),
            Branch([Way(b"null", []), Way(b"[{", [Row(Image.PREIMAGE), Const(b"}]")])]),
            Const(b',"data":[{'),
            Row(Image.MAIN),
            *extension,
        ]
        return Program(steps, heads, tail=b"", partial=True)

    fixed = code_values if fixed_codes else None
    return Template(
        identity=(head, code_names, fixed, tuple(texts), heads, placed),
        variants=code_values,
        program=program,
        placed=placed,
    )
