"""Messages that were too large for Kafka (docs/wire.md, items 92 to 95).

With TiCDC's `large-message-handle-option=claim-check`, a message has the key columns and the address of a file with the
whole message. With `handle-key-only`, it has only the key columns.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ticdc_source.errors import ClaimCheckUnavailableError, DecodeError
from ticdc_source.kernels import strings
from ticdc_source.protocols.compression import Compression, too_large
from ticdc_source.protocols.images import Parse, Parsed
from ticdc_source.protocols.messages import MALFORMED, JSONObject, failure_detail, text
from ticdc_source.schema.json_text import loads
from ticdc_source.sources.storage.files import check_regular, redacted, why_unreadable

Event = TypeVar("Event")

# TiCDC's names are `<uuid>.json`. A name that could lead out of the folder is refused.
_NAME = re.compile(r"[\w. -]*[\w-][\w. -]*")
_LONGEST_NAME = 255  # bytes, in most file systems; in object storage a whole path has at most 1024
_MARGIN = 1 << 20  # for the key and the names in a file
_WRAPPER = frozenset({"key", "value"})


@dataclass(frozen=True)
class LargeMessages:
    """How large messages are read: the options.

    Attributes:
        location: the option `claimCheckLocation`.
        on_key_only: the option `onHandleKeyOnly`.
        max_bytes: the option `maxMessageBytes`, which also limits the files.
        reads_files: whether files are read; if not, their messages have only key columns.
    """

    location: str | None = None
    on_key_only: str = "fail"
    max_bytes: int = Compression().max_bytes
    reads_files: bool = True

    def whole(
        self, address: object, parse: Callable[[bytes | None, bytes], Event], parsed: Parsed, *, key_only: object
    ) -> Event | None:
        """Return the whole event of a large message; None if there are only key columns.

        Raises:
            DecodeError: as `_claimed`; or the event has only key columns, and `onHandleKeyOnly` is `fail`.
            ClaimCheckUnavailableError: the storage cannot be read at all.
        """
        if address and self.reads_files:
            event = self._claimed(address, parse)
            parsed.claimed += 1
            return event
        if address or key_only:
            if self.on_key_only == "fail":
                raise DecodeError(
                    "the message has only key columns (TiCDC's large-message-handle-option=handle-key-only): set "
                    "onHandleKeyOnly=null to read the others as NULL. TiCDC's claim-check would lose nothing"
                )
            if address:
                parsed.claimed += 1
            else:
                parsed.key_only += 1
        return None

    def whole_message(
        self, message: JSONObject, marks_of: Callable[[JSONObject], Marks], parse: Parse, parsed: Parsed
    ) -> JSONObject:
        """Return the whole message for a large one in JSON; the message itself if there are only key columns."""
        marks = marks_of(message)

        def claimed(_key: bytes | None, value: bytes) -> JSONObject:
            whole = parse(value)
            its = marks_of(whole)
            check_claimed(its.identity, marks.identity, large=bool(its.address or its.key_only))
            return whole

        return self.whole(marks.address, claimed, parsed, key_only=marks.key_only) or message

    def _claimed(self, address: object, parse: Callable[[bytes | None, bytes], Event]) -> Event:
        """Read the file behind a message and parse it.

        As in TiCDC's own consumer, only the base name of the address matters: the storage is the reader's setting.

        Args:
            address: TiCDC's URL of the file.
            parse: returns the event of the whole message, given the Kafka key, if the file has one, and the value,
                which may be compressed.
        """
        address = text(address)
        if self.location is None:
            raise DecodeError(
                f"the row is in claim-check storage ({redacted(address)}; TiCDC's large-message-handle-option="
                "claim-check): set 'claimCheckLocation' to the folder of these files, a path or an fsspec URL"
            )
        name = address.rsplit("/", 1)[-1]
        if not _NAME.fullmatch(name) or len(name.encode()) > _LONGEST_NAME:
            shown = redacted(address)
            shown = shown if len(shown) <= _LONGEST_NAME else f"{shown[:100]}…{shown[-100:]}"
            raise DecodeError(f"the claim-check location {shown!r} does not end in a file name")
        data = _read(self.location, name, _file_bytes(self.max_bytes))
        file = f"the claim-check file {name} in {redacted(self.location)}"
        if len(data) > _file_bytes(self.max_bytes):
            raise DecodeError(f"{file}: {too_large(self.max_bytes)}")
        try:
            key, value = _unwrapped(data)
            del data  # it may be as large as the message
            if len(value) > self.max_bytes:
                raise DecodeError(too_large(self.max_bytes))
            return parse(key, value)
        except MALFORMED as error:
            reason = error.reason if isinstance(error, DecodeError) else failure_detail(error)
            raise DecodeError(f"{file} does not hold the message: {reason}") from None


class Marks(NamedTuple):
    """A JSON message's marks of a large message, of which it has at most one, and its event's identity."""

    address: object
    key_only: object
    identity: Sequence[object]


def check_claimed(identity: Sequence[object], expected: Sequence[object], *, large: bool) -> None:
    """Check the event in a claim-check file.

    Raises:
        ValueError: it is another event, or not complete.
    """
    if identity != expected:
        raise ValueError("it holds another event than the message names")
    if large:
        raise ValueError("it lacks the row, too")


def _file_bytes(max_bytes: int) -> int:
    """Return the largest size of a file with a message of `max_bytes`, in base64 and with its key."""
    return max_bytes * 4 // 3 + _MARGIN


def _read(location: str, name: str, most: int) -> bytes:
    """Return a file's first bytes, at most one more than `most`."""
    try:
        import fsspec  # noqa: PLC0415 (only topics with large messages need it)
    except ImportError:
        raise ClaimCheckUnavailableError(
            "the row is in claim-check storage: install fsspec on driver and executors "
            '(pip install "ticdc-source[large-messages]", or pip install fsspec)'
        ) from None
    file = f"file {name} of claimCheckLocation {redacted(location)}"
    try:
        storage, folder = fsspec.core.url_to_fs(location)
        check_regular(storage.protocol, f"{folder.rstrip('/')}/{name}")
        with storage.open(f"{folder.rstrip('/')}/{name}", "rb") as opened:
            return bytes(opened.read(most + 1))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise DecodeError(
            f"no {file}: does TiCDC write to that folder (claim-check-storage-uri), and does nothing delete its files?"
        ) from None
    except Exception as error:  # noqa: BLE001 (storages may raise anything)
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise DecodeError(f"no {file}: its name is too long for that storage") from None
        raise ClaimCheckUnavailableError(f"{file} cannot be read: {why_unreadable(error)}") from None


def _unwrapped(data: bytes) -> tuple[bytes | None, bytes]:
    """Return key and value in a file: a JSON object of both in base64, or the value with claim-check-raw-value."""
    if data[:1] == b"{":
        try:
            message = loads(data)
        except ValueError:
            if data.startswith((b'{"key":', b'{"value":')):
                raise
            return None, data  # the protocol detects what it is
        if message.keys() == _WRAPPER:
            key, value = message["key"], message["value"]
            return None if key is None else strings.base64_bytes(key), strings.base64_bytes(value)
    if not data:
        raise ValueError("it is empty")
    return None, data
