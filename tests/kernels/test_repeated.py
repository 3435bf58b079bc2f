"""Slices of shared arrays equal newly built arrays."""

import pyarrow as pa
import pytest

from ticdc_source.kernels.arrays import consecutive, repeated, row_indices

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
