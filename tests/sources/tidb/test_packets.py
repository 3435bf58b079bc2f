"""Row packets are cut out of the bytes of a result, however they arrive, alike by Python and by native code."""

import io
import random
from types import ModuleType

import pymysql
import pytest

from tests.tidb.conversation import END, error_packet, packet_of, renumbered, row_of
from ticdc_source.sources.tidb.client import cut_packets, row_blocks

ROWS = [row_of(b"1", None), row_of(b"\xff" * 300, b""), row_of(b"x" * 70_000, b"y"), row_of(None, None)] * 5
LARGE = row_of(b"z" * (1 << 24), b"end")
SIZES = (1, 500, 1 << 20)


class Arriving(io.RawIOBase):
    """Bytes that arrive in pieces of some lengths."""

    def __init__(self, data: bytes, rng: random.Random) -> None:
        self._data, self._rng = io.BytesIO(data), rng

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        size = self._rng.choice((1, 3, 4, 5, 300, 65_536, 1 << 20))
        return self._data.readinto(memoryview(buffer)[:size])


def rows_of(data: bytes, size: int, *, native: bool, seed: int = 0, found: list[bytes] | None = None) -> list[bytes]:
    """The rows of a result; `found` gets each block of them."""
    connection = pymysql.connections.Connection(defer_connect=True, ssl_disabled=True)
    connection._rfile = io.BufferedReader(Arriving(renumbered(data), random.Random(seed)), 1 << 20)
    connection._current_timeout, connection._next_seq_id = connection._read_timeout, 1
    rows = [] if found is None else found
    for block in row_blocks(connection, size, 7, uses_native=native):
        rows.extend(block)
    return rows


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_rows_are_those_that_were_sent(size: int, native: bool) -> None:
    """Rows of all lengths are found, in whatever pieces they arrive; those of 16 MiB, too."""
    data = b"".join(map(packet_of, ROWS * 20)) + END  # more than numbers of packets

    for seed in range(5):
        assert rows_of(data, size, native=native, seed=seed) == ROWS * 20
    large = b"".join(map(packet_of, [ROWS[0], LARGE, ROWS[1], LARGE])) + END
    assert rows_of(large, size, native=native) == [ROWS[0], LARGE, ROWS[1], LARGE]
    assert rows_of(END, size, native=native) == []


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("beyond", [-1, 0, 1, 0xFFFFFF, 0xFFFFFF + 1])
def test_rows_about_the_size_of_packets(beyond: int, native: bool) -> None:
    """A row that fills its packets is followed by a packet without bytes."""
    row = b"z" * (0xFFFFFF + beyond)
    data = b"".join(map(packet_of, [ROWS[0], row, ROWS[1]])) + END

    assert rows_of(data, 500, native=native) == [ROWS[0], row, ROWS[1]]


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize("native", [False, True])
def test_a_result_breaks_off(native: bool) -> None:
    """The rows before an error packet come, then the error; a connection that is closed is an error everywhere."""
    data = b"".join(map(packet_of, ROWS))
    found: list[bytes] = []

    with pytest.raises(pymysql.OperationalError) as caught:
        rows_of(data + error_packet(3024, "too late"), 1, native=native, seed=1, found=found)

    assert found == ROWS
    assert caught.value.args == (3024, "too late")
    for kept in (0, 2, 5, 100, len(data) - 1, len(data), len(data) + 4):
        with pytest.raises(pymysql.OperationalError, match="Lost connection"):
            rows_of((data + END)[:kept], 1 << 20, native=native)
    with pytest.raises(IndexError):
        rows_of(packet_of(b""), 1, native=native)


def test_native_code_cuts_alike(native_path: ModuleType) -> None:
    """Native code finds the same rows in any bytes, whole and cut short and with bytes that are no packets."""
    whole = b"".join(map(packet_of, ROWS[:2])) + END + error_packet(1, "no")
    rng = random.Random(20261128)
    tried = [whole[:size] for size in range(len(whole))]
    tried += [bytes(rng.choice(b"\0\1\2\3\xfb\xfe\xff") for _ in range(rng.randrange(60))) for _ in range(2000)]

    for data in tried:
        found, native = cut_packets(data, 7), native_path.cut_packets(data, 7)
        assert (native.bounds, native.after) == tuple(found)
