"""Defaults of MySQL as literals of Spark SQL: Spark evaluates them."""

from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession, types

from ticdc_lakehouse.targets.column_types import literal, text_literal
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.mysql_ddl.old_rows import Added, Renamed, Retyped, name_before, old_row_changes
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import parse_type

T = TableName("db", "t")
TIMESTAMP, TIMESTAMP_NTZ = types.TimestampType(), types.TimestampNTZType()
# What stands behind the column's name in ADD COLUMN, the type of the target's column, and the value of older rows.
ADDED: list[tuple[str, types.DataType, object]] = [
    ("int", types.IntegerType(), None),
    ("int DEFAULT NULL", types.IntegerType(), None),
    ("int NOT NULL", types.IntegerType(), 0),
    ("int DEFAULT -5", types.IntegerType(), -5),
    ("int DEFAULT '1.5'", types.IntegerType(), 2),
    ("bigint unsigned DEFAULT 18446744073709551615", types.DecimalType(20, 0), Decimal(18446744073709551615)),
    ("tinyint(1) DEFAULT TRUE", types.ByteType(), 1),
    ("int DEFAULT (7)", types.IntegerType(), 7),
    ("int DEFAULT 0x1F", types.IntegerType(), 31),
    ("year NOT NULL DEFAULT '2024'", types.IntegerType(), 2024),
    ("year DEFAULT 69", types.IntegerType(), 2069),
    ("year DEFAULT '70'", types.IntegerType(), 1970),
    ("set('a','b','c') DEFAULT 'C,a,c'", types.StringType(), "a,c"),
    ("set('a','b','c') DEFAULT 'c,a,c'", types.LongType(), 5),
    ("date DEFAULT '20240131'", types.DateType(), date(2024, 1, 31)),
    ("datetime DEFAULT '20240131120102'", TIMESTAMP_NTZ, datetime(2024, 1, 31, 12, 1, 2)),  # noqa: DTZ001
    ("datetime(1) DEFAULT '2024-1-31 2:03:04.50'", TIMESTAMP_NTZ, datetime(2024, 1, 31, 2, 3, 4, 500000)),  # noqa: DTZ001
    ("decimal(10,2) DEFAULT '1.005'", types.DecimalType(10, 2), Decimal("1.01")),
    ("decimal(10,2) NOT NULL", types.DecimalType(38, 2), Decimal("0.00")),
    ("decimal(40,2) DEFAULT 1", types.StringType(), "1.00"),
    ("double DEFAULT .5", types.DoubleType(), 0.5),
    ("float DEFAULT 1e3", types.FloatType(), 1000.0),
    ("bit(1) DEFAULT b'1'", types.BooleanType(), True),
    ("bit(8) DEFAULT b'101'", types.LongType(), 5),
    ("varchar(9) DEFAULT 'it''s \\\\ `x`' NOT NULL COMMENT 'DEFAULT 1'", types.StringType(), "it's \\ `x`"),
    ("varchar(9) NOT NULL", types.StringType(), ""),
    ("varchar(9) DEFAULT _utf8mb4'日本'", types.StringType(), "日本"),
    ("varchar(20) DEFAULT 'CURRENT_TIMESTAMP'", types.StringType(), "CURRENT_TIMESTAMP"),
    ("varbinary(4) DEFAULT x'00FF'", types.BinaryType(), b"\0\xff"),
    ("binary(3) DEFAULT 'a'", types.BinaryType(), b"a\0\0"),
    ("binary(2) NOT NULL", types.BinaryType(), b"\0\0"),
    ("date DEFAULT '2024-2-29'", types.DateType(), date(2024, 2, 29)),
    ("date NOT NULL DEFAULT '0000-00-00'", types.DateType(), None),
    ("datetime DEFAULT '2024-02-29'", TIMESTAMP_NTZ, datetime.fromisoformat("2024-02-29")),
    ("datetime(3) DEFAULT '2024-02-29 01:02:03.45'", TIMESTAMP_NTZ, datetime.fromisoformat("2024-02-29 01:02:03.450")),
    ("datetime NOT NULL", TIMESTAMP_NTZ, None),
    ("time(1) DEFAULT '-30:15:00.5'", types.LongType(), -108900500000),
    ("time DEFAULT '30:15:00'", types.DayTimeIntervalType(), timedelta(hours=30, minutes=15)),
    ("enum('a','B') NOT NULL", types.StringType(), "a"),
    ("enum('a','B') DEFAULT 'b'", types.StringType(), "B"),
    ("enum('a','B') DEFAULT 'b'", types.IntegerType(), 2),
    ("set('x','y','z') DEFAULT 'x,z'", types.StringType(), "x,z"),
    ("set('x','y','z') DEFAULT 'x,z'", types.LongType(), 5),
    ("json NOT NULL", types.StringType(), "null"),
    ("vector(2) DEFAULT '[1, 0.5]'", types.ArrayType(types.FloatType()), [1.0, 0.5]),
]


def changes(sql: str) -> list[object]:
    return list(old_row_changes(DDLEvent(position=0, index=0, commit_ts=1, table=T, query=sql, type="")))


def test_older_rows_get_the_value_that_tidb_gives_them(spark: SparkSession) -> None:
    """Each default, and the zero of a NOT NULL column without one, is the value in Spark's type."""
    expressions, wanted = [], []
    for number, (definition, target, value) in enumerate(ADDED):
        (added,) = changes(f"ALTER TABLE t ADD COLUMN c {definition} AFTER d")
        assert isinstance(added, Added)
        assert not added.unknown, definition
        expressions.append(f"{literal(added.value, parse_type(str(added.type)), target)} AS v{number}")
        wanted.append((definition, target.simpleString(), value))

    frame = spark.sql(f"SELECT {', '.join(expressions)}")

    columns = zip(ADDED, frame.schema, frame.collect()[0], strict=True)
    assert [(definition, field.dataType.simpleString(), value) for (definition, *_), field, value in columns] == wanted


def test_a_timestamp_is_in_the_zone_that_is_given(spark: SparkSession) -> None:
    """The text of a TIMESTAMP's default has no zone, as the texts of its values."""
    texts = [literal("2024-01-01 12:00:00", parse_type("timestamp"), TIMESTAMP, zone) for zone in ("UTC", "+08:00")]

    row = spark.sql(f"SELECT unix_timestamp({texts[0]}), unix_timestamp({texts[1]})").collect()[0]

    assert (row[0], row[0] - row[1]) == (1704110400, 8 * 3600)


@pytest.mark.parametrize(("value", "type_", "target"), [
    ("x", "int", types.IntegerType()),
    ("1000", "decimal(4,0)", types.DecimalType(3, 0)),
    ("yesterday", "date", types.DateType()),
    ("2024-13-45", "date", types.DateType()),
    ("12", "datetime", TIMESTAMP_NTZ),
    ("240101", "date", types.DateType()),
    ("24-01-01", "date", types.DateType()),
    ("2024-01-01 12:00:00", "date", types.DateType()),
    ("240101120000", "datetime", TIMESTAMP_NTZ),
    ("2024-01-01 00:00:00.5", "datetime", TIMESTAMP_NTZ),
    ("2024-01-01 00:00:00.1234", "datetime(3)", TIMESTAMP_NTZ),
    ("10:00:00.5", "time", types.LongType()),
    ("0", "year", types.IntegerType()),
    ("123", "year", types.IntegerType()),
    ("z", "set('a','b')", types.StringType()),
    ("c", "enum('a','b')", types.IntegerType()),
    ("1", "int", types.MapType(types.StringType(), types.StringType())),
])  # fmt: skip
def test_what_is_no_value_of_the_types(value: str, type_: str, target: types.DataType) -> None:
    """The error has the value and both types."""
    with pytest.raises(ValueError, match=f"'{value}' is not a value of .* that fits {target.simpleString()[:3]}"):
        literal(value, parse_type(type_), target)


def test_texts_are_safe() -> None:
    """No quote or backslash of a text ends the literal, whatever Spark's settings for these are."""
    assert text_literal("plain text") == "'plain text'"
    assert text_literal("it's") == "CAST(X'69742773' AS STRING)"
    assert text_literal("\\n") == "CAST(X'5c6e' AS STRING)"


def test_several_actions_of_one_statement() -> None:
    """They come in their order; CHANGE renames and gives a type."""
    column_changes = changes(
        "ALTER TABLE t ADD (a int, b int DEFAULT 2), CHANGE c d bigint, RENAME COLUMN e TO f, DROP COLUMN g"
    )

    assert [(type(change).__name__, change.column) for change in column_changes] == [  # type: ignore[attr-defined]
        ("Added", "a"), ("Added", "b"), ("Retyped", "d"), ("Renamed", "c"), ("Renamed", "e"), ("Dropped", "g"),
    ]  # fmt: skip
    assert column_changes[2:4] == [Retyped("d", parse_type("bigint")), Renamed("c", "d")]


def test_the_name_that_a_table_had() -> None:
    """RENAME TABLE and ALTER TABLE … RENAME tell it, for the table that they name."""
    texts = ("RENAME TABLE a TO b, db.old TO db.T", "ALTER TABLE old RENAME TO t", "ALTER TABLE t ADD c int")
    events = [DDLEvent(position=0, index=0, commit_ts=1, table=T, query=text, type="") for text in texts]

    assert [name_before(event, T) for event in events] == [("db", "old"), ("db", "old"), None]
