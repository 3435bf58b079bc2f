"""`Binaries` holds the values of many records in one array, and is a sequence of bytes."""

import pyarrow as pa
import pytest

from ticdc_source.events import Binaries, Chunk, TableEvents, TableName
from ticdc_source.protocols import PROTOCOLS

VALUES = [b"one", b"", b"three"]


def binaries() -> Binaries:
    """Return values that were never accessed."""
    return Binaries(pa.array(VALUES, pa.binary()))


def test_they_are_a_sequence_of_bytes() -> None:
    """`Binaries` have the array's values by index, slice, iteration and comparison, whether accessed before or not."""
    for values in (binaries(), binaries()):
        assert len(values) == 3
        assert values.nbytes == 8
        assert [values[0], values[-1], values[1:]] == [b"one", b"three", [b"", b"three"]]
        assert list(values) == values.as_list() == VALUES
        assert values == VALUES
        assert values == binaries()
        assert values != VALUES[1:]
    with pytest.raises(IndexError):
        binaries()[3]


def test_records_can_be_appended_to_them() -> None:
    """A chunk and table events that hold an array accept more records, in order."""
    chunk = Chunk("topic", 0, [0, 1, 2], [0] * 3, [None] * 3, binaries())
    chunk.listed_values().append(None)
    table_events = TableEvents.of_records(chunk.part(0, 3), TableName("a", "b"), range(3), binaries())
    table_events.append(3, 0, b"four")

    assert chunk.values == [*VALUES, None]
    assert (table_events.positions, table_events.payloads) == ([0, 1, 2, 3], [*VALUES, b"four"])


def message(table: str, operation: str = "INSERT", commit: int = 1795247640910) -> bytes:
    """Return the beginning of a canal-json message, and some of the rest."""
    return (
        f'{{"id":0,"database":"shop","table":"{table}","pkNames":["id"],"isDdl":false,"type":"{operation}",'
        f'"es":{commit},"ts":1,"data":[{{"id":"1"}}]}}'
    ).encode()


@pytest.mark.parametrize(
    "messages",
    [
        [message("t"), message("t", "UPDATE"), message("t", "DELETE")],
        [message("t"), message("u"), message("t")],
        [message("t"), b"", message("t")],
        [message("t"), b"{", message("t")],
        [message("t"), message("t", "UPSERT"), message("t")],
        [message("t"), message("t").replace(b"INSERT", b"CREATE"), message("t")],
        [b"", b""],
    ],
)
def test_an_array_is_split_like_a_list(messages: list[bytes]) -> None:
    """A chunk splits into the same events and errors whether its values are an array or a list."""
    decoder = PROTOCOLS["canal-json"]
    count = len(messages)
    listed = Chunk("topic", 0, list(range(count)), [0] * count, [b""] * count, list[bytes | None](messages))
    array = pa.array(messages, pa.binary())
    packed = Chunk("topic", 0, list(range(count)), [0] * count, [b""] * count, Binaries(array))

    expected, found = decoder.split(listed), decoder.split(packed)

    assert list(found.tables) == list(expected.tables)
    for table, table_events in expected.tables.items():
        assert list(found.tables[table].positions) == list(table_events.positions)
        assert list(found.tables[table].payloads) == list(table_events.payloads)
    assert [(bad.position, str(bad.error)) for bad in found.corrupt] == [
        (bad.position, str(bad.error)) for bad in expected.corrupt
    ]
