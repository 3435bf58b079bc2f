"""Splitting JSON messages of one event each: the first bytes of a row message identify its table, without a parse.

A protocol gives a pattern for what its row messages begin with. The pattern matches each byte in one way only, whatever
follows. A message that begins with the bytes of an earlier match would therefore be matched alike, and comparing bytes
is enough. One call does so for many messages.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import ModuleType

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DecodeError
from ticdc_source.kernels.arrays import Binaries
from ticdc_source.kernels.native import messages_of, native, numbers_of
from ticdc_source.protocols.base import Learned, LearnedPrefixes
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.events import Corrupt, Split, TableEvents, merged
from ticdc_source.protocols.messages import MALFORMED, parse_failure, table_name
from ticdc_source.schema.table_name import TableName, Wants
from ticdc_source.sources.chunk import Chunk

__all__ = ["Classify", "PrefixMatch", "object_bytes", "plain_bytes", "split_by_prefix"]

# Parses a message and adds its event to the split: (split, chunk, position of the record, plain message).
Classify = Callable[[Split, Chunk, int, bytes], None]

_NUMBER = re.compile(rb'":[1-9]')  # likely to differ in each message
_MOST_LEARNED = 4096  # prefixes
_SAMPLE = 64  # messages whose prefixes are learned before the others are compared again


class PrefixMatch:
    """What the row messages of a protocol begin with, as TiCDC writes them.

    Messages that it does not match are parsed: names with escapes, the member order of other producers, DDL,
    watermarks.
    """

    __slots__ = ("_follows", "_marker", "_pattern")

    def __init__(self, pattern: bytes, marker: bytes, follows: bytes | None = None) -> None:
        """Compile the pattern.

        Args:
            pattern: matches the beginning of a row message, up to the quote and the comma behind its operation. Its
                groups are the database, the table and the operation. It must match each byte in one way only, and no
                text in it may hold a quote. Where it has a number that is the value of a member, any digits match.
            marker: what stands before the operation, and nowhere before that.
            follows: the bytes that follow the prefix, if nothing in the prefix differs from message to message of a
                table but the operation; None if times do.
        """
        self._pattern, self._marker, self._follows = re.compile(pattern), marker, follows

    def match(self, message: bytes) -> re.Match[bytes] | None:
        """Match one message."""
        return self._pattern.match(message)

    def by_table(
        self, messages: Sequence[bytes], wants: Wants, learned: LearnedPrefixes
    ) -> tuple[dict[TableName, Sequence[int]], Sequence[int], int]:
        """Tell messages apart by table.

        Args:
            messages: the messages.
            wants: which tables are wanted.
            learned: the prefixes that the read has learned so far; gets those that are new.

        Returns:
            the indexes of the row messages of each wanted table; those of the messages whose prefix does not identify
            the table; the number of row messages of other tables.
        """
        rest: Sequence[int] = ()
        others = 0
        tables: dict[TableName, Sequence[int]] = {}
        if native is not None and learned.native:
            codes, names = self._codes(native, messages, learned)
            for number, count in zip(*(each.to_pylist() for each in codes.value_counts().flatten()), strict=True):
                table = None if number < 0 else names[number]
                if table is not None and not wants(table):
                    others += count
                    continue
                every = count == len(codes)
                indexes = range(count) if every else pc.indices_nonzero(pc.equal(codes, number)).to_pylist()
                if table is None:
                    rest = indexes
                else:
                    tables[table] = indexes
            return tables, rest, others
        unknown = []
        listed: dict[TableName, list[int]] = {}
        for index, table in enumerate(self.tables(messages, learned)):
            if table is None:
                unknown.append(index)
            elif wants(table):
                listed.setdefault(table, []).append(index)
            else:
                others += 1
        tables.update(listed)
        return tables, unknown, others

    def _codes(
        self, native: ModuleType, messages: Sequence[bytes], learned: LearnedPrefixes
    ) -> tuple[pa.Int32Array, list[TableName]]:
        """Return each message's table as its number, -1 if its prefix does not identify it; and the tables."""
        if learned.kept is None or len(learned.kept) > _MOST_LEARNED:
            learned.kept, learned.numbers = native.Prefixes(self._marker), {}
        kept, numbers = learned.kept, learned.numbers
        given = messages_of(messages)
        codes = memoryview(bytearray(kept.tables(given))).cast("i")
        left = [index for index, code in enumerate(codes) if code < 0] if -1 in codes else []
        size = _SAMPLE
        while left:
            before = len(kept)
            for index in left[:size]:
                message = messages[index]
                match = self._pattern.match(message)
                table = None if match is None else _table_of(match[1], match[2])
                if match is not None and table is not None:
                    codes[index] = numbers.setdefault(table, len(numbers))
                    kept.learn(message, match.end(), codes[index])
            left = left[size:]
            size *= 2
            if left and len(kept) > before:
                again = memoryview(kept.tables(given, left)).cast("i")
                for index, code in zip(left, again, strict=True):
                    codes[index] = code
                left = [index for index in left if codes[index] < 0]
        return numbers_of(pa.int32(), codes), list(numbers)

    def tables(self, messages: Sequence[bytes], learned: LearnedPrefixes) -> list[TableName | None]:
        """Return the table of each row message; None if the prefix does not identify the table.

        Args:
            messages: the messages.
            learned: the prefixes that the read has learned so far; gets those that are new.
        """
        follows, match = self._follows, self._pattern.match
        if follows is None:
            return [None if head is None else _table_of(head[1], head[2]) for head in map(match, messages)]
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
        match = self._pattern.match(message)
        if match is None:
            return None
        prefix, table = match[0], _table_of(match[1], match[2])
        if table is not None and _NUMBER.search(prefix) is None:
            if len(learned.tables) >= _MOST_LEARNED:
                learned.tables.clear()
            learned.tables[prefix + end] = table
            learned.shortest = min(learned.shortest or len(prefix), len(prefix))
        return table


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
    wants: Wants,
    learned: Learned | None,
) -> Split:
    """Split a chunk whose messages are one event each; see `Decoder.split`.

    A value that is null or empty carries no event: it is a tombstone, or what TiCDC v4.0.8 wrote while nothing changed
    (docs/wire.md, items 34 and 87).

    Args:
        chunk: the records.
        prefix: what a row message begins with.
        classify: the general path.
        what: what a message should be, for errors.
        compression: how messages are decompressed.
        wants: which tables are wanted.
        learned: what the read has learned so far.
    """
    values = chunk.values
    messages: Sequence[bytes] = values if isinstance(values, Binaries) else [value or b"" for value in values]
    selected, rest, others = prefix.by_table(
        messages, wants, LearnedPrefixes(native=False) if learned is None else learned.prefixes
    )
    if not rest:
        split = Split(others=others)
        _add_selected(split, chunk, selected, messages, 0, len(messages))
        return split

    def parts() -> Iterator[Split]:
        """Yield the events, up to those that are too large together."""
        split, start = Split(others=others), 0
        for position in rest:
            _parse(split, chunk, position, prefix, classify, what, compression)
            if split.unpacked >= compression.max_together:
                yield finished(split, start, position)
                split, start = Split(), position
        yield finished(split, start, len(messages))

    def finished(split: Split, start: int, end: int) -> Split:
        split.keep(wants)
        _add_selected(split, chunk, selected, messages, start, end)
        return split

    splits = parts()
    split = next(splits)
    split.rest = splits
    return split


def _add_selected(
    split: Split,
    chunk: Chunk,
    selected: Mapping[TableName, Sequence[int]],
    messages: Sequence[bytes],
    start: int,
    end: int,
) -> None:
    """Add the row events at the positions `[start, end)` that were selected by table; others may be there already."""
    for table, positions in selected.items():
        within = positions[bisect_left(positions, start) : bisect_left(positions, end)]
        if not len(within):
            continue
        payloads: Sequence[bytes] = messages
        if len(within) < len(messages) and isinstance(messages, Binaries):
            payloads = messages.picked(within)
        elif len(within) < len(messages):
            payloads = [messages[position] for position in within]
        events, more = TableEvents.of_records(chunk, table, within, payloads), split.tables.get(table)
        split.tables[table] = events if more is None else merged([events, more])
    split.tables = dict(sorted(split.tables.items(), key=lambda item: item[1].positions[0]))


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
    plain = value = chunk.values[position] or b""
    try:
        plain = compression.decompressed(value)
        if not plain:
            split.skipped += 1
            return
        match = None
        if plain is not value:
            split.unpacked += len(plain)
            match = prefix.match(plain)
        if match is not None:
            split.table_events(chunk, table_name(match[1].decode(), match[2].decode())).append(position, 0, plain)
        else:
            classify(split, chunk, position, plain)
    except MALFORMED as error:
        # No name for the new error: with one, this frame and the text in it would wait for the garbage collector.
        split.corrupt.append(Corrupt(position, 0, parse_failure(error, what).at(chunk.address(position))))


def object_bytes(value: bytes | None, compression: Compression) -> bytes:
    """Return the plain bytes of a value that begins as a JSON object, else b"". Protocols recognize records by it."""
    plain = plain_bytes(value, compression)
    return plain if plain[:1] == b"{" else b""


def plain_bytes(value: bytes | None, compression: Compression) -> bytes:
    """Return the plain bytes of a value; b"" if it cannot be decompressed."""
    try:
        return compression.decompressed(value or b"")
    except DecodeError:
        return b""
