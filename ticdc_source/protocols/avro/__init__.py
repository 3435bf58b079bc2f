"""The avro decoder (pingcap/ticdc pkg/sink/codec/avro; docs/wire.md, items 114 and 121 to 128).

A value is a row in Avro behind the id of its schema, and a key its primary key. A delete may have no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DecodeError
from ticdc_source.kernels import numbers, strings
from ticdc_source.kernels.arrays import Binaries
from ticdc_source.kernels.contract import Cast, UnscaledCast
from ticdc_source.kernels.numbers import listed
from ticdc_source.kernels.wire import Cells, Kernel, Settings, Wire, integer_cast
from ticdc_source.options.logins import RegistrySettings
from ticdc_source.options.topics import TopicPartition
from ticdc_source.protocols.avro.checksum import wrong_checksum
from ticdc_source.protocols.avro.row_schema import (
    BEFORE,
    CHECKSUM,
    COMMIT_TS,
    CORRUPTED,
    OP,
    RowSchema,
    column_order,
    original_table,
    row_schema_of,
    sanitized,
    template_of,
)
from ticdc_source.protocols.base import Decoded, Learned, LearnedTable, ProtocolFacts
from ticdc_source.protocols.checksums import CORRUPTED as IS_CORRUPTED
from ticdc_source.protocols.checksums import verify
from ticdc_source.protocols.decoding import Decoder, ReadEvent
from ticdc_source.protocols.events import Split, TableEvents, WatermarkEvent
from ticdc_source.protocols.images import Parsed
from ticdc_source.protocols.messages import MALFORMED, parse_object, readable, table_name, tso
from ticdc_source.protocols.plan import Plan
from ticdc_source.protocols.registry_framing import CONFLUENT_BYTES, GLUE_BYTES, body_of, has_header, is_envelope
from ticdc_source.protocols.templates import General, Templates
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.model import Column, ReadField, TypeVersions
from ticdc_source.schema.table_name import TableName, Wants, every_table
from ticdc_source.schema.tso import of_ms
from ticdc_source.schema.types import BINARIES, INTEGERS, ColumnType
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.schema_registry import SchemaId

# How avro writes each type: numbers as numbers, DECIMAL and BIT as bytes, dates and times as MySQL's text.
_EXACT = Context(prec=100)  # TiDB's decimals have at most 65 digits


def decimal_wire(scale: int) -> Wire:
    """DECIMAL with `avro-decimal-handling-mode=precise`: a big-endian integer, with the messages' scale."""

    def texts(cells: Cells) -> Cells:
        return [None if cell is None else _decimal_text(cell, scale) for cell in listed(cells, bytes)]

    def natural(type_: ColumnType, settings: Settings) -> Kernel:
        of_text = numbers.DECIMAL_TEXT.natural(type_, settings)
        return lambda cells: of_text(texts(cells))

    def text(type_: ColumnType, settings: Settings) -> Kernel:
        of_text = numbers.DECIMAL_TEXT.text(type_, settings)
        return lambda cells: of_text(texts(cells))

    def cast(type_: ColumnType, _settings: Settings) -> Cast | None:
        arrow = type_.arrow
        if not pa.types.is_decimal(arrow) or arrow.scale < scale:
            return None
        return UnscaledCast(arrow.precision, arrow.scale - scale)

    return Wire(natural, text, arrays=pa.binary(), cast=cast)


def _decimal_text(cell: bytes, scale: int) -> str:
    number = Decimal(int.from_bytes(cell, "big", signed=True))
    return format(number.scaleb(-scale, _EXACT), f".{scale}f")


def _single_text(type_: ColumnType, settings: Settings) -> Kernel:
    """Write a FLOAT as MySQL does, with the digits that identify a 32-bit float."""
    of_text = numbers.FLOAT_NUMBER.text(type_, settings)

    def cast(cells: Cells) -> pa.Array:
        return of_text(
            [None if cell is None else float(numbers.shortest_single(cell)) for cell in listed(cells, float)]
        )

    return cast


def _integers_cast(type_: ColumnType, _settings: Settings) -> Cast | None:
    return integer_cast(type_.arrow, text=False) if pa.types.is_integer(type_.arrow) else None


_INTEGER = replace(numbers.WRAPPED_INTEGER, cast=_integers_cast)

# How integers are written with `avro-bigint-unsigned-handling-mode=string`.
IN_TEXT: dict[str, Wire] = {"bigint": numbers.INTEGER_TEXT}

# A DECIMAL is text with avro-decimal-handling-mode=string; otherwise it is written as `decimal_wire` says.
KERNELS: dict[str, Wire] = {
    **strings.TEXT_KERNELS,
    **dict.fromkeys(INTEGERS, _INTEGER),
    "year": numbers.YEAR_NUMBER,
    "float": replace(numbers.FLOAT_NUMBER, text=_single_text),
    "double": numbers.FLOAT_NUMBER,
    "bit": numbers.BIT_BYTES,
    **dict.fromkeys(BINARIES, strings.BYTES),
    "enum": strings.LABEL,
    "set": strings.LABEL,
}


_DDL, _WATERMARK, _DELETE = 1, 2, 3  # the first byte of messages that are no rows (`avro-enable-watermark`)
_OPERATIONS = {"u": "update", "d": "delete"}  # by the field OP
_SHORT = 9  # bytes of a watermark, and of a delete without a row: the first byte and a TSO


def _recognizes(key: bytes | None, value: bytes | None) -> bool:
    if value is None:
        return has_header(key)
    if key is None and value[:1] == bytes([_WATERMARK]) and len(value) == _SHORT:
        return True
    if is_envelope(value):
        return False
    return has_header(value) or value.startswith(b'\x01{"query":') or (len(value) == _SHORT and has_header(key))


def _shows_extension(value: bytes, registry: RegistrySettings) -> bool | None:
    """Look at the row's schema. A delete without a row does not tell."""
    return None if _has_no_row(value) else COMMIT_TS in row_schema_of(registry, body_of(value).schema_id).own


class Avro(Decoder):
    """The decoder of avro, which has no large messages and no start-ts."""

    facts = ProtocolFacts(
        name="avro",
        recognizes=_recognizes,
        kernels=KERNELS,
        watermarks_need="enable-tidb-extension=true and avro-enable-watermark=true",
        lacks_commit_ts=True,
        has_checksums=True,
        shows_extension=_shows_extension,
        sent_name=sanitized,
    )

    def split(self, chunk: Chunk, wants: Wants = every_table, learned: Learned | None = None) -> Split:
        """Identify a row's table by its schema id."""
        return self._of_one_table(chunk, wants) or super().split(chunk, wants, learned)

    def _of_one_table(self, chunk: Chunk, wants: Wants) -> Split | None:
        """Split a chunk with rows of only one table, without looking at each; None for other chunks."""
        values = chunk.values
        if not isinstance(values, Binaries):
            return None
        for width in (CONFLUENT_BYTES, GLUE_BYTES):
            heads = pc.unique(pc.binary_slice(values.array, 0, width)).to_pylist()
            if all(has_header(head) and body_of(head).start == width for head in heads):
                break
        else:
            return None
        try:
            tables = {self._schema(head)[0].table for head in heads}
        except MALFORMED:
            return None
        return Split.of_one_table(chunk, tables.pop(), wants) if len(tables) == 1 else None

    def _add(self, split: Split, chunk: Chunk, position: int) -> None:
        key, value = chunk.keys[position], chunk.values[position] or b""
        if _has_no_row(value):
            if key is None:
                split.lost_deletes += 1
            else:
                split.table_events(chunk, self._schema(key)[0].table).append(position, 0, value)
        elif len(value) == _SHORT and value[0] == _WATERMARK:
            split.watermarks.append(WatermarkEvent(position, 0, tso(int.from_bytes(value[1:], "big"))))
        elif value[0] == _DDL:
            split.ddl.append(_ddl_event(position, value, self.settings.options.table_ddl))
        else:
            schema = self._schema(value)[0]
            split.table_events(chunk, schema.table).append(position, 0, value)

    def decode(self, events: TableEvents, plan: Plan, learned: Learned | None = None) -> Decoded:
        """Fill in the commit-ts that messages lack."""
        decoded = super().decode(events, plan, learned)
        if not len(events):
            return decoded
        chunk, positions = events.chunk, events.positions
        topic_partition, last = TopicPartition(chunk.topic, chunk.partition), chunk.offsets[positions[-1]]
        own = pc.fill_null(pc.greater_equal(decoded.commit_ts, 0), False)  # noqa: FBT003 (-1 on the native path)
        if own.true_count < len(events):
            first_known = own.index(True).as_py()
            before = None
            if learned is not None and first_known != 0:
                before = learned.commit_ts_before(events.table, topic_partition, chunk.offsets[positions[0]])
            stated = pc.if_else(own, decoded.commit_ts, pa.scalar(None, pa.int64())).to_pylist()
            decoded.placed = pc.invert(own)
            decoded.commit_ts = pa.array(_filled(stated, events, decoded.failures, before), pa.int64())
        if learned is not None and own.true_count:
            learned.remember_commit_ts(events.table, topic_partition, last, _last_of(decoded.commit_ts, own))
        return decoded

    def _by_templates(self, events: TableEvents, learned: LearnedTable, general: General) -> Decoded:
        """Read rows by the templates of their schemas.

        Only a key's schema names the key columns, so each has its own templates.
        """
        if not len(events) or self.settings.options.verify_checksum != "off":
            return general(events, None)
        keys, positions = events.chunk.keys, events.positions
        whole = isinstance(positions, range)
        heads = _heads(keys if whole else list(map(keys.__getitem__, positions)))
        if len(heads) != 1:
            return general(events, None)
        templates = learned.kept(Templates, heads.pop())
        candidates = None  # all
        if not whole or not isinstance(events.payloads, Binaries):
            with_row = [event for event, payload in enumerate(events.payloads) if not _has_no_row(payload)]
            candidates = None if len(with_row) == len(events) else pa.array(with_row, pa.int32())
        return templates.decode(events, learned, self._wire_of, general, candidates=candidates)

    def _schema(self, data: bytes) -> tuple[RowSchema, SchemaId, int]:
        schema_id, start = body_of(data)
        return row_schema_of(self.settings.registry, schema_id, self.settings.options.table_ddl), schema_id, start

    def commit_versions(self, events: TableEvents) -> pa.Int64Array:
        """Decode the rows without building columns, because the commit-ts follows them."""
        commit_ts = super().decode(events, Plan(())).commit_ts
        return pc.if_else(pc.greater_equal(commit_ts, 0), commit_ts, pa.scalar(None, pa.int64()))

    def _sampled(self, events: TableEvents, declared: Mapping[str, TypeVersions] | None) -> Parsed:
        parsed = super()._sampled(events, declared)
        parsed.commit_ts = _filled(parsed.commit_ts, events, parsed.failures)
        return parsed

    def _reader(self, events: TableEvents, parsed: Parsed, learned: LearnedTable) -> ReadEvent:
        plan, images, learn = learned.plan, parsed.images, parsed.learn
        keys = events.chunk.keys
        mode = self.settings.options.verify_checksum
        verifies = (bool(plan.fields) or plan.documents) and mode != "off"
        declared = column_order(events.table, self.settings.options.table_ddl) if verifies else ()
        columns_of: dict[tuple[SchemaId | None, SchemaId | None], tuple[Column, ...]] = {}

        def columns(of: RowSchema, schema_id: SchemaId | None, key: bytes | None) -> tuple[Column, ...]:
            key_id = body_of(key).schema_id if key else None
            place = (schema_id, key_id)
            marked = columns_of.get(place)
            if marked is None:
                names = frozenset(one.name for one in self._schema(key)[0].columns) if key else frozenset()
                marked = columns_of[place] = tuple(_with_key_flag(one, names) for one in of.columns)
            return marked

        def read(event: int, payload: bytes) -> None:
            key = keys[events.positions[event]]
            if _has_no_row(payload):
                if payload:
                    parsed.commit_ts[event] = tso(int.from_bytes(payload[1:], "big"))
                schema, _, start = self._schema(key or b"")
                images.continue_run(columns(schema, None, key))
                images.add(event, 0, "delete", schema.row(schema.schema.read(key or b"", start)), None, plan)
                return
            schema, schema_id, start = self._schema(payload)
            row = schema.schema.read(payload, start)
            own = {name: row.pop(name) for name in schema.own}
            if COMMIT_TS in own:
                parsed.commit_ts[event] = tso(own[COMMIT_TS])
            row = schema.row(row)
            before, op = own.get(BEFORE), str(own.get(OP))
            before = None if before is None else schema.row(before)
            of_row = columns(schema, schema_id, key)
            images.continue_run(of_row)
            operation = _OPERATIONS.get(op, "insert" if before is None else "update")
            images.add(event, 0, operation, row, before, plan)
            expected = str(own.get(CHECKSUM))
            if verifies and operation in plan.operations and own.get(CORRUPTED):
                verify(event, parsed, mode, lambda: IS_CORRUPTED)
            elif verifies and operation in plan.operations and expected.isdecimal():
                settings = plan.settings
                verify(event, parsed, mode, lambda: wrong_checksum(of_row, row, int(expected), declared, settings))
            if learn is not None:
                learn(template_of(payload[:start], schema), 0, of_row)

        return read

    def _wire_of(self, column: Column, read_field: ReadField) -> tuple[Wire | None, ColumnType]:
        wire, type_ = super()._wire_of(column, read_field)
        if column.wire == "string" and type_.name in IN_TEXT:
            return IN_TEXT[type_.name], type_
        if column.wire == "bytes" and type_.name == "decimal":
            return decimal_wire(type_.scale or 0), type_
        return wire, type_


def _has_no_row(value: bytes) -> bool:
    return not value or (len(value) == _SHORT and value[0] == _DELETE)


def _with_key_flag(column: Column, keys: frozenset[str]) -> Column:
    if not keys:
        return column
    is_key = column.name in keys
    return replace(column, key=is_key, facts=replace(column.facts, handle_key=is_key))


def _heads(keys: Sequence[bytes | None]) -> set[bytes]:
    """Return the distinct schema headers of keys, b"" for no key. The first key determines their length."""
    width = CONFLUENT_BYTES if (keys[0] or b"\0").startswith(b"\0") else GLUE_BYTES
    return {(key or b"")[:width] for key in keys}


def _filled(
    stated: Sequence[int | None], events: TableEvents, failures: Mapping[int, DecodeError], before: int | None = None
) -> list[int | None]:
    """Fill in missing commit-ts (docs/wire.md, item 127); `before` is that of the last row before these.

    A delete without a value has none. Within a topic partition, TiCDC writes a table's changes by commit-ts, so the
    delete gets that of the previous row, and the offset orders the two (`Decoded.placed`). Without a previous row, it
    gets that of the next row, or else the time of its Kafka record. Without the TiDB extension, every row gets the time
    of its record.
    """
    filled, timestamps = list(stated), events.chunk.timestamps
    following = next((ts for ts in stated if ts is not None), None)
    for event, ts in enumerate(stated):
        if ts is not None:
            before = ts
        elif event not in failures:
            time = timestamps[events.positions[event]]  # -1 for none
            other = before if before is not None else following
            filled[event] = other if other is not None else of_ms(time) if time >= 0 else None
    return filled


def _last_of(commit_ts: pa.Int64Array, own: pa.BooleanArray) -> int:
    last: int = commit_ts.filter(own)[-1].as_py() if not own[-1].as_py() else commit_ts[-1].as_py()
    return last


def _ddl_event(position: int, value: bytes, table_ddl: str | None) -> DDLEvent:
    message = parse_object(value[1:])
    # Rows have sanitized names, and DDL the original ones.
    table = TableName(*map(sanitized, table_name(message.get("schema"), message.get("table"))))
    type_code = message.get("type")
    return DDLEvent(
        position=position,
        index=0,
        commit_ts=tso(message["commitTs"]),
        table=original_table(table, table_ddl),
        query=readable(message.get("query") or ""),
        type="",
        type_code=type_code if type(type_code) is int else None,
    )
