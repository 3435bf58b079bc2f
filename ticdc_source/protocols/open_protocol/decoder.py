"""TiCDC open-protocol: frames, events, types (docs/wire.md, items 58 to 67; pingcap/ticdc pkg/sink/codec/open).

key   := u64be version(=1)  { u64be length, JSON }*      one frame an event: what and when
value :=                    { u64be length, JSON }*      the i-th belongs to the i-th key frame
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa

from ticdc_source.errors import DecodeError
from ticdc_source.events import Chunk, DDLEvent, Split, TableEvents, TableName, Wants, every_table
from ticdc_source.kernels import Wire, strings
from ticdc_source.options.options import Options
from ticdc_source.protocols.base import Decoded, Learned, LearnedTable
from ticdc_source.protocols.cast import cast_images
from ticdc_source.protocols.compression import decompressed
from ticdc_source.protocols.describe import describe_images, plan_of
from ticdc_source.protocols.images import Parsed
from ticdc_source.protocols.large_messages import LargeMessages
from ticdc_source.protocols.messages import MALFORMED, parse_failure, parse_object, text
from ticdc_source.protocols.open_protocol.kernels import KERNELS, QUOTED_BINARY
from ticdc_source.protocols.open_protocol.known_layout import OpenKnownLayout, Signature
from ticdc_source.protocols.open_protocol.release_bugs import restored_old_values, with_ticdc_flags
from ticdc_source.protocols.open_protocol.split import VERSION, events_of, split_frames
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.model import Column, ReadField, TableSchema, TypeVersions
from ticdc_source.schema.types import ColumnType, type_of

__all__ = ["OpenProtocol"]

# Flags of a column (pkg/sink/codec/open/message.go:138-199); the others tell nothing that a read needs.
_BINARY, _HANDLE_KEY, _UNSIGNED = 1, 2, 128

# Type codes (pingcap/tidb pkg/parser/mysql/type.go); 249-252 and 15, 253, 254 are binary where flag 1 says so.
_CODES = {
    1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 7: "timestamp", 8: "bigint", 9: "mediumint",
    10: "date", 11: "time", 12: "datetime", 13: "year", 14: "date", 15: "varchar", 16: "bit", 225: "vector",
    245: "json", 246: "decimal", 247: "enum", 248: "set", 249: "tinytext", 250: "mediumtext", 251: "longtext",
    252: "text", 253: "varchar", 254: "char",
}  # fmt: skip
_NULL = 6
_BINARY_NAMES = {
    15: "varbinary", 253: "varbinary", 254: "binary", 249: "tinyblob", 250: "mediumblob", 251: "longblob", 252: "blob",
}  # fmt: skip
_QUOTED_NAMES = frozenset({"char", "varchar"})
_BASE64_CODES = frozenset({249, 250, 251, 252})
_UNSIGNED_NAMES = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "decimal"})

# How a string column is written where its type alone does not tell; `Column.wire`.
_LEGACY = "base64"  # no flags at all: TiCDC up to v4.0.4
_UNFLAGGED = "unflagged"  # flags 0: right for a plain NOT NULL text, or lost in TiCDC's cache (docs/wire.md, item 104)


@dataclass(frozen=True)
class OpenProtocol:
    """The open-protocol decoder.

    Attributes:
        codec: the option `valueCompression`.
        large: how messages are read that were too large for Kafka.
    """

    codec: str = "auto"
    large: LargeMessages = field(default_factory=LargeMessages)

    name: ClassVar[str] = "open-protocol"
    kernels: ClassVar[Mapping[str, Wire]] = KERNELS
    options: ClassVar[frozenset[str]] = frozenset({"valueCompression", "claimCheckLocation", "onHandleKeyOnly"})
    chunk_records: ClassVar[int] = 500  # a record holds several events
    ddl_partition: ClassVar[int | None] = None
    watermarks_need: ClassVar[str | None] = None
    types_in_ddl: ClassVar[bool] = False

    @classmethod
    def of(cls, options: Options) -> OpenProtocol:
        """Return the decoder that these options ask for."""
        return cls(options.value_compression, LargeMessages(options.claim_check_location, options.on_handle_key_only))

    def recognizes(self, key: bytes | None, value: bytes | None) -> bool:
        """Tell by the key: the version, then frames or (maxwell has the same 8 bytes) no value."""
        return key is not None and key[:8] == VERSION and (len(key) > 8 or not value)  # noqa: PLR2004 (a u64)

    def split(self, chunk: Chunk, wants: Wants = every_table, learned: Learned | None = None) -> Split:  # noqa: ARG002 (frames tell all)
        """Cut frames; read key frames; leave value frames as they are."""
        return split_frames(chunk, self.codec, wants)

    def describe(
        self,
        events: TableEvents,
        ddl: Sequence[DDLEvent] = (),  # noqa: ARG002 (their texts are in `declared`)
        declared: Mapping[str, TypeVersions] | None = None,
    ) -> list[TableSchema]:
        """Say what types and flags tell."""
        decoded = self._parse(events, LearnedTable(plan_of(declared)))
        return describe_images(events.table, decoded.images, decoded.commit_ts, declared)

    def declared(self, table: TableName, ddl: Sequence[DDLEvent]) -> Mapping[str, TypeVersions]:  # noqa: ARG002
        """Return nothing: each message tells its types."""
        return {}

    def decode(self, events: TableEvents, plan: Plan, learned: Learned | None = None) -> Decoded:
        """Parse value frames and turn them to columns."""
        table = (Learned() if learned is None else learned).of_table(events.table, plan)
        return cast_images(self._parse(events, table), events, table, _wire_of)

    def _parse(self, events: TableEvents, table: LearnedTable) -> Parsed:
        decoded, plan = Parsed.of(len(events)), table.plan
        images, decoded.commit_ts = decoded.images, [head["ts"] for head in events.event_keys]
        fast_path = table.layouts(OpenKnownLayout)
        skims = plan.fast_path and self.codec in ("auto", "none")  # plain text is an error to the others
        signature: Signature | None = None
        boundaries, since = plan.boundaries(), 0
        for event in fast_path.unread(events, decoded, plan) if skims else range(len(events)):
            payload, head = events.payloads[event], events.event_keys[event]
            known = len(images.rows)
            try:
                if "ccl" in head or "ohk" in head:
                    payload = self._whole(head, payload, decoded)
                payload = decompressed(payload, self.codec)
                message = parse_object(payload)
                after, before, deleted = (message.get(member) for member in ("u", "p", "d"))
                update = before is not None
                if before and any(type(cell) is not dict for cell in before.values()):
                    before = restored_old_values(payload)
                described = after or deleted or {}
                if before and after is not None:
                    described = {**after, **{name: old for name, old in before.items() if name not in after}}
                seen = tuple((name, cell["t"], cell.get("f"), cell.get("h")) for name, cell in described.items())
                begun = bisect_left(boundaries, head["ts"]) if boundaries else 0
                if seen != signature or begun != since:
                    columns = _columns(seen, boundaries[begun - 1] if begun else 0)
                    signature, since = seen, begun
                    if skims:
                        fast_path.learn(seen, begun, columns)
                images.continue_run(columns)
                if after is not None and deleted is not None:
                    msg = "both a new row ('u') and a deleted one ('d')"
                    raise ValueError(msg)
                if after is not None:
                    row = {name: cell["v"] for name, cell in after.items()}
                    # Only changed columns may be there: the old row is the new one overlaid (docs/wire.md, item 11).
                    old = None if before is None else {**row, **{name: cell["v"] for name, cell in before.items()}}
                    images.add(event, events.indexes[event], old, row, plan, update=update)
                elif deleted is not None:
                    row = {name: cell["v"] for name, cell in deleted.items()}
                    images.add(event, events.indexes[event], row, None, plan, update=False)
                elif before is not None:
                    msg = "an old row ('p') without a new one ('u')"
                    raise ValueError(msg)
                else:  # tiflow leaves out an empty map: a row of which no column is selected
                    decoded.empty += 1
            except MALFORMED as error:
                images.truncate(known)
                decoded.failures[event] = parse_failure(error, "an open-protocol row event").at(events.address(event))
        return decoded

    def _whole(self, head: dict[str, Any], body: bytes, decoded: Parsed) -> bytes:
        """Return the value frame that this event stands for, as it was too large, or its own if that is lost."""
        if head.get("ccl"):
            body = self.large.claimed(head["ccl"], lambda key, value: _claimed(key, value, head))
            decoded.claimed += 1
        elif head.get("ohk"):
            self.large.accept_key_only()
            decoded.key_only += 1
        return body


def _claimed(key: bytes | None, value: bytes, stub: dict[str, Any]) -> bytes:
    """Take the one event out of a claim-check file: a whole record, framed as in Kafka."""
    events = events_of(key, value)
    if len(events) != 1:
        msg = f"it holds {len(events)} events"
        raise ValueError(msg)
    head, body = events[0]
    if isinstance(head, DecodeError):
        raise head
    if any(head.get(member) != stub.get(member) for member in ("ts", "scm", "tbl", "t")):
        msg = "it holds another event than the message says"
        raise ValueError(msg)
    if head.get("ccl") or head.get("ohk"):
        msg = "the row is not there either"
        raise ValueError(msg)
    return body


def _columns(seen: tuple[Any, ...], since: int) -> tuple[Column, ...]:
    columns = tuple(_column(text(name), code, flags, handle) for name, code, flags, handle in with_ticdc_flags(seen))
    return tuple(replace(column, since=since) for column in columns) if since else columns


def _column(name: str, code: int, flags: int | None, handle: bool | None) -> Column:  # noqa: FBT001
    key = bool(handle) or bool((flags or 0) & _HANDLE_KEY)
    if code == _NULL:
        return Column(name, None, key)
    type_name = _CODES.get(code, f"type code {code}")
    wire = ""
    if code in _BINARY_NAMES:
        if flags is None:
            # v4.0.0-v4.0.4: whether a string is binary was not on the wire; blobs may be anything.
            wire = _LEGACY
            type_name = _BINARY_NAMES[code] if code in _BASE64_CODES else type_name
        elif flags & _BINARY:
            type_name = _BINARY_NAMES[code]
        elif flags == 0:
            wire = _UNFLAGGED
    # Also set on YEAR and BIT (docs/wire.md, item 9). Without flags the sign is unknown: both must fit.
    unsigned = (flags is None or bool(flags & _UNSIGNED)) and type_name in _UNSIGNED_NAMES
    return Column(name, ColumnType(type_name, unsigned), key, wire, vague=wire == _UNFLAGGED)


def _wire_of(column: Column, wanted: ReadField) -> tuple[Wire | None, ColumnType]:
    known = wanted.type_since(column.since)
    if column.type is None:  # all NULL as far as these messages go: any kernel of the wanted type does
        type_ = known or type_of(wanted.arrow)
        return KERNELS.get(type_.name), type_
    if column.wire == _UNFLAGGED and wanted.arrow == pa.binary() and column.type.name in _QUOTED_NAMES:
        return QUOTED_BINARY, ColumnType("varbinary")
    if column.wire == _UNFLAGGED and known is not None and known.family == "binary":
        return KERNELS[known.name], known
    type_ = column.type.refined_by(known)
    if type_.name == "bigint" and pa.types.is_decimal(wanted.arrow):  # its flag may be lost too; JSON has the sign
        type_ = replace(type_, unsigned=True)
    if column.wire == _LEGACY:
        return (strings.BASE64_BINARY if type_.family == "binary" else strings.BASE64_TEXT), type_
    return KERNELS.get(type_.name), type_
