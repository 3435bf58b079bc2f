"""`Binaries` holds the values of many records in one array, and is a sequence of bytes."""

from array import array
from collections.abc import Sequence

import pyarrow as pa
import pytest

from ticdc_source.kernels.arrays import Binaries, Spans
from ticdc_source.protocols.events import TableEvents
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import Chunk

VALUES = [b"one", b"", b"three"]


def binaries(*, spans: bool = False) -> Binaries:
    """Return values that were never accessed: an array, or parts of larger bytes."""
    if spans:
        return Binaries(Spans(b"-one--three", memoryview(array("i", [1, 4, 5, 5, 6, 11])), 8))
    return Binaries.of(pa.array(VALUES, pa.binary()))


@pytest.mark.parametrize("spans", [False, True])
def test_they_are_a_sequence_of_bytes(*, spans: bool) -> None:
    """`Binaries` have the values by index, slice, iteration and comparison, whether accessed before or not."""
    for values in (binaries(spans=spans), binaries(spans=spans)):
        assert len(values) == 3
        assert values.nbytes == 8
        assert [values[0], values[-1], values[1:]] == [b"one", b"three", [b"", b"three"]]
        assert list(values) == values.as_list() == VALUES
        assert values == VALUES
        assert values == binaries()
        assert values != VALUES[1:]
    with pytest.raises(IndexError):
        binaries(spans=spans)[3]


@pytest.mark.parametrize("spans", [False, True])
def test_they_become_an_array(*, spans: bool) -> None:
    """The array of values, also of a part of them, has these values only and begins with the first."""
    whole = binaries(spans=spans)
    for first, after in ((0, 3), (1, 3), (2, 3), (1, 2), (1, 1)):
        part = whole.part(first, after)
        assert part.array.to_pylist() == part.as_list() == VALUES[first:after]
        assert part.nbytes == sum(map(len, VALUES[first:after]))
        assert part.array.offset == 0
        assert len(part) == after - first
    assert whole.array.to_pylist() == VALUES


@pytest.mark.parametrize("spans", [False, True])
@pytest.mark.parametrize("wanted", [[], [0, 2], range(3)], ids=str)
def test_some_can_be_picked(wanted: Sequence[int], *, spans: bool) -> None:
    """Picked values are the values at the wanted positions, also of a part, and as an array."""
    expected = [VALUES[position] for position in wanted]
    for whole in (binaries(spans=spans), binaries(spans=spans).part(0, 3)):
        picked = whole.picked(wanted)
        assert picked.array.to_pylist() == picked.as_list() == expected
        assert (len(picked), picked.nbytes) == (len(wanted), sum(map(len, expected)))
    if len(wanted) == 2:
        assert binaries(spans=spans).part(1, 3).picked([1]).as_list() == VALUES[2:]


def test_records_can_be_appended_to_them() -> None:
    """A chunk and table events that hold an array accept more records, in order."""
    chunk = Chunk("topic", 0, [0, 1, 2], [0] * 3, [None] * 3, binaries())
    chunk.lists().values.append(None)
    table_events = TableEvents.of_records(chunk.part(0, 3), TableName("a", "b"), range(3), binaries())
    table_events.append(3, 0, b"four")

    assert chunk.values == [*VALUES, None]
    assert (table_events.positions, table_events.payloads) == ([0, 1, 2, 3], [*VALUES, b"four"])
