"""Types of target columns: which type holds the values of two, and how far each engine widens a column."""

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from ticdc_source.lakehouse.widening import common_type, delta_can_widen, iceberg_can_widen

BYTE, SHORT, INT, LONG, FLOAT, DOUBLE = ByteType(), ShortType(), IntegerType(), LongType(), FloatType(), DoubleType()
DATE, NTZ, TIMESTAMP, TEXT = DateType(), TimestampNTZType(), TimestampType(), StringType()


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        (INT, INT, INT),
        (BYTE, SHORT, SHORT),
        (INT, LONG, LONG),
        (LONG, DecimalType(20, 0), DecimalType(20, 0)),
        (LONG, DecimalType(10, 2), DecimalType(22, 2)),
        (INT, DOUBLE, DOUBLE),
        (LONG, DOUBLE, None),  # not every bigint is a double
        (INT, FLOAT, None),
        (FLOAT, DOUBLE, DOUBLE),
        (DecimalType(10, 2), DecimalType(12, 2), DecimalType(12, 2)),
        (DecimalType(12, 2), DecimalType(10, 4), DecimalType(14, 4)),
        (DecimalType(38, 2), DecimalType(38, 4), None),  # 40 digits
        (DATE, NTZ, NTZ),
        (NTZ, TIMESTAMP, None),
        (INT, TEXT, None),
    ],
)
def test_the_common_type_holds_both(first: DataType, second: DataType, common: DataType | None) -> None:
    """The common type is the narrowest that holds all values of both, in whichever order they are given."""
    assert common_type(first, second) == common
    assert common_type(second, first) == common


@pytest.mark.parametrize(
    ("old", "new", "delta", "iceberg"),
    [
        (INT, LONG, True, True),
        (FLOAT, DOUBLE, True, True),
        (DecimalType(10, 2), DecimalType(12, 2), True, True),
        (DecimalType(10, 2), DecimalType(12, 4), True, False),
        (INT, DOUBLE, True, False),
        (LONG, DecimalType(20, 0), True, False),
        (DATE, NTZ, True, False),
        (LONG, INT, False, False),
        (INT, INT, False, False),
        (DecimalType(12, 2), DecimalType(10, 2), False, False),
        (INT, TEXT, False, False),
    ],
)
def test_engines_widen_no_further_than_they_can(old: DataType, new: DataType, *, delta: bool, iceberg: bool) -> None:
    """What ALTER COLUMN … TYPE of an engine refuses is not tried."""
    assert (delta_can_widen(old, new), iceberg_can_widen(old, new)) == (delta, iceberg)
