"""Splitting the JSON protocols: one event a message, sorted by a prefix at its first bytes where that is enough.

What a row message begins with is matched once a table. A pattern of a prefix takes each byte in one way only, whatever
comes after, so that a message which begins with what was matched once would be matched alike: comparing bytes is
enough, and done for many messages by one call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import compress, repeat
from operator import itemgetter
from typing import NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DecodeError
from ticdc_source.events import Binaries, Chunk, Corrupt, Split, TableEvents, TableName, Wants, merged
from ticdc_source.protocols.base import Learned, LearnedPrefixes
from ticdc_source.protocols.byte_template import bytes_of
from ticdc_source.protocols.compression import decompressed
from ticdc_source.protocols.messages import MALFORMED, parse_failure, table_name

__all__ = ["Classify", "PrefixMatch", "plain_object", "split_by_prefix"]

# Parses a message whole and puts it where it belongs.
Classify = Callable[[Split, Chunk, int, bytes], None]

# The times of a message, which differ where all else is alike. A quote ends a name here: texts have none within.
_TIME = re.compile(rb'(?<=":)\d{10,}')
_NUMBER = re.compile(rb'":[1-9]')  # likely to be another one in each message
_MOST_KNOWN = 4096
_SAMPLE = 8  # messages


class _Head(NamedTuple):
    """What the row messages of a table begin with."""

    table: TableName
    parts: tuple[tuple[int, bytes | tuple[bytes, ...]], ...]  # what stands where, or one of what
    times: tuple[slice, ...]  # where digits stand between

    def fits(self, messages: pa.BinaryArray) -> bool:
        """Tell whether all messages begin so."""
        try:
            for begin, part in self.parts:
                choices = (part,) if isinstance(part, bytes) else part
                if len(set(map(len, choices))) > 1:
                    return False
                stretch = pc.binary_slice(messages, begin, begin + len(choices[0]))
                if not pc.all(pc.is_in(stretch, value_set=pa.array(choices, pa.binary()))).as_py():
                    return False
            return all(bytes_of(pc.binary_slice(messages, time.start, time.stop)).isdigit() for time in self.times)
        except pa.ArrowInvalid:
            return False  # binary_slice, of messages that end before the slice begins

    def select(self, messages: Sequence[bytes]) -> tuple[Sequence[int], Sequence[bytes]]:
        """Return those messages that begin so, and their places."""
        places: Sequence[int] = range(len(messages))
        for begin, part in self.parts:
            fits = list(map(bytes.startswith, messages, repeat(part), repeat(begin)))
            if not all(fits):
                places, messages = list(compress(places, fits)), list(compress(messages, fits))
        for time in self.times:
            if not b"".join(map(itemgetter(time), messages)).isdigit():
                fits = [message[time].isdigit() for message in messages]
                places, messages = list(compress(places, fits)), list(compress(messages, fits))
        return places, messages


class PrefixMatch:
    """How the row messages of a protocol begin, as TiCDC writes them.

    What it does not match (names with escapes, other producers' member order, DDL, watermarks) is parsed.
    """

    __slots__ = ("_behind", "_operations", "_pattern")

    def __init__(self, pattern: bytes, operations: tuple[bytes, ...], behind: bytes | None = None) -> None:
        """Make a prefix.

        Args:
            pattern: matches a row message's beginning; its groups are database, table and kind. No byte of it may be
                taken in two ways, and what stands in quotes must have none.
            operations: what the kind may be.
            behind: what comes next in a message, where nothing before it changes from message to message.
        """
        self._pattern, self._operations, self._behind = re.compile(pattern), operations, behind

    def match(self, message: bytes) -> re.Match[bytes] | None:
        """Match one message."""
        return self._pattern.match(message)

    def head(self, message: bytes) -> _Head | None:
        """Return what this message and others of its table begin with; None where a prefix does not tell."""
        seen = self._pattern.match(message)
        table = None if seen is None else _table_of(seen[1], seen[2])
        if seen is None or table is None:
            return None
        times = [slice(*found.span()) for found in _TIME.finditer(message, 0, seen.start(3))]
        begins = [0, *(time.stop for time in times)]
        parts: list[tuple[int, bytes | tuple[bytes, ...]]] = [
            (begin, message[begin : time.start]) for begin, time in zip(begins, times, strict=False)
        ]
        before, after = message[begins[-1] : seen.start(3)], message[seen.end(3) : seen.end()]
        parts.append((begins[-1], tuple(before + kind + after for kind in self._operations)))
        return _Head(table, tuple(parts), tuple(times))

    def tables(self, messages: Sequence[bytes], learned: LearnedPrefixes) -> list[TableName | None]:
        """Return the table of each row message, None if the prefix does not identify the table."""
        behind, match = self._behind, self._pattern.match
        if behind is None:
            return [None if seen is None else _table_of(seen[1], seen[2]) for seen in map(match, messages)]
        least = learned.shortest  # and one byte more than is known: nothing of a message that has no such place
        tables = list(map(learned.tables.get, [message[: message.find(behind, least) + 1] for message in messages]))
        if None in tables:
            begun = behind[:1]
            tables = [
                table or self._learn(message, begun, learned) for table, message in zip(tables, messages, strict=True)
            ]
        return tables

    def _learn(self, message: bytes, begun: bytes, learned: LearnedPrefixes) -> TableName | None:
        seen = self._pattern.match(message)
        if seen is None:
            return None
        table = _table_of(seen[1], seen[2])
        if table is not None and _NUMBER.search(seen[0]) is None:
            if len(learned.tables) >= _MOST_KNOWN:
                learned.tables.clear()
            learned.tables[seen[0] + begun] = table
            learned.shortest = min(learned.shortest or len(seen[0]), len(seen[0]))
        return table


@lru_cache(maxsize=_MOST_KNOWN)
def _table_of(database: bytes, table: bytes) -> TableName | None:
    """Return the table that was matched; None where its name is not UTF-8."""
    try:
        return TableName(database.decode(), table.decode())
    except UnicodeDecodeError:
        return None


def split_by_prefix(
    chunk: Chunk,
    prefix: PrefixMatch,
    classify: Classify,
    what: str,
    *,
    codec: str,
    null: bool,
    wants: Wants,
    learned: Learned | None,
) -> Split:
    """Classify each message by table.

    Args:
        chunk: the records.
        prefix: how a row message begins.
        classify: the general path.
        what: what a message should be, for errors.
        codec: the option `valueCompression`.
        null: whether a null value is a tombstone, which carries no event, or an error.
        wants: tells which tables are wanted.
        learned: what the read has learned so far.
    """
    split = Split()
    values = chunk.values
    if isinstance(values, Binaries):
        head = prefix.head(values[len(values) // 2])
        if head is not None and head.fits(values.array):
            if wants(head.table):
                split.tables[head.table] = TableEvents.of_records(chunk, head.table, range(len(values)), values)
            else:
                split.others = len(values)
            return split
        messages: Sequence[bytes] = values.as_list()
    else:
        messages = cast("list[bytes]", values) if all(values) else [value or b"" for value in values]
    most: TableEvents | None = None
    rest: Sequence[int] = range(len(messages))
    if (head := _most_frequent(messages, prefix)) is not None:
        places, payloads = head.select(messages)
        if wants(head.table):
            most = split.tables[head.table] = TableEvents.of_records(chunk, head.table, places, payloads)
        else:
            split.others += len(places)
        if len(places) == len(messages):
            return split
        laid = set(places)
        rest = [position for position in rest if position not in laid]
    tables = prefix.tables(
        messages if head is None else [messages[position] for position in rest],
        (Learned() if learned is None else learned).prefixes,
    )
    wanted = {
        table: split.table_events(chunk, table) if wants(table) else None for table in set(tables) if table is not None
    }
    others = 0
    for position, table in zip(rest, tables, strict=True):
        if table is None:
            if null and chunk.values[position] is None:
                split.skipped += 1
            else:
                _parse(split, chunk, position, prefix, classify, what, codec)
        elif (table_events := wanted[table]) is not None:
            table_events.append(position, 0, messages[position])
        else:
            others += 1
    split.others += others
    split.keep(wants)
    if most is not None and len(most) > len(places):
        split.tables[most.table] = merged([most])
    split.tables = dict(sorted(split.tables.items(), key=lambda item: item[1].positions[0]))
    return split


def _most_frequent(messages: Sequence[bytes], prefix: PrefixMatch) -> _Head | None:
    """Return what most messages begin with, by a sample; None where those of no table are the most."""
    sample = messages[:: max(1, len(messages) // _SAMPLE)]
    head = prefix.head(sample[len(sample) // 2]) if sample else None
    return head if head is not None and len(head.select(sample)[0]) * 2 > len(sample) else None


def _parse(
    split: Split, chunk: Chunk, position: int, prefix: PrefixMatch, classify: Classify, what: str, codec: str
) -> None:
    """Classify a message that a prefix at what Kafka holds does not tell of."""
    value = chunk.values[position] or b""
    try:
        plain = decompressed(value, codec)
        seen = None if plain is value else prefix.match(plain)
        if seen is not None:
            split.table_events(chunk, table_name(seen[1].decode(), seen[2].decode())).append(position, 0, plain)
        else:
            classify(split, chunk, position, plain)
    except MALFORMED as error:
        failure = parse_failure(error, what)
        split.corrupt.append(Corrupt(position, 0, failure.at(chunk.address(position))))


def plain_object(value: bytes | None, codec: str) -> bytes:
    """Return a value's bytes if they look like a JSON object, for telling protocols apart; else nothing."""
    try:
        plain = decompressed(value or b"", codec)
    except DecodeError:
        return b""
    return plain if plain[:1] == b"{" else b""
