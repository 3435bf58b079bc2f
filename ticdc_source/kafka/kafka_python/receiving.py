"""What comes from a broker, read to where it is decoded: kafka-python copies it five times in between.

kafka-python's parser takes bytes as they come. Here a whole answer is read into one piece of memory, which serves the
next one too: the decoder copies what it keeps.
"""

from __future__ import annotations

import io
import ssl
from typing import Any

import kafka.errors
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslBytesResponse

__all__ = ["Memory", "Receiver"]

_SIZE_BYTES = 4  # an answer begins with its length
_READ_BYTES = 256 << 10  # at a time, by kafka-python's own parser
_KEPT_BYTES = 7 << 19  # an answer is rarely longer: it is what was asked for, and a few bytes around it

# What this stands in for, in kafka-python 3.0.12: where it differs, its own parser takes bytes as they come.
_USED = {"_process_response", "_validate_frame_size", "_receiving", "_rbuffer"}


class Memory:
    """Memory for answers: the piece that was used last is used again."""

    def __init__(self) -> None:
        self._spare = memoryview(b"")

    def take(self, size: int) -> memoryview:
        """Give a piece of so many bytes."""
        spare, self._spare = self._spare, memoryview(b"")
        return spare[:size] if size <= len(spare) else memoryview(bytearray(size))

    def give_back(self, piece: memoryview) -> None:
        """Keep the memory of a piece that nobody needs, unless a larger one is kept already."""
        whole = memoryview(piece.obj)
        if len(self._spare) < len(whole) <= _KEPT_BYTES:
            self._spare = whole


class Receiver:
    """Reads a connection, in the place of its parser's `receive_bytes`.

    Args:
        parser: of the connection; nothing must have come as yet.
        memory: where its answers go, shared by the connections of one IO thread.
    """

    def __init__(self, parser: Any, memory: Memory) -> None:
        self._parser = parser
        self._memory = memory
        self._is_whole = is_known(parser)
        if self._is_whole:
            parser.receive_bytes = self._responses
        self._size = memoryview(bytearray(_SIZE_BYTES))
        self._answer: memoryview | None = None  # the one that is being read
        self._have = 0  # bytes of that, or of its size

    def read(self, sock: Any) -> tuple[Any, Exception | None]:
        """Read what there is; an error only when there is nothing: it comes again at the next reading.

        Returns:
            what the parser's `receive_bytes` is to be given.
        """
        return self._answers(sock) if self._is_whole else _bytes(sock)

    def _answers(self, sock: Any) -> tuple[list[memoryview], Exception | None]:
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
                self._answer = self._memory.take(size)

    def _responses(self, answers: list[memoryview]) -> list[Any]:
        """Decode answers: what `KafkaProtocol.receive_bytes` gives for their bytes."""
        responses = []
        for answer in answers:
            buffer = io.BytesIO(answer) if self._is_login() else _Answer(answer)
            responses.append(self._parser._process_response(buffer))  # noqa: SLF001
            self._memory.give_back(answer)
        return responses

    def _is_login(self) -> bool:
        """Tell whether the next answer is a login's to a broker before Kafka 1.0: bytes, which are kept as they are."""
        asked = self._parser.in_flight_requests
        return bool(asked) and isinstance(asked[0], SaslBytesResponse)


class _Answer:
    """An answer, as kafka-python's decoder reads it: like a file."""

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


def is_known(parser: Any) -> bool:
    """Tell whether this is a parser whose place can be taken."""
    return type(parser) is KafkaProtocol and set(KafkaProtocol.receive_bytes.__code__.co_names) >= _USED


def _bytes(sock: Any) -> tuple[bytes, Exception | None]:
    parts: list[bytes] = []
    while True:
        part, failure = _received(sock.recv, _READ_BYTES)
        if not part:
            return b"".join(parts), None if parts else failure
        parts.append(part)


def _received(receive: Any, what: Any) -> tuple[Any, Exception | None]:
    """Receive once: nothing, and no error either, where nothing has come as yet."""
    try:
        got = receive(what)
    except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None, None
    except OSError as error:
        return None, kafka.errors.KafkaConnectionError(error)
    return got, None if got else kafka.errors.KafkaConnectionError("socket disconnected")
