"""Decoders of JSON messages of one event each: the first bytes of a row message identify its table, without parsing.

A protocol has a pattern for the beginning of its row messages. It matches each byte in only one way, whatever follows,
so messages that begin with the bytes of an earlier match need no match, only a comparison of bytes. On the native path,
one call compares many messages.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import ModuleType
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DecodeError
from ticdc_source.kernels.arrays import Binaries
from ticdc_source.kernels.native import messages_of, native, numbers_of
from ticdc_source.protocols.base import Learned
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.decoding import Decoder
from ticdc_source.protocols.events import Corrupt, Split, TableEvents
from ticdc_source.protocols.messages import MALFORMED, parse_failure, table_name
from ticdc_source.schema.table_name import TableName, Wants, every_table
from ticdc_source.sources.chunk import Chunk

_MOST_LEARNED = 4096  # prefixes
_SAMPLE = 64  # messages whose prefixes are learned before the others are compared again


class PrefixMatch:
    """The beginning of a protocol's row messages, as TiCDC writes them.

    Other messages are parsed: names with escapes, the member order of other producers, DDL, watermarks.
    """

    __slots__ = ("_marker", "_pattern")

    def __init__(self, pattern: bytes, marker: bytes) -> None:
        """Compile the pattern.

        Args:
            pattern: matches the beginning of a row message, up to the quote and comma after its operation. Its groups
                are the database, the table and the operation. It must match each byte in only one way, without quotes
                in texts, and with any digits in numbers.
            marker: the bytes before the operation, which occur nowhere earlier.
        """
        self._pattern, self._marker = re.compile(pattern), marker

    def match(self, message: bytes) -> re.Match[bytes] | None:
        return self._pattern.match(message)

    def by_table(
        self, messages: Sequence[bytes], wants: Wants, learned: Learned | None
    ) -> tuple[dict[TableName, Sequence[int]], Sequence[int], int]:
        """Tell messages apart by table.

        Returns:
            the indexes of each wanted table's row messages; those of messages whose prefix does not identify the table;
            the number of other tables' row messages.
        """
        if native is not None and learned is not None and learned.native:
            listed = self._listed_in_native(native, messages, wants, learned)
        else:
            by_name: dict[TableName | None, list[int]] = {}
            for index, match in enumerate(map(self._pattern.match, messages)):
                by_name.setdefault(None if match is None else _table_of(match[1], match[2]), []).append(index)
            listed = dict(by_name)
        rest = listed.pop(None, ())
        others = sum(len(listed.pop(table)) for table in [table for table in listed if table and not wants(table)])
        return {table: indexes for table, indexes in listed.items() if table is not None}, rest, others

    def _listed_in_native(
        self, native: ModuleType, messages: Sequence[bytes], wants: Wants, learned: Learned
    ) -> dict[TableName | None, Sequence[int]]:
        codes, names = self._codes(native, messages, learned)
        listed: dict[TableName | None, Sequence[int]] = {}
        for number, count in zip(*(each.to_pylist() for each in codes.value_counts().flatten()), strict=True):
            table = None if number < 0 else names[number]
            is_counted_only = table is not None and not wants(table)
            every = count == len(codes) or is_counted_only
            listed[table] = range(count) if every else pc.indices_nonzero(pc.equal(codes, number)).to_pylist()
        return listed

    def _codes(
        self, native: ModuleType, messages: Sequence[bytes], learned: Learned
    ) -> tuple[pa.Int32Array, list[TableName]]:
        """Return the number of each message's table, -1 if its prefix does not identify it; and the tables."""
        if learned.prefixes is None or len(learned.prefixes) > _MOST_LEARNED:
            learned.prefixes, learned.numbers = native.Prefixes(self._marker), {}
        kept, numbers = learned.prefixes, learned.numbers
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


@lru_cache(maxsize=4096)
def _table_of(database: bytes, table: bytes) -> TableName | None:
    try:
        return TableName(database.decode(), table.decode())
    except UnicodeDecodeError:
        return None


class JSONDecoder(Decoder):
    """A decoder of messages of one event each, whose first bytes identify a row's table.

    Attributes:
        prefix: the beginning of row messages; `_classify` gets other messages.
    """

    prefix: ClassVar[PrefixMatch]

    @abstractmethod
    def _classify(self, split: Split, chunk: Chunk, position: int, value: bytes) -> None:
        """Parse a plain message and add its event to the split; raises errors of `MALFORMED`."""

    def split(self, chunk: Chunk, wants: Wants = every_table, learned: Learned | None = None) -> Split:
        """Compare the first bytes of messages; parse those that are not plain rows.

        A null or empty value has no event: it is a tombstone, or what TiCDC v4.0.8 wrote while nothing changed
        (docs/wire.md, items 34 and 87).
        """
        values, max_together = chunk.values, self.settings.compression.max_together
        messages: Sequence[bytes] = values if isinstance(values, Binaries) else [value or b"" for value in values]
        positions, rest, others = self.prefix.by_table(messages, wants, learned)
        selected = {table: _events_at(chunk, table, its, messages) for table, its in positions.items()}

        def parts() -> Iterator[Split]:
            """Yield the events, in parts of limited size."""
            split, start = Split(others=others), 0
            for position in rest:
                self._add_parsed(split, chunk, position)
                if split.unpacked >= max_together:
                    yield finished(split, start, position)
                    split, start = Split(), position
            yield finished(split, start, len(messages))

        def finished(split: Split, start: int, end: int) -> Split:
            split.keep(wants)
            return split.with_selected(selected, start, end)

        return Split.of_parts(parts())

    def _add_parsed(self, split: Split, chunk: Chunk, position: int) -> None:
        """Add the event of a message whose first bytes, maybe compressed, do not identify its table."""
        plain = value = chunk.values[position] or b""
        try:
            plain = self.settings.compression.decompressed(value)
            if not plain:
                split.skipped += 1
                return
            match = None
            if plain is not value:
                split.unpacked += len(plain)
                match = self.prefix.match(plain)
            if match is not None:
                split.table_events(chunk, table_name(match[1].decode(), match[2].decode())).append(position, 0, plain)
            else:
                self._classify(split, chunk, position, plain)
        except MALFORMED as error:
            # The error has no name here: this frame and its text would have to wait for the garbage collector.
            address = chunk.address(position)
            split.corrupt.append(Corrupt(position, 0, parse_failure(error, self.facts.message).at(address)))


def _events_at(chunk: Chunk, table: TableName, positions: Sequence[int], messages: Sequence[bytes]) -> TableEvents:
    if len(positions) < len(messages) and isinstance(messages, Binaries):
        messages = messages.picked(positions)
    elif len(positions) < len(messages):
        messages = [messages[position] for position in positions]
    return TableEvents.of_records(chunk, table, positions, messages)


def object_bytes(value: bytes | None, compression: Compression) -> bytes:
    """Return a value's plain bytes if they begin like a JSON object, else b""."""
    plain = plain_bytes(value, compression)
    return plain if plain[:1] == b"{" else b""


def plain_bytes(value: bytes | None, compression: Compression) -> bytes:
    """Return a value's plain bytes; b"" if it cannot be decompressed."""
    try:
        return compression.decompressed(value or b"")
    except DecodeError:
        return b""
