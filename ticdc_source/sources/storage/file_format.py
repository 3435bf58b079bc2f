"""How a storage sink writes the messages of a wire format to files: rows behind one another, each with a terminator.

DDL is in schema files, and the watermark is the checkpoint-ts in `metadata`. A wire format turns both into messages:
into TiCDC's Kafka messages if it has them, else into the JSON of the file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels.arrays import Binaries, Spans, row_indices
from ticdc_source.options.options import Options

_CRLF, _LF, _CR = b"\r\n", b"\n", b"\r"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """The options of files, all but the first those of CSV; they can be pickled for the workers."""

    terminator: bytes | None = None  # of a row; None for the default
    delimiter: str = ","
    quote: str = '"'  # empty if special characters have a backslash instead
    null: str = "\\N"
    include_commit_ts: bool = True  # whether rows have it
    output_old_value: bool | None = None  # whether rows say if they are of an update; None if that is to be seen
    binary_encoding: str = "base64"  # or hex

    @property
    def end_of_row(self) -> bytes:
        return self.terminator or _CRLF

    @classmethod
    def of(cls, options: Options) -> FileSettings:
        return cls(
            terminator=None if options.terminator is None else options.terminator.encode(),
            delimiter=options.csv_delimiter,
            quote=options.csv_quote,
            null=options.csv_null,
            include_commit_ts=options.csv_include_commit_ts,
            output_old_value=options.csv_output_old_value,
            binary_encoding=options.csv_binary_encoding_method,
        )


class FileCutter(Protocol):
    """Cuts the bytes of one file into messages."""

    @property
    def key(self) -> bytes | None:
        """The key of the messages that were cut last."""

    def cut(self, block: bytes) -> list[bytes] | Binaries:
        """Return the messages that are whole with these bytes of the file, which follow those of before."""

    def rest(self) -> list[bytes]:
        """Return the messages that are left at the end of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """How a storage sink writes a wire format.

    Attributes:
        extension: the end of the names of its files, with the dot.
        cutter: makes what cuts one file, given the version of its table and the settings.
        of_schema: returns the message for a schema file, given its bytes; None if it has nothing to say. It raises
            ValueError if that is no schema file.
        of_checkpoint: returns the message for a checkpoint-ts.
    """

    extension: str
    cutter: Callable[[int, FileSettings], FileCutter]
    of_schema: Callable[[bytes], bytes | None]
    of_checkpoint: Callable[[int], bytes]


class LineCutter:
    """Cuts messages that do not contain the terminator.

    Args:
        terminator: what ends a message; None for a line feed, with or without a carriage return before it.
    """

    key = None

    def __init__(self, terminator: bytes | None) -> None:
        self._terminator = terminator
        self._left = b""

    def cut(self, block: bytes) -> list[bytes] | Binaries:
        data = self._left + block
        if self._terminator is not None:
            *messages, self._left = data.split(self._terminator)
            return messages
        end = data.rfind(_LF) + 1
        self._left = data[end:]
        return _lines(data, end)

    def rest(self) -> list[bytes]:
        left, self._left = self._left, b""
        return [left] if left else []


def _lines(data: bytes, end: int) -> Binaries:
    """Return the lines of data up to `end`, which is behind a line feed, without their ends; no line is copied."""
    characters = pa.Array.from_buffers(pa.uint8(), end, [None, pa.py_buffer(data)])
    feeds = pc.indices_nonzero(pc.equal(characters, _LF[0])).cast(pa.int32())
    count, one = len(feeds), pa.scalar(1, pa.int32())
    starts = pa.concat_arrays([pa.array([0], pa.int32()), pc.add(feeds, one)]).slice(0, count)
    before = characters.take(pc.max_element_wise(pc.subtract(feeds, one), pa.scalar(0, pa.int32())))
    has_return = pc.and_(pc.equal(before, _CR[0]), pc.greater(feeds, starts))
    ends = pc.subtract(feeds, has_return.cast(pa.int32()))
    numbers = row_indices(2 * count)  # start and end of each line in turn
    of_ends = pc.multiply(pc.bit_wise_and(numbers, one), pa.scalar(count, pa.int32()))
    bounds = pa.concat_arrays([starts, ends]).take(pc.add(pc.shift_right(numbers, one), of_ends))
    nbytes = (pc.sum(ends).as_py() or 0) - (pc.sum(starts).as_py() or 0)
    return Binaries(Spans(data, memoryview(pa.py_buffer(bounds.buffers()[1])).cast("B").cast("i")[: 2 * count], nbytes))
