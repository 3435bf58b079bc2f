"""The open-protocol decoder: rows, flags and types (docs/wire.md, items 58 to 67; pingcap/ticdc pkg/sink/codec/open).

The payload of an event is its value frame. Its event key is the parsed key frame, or only the commit-ts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from ticdc_source.errors import DecodeError
from ticdc_source.kernels import numbers, strings
from ticdc_source.kernels.contract import Branch, Const, Image, Program, Row, Way
from ticdc_source.kernels.wire import Wire, text_bytes
from ticdc_source.protocols.base import Decoded, Learned, LearnedTable, ProtocolFacts
from ticdc_source.protocols.decoding import ColumnRuns, Decoder, ReadEvent
from ticdc_source.protocols.events import Split, TableEvents
from ticdc_source.protocols.images import Parsed, with_old_columns
from ticdc_source.protocols.large_messages import check_claimed
from ticdc_source.protocols.messages import JSONObject, exact, text, written_name
from ticdc_source.protocols.open_protocol.split import VERSION, events_of, split_frames
from ticdc_source.protocols.templates import DELETE, INSERT, UPDATE, General, Template, Templates
from ticdc_source.schema.json_text import loads
from ticdc_source.schema.model import NO_FACTS, Column, ColumnFacts, ReadField
from ticdc_source.schema.table_name import Wants, every_table
from ticdc_source.schema.types import BINARY_OF, INTEGERS, MAY_BE_UNSIGNED, TEXTS, TYPES, ColumnType, type_of
from ticdc_source.sources.chunk import Chunk

# Of each column as a message has it: name, type code, flags, and whether it is marked as part of the handle key.
Signature: TypeAlias = tuple[tuple[str, int, int, bool | None], ...]

_TICDC_FLAGS = 0xFF
# MySQL's flag → TiCDC's: primary key (`h` marks other handle keys), unsigned, binary.
_TICDC_FLAG_OF = {2: 2 | 8, 32: 128, 128: 1}
_NOT_NULL, _TICDC_NULLABLE = 1, 64


# Bugs of TiCDC's releases, and their repair.
#
# Old values without names (docs/wire.md, item 35; all releases of the new architecture): with
# only-output-updated-columns=true, `p` lacks `"name":{"t":3,"f":65,"v":7}` for a column whose new value is NULL.
# It has the flat members `"t":3,"f":65,"v":7`, again for each such column, in table order (pingcap/ticdc
# pkg/sink/codec/open/codec.go, writeColumnFieldValueIfUpdated). Type and flags show which of the columns of `u` that
# are NULL they belong to.
#
# MySQL's flags (docs/wire.md, item 103): within such a `p`, v8.5.4 and v8.5.5 write the flags of pingcap/tidb
# pkg/parser/mysql/type.go in place of TiCDC's own (pkg/sink/codec/open/message.go:138-199). Development builds between
# the commits 5d77460e0 and 6e9a12223 do so everywhere. TiCDC's flags have eight bits; MySQL's, of a NOT NULL column
# without a default and of an AUTO_INCREMENT column, have a higher bit: a message with such a column has MySQL's flags
# throughout.


class _Object(list[tuple[str, object]]):
    """The members of a JSON object, in order and including repeated ones."""


def restored_old_values(value_frame: bytes) -> JSONObject | None:
    """Return the members of `p` by column name; None if flat members fit the columns in several ways.

    Raises:
        ValueError: the members of `p` are not those of the bug.
    """
    event = loads(value_frame.decode(errors="surrogateescape"), object_pairs_hook=_Object)
    members = dict(event)
    named: JSONObject = {}
    groups: list[JSONObject] = []
    open_group: JSONObject | None = None
    for name, value in members["p"]:
        if isinstance(value, _Object):
            named[name] = dict(value)
            continue
        if name == "t":
            open_group = {}
            groups.append(open_group)
        if open_group is None or name not in ("t", "h", "f", "v") or name in open_group:
            raise ValueError(f"a member {name!r} of 'p' that is not a column")
        open_group[name] = value
    cells = {name: dict(cell) for name, cell in dict(members["u"]).items()}  # the last of repeated members counts
    nulls = [(name, cell) for name, cell in cells.items() if cell["v"] is None and name not in named]
    first, last = _assigned(groups, nulls), _assigned(groups[::-1], nulls[::-1])
    if len(first) < len(groups):
        raise ValueError("old values without column names that fit no column that became NULL")
    return {**named, **first} if first.keys() == last.keys() else None


def _assigned(groups: Sequence[JSONObject], nulls: Sequence[tuple[str, JSONObject]]) -> JSONObject:
    """Assign each group to the first column with its type and flags, after the previous group's column."""
    assigned: JSONObject = {}
    for name, cell in nulls:
        if len(assigned) < len(groups) and _facts_of(cell) == _facts_of(groups[len(assigned)]):
            assigned[name] = groups[len(assigned)]
    return assigned


def _facts_of(cell: JSONObject) -> tuple[bytes, object]:
    return exact([*map(cell.get, ("t", "f", "h"))])


def with_ticdc_flags(columns: Signature) -> Signature:
    """Return a message's columns with TiCDC's flags, whichever flags it has."""
    if all(flags <= _TICDC_FLAGS for _, _, flags, _ in columns):
        return columns
    return tuple((name, code, _translated(flags), handle) for name, code, flags, handle in columns)


def _translated(flags: int) -> int:
    nullable = 0 if flags & _NOT_NULL else _TICDC_NULLABLE
    return nullable | sum(ticdc for mysql, ticdc in _TICDC_FLAG_OF.items() if flags & mysql)


_ESCAPE = re.compile(rb'\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([abfnrtv\\"\'])|)')
_LETTERS = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
    b"\\": b"\\", b'"': b'"', b"'": b"'",
}  # fmt: skip


def unquoted(cell: str) -> bytes:
    """Undo Go's `strconv.Quote`, given the text without the quotes around it (docs/wire.md, item 64).

    Raises:
        ValueError: an escape is not one of Quote's.
    """
    raw = text_bytes(cell)
    return _ESCAPE.sub(_unescape, raw) if b"\\" in raw else raw


def _unescape(match: re.Match[bytes]) -> bytes:
    byte, short, long, letter = match.groups()
    if byte:
        return bytes.fromhex(byte.decode())
    if letter:
        return _LETTERS[letter]
    if not (short or long):
        raise ValueError("not the body of a Go-quoted string")
    return chr(int(short or long, 16)).encode()


QUOTED_BINARY = strings.binary_wire(unquoted)

KERNELS: dict[str, Wire] = {
    **strings.TEXT_KERNELS,
    **dict.fromkeys(INTEGERS, numbers.INTEGER_NUMBER),
    "year": numbers.YEAR_NUMBER,
    "float": numbers.FLOAT_NUMBER,
    "double": numbers.FLOAT_NUMBER,
    "bit": numbers.BIT_NUMBER,
    **dict.fromkeys(TEXTS, strings.BASE64_TEXT),
    "char": strings.TEXT,
    "varchar": strings.TEXT,
    "binary": QUOTED_BINARY,
    "varbinary": QUOTED_BINARY,
    "enum": strings.ENUM_NUMBER,
    "set": strings.SET_NUMBER,
}


# Flags of a column (docs/wire.md, item 61). Flag 32 does not say which index a column is part of, nor whether it is
# unique, so it is left out.
_BINARY, _HANDLE_KEY, _GENERATED, _PRIMARY_KEY, _UNIQUE_KEY, _NULLABLE, _UNSIGNED = 1, 2, 4, 8, 16, 64, 128

_MARKS = (bool, type(None))  # the JSON types of `h`
_INTEGERS = range(-(1 << 63), 1 << 64)  # what each parser of JSON takes for an integer

# TiDB has several numbers for some types. Those of texts are binary if flag 1 is set.
_CODES = {row.code: name for name, row in TYPES.items()} | {14: "date", 253: "varchar"}
_NULL = 6
_QUOTED_NAMES = frozenset({"char", "varchar"})

# `Column.wire`: how a string column is written, if its type alone does not say so. Flags 0 are those of a plain NOT
# NULL text, or TiCDC lost the column's flags (docs/wire.md, item 104).
_UNFLAGGED = "unflagged"

_CLAIM_CHECK = b'"ccl":"'  # a member of the key frame


def _recognizes(key: bytes | None, value: bytes | None) -> bool:
    """Look at the key: the version, then frames. Without frames there must be no value, unlike in Maxwell."""
    return key is not None and key[:8] == VERSION and (len(key) > 8 or not value)  # noqa: PLR2004 (a u64)


class OpenProtocol(Decoder):
    """The decoder of open-protocol."""

    facts = ProtocolFacts(
        name="open-protocol",
        recognizes=_recognizes,
        kernels=KERNELS,
        chunk_records=500,  # a record holds several events
        old_rows_need="open.output-old-value=true",
        text_start=8,  # behind its length
    )

    def claim_checks(self, key: bytes | None, value: bytes | None) -> int:  # noqa: ARG002 (the key has the addresses)
        return key.count(_CLAIM_CHECK) if key else 0

    def split(self, chunk: Chunk, wants: Wants = every_table, learned: Learned | None = None) -> Split:
        in_native = learned is not None and learned.native
        return split_frames(chunk, self.settings.compression, wants, in_native=in_native)

    def commit_versions(self, events: TableEvents) -> pa.Int64Array:
        if isinstance(events.event_keys, pa.Int64Array):
            return events.event_keys
        return pa.array([_key_frame(key)["ts"] for key in events.event_keys], pa.int64())

    def _by_templates(self, events: TableEvents, learned: LearnedTable, general: General) -> Decoded:
        templates = learned.kept(Templates)
        return templates.decode(
            events, learned, self._wire_of, general, self.commit_versions(events), _whole_events(events)
        )

    def _reader(self, events: TableEvents, parsed: Parsed, learned: LearnedTable) -> ReadEvent:
        plan, images, learn = learned.plan, parsed.images, parsed.learn
        indexes, key_frames = events.indexes, list(map(_key_frame, events.keys_of(range(len(events)))))
        parsed.commit_ts = [key_frame["ts"] for key_frame in key_frames]
        runs = ColumnRuns(events, parsed, plan)

        def read(event: int, value_frame: bytes) -> None:
            key_frame = key_frames[event]
            if "ccl" in key_frame or "ohk" in key_frame:
                value_frame = self._whole_value(key_frame, value_frame, parsed)
            message = parsed.parse(value_frame)
            after, before, deleted = (message.get(member) for member in ("u", "p", "d"))
            update = before is not None
            if before and any(type(cell) is not dict for cell in before.values()):
                before = restored_old_values(value_frame)
            described = after or deleted or {}
            if after is not None:
                described = with_old_columns(after, before)
            signature = tuple((name, cell["t"], cell.get("f"), cell.get("h")) for name, cell in described.items())
            columns = runs.columns(event, exact(signature), lambda: _columns(signature))
            if learn is not None:
                learn(_template_of(signature), runs.version, columns)
            if after is not None and deleted is not None:
                raise ValueError("both a new row ('u') and a deleted one ('d')")
            if after is not None:
                row = {name: cell["v"] for name, cell in after.items()}
                old = None if before is None else {name: cell["v"] for name, cell in before.items()}
                images.add(event, indexes[event], "update" if update else "insert", row, old, plan)
            elif deleted is not None:
                row = {name: cell["v"] for name, cell in deleted.items()}
                images.add(event, indexes[event], "delete", row, None, plan)
            elif before is not None:
                raise ValueError("an old row ('p') without a new one ('u')")
            else:  # no column is selected: tiflow leaves out the empty map
                parsed.empty += 1

        return read

    def _whole_value(self, key_frame: JSONObject, value_frame: bytes, parsed: Parsed) -> bytes:
        """Return the whole value frame of a large message; its own if there are only key columns."""
        decompressed, address = self.settings.compression.decompressed, key_frame.get("ccl")

        def claimed(key: bytes | None, value: bytes) -> bytes:
            return decompressed(_claimed(key, value, key_frame))

        whole = self.settings.large.whole(address, claimed, parsed, key_only=key_frame.get("ohk"))
        if whole is not None:
            return whole
        return decompressed(value_frame) if address else value_frame

    def _wire_of(self, column: Column, read_field: ReadField) -> tuple[Wire | None, ColumnType]:
        declared = read_field.type_since(column.since)
        if column.type is None:  # only NULLs so far: any kernel of the field's type will do
            type_ = declared or type_of(read_field.arrow)
            return KERNELS.get(type_.name), type_
        if column.wire == _UNFLAGGED and read_field.arrow == pa.binary() and column.type.name in _QUOTED_NAMES:
            return QUOTED_BINARY, ColumnType("varbinary")
        if column.wire == _UNFLAGGED and declared is not None and declared.family == "binary":
            return KERNELS[declared.name], declared
        type_ = column.type.refined_by(declared)
        if type_.name == "bigint" and pa.types.is_decimal(read_field.arrow):
            type_ = replace(type_, unsigned=True)  # its flag may be lost too; the JSON has the sign
        return KERNELS.get(type_.name), type_


def _key_frame(key: JSONObject | int) -> JSONObject:
    return {"ts": key} if isinstance(key, int) else key


def _whole_events(events: TableEvents) -> pa.Int32Array | None:
    """Return the indexes of events that are complete in their messages; None for all."""
    if isinstance(events.event_keys, pa.Int64Array):
        return None
    key_frames = enumerate(map(_key_frame, events.event_keys))
    large = {event for event, key_frame in key_frames if "ccl" in key_frame or "ohk" in key_frame}
    return pa.array([event for event in range(len(events)) if event not in large], pa.int32()) if large else None


def _claimed(key: bytes | None, value: bytes, expected: JSONObject) -> bytes:
    """Return the value frame in a claim-check file, which holds a record with one event."""
    events = events_of(key, value)
    if len(events) != 1:
        raise ValueError(f"it holds {len(events)} events")
    key_frame, value_frame = events[0]
    if isinstance(key_frame, DecodeError):
        raise key_frame
    members = ("ts", "scm", "tbl", "t")
    is_large = bool(key_frame.get("ccl") or key_frame.get("ohk"))
    check_claimed([*map(key_frame.get, members)], [*map(expected.get, members)], large=is_large)
    return value_frame


def _columns(signature: Signature) -> tuple[Column, ...]:
    for column in signature:
        _check_types(*column)
    translated = with_ticdc_flags(signature)
    columns = tuple(_column(text(name), code, flags, handle) for name, code, flags, handle in translated)
    # MySQL's flags have no bit for some facts.
    return columns if translated is signature else tuple(replace(column, facts=NO_FACTS) for column in columns)


def _check_types(name: str, code: object, flags: object, handle: object) -> None:
    if flags is None:
        raise ValueError(
            f"column {name!r} has no flags ('f'): TiCDC up to v4.0.4 wrote this message, which does not say whether "
            "numbers are unsigned and strings are binary. Upgrade TiCDC, and set 'startingOffsets' to a later offset"
        )
    if not (_is_integer(code) and _is_integer(flags)) or type(handle) not in _MARKS:
        raise TypeError(f"column {name!r} has type code {code!r}, flags {flags!r} and handle-key mark {handle!r}")


def _is_integer(value: object) -> bool:
    return type(value) is int and value in _INTEGERS


def _facts(flags: int, handle: bool | None) -> ColumnFacts:  # noqa: FBT001
    """Return what flags say; 0 says nothing, because TiCDC may lose flags (docs/wire.md, item 104)."""
    if not flags:
        return ColumnFacts(handle_key=True) if handle else NO_FACTS
    return ColumnFacts(
        primary_key=bool(flags & _PRIMARY_KEY),
        handle_key=bool(flags & _HANDLE_KEY) or bool(handle),
        unique_key=bool(flags & _UNIQUE_KEY),
        nullable=bool(flags & _NULLABLE),
        generated=bool(flags & _GENERATED),
    )


def _column(name: str, code: int, flags: int, handle: bool | None) -> Column:  # noqa: FBT001
    key, facts = bool(handle) or bool(flags & _HANDLE_KEY), _facts(flags, handle)
    if code == _NULL:
        return Column(name, key=key, facts=facts)
    type_name = _CODES.get(code, f"type code {code}")
    wire = ""
    if type_name in BINARY_OF:
        if flags & _BINARY:
            type_name = BINARY_OF[type_name]
        elif flags == 0:
            wire = _UNFLAGGED
    # The flag is also set on YEAR and BIT (docs/wire.md, item 9).
    unsigned = bool(flags & _UNSIGNED) and type_name in MAY_BE_UNSIGNED
    type_ = ColumnType(type_name, unsigned=unsigned)
    return Column(name, type_, key=key, wire=wire, vague=wire == _UNFLAGGED, facts=facts)


# The template of a row event as TiCDC writes it (pingcap/ticdc pkg/sink/codec/open/codec.go). Events of one version of
# a table differ in their values only, as `{"u":{"id":{"t":8,"h":true,"f":11,"v":7},"name":{"t":15,"f":64,"v":"x"}}}`.
_ROW = Row(Image.MAIN)
_CHANGED = Branch([Way(b'},"p":{', [UPDATE, Row(Image.PREIMAGE), Const(b"}}")]), Way(b"}}", [INSERT])])
_STEPS = (Branch([Way(b'{"u":{', [_ROW, _CHANGED]), Way(b'{"d":{', [DELETE, _ROW, Const(b"}}")])]),)


def _template_of(signature: Signature) -> Template | None:
    if not signature or any(handle is False for _, _, _, handle in signature):
        return None
    heads = tuple(_head(*parts) for parts in signature)
    return Template(identity=heads, program=lambda _: Program(_STEPS, heads, tail=b"}", partial=True))


def _head(name: str, code: int, flags: int, handle: bool | None) -> bytes:  # noqa: FBT001
    mark = b'"h":true,' if handle else b""
    return written_name(name) + b':{"t":%d,%b"f":%d,"v":' % (code, mark, flags)
