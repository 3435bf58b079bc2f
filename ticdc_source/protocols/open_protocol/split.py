"""Splitting open-protocol: records are cut into frames, and events classified by their key frames.

key   := u64be version (= 1)  { u64be length, JSON }*    one frame for each event: what it is, and its commit-ts
value :=                      { u64be length, JSON }*    the first frame belongs to the first key frame, and so on

The key frames of most records are equal but for the commit-ts (pingcap/ticdc pkg/sink/codec/open/codec.go):

    {"ts":470613397578727424,"scm":"shop","tbl":"orders","t":1}

The native path reads such keys for many records at once, without parsing them (native/src/frames.rs).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DecodeError, FramingError, counted
from ticdc_source.kernels.arrays import Binaries, Spans
from ticdc_source.kernels.native import messages_of, native, numbers_of
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.events import Corrupt, Split, TableEvents, WatermarkEvent
from ticdc_source.protocols.messages import (
    MALFORMED,
    JSONObject,
    parse_failure,
    parse_object,
    readable,
    table_name,
    tso,
)
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.table_name import TableName, Wants
from ticdc_source.sources.chunk import Chunk

VERSION = (1).to_bytes(8, "big")

# pingcap/tidb pkg/meta/model/job.go, ActionType and ActionMap; 37 and 38 by older releases.
ACTION_TYPES: dict[int, str] = {
    1: "create schema", 2: "drop schema", 3: "create table", 4: "drop table", 5: "add column", 6: "drop column",
    7: "add index", 8: "drop index", 9: "add foreign key", 10: "drop foreign key", 11: "truncate table",
    12: "modify column", 13: "rebase auto_increment ID", 14: "rename table", 15: "set default value",
    16: "shard row ID", 17: "modify table comment", 18: "rename index", 19: "add partition", 20: "drop partition",
    21: "create view", 22: "modify table charset and collate", 23: "truncate partition", 24: "drop view",
    25: "recover table", 26: "modify schema charset and collate", 27: "lock table", 28: "unlock table",
    29: "repair table", 30: "set tiflash replica", 31: "update tiflash replica status", 32: "add primary key",
    33: "drop primary key", 34: "create sequence", 35: "alter sequence", 36: "drop sequence", 37: "add multi-columns",
    38: "drop multi-columns", 39: "modify auto id cache", 40: "rebase auto_random ID", 41: "alter index visibility",
    42: "exchange partition", 43: "add check constraint", 44: "drop check constraint", 45: "alter check constraint",
    46: "alter partition", 47: "rename tables", 49: "alter table attributes", 50: "alter table partition attributes",
    51: "create placement policy", 52: "alter placement policy", 53: "drop placement policy",
    54: "alter table partition placement", 55: "modify schema default placement", 56: "alter table placement",
    57: "alter table cache", 58: "alter table statistics options", 59: "alter table nocache", 60: "create tables",
    61: "alter table multi-schema change", 62: "flashback cluster", 63: "flashback schema",
    64: "alter table reorganize partition", 65: "alter table ttl", 67: "alter table no_ttl",
    68: "create resource group", 69: "alter resource group", 70: "drop resource group", 71: "alter table partition by",
    72: "alter table remove partitioning", 73: "add columnar index", 74: "modify engine attribute",
    75: "alter table mode", 76: "refresh meta", 77: "modify schema read only",
}  # fmt: skip
_MOST_CODE = 255  # of a DDL event: TiDB has the code in a byte (pkg/meta/model/job.go, ActionType)
_ROW, _RESOLVED = 1, 3  # the member `t` of a key frame
_2_63 = 1 << 63

# What follows the commit-ts of a row's key frame.
_REST = re.compile(rb',"scm":"([^"\\\x00-\x1f]+)","tbl":"([^"\\\x00-\x1f]+)","t":1\}')

_length_at = struct.Struct(">Q").unpack_from


class _Selected(NamedTuple):
    """The split of the native path, and the positions of the other records."""

    tables: dict[TableName, TableEvents]
    rest: Sequence[int]
    others: int


def split_frames(chunk: Chunk, compression: Compression, wants: Wants, *, in_native: bool) -> Split:
    """Implement `Decoder.split`: cut records into frames, parse key frames, decompress the value frames of rows."""
    selected, values = _Selected({}, range(len(chunk)), 0), chunk.values
    if in_native and native is not None and isinstance(values, Binaries) and compression.codec in ("none", "auto"):
        selected = _selected(native, chunk, values, wants)
    return Split.of_parts(_parts(chunk, compression, wants, selected))


def _selected(native: ModuleType, chunk: Chunk, values: Binaries, wants: Wants) -> _Selected:
    """Split the records whose events are rows of one table, each in a plain frame, on the native path."""
    framed = native.split_frames(chunk.keys, messages_of(values))
    positions, indexes, ends = (
        numbers_of(pa.int32(), numbers) for numbers in (framed.records, framed.indexes, framed.ends)
    )
    commit_ts = numbers_of(pa.int64(), framed.commit_ts)
    by_table: dict[TableName | None, list[int]] = {}
    for number, end in enumerate(framed.ends_of_keys):
        by_table.setdefault(_table_of(end), []).append(number)
    tables, rest, others = {}, set(framed.declined), 0
    for table, numbers in by_table.items():
        own = pc.indices_nonzero(pc.is_in(ends, value_set=pa.array(numbers, pa.int32())))
        if table is None:  # a name that is not plain
            rest.update(positions.take(own).to_pylist())
        elif not wants(table):
            others += len(own)
        else:
            bounds, every = memoryview(framed.bounds).cast("i"), len(own) == len(positions)
            if not every:
                pairs = numbers_of(pa.int64(), framed.bounds).take(own)
                bounds = memoryview(pairs.buffers()[1]).cast("B").cast("i")
            spans = Spans(values.spans.data, bounds, sum(bounds[1::2]) - sum(bounds[::2]))
            tables[table] = TableEvents(
                chunk,
                table,
                (positions if every else positions.take(own)).to_pylist(),
                (indexes if every else indexes.take(own)).to_pylist(),
                Binaries(spans),
                commit_ts if every else commit_ts.take(own),
            )
    return _Selected(tables, sorted(rest), others)


def _parts(chunk: Chunk, compression: Compression, wants: Wants, selected: _Selected) -> Iterator[Split]:
    """Yield the events of a chunk, in parts with value frames of limited size."""
    split, start = Split(others=selected.others), 0
    checked: dict[tuple[object, object], TableName] = {}  # tables by names that were checked
    for position in selected.rest:
        key, value = chunk.keys[position], chunk.values[position]
        try:
            events = events_of(key, value)
        except FramingError as error:
            split.corrupt.append(Corrupt(position, 0, error.at(chunk.address(position))))
            continue
        if not events:
            split.skipped += 1
        for index, (key_frame, value_frame) in enumerate(events):
            if split.unpacked >= compression.max_together:
                yield split.with_selected(selected.tables, start, position)
                split, start = Split(), position
            try:
                if isinstance(key_frame, DecodeError):
                    raise key_frame
                names, timestamp = (key_frame.get("scm"), key_frame.get("tbl")), key_frame.get("ts")
                named = checked.get(names) if key_frame.get("t") == _ROW else None
                if named is None or type(timestamp) is not int or not 0 <= timestamp < _2_63:
                    named = _classify(split, position, index, key_frame, value_frame, compression)
                    if named is None:
                        continue
                    checked[names] = named
                if wants(named):
                    _add_row(split, chunk, position, index, named, key_frame, value_frame, compression)
                else:
                    split.others += 1
            except MALFORMED as error:
                address = chunk.address(position)
                split.corrupt.append(
                    Corrupt(position, index, parse_failure(error, "an open-protocol event").at(address))
                )
    yield split.with_selected(selected.tables, start, len(chunk))


def _add_row(
    split: Split,
    chunk: Chunk,
    position: int,
    index: int,
    table: TableName,
    key_frame: JSONObject,
    value_frame: bytes,
    compression: Compression,
) -> None:
    if "ccl" in key_frame:  # the row is in a file, and may be as large as a message
        split.unpacked += compression.max_bytes
        plain = value_frame
    else:
        try:
            plain = compression.decompressed(value_frame)
        except DecodeError as error:
            split.corrupt.append(Corrupt(position, index, error.at(chunk.address(position, table))))
            return
        if plain is not value_frame:
            split.unpacked += len(plain)
    split.table_events(chunk, table).append(position, index, plain, key_frame)


@lru_cache(maxsize=4096)
def _table_of(rest: bytes) -> TableName | None:
    match = _REST.fullmatch(rest)
    try:
        return None if match is None else TableName(match[1].decode(), match[2].decode())
    except UnicodeDecodeError:
        return None


def _classify(
    split: Split, position: int, index: int, key_frame: JSONObject, value_frame: bytes, compression: Compression
) -> TableName | None:
    """Return the table of a row event; add any other event to the split."""
    table = table_name(key_frame.get("scm"), key_frame.get("tbl"))  # tiflow leaves out empty names
    timestamp = tso(key_frame["ts"])
    match key_frame["t"]:
        case 1:
            return table
        case 2:
            ddl = parse_object(compression.decompressed(value_frame))
            code = int(ddl["t"])  # TiCDC's documentation prints it as a string
            if not 0 <= code <= _MOST_CODE:
                raise ValueError(f"DDL type {code}")
            query = readable(ddl["q"])
            split.ddl.append(
                DDLEvent(
                    position=position,
                    index=index,
                    commit_ts=timestamp,
                    table=table,
                    query=query,
                    type=ACTION_TYPES.get(code, ""),
                    type_code=code,
                )
            )
        case 3:
            split.watermarks.append(WatermarkEvent(position, index, timestamp))
        case other:
            raise ValueError(f"event type {other!r}; 1 (row), 2 (DDL) and 3 (resolved) are known")
    return None


def events_of(key: bytes | None, value: bytes | None) -> list[tuple[JSONObject | DecodeError, bytes]]:
    """Return the events of a record: the parsed key frame, or its error, and the value frame.

    Raises:
        FramingError: the frames do not add up.
    """
    if key is None or key[:8] != VERSION:
        start = "no key" if key is None else f"the key begins {key[:8].hex() or 'empty'}"
        raise FramingError(f"not open-protocol: {start}, not version 1; check the option 'protocol'")
    unparsed = frames(key, 8, "key")
    if not unparsed and value:
        raise FramingError(f"{len(value)} bytes of value for a key without events")
    value_frames = frames(value or b"", 0, "value")
    key_frames: list[JSONObject | DecodeError] = []
    for key_frame in unparsed:
        try:
            key_frames.append(parse_object(key_frame))
        except ValueError as error:
            key_frames.append(parse_failure(error, "an open-protocol key"))
    if not value_frames and all(isinstance(frame, dict) and frame.get("t") == _RESOLVED for frame in key_frames):
        value_frames = [b""] * len(key_frames)  # resolved events in TiCDC's documentation have no value frame
    if len(key_frames) != len(value_frames):
        in_key = counted(len(key_frames), "event")
        raise FramingError(f"{in_key} in the key, {len(value_frames)} in the value; is the message cut short?")
    return list(zip(key_frames, value_frames, strict=True))


def frames(data: bytes, start: int, what: str) -> list[bytes]:
    """Return the frames of a key or value.

    Raises:
        FramingError: the frames do not add up.
    """
    cut = []
    end = len(data)
    while start < end:
        begin = start + 8
        if begin > end:
            raise FramingError(f"the {what} ends inside a frame's length")
        start = begin + _length_at(data, start)[0]
        if start > end:
            raise FramingError(
                f"a {what} frame of {start - begin} bytes where {end - begin} are left; is the message cut short?"
            )
        cut.append(data[begin:start])
    return cut
