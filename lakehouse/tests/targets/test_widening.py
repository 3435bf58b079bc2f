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

from ticdc_lakehouse.targets.column_types import common_type, delta_can_widen, holds_all, iceberg_can_widen
from ticdc_source.schema.types import parse_type

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


@pytest.mark.parametrize(("old", "new", "holds"), [
    ("int", "bigint", True), ("bigint", "int", False), ("int", "int unsigned", False), ("int unsigned", "bigint", True),
    ("int", "decimal(10,0)", True), ("int", "decimal(9,0)", False), ("year", "smallint", True), ("int", "year", False),
    ("decimal(10,2)", "decimal(12,4)", True), ("decimal(10,2)", "decimal(12,5)", False),
    ("decimal(10,2)", "decimal(10,1)", False), ("decimal(10,2)", "double", False), ("int", "double", True),
    ("bigint", "double", False), ("float", "double", True), ("double", "float", False), ("int", "float", False),
    ("varchar(10)", "varchar(20)", True), ("varchar(20)", "varchar(10)", False), ("char(5)", "varchar(5)", True),
    ("varchar(5)", "char(9)", False), ("varchar(60)", "tinytext", True), ("varchar(100)", "tinytext", False),
    ("text", "longtext", True), ("longtext", "text", False), ("varbinary(5)", "varbinary(6)", True),
    ("binary(5)", "binary(6)", False), ("blob", "text", False), ("varchar(9)", "int", False),
    ("int", "varchar(20)", False),
    ("enum('a','b')", "enum('a','b','c')", True), ("enum('a','b')", "enum('b','a')", False),
    ("datetime", "datetime(3)", True), ("datetime(3)", "datetime", False), ("date", "datetime", True),
    ("datetime", "date", False), ("datetime", "timestamp", False), ("bit(3)", "bit(8)", True), ("json", "json", True),
])  # fmt: skip
def test_which_mysql_type_holds_all_values(old: str, new: str, holds: bool) -> None:
    """Only then TiDB converts no value of a column that has another type."""
    assert holds_all(parse_type(new), parse_type(old)) is holds
