"""A broker's answer is read from the socket into the memory that it is decoded from.

kafka-python's parser takes bytes as they arrive, and copies them five times before it decodes them.
`compatibility.ANSWERS` guards the private names.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from typing import TypeVar

import kafka.errors
import pyarrow as pa
from kafka.protocol.parser import KafkaProtocol

from ticdc_source.sources.kafka.kafka_python import library
from ticdc_source.sources.kafka.kafka_python.compatibility import ANSWERS, differences

__all__ = ["Receiver"]

_SIZE_BYTES = 4  # an answer begins with its length
_READ_BYTES = 256 << 10  # at a time, by kafka-python's own parser

Buffer = TypeVar("Buffer")
Received = TypeVar("Received", bytes, int)


class Receiver:
    """Reads a connection, and replaces its parser's `receive_bytes`.

    Args:
        parser: the connection's parser; nothing may have arrived yet.
    """

    def __init__(self, parser: library.Parser) -> None:
        self._parser = parser
        self._reads_answers = type(parser) is KafkaProtocol and ANSWERS not in differences()
        if self._reads_answers:
            parser.receive_bytes = self._responses
        self._size = memoryview(bytearray(_SIZE_BYTES))
        self._answer: memoryview | None = None  # the one that is being read
        self._have = 0  # how many bytes of it, or of its size, have arrived

    def read(self, sock: socket.socket) -> tuple[bytes | list[memoryview], Exception | None]:
        """Read what has arrived, and return it as the parser's `receive_bytes` takes it.

        An error is returned only if nothing has arrived; it will be there at the next reading too.
        """
        return self._answers(sock) if self._reads_answers else _bytes(sock)

    def _answers(self, sock: socket.socket) -> tuple[list[memoryview], Exception | None]:
        answers: list[memoryview] = []
        while True:
            missing = self._size if self._answer is None else self._answer
            if self._have < len(missing):
                count, failure = _received(sock.recv_into, missing[self._have :])
                if not count:
                    return answers, None if answers else failure
                self._have += count
            if self._have == len(missing):
                self._have = 0
                if self._answer is not None:
                    answers.append(self._answer)
                    self._answer = None
                    continue
                size = int.from_bytes(self._size, "big", signed=True)
                try:
                    self._parser._validate_frame_size(size)  # noqa: SLF001 (what receive_bytes does)
                except kafka.errors.KafkaError as error:
                    return answers, error
                # A bytearray would be filled with zeros first.
                self._answer = memoryview(pa.allocate_buffer(size)).cast("B")

    def _responses(self, answers: Sequence[memoryview]) -> list[object]:
        """Decode answers into what `KafkaProtocol.receive_bytes` returns for their bytes."""
        return [self._parser._process_response(_Answer(answer)) for answer in answers]  # noqa: SLF001


class _Answer:
    """An answer as a file, which kafka-python's decoder reads."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def read(self, size: int | None = None) -> memoryview | bytes:
        begin, end = self._at, len(self._data) if size is None else self._at + size
        self._at = min(end, len(self._data))
        part = self._data[begin:end]
        return part if size is None else bytes(part)

    def seek(self, at: int) -> None:
        self._at = at

    def tell(self) -> int:
        return self._at


def _bytes(sock: socket.socket) -> tuple[bytes, Exception | None]:
    parts: list[bytes] = []
    while True:
        part, failure = _received(sock.recv, _READ_BYTES)
        if not part:
            return b"".join(parts), None if parts else failure
        parts.append(part)


def _received(receive: Callable[[Buffer], Received], into: Buffer) -> tuple[Received | None, Exception | None]:
    """Receive once, and return what arrived, or the error; neither if nothing has arrived yet."""
    try:
        received = receive(into)
    except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None, None
    except OSError as error:
        return None, kafka.errors.KafkaConnectionError(error)
    return received, None if received else kafka.errors.KafkaConnectionError("socket disconnected")
