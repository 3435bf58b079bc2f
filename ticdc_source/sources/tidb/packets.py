"""Row packets of MySQL's text protocol: cut out of the bytes of a result as they arrive, without an object per row.

    packet := u24le length, u8 sequence number, payload
    result := … { row }* (EOF | ERR)

Source: MySQL's client/server protocol, "MySQL Packets", "Text Resultset", "EOF_Packet" and "ERR_Packet". PyMySQL does
not ask for CLIENT_DEPRECATE_EOF.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ticdc_source.kernels.arrays import Binaries, Spans
from ticdc_source.kernels.native import native

_HEADER = 4
_BOUNDS = 8  # bytes of the bounds of a row
_LARGEST = 0xFFFFFF  # a payload of this length goes on in the next packet
_END, _ERROR = 0xFE, 0xFF
_SHORTEST_LONG_CELL = 9  # bytes of a row that begins with a cell of 16 MiB or more: fewer end the result
_STATE = b"#"  # begins the SQLSTATE in an error packet, which has five more bytes


class ServerError(Exception):
    """An error packet in place of a row: its number and text."""

    def __init__(self, code: int, text: str, /) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text


class BrokenResultError(Exception):
    """The connection was closed in the middle of a result, or its bytes are no packets."""


class _Cut(NamedTuple):
    """What `cut_packets` of native code returns, too: the bounds of rows, and the index behind the last one."""

    bounds: bytes
    after: int


def cut_packets(data: bytes, base: int) -> _Cut:
    """Find the row packets in the bytes of a result, up to the first that is cut off or no row.

    `base` is added to the bounds of their payloads: two int32 for each.
    """
    bounds: list[int] = []
    at, end_of_data = 0, len(data)
    while at + _HEADER < end_of_data:
        start = at + _HEADER
        size = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        end = start + size
        first = data[start]
        if not 0 < size < _LARGEST or end > end_of_data:
            break
        if first == _ERROR or (first == _END and size < _SHORTEST_LONG_CELL):
            break
        bounds += (start + base, end + base)
        at = end
    return _Cut(array("i", bounds).tobytes(), at)


class _Received:
    """The bytes of a result that were received and not used yet."""

    def __init__(self, receive: Callable[[], bytes]) -> None:
        self._receive = receive
        self.left = b""

    def complete(self) -> bool:
        """Receive the rest of the packet that `left` begins with; return whether any of it was missing."""
        before = len(self.left)
        self._grow(_HEADER)
        self._grow(_HEADER + _size(self.left))
        return len(self.left) > before

    def packet(self) -> bytes:
        """Take the packet that `left` begins with, and return its payload, together with those that continue it."""
        payloads: list[bytes] = []
        size = _LARGEST
        while size == _LARGEST:
            self.complete()
            size = _size(self.left)
            payloads.append(self.left[_HEADER : _HEADER + size])
            self.left = self.left[_HEADER + size :]
        return b"".join(payloads)

    def _grow(self, needed: int) -> None:
        if len(self.left) >= needed:
            return
        pieces, size = [self.left], len(self.left)
        while size < needed:
            piece = self._receive()
            if not piece:
                msg = "the connection was closed in the middle of a result"
                raise BrokenResultError(msg)
            pieces.append(piece)
            size += len(piece)
        self.left = b"".join(pieces)


def _size(data: bytes) -> int:
    return int.from_bytes(data[:3], "little")


class _Block:
    """Rows that lie one behind the other."""

    def __init__(self) -> None:
        self.size = self.count = 0
        self._parts: list[bytes] = []
        self._bounds: list[bytes] = []

    def append(self, part: bytes, bounds: bytes) -> None:
        self._parts.append(part)
        self._bounds.append(bounds)
        self.size += len(part)
        self.count += len(bounds) // _BOUNDS

    def rows(self) -> Binaries:
        bounds = memoryview(b"".join(self._bounds)).cast("i")
        return Binaries(Spans(b"".join(self._parts), bounds, self.size - len(bounds) // 2 * _HEADER))


def row_blocks(receive: Callable[[], bytes], size: int, most: int, *, uses_native: bool = True) -> Iterator[Binaries]:
    """Yield the rows of a result in blocks; a row of 16 MiB or more is a block of its own.

    Args:
        receive: returns the bytes that follow, as many as there are; none if the connection is closed.
        size: about how many bytes a block has.
        most: how many rows it has, unless more arrive at once.
        uses_native: whether native code cuts, if it is there.

    Raises:
        ServerError: the server reports an error in place of a row.
        BrokenResultError: the connection is closed, or the bytes are no packets.
    """
    cut = cut_packets if native is None or not uses_native else native.cut_packets
    received, block = _Received(receive), _Block()
    while True:
        found = cut(received.left, block.size)
        if block.count and block.count + len(found.bounds) // _BOUNDS > most:
            yield block.rows()
            block = _Block()
            found = cut(received.left, 0)
        if found.after:
            block.append(received.left[: found.after], found.bounds)
            received.left = received.left[found.after :]
            if block.size >= size:
                yield block.rows()
                block = _Block()
        if received.complete() or found.after:
            continue
        if block.size:
            yield block.rows()
            block = _Block()
        payload = received.packet()
        if payload[:1] == bytes([_ERROR]):
            raise _error_in(payload)
        if payload[:1] == bytes([_END]) and len(payload) < _SHORTEST_LONG_CELL:
            return
        if len(payload) < _LARGEST:
            msg = "a packet without bytes"
            raise BrokenResultError(msg)
        yield Binaries(Spans(payload, memoryview(array("i", [0, len(payload)])), len(payload)))


def _error_in(payload: bytes) -> ServerError:
    text = payload[3:]
    text = text[6:] if text.startswith(_STATE) else text
    return ServerError(int.from_bytes(payload[1:3], "little"), text.decode(errors="replace"))
