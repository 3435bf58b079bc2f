"""How a storage sink writes the messages of a wire format to files: rows behind one another, each with a terminator.

DDL is in schema files, and the watermark is the checkpoint-ts in `metadata`. A wire format turns both into messages:
into TiCDC's Kafka messages if it has them, else into the JSON of the file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ticdc_source.options.options import Options
from ticdc_source.protocols.messages import JSONObject

__all__ = ["FileCutter", "FileFormat", "FileSettings", "LineCutter"]

_CRLF, _LF, _CR = b"\r\n", b"\n", b"\r"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """The options of files; they can be pickled for the workers.

    Attributes:
        terminator: what ends a row; None for the default.
        delimiter: what stands between two fields of CSV.
        quote: what stands around a text in CSV; empty if special characters have a backslash instead.
        null: what stands for NULL in CSV.
        include_commit_ts: whether rows of CSV have their commit-ts.
        output_old_value: whether rows of CSV say if they are of an update; None if that is to be seen.
        binary_encoding: how CSV writes binary values, `base64` or `hex`.
    """

    terminator: bytes | None = None
    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    include_commit_ts: bool = True
    output_old_value: bool | None = None
    binary_encoding: str = "base64"

    @property
    def end_of_row(self) -> bytes:
        """What ends a row of CSV."""
        return self.terminator or _CRLF

    @classmethod
    def of(cls, options: Options) -> FileSettings:
        """Return what options say."""
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

    def cut(self, block: bytes) -> list[bytes]:
        """Return the messages that are whole with these bytes of the file, which follow those of before."""

    def rest(self) -> list[bytes]:
        """Return the last message, at the end of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """How a storage sink writes a wire format.

    Attributes:
        extension: the end of the names of its files, with the dot.
        cutter: makes what cuts one file, given the version of its table and the settings.
        of_schema: returns the message for a schema file, given its JSON; None if it has nothing to say.
        of_checkpoint: returns the message for a checkpoint-ts.
    """

    extension: str
    cutter: Callable[[int, FileSettings], FileCutter]
    of_schema: Callable[[JSONObject], bytes | None]
    of_checkpoint: Callable[[int], bytes]


class LineCutter:
    """Cuts messages that do not contain the terminator.

    Args:
        terminator: what ends a message; None for a line feed, with or without a carriage return before it.
    """

    key = None

    def __init__(self, terminator: bytes | None) -> None:
        self._terminator = terminator or _LF
        self._may_have_return = terminator is None
        self._left = b""

    def cut(self, block: bytes) -> list[bytes]:
        """Return the messages that are whole; see `FileCutter.cut`."""
        lines = (self._left + block).split(self._terminator)
        self._left = lines.pop()
        return [line.removesuffix(_CR) for line in lines] if self._may_have_return else lines

    def rest(self) -> list[bytes]:
        """Return the last message, which may lack the terminator."""
        left, self._left = self._left, b""
        return [left] if left else []
