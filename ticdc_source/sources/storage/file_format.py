"""How a storage sink writes a wire format's messages to files: row after row, each with a terminator.

DDL is in schema files, and the watermark is the checkpoint-ts in `metadata`. A wire format turns both into messages:
into TiCDC's Kafka messages if it has them, else into the file's JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ticdc_source.options.options import Options


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
        return self.terminator or b"\r\n"

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
    """Cuts one file into messages."""

    @property
    def key(self) -> bytes | None:
        """The key of the last messages."""

    def cut(self, block: bytes) -> list[bytes]:
        """Return the messages completed by the file's next bytes."""

    def rest(self) -> list[bytes]:
        """Return what is left at the end of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """How a storage sink writes a wire format.

    Attributes:
        extension: the extension of its files, with the dot.
        cutter: makes the cutter of a file, given its table version and the settings.
        of_schema: the message for a schema file's bytes; None if it says nothing. Raises ValueError for other files.
        of_checkpoint: the message for a checkpoint-ts.
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

    def cut(self, block: bytes) -> list[bytes]:
        *messages, self._left = (self._left + block).split(self._terminator or b"\n")
        return messages if self._terminator else [message.removesuffix(b"\r") for message in messages]

    def rest(self) -> list[bytes]:
        left, self._left = self._left, b""
        return [left] if left else []
