"""Splitting the JSON protocols: one event a message, sorted by a peek at its first bytes where that is enough."""

from __future__ import annotations

import re
from collections.abc import Callable

from ticdc_source.errors import DecodeError
from ticdc_source.events import Chunk, Corrupt, Split, TableEvents, TableName
from ticdc_source.protocols.compression import decompressed
from ticdc_source.protocols.shapes import MALFORMED, parse_failure, table_name

__all__ = ["Sort", "plain_object", "split_by_peeking"]

# Parses a message whole and puts it where it belongs.
Sort = Callable[[Split, Chunk, int, bytes], None]


def split_by_peeking(chunk: Chunk, peek: re.Pattern[bytes], sort: Sort, what: str, *, codec: str, null: bool) -> Split:
    """Sort each message by table.

    Args:
        chunk: the records.
        peek: matches a row message's beginning as TiCDC writes it; groups 1 and 2 are database and table. Whatever
            it does not match (names with escapes, other producers' member order, DDL, watermarks) is parsed.
        sort: the general path.
        what: what a message should be, for errors.
        codec: the option `valueCompression`.
        null: whether a null value is a tombstone, which carries no event, or an error.
    """
    split = Split()
    trays: dict[tuple[bytes | None, ...], TableEvents] = {}
    match = peek.match
    for position, value in enumerate(chunk.values):
        if value is None:
            if null:
                split.skipped += 1
                continue
        elif seen := match(value):
            names = seen.groups()
            tray = trays.get(names) or _tray_of(split, chunk, seen[1], seen[2])
            if tray is not None:
                trays[names] = tray
                tray.append(position, 0, value)
                continue
        try:
            plain = decompressed(value or b"", codec)
            seen = peek.match(plain)
            if seen is not None and plain is not value:
                split.tray(chunk, table_name(seen[1].decode(), seen[2].decode())).append(position, 0, plain)
            else:
                sort(split, chunk, position, plain)
        except MALFORMED as error:
            failure = parse_failure(error, what)
            split.corrupt.append(Corrupt(position, 0, failure.at(chunk.address(position))))
    return split


def _tray_of(split: Split, chunk: Chunk, database: bytes, table: bytes) -> TableEvents | None:
    """Return a table's tray; None where its name is not UTF-8."""
    try:
        return split.tray(chunk, TableName(database.decode(), table.decode()))
    except UnicodeDecodeError:
        return None


def plain_object(value: bytes | None, codec: str) -> bytes:
    """Return a value's bytes if they look like a JSON object, for telling protocols apart; else nothing."""
    try:
        plain = decompressed(value or b"", codec)
    except DecodeError:
        return b""
    return plain if plain[:1] == b"{" else b""
