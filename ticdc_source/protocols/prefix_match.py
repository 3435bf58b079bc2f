"""Splitting JSON messages of one event each: the first bytes of a row message identify its table, without a parse.

A protocol gives a pattern for what its row messages begin with. The pattern matches each byte in one way only, whatever
follows. A message that begins with the bytes of an earlier match would therefore be matched alike, and comparing bytes
is enough. One call does so for many messages.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import compress, repeat
from operator import itemgetter
from typing import NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DecodeError
from ticdc_source.events import Binaries, Chunk, Corrupt, Split, TableEvents, TableName, Wants, merged
from ticdc_source.protocols.base import Learned, LearnedPrefixes
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.messages import MALFORMED, parse_failure, table_name

__all__ = ["Classify", "PrefixMatch", "object_bytes", "split_by_prefix"]

# Parses a message and adds its event to the split: (split, chunk, position of the record, plain message).
Classify = Callable[[Split, Chunk, int, bytes], None]

# Times in a prefix. They differ where all else is alike. A quote ends a name here: texts of a prefix have none.
_TIME = re.compile(rb'(?<=":)\d{10,}')
_NUMBER = re.compile(rb'":[1-9]')  # likely to differ in each message
_MOST_LEARNED = 4096  # prefixes
_SAMPLE = 8  # messages


class _RowPrefix(NamedTuple):
    """What the row messages of one table begin with.

    Attributes:
        table: the table.
        parts: (where a part begins, its bytes or what they may be).
        times: where the digits of times are, between the parts.
    """

    table: TableName
    parts: tuple[tuple[int, bytes | tuple[bytes, ...]], ...]
    times: tuple[slice, ...]

    def fits(self, messages: pa.BinaryArray) -> bool:
        """Return whether all messages begin like this."""
        try:
            for begin, part in self.parts:
                choices = (part,) if isinstance(part, bytes) else part
                if len(set(map(len, choices))) > 1:
                    return False
                found = pc.binary_slice(messages, begin, begin + len(choices[0]))
                if not pc.all(pc.is_in(found, value_set=pa.array(choices, pa.binary()))).as_py():
                    return False
            return all(_bytes_of(pc.binary_slice(messages, time.start, time.stop)).isdigit() for time in self.times)
        except pa.ArrowInvalid:
            return False  # binary_slice refuses messages that end before the slice begins

    def select(self, messages: Sequence[bytes]) -> tuple[Sequence[int], Sequence[bytes]]:
        """Return the indices of the messages that begin like this, and these messages."""
        indices: Sequence[int] = range(len(messages))
        for begin, part in self.parts:
            fits = list(map(bytes.startswith, messages, repeat(part), repeat(begin)))
            if not all(fits):
                indices, messages = list(compress(indices, fits)), list(compress(messages, fits))
        for time in self.times:
            if not b"".join(map(itemgetter(time), messages)).isdigit():
                fits = [message[time].isdigit() for message in messages]
                indices, messages = list(compress(indices, fits)), list(compress(messages, fits))
        return indices, messages


class PrefixMatch:
    """What the row messages of a protocol begin with, as TiCDC writes them.

    Messages that it does not match are parsed: names with escapes, the member order of other producers, DDL,
    watermarks.
    """

    __slots__ = ("_follows", "_operations", "_pattern")

    def __init__(self, pattern: bytes, operations: tuple[bytes, ...], follows: bytes | None = None) -> None:
        """Compile the pattern.

        Args:
            pattern: matches the beginning of a row message. Its groups are the database, the table and the operation.
                It must match each byte in one way only, and no text in it may hold a quote.
            operations: what the third group may be.
            follows: the bytes that follow the prefix, if nothing in the prefix differs from message to message of a
                table but the operation; None if times do.
        """
        self._pattern, self._operations, self._follows = re.compile(pattern), operations, follows

    def match(self, message: bytes) -> re.Match[bytes] | None:
        """Match one message."""
        return self._pattern.match(message)

    def row_prefix(self, message: bytes) -> _RowPrefix | None:
        """Return what row messages of this one's table begin with; None if the prefix does not identify the table."""
        found = self._pattern.match(message)
        table = None if found is None else _table_of(found[1], found[2])
        if found is None or table is None:
            return None
        times = [slice(*time.span()) for time in _TIME.finditer(message, 0, found.start(3))]
        begins = [0, *(time.stop for time in times)]
        parts: list[tuple[int, bytes | tuple[bytes, ...]]] = [
            (begin, message[begin : time.start]) for begin, time in zip(begins, times, strict=False)
        ]
        before, after = message[begins[-1] : found.start(3)], message[found.end(3) : found.end()]
        parts.append((begins[-1], tuple(before + operation + after for operation in self._operations)))
        return _RowPrefix(table, tuple(parts), tuple(times))

    def tables(self, messages: Sequence[bytes], learned: LearnedPrefixes) -> list[TableName | None]:
        """Return the table of each row message; None if the prefix does not identify the table.

        Args:
            messages: the messages.
            learned: the prefixes that the read has learned so far; gets those that are new.
        """
        follows, match = self._follows, self._pattern.match
        if follows is None:
            return [None if found is None else _table_of(found[1], found[2]) for found in map(match, messages)]
        # A learned prefix ends with the first byte of what follows: a message without that has the empty prefix, which
        # is never learned.
        shortest = learned.shortest
        tables = list(map(learned.tables.get, [message[: message.find(follows, shortest) + 1] for message in messages]))
        if None in tables:
            end = follows[:1]
            tables = [
                table or self._learn(message, end, learned) for table, message in zip(tables, messages, strict=True)
            ]
        return tables

    def _learn(self, message: bytes, end: bytes, learned: LearnedPrefixes) -> TableName | None:
        found = self._pattern.match(message)
        if found is None:
            return None
        table = _table_of(found[1], found[2])
        if table is not None and _NUMBER.search(found[0]) is None:
            if len(learned.tables) >= _MOST_LEARNED:
                learned.tables.clear()
            learned.tables[found[0] + end] = table
            learned.shortest = min(learned.shortest or len(found[0]), len(found[0]))
        return table


def _bytes_of(array: pa.BinaryArray) -> bytes:
    """Return the values of an array, one after the other. The array must not be a slice of another."""
    data = array.buffers()[2]
    if data is None:
        return b""
    ends = memoryview(array.buffers()[1]).cast("i")
    return data[: ends[len(array)]].to_pybytes()  # type: ignore[no-any-return]


@lru_cache(maxsize=4096)
def _table_of(database: bytes, table: bytes) -> TableName | None:
    """Return the table with these names; None if one of them is not UTF-8."""
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
    compression: Compression,
    tombstones: bool,
    wants: Wants,
    learned: Learned | None,
) -> Split:
    """Split a chunk whose messages are one event each; see `Decoder.split`.

    Args:
        chunk: the records.
        prefix: what a row message begins with.
        classify: the general path.
        what: what a message should be, for errors.
        compression: how messages are decompressed.
        tombstones: whether a null value is a tombstone, which carries no event. If not, it is an error.
        wants: which tables are wanted.
        learned: what the read has learned so far.
    """
    split = Split()
    values = chunk.values
    if isinstance(values, Binaries):
        common = prefix.row_prefix(values[len(values) // 2])
        if common is not None and common.fits(values.array):
            if wants(common.table):
                split.tables[common.table] = TableEvents.of_records(chunk, common.table, range(len(values)), values)
            else:
                split.others = len(values)
            return split
        messages: Sequence[bytes] = values.as_list()
    else:
        messages = cast("list[bytes]", values) if all(values) else [value or b"" for value in values]
    # Most chunks hold rows of one table for the most part. These are selected together, the rest one by one.
    rest: Sequence[int] = range(len(messages))
    positions: Sequence[int] = ()
    payloads: Sequence[bytes] = ()
    if (common := _most_frequent(messages, prefix)) is not None:
        positions, payloads = common.select(messages)
        if len(positions) == len(messages):
            _add_selected(split, chunk, common.table, positions, payloads, wants)
            return split
        selected = set(positions)
        rest = [position for position in rest if position not in selected]
    tables = prefix.tables(
        messages if common is None else [messages[position] for position in rest],
        (Learned() if learned is None else learned).prefixes,
    )

    def parts() -> Iterator[Split]:
        """Yield the events, up to those that are too large together; `start` and `end` are indices of `positions`."""
        split, start = Split(), 0
        for position, table in zip(rest, tables, strict=True):
            if table is not None:
                if wants(table):
                    split.table_events(chunk, table).append(position, 0, messages[position])
                else:
                    split.others += 1
                continue
            if tombstones and chunk.values[position] is None:
                split.skipped += 1
                continue
            _parse(split, chunk, position, prefix, classify, what, compression)
            if split.unpacked >= compression.max_together:
                end = bisect_left(positions, position)
                yield _finished(split, start, end)
                split, start = Split(), end
        yield _finished(split, start, len(positions))

    def _finished(split: Split, start: int, end: int) -> Split:
        split.keep(wants)
        if common is not None and start < end:
            _add_selected(split, chunk, common.table, positions[start:end], payloads[start:end], wants)
        split.tables = dict(sorted(split.tables.items(), key=lambda item: item[1].positions[0]))
        return split

    found = parts()
    split = next(found)
    split.rest = found
    return split


def _add_selected(
    split: Split, chunk: Chunk, table: TableName, positions: Sequence[int], payloads: Sequence[bytes], wants: Wants
) -> None:
    """Add row events of one table that were selected together; others of it may be there already."""
    if not wants(table):
        split.others += len(positions)
        return
    selected, more = TableEvents.of_records(chunk, table, positions, payloads), split.tables.get(table)
    split.tables[table] = selected if more is None else merged([selected, more])


def _most_frequent(messages: Sequence[bytes], prefix: PrefixMatch) -> _RowPrefix | None:
    """Return what most messages of a sample begin with; None if no table has most of them."""
    sample = messages[:: max(1, len(messages) // _SAMPLE)]
    common = prefix.row_prefix(sample[len(sample) // 2]) if sample else None
    return common if common is not None and len(common.select(sample)[0]) * 2 > len(sample) else None


def _parse(
    split: Split,
    chunk: Chunk,
    position: int,
    prefix: PrefixMatch,
    classify: Classify,
    what: str,
    compression: Compression,
) -> None:
    """Add the event of a message whose first bytes, as Kafka holds them, do not identify its table."""
    value = chunk.values[position] or b""
    try:
        plain = compression.decompressed(value)
        found = None
        if plain is not value:
            split.unpacked += len(plain)
            found = prefix.match(plain)
        if found is not None:
            split.table_events(chunk, table_name(found[1].decode(), found[2].decode())).append(position, 0, plain)
        else:
            classify(split, chunk, position, plain)
    except MALFORMED as error:
        # No name for the new error: with one, this frame and the text in it would wait for the garbage collector.
        split.corrupt.append(Corrupt(position, 0, parse_failure(error, what).at(chunk.address(position))))


def object_bytes(value: bytes | None, compression: Compression) -> bytes:
    """Return the plain bytes of a value that begins as a JSON object, else b"". Protocols recognize records by it."""
    try:
        plain = compression.decompressed(value or b"")
    except DecodeError:
        return b""
    return plain if plain[:1] == b"{" else b""
