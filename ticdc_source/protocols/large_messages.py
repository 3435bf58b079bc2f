"""Messages that were too large for Kafka: their values in claim-check storage, or their key columns alone.

TiCDC's `large-message-handle-option`: with `claim-check` a message carries the key columns and the address of a file
with the whole message, with `handle-key-only` the key columns and nothing else (pingcap/ticdc
pkg/sink/kafka/claimcheck/claim_check.go). The only module that imports fsspec.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from ticdc_source.errors import ClaimCheckUnavailableError, DecodeError
from ticdc_source.events import Chunk
from ticdc_source.protocols.compression import decompressed
from ticdc_source.protocols.messages import MALFORMED, text

__all__ = ["LargeMessages", "redacted", "small_portions"]

T = TypeVar("T")

# TiCDC's names are `<uuid>.json`. What could mean another place than a file of the folder is refused.
_NAME = re.compile(r"[\w. -]*[\w-][\w. -]*")
# How messages write that address: open-protocol in its key, canal-json in its value.
_IN_KEY, _IN_VALUE = b'"ccl":"', b'"claimCheckLocation":"'
_MOST_FILES = 16
_WRAPPER = frozenset({"key", "value"})


@dataclass(frozen=True)
class LargeMessages:
    """How large messages are read; options, so that a worker gets them by pickling.

    Attributes:
        location: the option `claimCheckLocation`.
        on_key_only: the option `onHandleKeyOnly`.
    """

    location: str | None = None
    on_key_only: str = "fail"

    def claimed(self, address: Any, parse: Callable[[bytes | None, bytes], T]) -> T:
        """Read the file behind a message and parse it.

        Of the address in the message the base name alone is used, as TiCDC's own consumer does: where the storage is
        mounted, and with what credentials, is the reader's own affair.

        Args:
            address: what the message says, a URL of TiCDC's.
            parse: (Kafka key, Kafka value) of the whole message → what the protocol makes of it; the value may be
                compressed. The key is None where the file has none.

        Raises:
            DecodeError: there is no such file, it is broken, or `claimCheckLocation` is not set.
            ClaimCheckUnavailableError: the storage cannot be read at all.
        """
        address = text(address)
        if self.location is None:
            msg = (
                f"the row lies in claim-check storage ({redacted(address)}; TiCDC's large-message-handle-option="
                "claim-check): set 'claimCheckLocation' to the folder of these files, a path or a URL of fsspec"
            )
            raise DecodeError(msg)
        name = address.rsplit("/", 1)[-1]
        if not _NAME.fullmatch(name):
            msg = f"the claim-check location {redacted(address)!r} does not end in the name of a file"
            raise DecodeError(msg)
        data = _read(self.location, name)
        try:
            return parse(*_unwrapped(data))
        except MALFORMED as error:
            reason = error.reason if isinstance(error, DecodeError) else _detail(error)
            msg = f"the claim-check file {name} in {redacted(self.location)} is not the message: {reason}"
            raise DecodeError(msg) from None

    def accept_key_only(self) -> None:
        """Let a message with the key columns alone pass, or not, as `onHandleKeyOnly` says.

        Raises:
            DecodeError: it is `fail`.
        """
        if self.on_key_only == "fail":
            msg = (
                "the message has the key columns only (TiCDC's large-message-handle-option=handle-key-only): "
                "onHandleKeyOnly=null reads the others as NULL; with claim-check nothing would be missing"
            )
            raise DecodeError(msg)


def small_portions(chunks: Iterable[Chunk], codec: str) -> Iterator[Chunk]:
    """Cut chunks so that each stands for few files of claim-check storage only.

    A file is larger than Kafka's limit, 10 MB by TiCDC's default, and its message some hundred bytes: a thousand of
    them are one chunk, and would be held in memory together. `codec` is the option `valueCompression`.
    """
    for chunk in chunks:
        start, files = 0, 0
        for position, (key, value) in enumerate(zip(chunk.keys, chunk.values, strict=True)):
            here = _files_of(key, value, codec)
            if here and files and files + here > _MOST_FILES:
                yield chunk.part(start, position)
                start, files = position, 0
            files += here
        yield chunk.part(start, len(chunk)) if start else chunk


def _files_of(key: bytes | None, value: bytes | None, codec: str) -> int:
    if key and _IN_KEY in key:
        return key.count(_IN_KEY)
    try:
        return int(_IN_VALUE in decompressed(value or b"", codec)) if not key else 0
    except DecodeError:  # the decoder says what is wrong
        return 0


def redacted(location: str) -> str:
    """Return a path or URL without what may be a secret: user, password, query."""
    parts = (re.sub(r"(?<=://).*@", "", re.sub(r"(?s)[?#].*", "", part)) for part in location.split("::"))
    return "::".join(parts)


def _read(location: str, name: str) -> bytes:
    try:
        import fsspec  # noqa: PLC0415 (only topics with large messages need it)
    except ImportError:
        msg = (
            "the row lies in claim-check storage: install fsspec on driver and executors "
            '(pip install "ticdc-source[large-messages]", or pip install fsspec)'
        )
        raise ClaimCheckUnavailableError(msg) from None
    where = f"file {name} of claimCheckLocation {redacted(location)}"
    try:
        storage, folder = fsspec.core.url_to_fs(location)
        return bytes(storage.cat_file(f"{folder.rstrip('/')}/{name}"))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        msg = f"no {where}: is that the folder TiCDC writes to (claim-check-storage-uri), and has nothing deleted it?"
        raise DecodeError(msg) from None
    except ImportError as error:  # says which library it needs
        msg = f"{where} cannot be read: {error}"
        raise ClaimCheckUnavailableError(msg) from None
    except Exception as error:  # noqa: BLE001 (storages raise what they like, and their texts may show secrets)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else ""
        msg = f"{where} cannot be read: {type(error).__name__}{reason and f' ({reason})'}"
        raise ClaimCheckUnavailableError(msg) from None


def _unwrapped(data: bytes) -> tuple[bytes | None, bytes]:
    """Return key and value of a file: a JSON object of both in base64, or, with claim-check-raw-value, the value."""
    if data[:1] == b"{":
        try:
            message = json.loads(data)
        except ValueError:
            if data.startswith((b'{"key":', b'{"value":')):
                raise
            return None, data  # whatever it is, the protocol says
        if message.keys() == _WRAPPER:
            key, value = message["key"], message["value"]
            return None if key is None else _unarmoured(key), _unarmoured(value)
    if not data:
        msg = "it is empty"
        raise ValueError(msg)
    return None, data


def _unarmoured(cell: str) -> bytes:
    return base64.b64decode(cell, validate=True)


def _detail(error: Exception) -> str:
    return f"no member {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
