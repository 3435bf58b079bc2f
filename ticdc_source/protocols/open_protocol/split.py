"""Splitting open-protocol: records are cut into events, and the events sorted by what their key frames say.

Most keys say the same of all their events but for the commit-ts (pingcap/ticdc pkg/sink/codec/open/codec.go):

    {"ts":470613397578727424,"scm":"shop","tbl":"orders","t":1}

Such a key is cut at what stands between two commit-ts, the next frame's length included; where digits are left, as many
in each, nothing else was there, and no frame need be cut or parsed.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import Any

from ticdc_source.errors import DecodeError, FramingError
from ticdc_source.events import Chunk, Corrupt, DDLEvent, Split, TableEvents, TableName, Wants, WatermarkEvent
from ticdc_source.protocols.compression import decompressed
from ticdc_source.protocols.messages import MALFORMED, parse_failure, parse_object, readable, table_name, tso

__all__ = ["ACTION_TYPES", "VERSION", "events_of", "frames", "split_frames"]

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

_length_at = struct.Struct(">Q").unpack_from


def frames(data: bytes, start: int, what: str) -> list[bytes]:
    """Return the frames of a key or a value (`what`, for the error) from `start` on: a u64 length each, then JSON.

    Raises:
        FramingError: they do not add up.
    """
    found = []
    end = len(data)
    while start < end:
        begin = start + 8
        if begin > end:
            msg = f"the {what} ends inside a frame's length"
            raise FramingError(msg)
        start = begin + _length_at(data, start)[0]
        if start > end:
            msg = f"a {what} frame of {start - begin} bytes where {end - begin} are left; is the message cut short?"
            raise FramingError(msg)
        found.append(data[begin:start])
    return found


VERSION = (1).to_bytes(8, "big")
_ROW, _RESOLVED = 1, 3
_2_63 = 1 << 63
_MOST_CODE = 255  # of a DDL: TiDB has it in a byte (pkg/meta/model/job.go, ActionType)

_BEGIN = b'{"ts":'
_LENGTH = len(VERSION)  # where the first frame's length is
_STAMP = _LENGTH + 8 + len(_BEGIN)  # where the first commit-ts is
_MOST_DIGITS = 18  # of a number that is surely below 1 << 63
_REST = re.compile(rb',"scm":"([^"\\\x00-\x1f]+)","tbl":"([^"\\\x00-\x1f]+)","t":1\}')


def events_of(key: bytes | None, value: bytes | None) -> list[tuple[dict[str, Any] | DecodeError, bytes]]:
    """Cut a record into (key JSON or what is wrong with it, value frame).

    Raises:
        FramingError: the frames do not add up.
    """
    if key is None or key[:8] != VERSION:
        seen = "no key" if key is None else f"the key begins {key[:8].hex() or 'empty'}"
        msg = f"not open-protocol: {seen}, not version 1; is 'protocol' right?"
        raise FramingError(msg)
    heads = frames(key, 8, "key")
    if not heads and value:
        msg = f"{len(value)} bytes of value for a key without events"
        raise FramingError(msg)
    bodies = frames(value or b"", 0, "value")
    parsed: list[dict[str, Any] | DecodeError] = []
    for head in heads:
        try:
            parsed.append(parse_object(head))
        except ValueError as error:
            parsed.append(parse_failure(error, "an open-protocol key"))
    if not bodies and all(isinstance(head, dict) and head.get("t") == _RESOLVED for head in parsed):
        bodies = [b""] * len(heads)  # the documentation's own resolved events have no value frame
    if len(heads) != len(bodies):
        msg = f"{len(heads)} events in the key, {len(bodies)} in the value; is the message cut short?"
        raise FramingError(msg)
    return list(zip(parsed, bodies, strict=True))


def split_frames(chunk: Chunk, codec: str, wants: Wants) -> Split:
    """Cut records; read key frames; leave value frames as they are."""
    split = Split()
    by_name: dict[tuple[Any, Any], TableEvents] = {}  # by names that were found to be some
    for position, (key, value) in enumerate(zip(chunk.keys, chunk.values, strict=True)):
        alike = None if key is None or value is None else _rows_alike(key, value)
        if alike is not None:
            table, stamps, bodies = alike
            if wants(table):
                headers = [{"ts": int(stamp)} for stamp in stamps]
                split.table_events(chunk, table).extend(position, bodies, headers)
            else:
                split.others += len(bodies)
            continue
        try:
            events = events_of(key, value)
        except FramingError as error:
            split.corrupt.append(Corrupt(position, 0, error.at(chunk.address(position))))
            continue
        if not events:
            split.skipped += 1
        for index, (head, body) in enumerate(events):
            try:
                if isinstance(head, DecodeError):
                    raise head
                names, timestamp = (head.get("scm"), head.get("tbl")), head.get("ts")
                known = by_name.get(names) if head.get("t") == _ROW else None
                if known is not None and type(timestamp) is int and 0 <= timestamp < _2_63:
                    known.append(position, index, body, head)
                    continue
                _sort(split, chunk, position, index, head, body, codec)
                if head["t"] == _ROW:
                    by_name[names] = split.table_events(chunk, table_name(*names))
            except MALFORMED as error:
                failure = parse_failure(error, "an open-protocol event")
                split.corrupt.append(Corrupt(position, index, failure.at(chunk.address(position))))
    split.keep(wants)
    return split


def _rows_alike(key: bytes, value: bytes) -> tuple[TableName, list[bytes], list[bytes]] | None:
    """Return table, commit-ts and value frames of a record whose events are rows of one table; None if it may differ.

    Whatever is wrong with a record is left to `events_of`.
    """
    length = key[_LENGTH : _LENGTH + 8]
    end, comma = _LENGTH + 8 + int.from_bytes(length, "big"), key.find(b",", _STAMP)
    rest = key[comma:end]
    table = _table_of(rest)
    if table is None or end > len(key) or not key.startswith(_BEGIN, _LENGTH + 8) or not key.startswith(VERSION):
        return None
    stamps, digits = key[_STAMP : -len(rest)].split(rest + length + _BEGIN), comma - _STAMP
    alike = key.endswith(rest) and set(map(len, stamps)) == {digits} and b"".join(stamps).isdigit()
    if not alike or digits > _MOST_DIGITS or min(stamps) < b"1":  # JSON's numbers do not begin with 0
        return None
    try:
        bodies = frames(value, 0, "value")
    except FramingError:
        return None
    return (table, stamps, bodies) if len(bodies) == len(stamps) else None


@lru_cache(maxsize=4096)
def _table_of(rest: bytes) -> TableName | None:
    """Return the table that a row's key frame names, of which this stands behind the commit-ts."""
    seen = _REST.fullmatch(rest)
    try:
        return None if seen is None else TableName(seen[1].decode(), seen[2].decode())
    except UnicodeDecodeError:
        return None


def _sort(split: Split, chunk: Chunk, position: int, index: int, head: dict[str, Any], body: bytes, codec: str) -> None:
    table = table_name(head.get("scm"), head.get("tbl"))  # tiflow leaves out empty names
    timestamp = tso(head["ts"])
    match head["t"]:
        case 1:
            split.table_events(chunk, table).append(position, index, body, head)
        case 2:
            ddl = parse_object(decompressed(body, codec))
            code = int(ddl["t"])  # the documentation prints it as a string
            if not 0 <= code <= _MOST_CODE:
                msg = f"DDL type {code}"
                raise ValueError(msg)
            query = readable(ddl["q"])
            split.ddl.append(DDLEvent(position, index, timestamp, table, query, ACTION_TYPES.get(code, ""), code))
        case 3:
            split.watermarks.append(WatermarkEvent(position, index, timestamp))
        case other:
            msg = f"event type {other!r}; 1 (row), 2 (DDL) and 3 (resolved) are known"
            raise ValueError(msg)
