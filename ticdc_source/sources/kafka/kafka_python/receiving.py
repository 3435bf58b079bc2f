"""A broker's answer is read from the socket into the memory that it is decoded from.

kafka-python's parser takes bytes as they arrive, and copies them five times before it decodes them.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence

import kafka.errors
import pyarrow as pa

from ticdc_source.sources.kafka.kafka_python import library

__all__ = ["Receiver"]

_SIZE_BYTES = 4  # an answer begins with its length


class Receiver:
    """Reads a connection, and replaces its parser's `receive_bytes`.

    Args:
        parser: the connection's parser; nothing may have arrived yet.
    """

    def __init__(self, parser: library.Parser) -> None:
        self._parser = parser
        parser.receive_bytes = self._responses
        self._size = memoryview(bytearray(_SIZE_BYTES))
        self._answer: memoryview | None = None  # the one that is being read
        self._have = 0  # how many bytes of it, or of its size, have arrived

    def read(self, sock: socket.socket) -> tuple[list[memoryview], Exception | None]:
        """Read the answers that have arrived, which the parser's `receive_bytes` takes.

        An error is returned only if none has arrived; it will be there at the next reading too.
        """
        answers: list[memoryview] = []
        while True:
            missing = self._size if self._answer is None else self._answer
            if self._have < len(missing):
                count, failure = _received(sock, missing[self._have :])
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


def _received(sock: socket.socket, into: memoryview) -> tuple[int, Exception | None]:
    """Receive once, and return how many bytes arrived, or the error; neither if nothing has arrived yet."""
    try:
        count = sock.recv_into(into)
    except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return 0, None
    except OSError as error:
        return 0, kafka.errors.KafkaConnectionError(error)
    return count, None if count else kafka.errors.KafkaConnectionError("socket disconnected")
