"""Slices of shared arrays equal newly built arrays."""

import pyarrow as pa
import pytest

from ticdc_source.kernels.arrays import are_all, as_indices, consecutive, repeated, row_indices, taken

# Around the lengths at which a larger array is shared, or none.
COUNTS = [0, 1, 8191, 8192, 8193, 65536, 65537]


@pytest.mark.parametrize("count", COUNTS)
def test_slices_equal_new_arrays(count: int) -> None:
    """A slice of a shared array equals a new array, at each length and also on a second call."""
    for _ in range(2):
        assert repeated("a", pa.string(), count).equals(pa.array(["a"] * count, pa.string()))
        assert repeated(None, pa.string(), count).equals(pa.nulls(count, pa.string()))
        assert row_indices(count).equals(pa.array(range(count), pa.int32()))
        assert consecutive(1 << 60, count).equals(pa.array(range(1 << 60, (1 << 60) + count), pa.int64()))


def test_equal_values_of_different_types_have_different_arrays() -> None:
    """Equal values of different types have different arrays: 1 and True are one key of a dict."""
    assert repeated(1, pa.int32(), 2).type == pa.int32()
    assert repeated(value=True, arrow=pa.bool_(), count=2).to_pylist() == [True, True]
    assert repeated(1, pa.int64(), 2).type == pa.int64()


@pytest.mark.parametrize("values", [range(3), range(1, 4), range(0, 6, 2), [0, 1, 2], [2, 0], []])
def test_indices_are_the_numbers_given(values: range | list[int]) -> None:
    """`as_indices` returns the numbers of a range or a list."""
    assert as_indices(values).equals(pa.array(list(values), pa.int32()))


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 2, 1], [0, 1], [0, 0, 1, 2], [], [1, 2, 2]])
@pytest.mark.parametrize("values", [["a", None, "c"], [None, None, None]])
def test_taken_is_take(order: list[int], values: list[str | None]) -> None:
    """`taken` returns what Arrow's `take` returns, also if nothing changes or all values are NULL."""
    array, indices = pa.array(values, pa.string()), pa.array(order, pa.int32())

    assert taken(array, indices).equals(array.take(indices))
    assert are_all(indices, 3) is (order == [0, 1, 2])
