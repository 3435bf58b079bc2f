"""The table of types: what each TiDB type becomes, how types are parsed and written, and how versions merge."""

import itertools
import random
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.types import DecimalType, StructField, StructType

from ticdc_source.errors import SchemaError
from ticdc_source.kernels.wire import Settings, reading
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.schema.ddl import declared_tables
from ticdc_source.schema.types import (
    ALIASES,
    CONVERSIONS,
    FLOATS,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TYPES,
    ColumnType,
    category_of,
    convertible,
    merge_types,
    parse_type,
    type_of,
)
from ticdc_source.spark.schema import to_arrow, to_spark

SEED = 20261121

# The Arrow type of the values, by the type as MySQL writes it (docs/design/0002-types.md).
ARROW = {
    "tinyint": pa.int8(),
    "tinyint(1)": pa.int8(),
    "tinyint unsigned": pa.int16(),
    "smallint": pa.int16(),
    "smallint unsigned": pa.int32(),
    "mediumint": pa.int32(),
    "mediumint unsigned": pa.int64(),
    "int": pa.int32(),
    "int unsigned": pa.int64(),
    "bigint": pa.int64(),
    "bigint unsigned": pa.decimal128(20, 0),
    "decimal": pa.decimal128(38, 18),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(10,2) unsigned": pa.decimal128(10, 2),
    "decimal(38,38)": pa.decimal128(38, 38),
    "decimal(39,0)": pa.string(),
    "decimal(65,30)": pa.string(),
    "year": pa.int32(),
    "float": pa.float32(),
    "float unsigned": pa.float32(),
    "double": pa.float64(),
    "double unsigned": pa.float64(),
    "bit": pa.int64(),
    "bit(1)": pa.bool_(),
    "bit(64)": pa.int64(),
    "date": pa.date32(),
    "datetime": TIMESTAMP_NTZ,
    "datetime(6)": TIMESTAMP_NTZ,
    "timestamp": TIMESTAMP,
    "timestamp(3)": TIMESTAMP,
    "time": TIME,
    "time(6)": TIME,
    "char(10)": pa.string(),
    "varchar(20)": pa.string(),
    "tinytext": pa.string(),
    "text": pa.string(),
    "mediumtext": pa.string(),
    "longtext": pa.string(),
    "binary(10)": pa.binary(),
    "varbinary(20)": pa.binary(),
    "tinyblob": pa.binary(),
    "blob": pa.binary(),
    "mediumblob": pa.binary(),
    "longblob": pa.binary(),
    "enum": pa.int32(),
    "enum('a','b')": pa.string(),
    "set": pa.int64(),
    "set(64)": pa.decimal128(20, 0),
    "set('a','b')": pa.string(),
    "json": pa.string(),
    "vector": FLOATS,
    "vector(3)": FLOATS,
}
FORMS = [parse_type(text) for text in ARROW]


def test_these_tests_leave_no_type_out() -> None:
    """Every row of the table of types is among the types above."""
    assert {form.name for form in FORMS} == set(TYPES)


@pytest.mark.parametrize("text", ARROW)
def test_a_type_has_the_arrow_type_that_is_documented(text: str) -> None:
    """Unsigned types hold all their values, and long decimals are text."""
    assert parse_type(text).arrow == ARROW[text]


def test_every_arrow_type_has_a_spark_type_and_comes_back() -> None:
    """The types that inference finds survive the way to Spark and back to the worker."""
    schema = pa.schema([pa.field(text, arrow) for text, arrow in ARROW.items()])

    assert to_arrow(to_spark(schema)).types == schema.types


def test_a_schema_with_such_a_decimal_is_refused() -> None:
    """Spark has decimal(0,0), and Arrow has not."""
    schema = StructType([StructField("c", DecimalType(0, 0))])
    with pytest.raises(SchemaError, match=r"Column c: the source does not read the type decimal\(0,0\)"):
        to_arrow(schema)


def test_an_arrow_type_alone_has_a_mysql_type() -> None:
    """For every Arrow type there is a MySQL type with exactly its values."""
    for arrow in ARROW.values():
        assert type_of(arrow).arrow == arrow


def test_other_names_lead_to_the_table() -> None:
    """An alias is not in the table, and the type that it stands for is."""
    assert set(ALIASES.values()) <= set(TYPES)
    assert not set(ALIASES) & set(TYPES)


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("INT(11) UNSIGNED", ColumnType("int", unsigned=True)),
        ("int(8) unsigned zerofill", ColumnType("int", unsigned=True)),
        ("int zerofill", ColumnType("int", unsigned=True)),
        ("bigint unsigned", ColumnType("bigint", unsigned=True)),
        ("mediumint(9) signed", ColumnType("mediumint")),
        ("tinyint(4)", ColumnType("tinyint")),
        ("tinyint(1)", ColumnType("tinyint", length=1)),
        ("bool", ColumnType("tinyint", length=1)),
        ("int8", ColumnType("bigint")),
        ("year(4)", ColumnType("year")),
        ("decimal(10,4)", ColumnType("decimal", length=10, scale=4)),
        ("decimal(10, 4)", ColumnType("decimal", length=10, scale=4)),
        ("numeric(10)", ColumnType("decimal", length=10, scale=0)),
        ("decimal unsigned", ColumnType("decimal", unsigned=True)),
        ("float(10,3)", ColumnType("float")),
        ("float(24)", ColumnType("float")),
        ("FLOAT(25) UNSIGNED", ColumnType("double", unsigned=True)),
        ("float(53)", ColumnType("double")),
        ("float(53,3)", ColumnType("float")),
        ("serial", ColumnType("bigint", unsigned=True)),
        ("CHAR(5) BYTE", ColumnType("binary", length=5)),
        ("National  Character Varying(7)", ColumnType("varchar", length=7)),
        ("double precision", ColumnType("double")),
        ("datetime(6)", ColumnType("datetime", length=6)),
        ("var_string(20)", ColumnType("varchar", length=20)),
        ("enum('a','b')", ColumnType("enum", labels=("a", "b"))),
        ("enum('a', 'b')", ColumnType("enum", labels=("a", "b"))),
        (
            "set('x,y','it''s',')(','back\\slash','')",
            ColumnType("set", labels=("x,y", "it's", ")(", "back\\slash", "")),
        ),
        ("TiDBVectorFloat32", ColumnType("vector")),
        ("TiDBVectorFloat32(3)", ColumnType("vector", length=3)),
        ("enum('unsigned') ", ColumnType("enum", labels=("unsigned",))),
        ("set(64)", ColumnType("set", wide=True)),
        ("Geometry", ColumnType("geometry")),
        ("type code 255", ColumnType("type code 255")),
    ],
)
def test_a_type_is_read_as_mysql_writes_it(text: str, type_: ColumnType) -> None:
    """Display widths say nothing, precisions and labels do, and unknown names are kept for the error."""
    assert parse_type(text) == type_


@pytest.mark.parametrize(
    "name",
    [*ALIASES, "serial", "float(24)", "float(25)", "float(53)", "float(10,2)", "char(5) byte", "double unsigned"],
)
def test_messages_and_ddl_name_types_alike(name: str) -> None:
    """Every name that DDL has for a type means the same in a message."""
    (table,) = declared_tables(f"CREATE TABLE t (c {name})").values()
    of_ddl, of_message = table.columns["c"], parse_type(name)
    if of_message.name == "decimal":  # TiDB's DECIMAL has ten digits; a message may leave them out
        of_ddl = replace(of_ddl, length=None, scale=None)

    assert of_ddl == of_message


@pytest.mark.parametrize(
    "text", ["", "(10)", "int(x)", "enum('a", "enum('a' 'b')", "enum('a',b)", "decimal(1,2", "1nt"]
)
def test_a_text_that_is_not_a_type_is_refused(text: str) -> None:
    """Garbage is a ValueError, which the decoder turns into an error with an address."""
    with pytest.raises(ValueError, match=r"is not a MySQL type|are not a list of quoted strings|invalid literal"):
        parse_type(text)


@pytest.mark.parametrize("text", ARROW)
def test_a_type_is_written_as_it_is_read(text: str) -> None:
    """Types travel to the workers as text, and lose nothing on the way."""
    type_ = parse_type(text)

    assert parse_type(str(type_)) == type_


def test_any_labels_are_written_as_they_are_read() -> None:
    """Quotes, commas, brackets, backslashes, blanks and any other character are part of a label."""
    chooser = random.Random(SEED)
    alphabet = "',()\\\"` ab\n\t\0é日😀"
    for _ in range(2000):
        labels = tuple(
            "".join(chooser.choice(alphabet) for _ in range(chooser.randrange(6)))
            for _ in range(chooser.randrange(1, 6))
        )
        type_ = ColumnType(chooser.choice(("enum", "set")), labels=labels)

        assert parse_type(str(type_)) == type_, f"seed {SEED}: {labels!r}"


def test_labels_that_are_not_text_are_refused() -> None:
    """A lone surrogate stands for a byte that is not UTF-8: no schema could hold it."""
    with pytest.raises(ValueError, match="surrogates"):
        parse_type("enum('\udcff')")


@pytest.mark.parametrize(
    ("own", "other", "refined"),
    [
        ("decimal", "decimal(10,2)", "decimal(10,2)"),
        ("decimal(12,4)", "decimal(10,2)", "decimal(12,4)"),
        ("enum", "enum('a')", "enum('a')"),
        ("enum('a','b')", "enum('a')", "enum('a','b')"),
        ("bit", "bit(1)", "bit(1)"),
        ("bigint", "bigint unsigned", "bigint unsigned"),
        ("set", "set(64)", "set(64)"),
        ("int", "decimal(10,2)", "int"),
    ],
)
def test_another_source_completes_a_type(own: str, other: str, refined: str) -> None:
    """What a message tells stands; another source adds only what the message leaves out, and only for the same type."""
    assert parse_type(own).refined_by(parse_type(other)) == parse_type(refined)


MERGES = [
    ("tinyint", "bigint", "bigint"),
    ("tinyint(1)", "tinyint", "tinyint"),
    ("tinyint unsigned", "smallint unsigned", "smallint unsigned"),
    ("tinyint", "tinyint unsigned", "smallint"),
    ("int", "int unsigned", "bigint"),
    ("mediumint", "mediumint unsigned", "int"),
    ("bigint", "tinyint unsigned", "bigint"),
    ("bigint unsigned", "tinyint", "decimal(20,0)"),
    ("bigint unsigned", "int unsigned", "bigint unsigned"),
    ("year", "int", "int"),
    ("year", "tinyint", "smallint"),
    ("decimal(10,2)", "decimal(8,4)", "decimal(12,4)"),
    ("decimal(10,2)", "int", "decimal(12,2)"),
    ("decimal(5,2)", "bigint unsigned", "decimal(22,2)"),
    ("decimal(30,0)", "decimal(30,20)", "decimal(50,20)"),
    ("decimal(5,2)", "year", "decimal(6,2)"),
    ("float", "double", "double"),
    ("bit(1)", "bit(8)", "bit"),
    ("date", "datetime(3)", "datetime"),
    ("datetime(3)", "datetime(6)", "datetime(6)"),
    ("time(0)", "time(3)", "time(3)"),
    ("char(10)", "text", "text"),
    ("varchar(10)", "varchar(20)", "varchar(20)"),
    ("binary(4)", "blob", "blob"),
    ("enum('a','b')", "enum('a','b','c')", "enum('a','b','c')"),
    ("enum('a','b')", "enum", "enum('a','b')"),
    ("set", "set(64)", "set(64)"),
    ("int", "varchar(10)", None),
    ("int", "double", None),
    ("datetime", "timestamp", None),
    ("date", "timestamp", None),
    ("time", "datetime", None),
    ("varchar(10)", "varbinary(10)", None),
    ("enum", "set", None),
    ("json", "text", None),
    ("bit(1)", "tinyint", None),
    ("geometry", "geometry", "geometry"),
    ("geometry", "point", None),
]


@pytest.mark.parametrize(("first", "second", "merged"), MERGES)
def test_versions_merge_to_the_widest_of_a_family(first: str, second: str, merged: str | None) -> None:
    """Inside a family the wider type wins, whichever came first; across families only text holds both."""
    expected = None if merged is None else parse_type(merged)

    assert merge_types(parse_type(first), parse_type(second)) == expected
    assert merge_types(parse_type(second), parse_type(first)) == expected


def test_an_unspecified_decimal_merges_by_the_digits_of_samples() -> None:
    """Without a precision, the digits in samples decide; more than 38 digits are text."""
    seen = ColumnType("decimal", whole=20, scale=4)

    more = merge_types(seen, ColumnType("decimal", whole=3, scale=10))
    with_integer = merge_types(seen, parse_type("bigint"))
    too_long = merge_types(seen, ColumnType("decimal", whole=1, scale=30))

    assert more == ColumnType("decimal", whole=20, scale=10)
    assert more.arrow == pa.decimal128(38, 10)
    assert with_integer is not None
    assert with_integer.arrow == pa.decimal128(38, 4)
    assert too_long is not None
    assert too_long.arrow == pa.string()


def test_merging_does_not_depend_on_the_order() -> None:
    """For any two types the Arrow type of the result is the same both ways."""
    for first, second in itertools.combinations(FORMS, 2):
        one, other = merge_types(first, second), merge_types(second, first)

        assert (one is None) == (other is None), f"{first}, {second}"
        if one is not None and other is not None:
            assert one.arrow == other.arrow, f"{first}, {second}"


# The outermost values of types whose Arrow type depends on the width, as text.
EXTREMES = {
    "tinyint": ("-128", "127"),
    "tinyint unsigned": ("0", "255"),
    "smallint": ("-32768", "32767"),
    "smallint unsigned": ("65535",),
    "mediumint": ("-8388608", "8388607"),
    "mediumint unsigned": ("16777215",),
    "int": ("-2147483648", "2147483647"),
    "int unsigned": ("4294967295",),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "bigint unsigned": ("18446744073709551615",),
    "decimal(10,2)": ("-99999999.99", "99999999.99"),
    "decimal(38,38)": ("0." + "9" * 38,),
    "decimal(39,0)": ("9" * 39,),
    "year": ("0", "1901", "2155"),
}


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(EXTREMES, 2)))
def test_a_merged_type_holds_the_values_of_both(first: str, second: str) -> None:
    """The smallest and the largest value of either version are in the range of the merged type, exactly."""
    merged = merge_types(parse_type(first), parse_type(second))
    assert merged is not None
    texts = [*EXTREMES[first], *EXTREMES[second]]

    held = pa.array(texts).cast(merged.arrow).cast(pa.string()).to_pylist()

    assert [Decimal(text) for text in held] == [Decimal(text) for text in texts]


TARGETS = sorted({*ARROW.values(), pa.decimal128(5, 0), pa.decimal128(38, 10)}, key=str)


def test_every_arrow_type_has_a_category() -> None:
    """The matrix of conversions has a row for every category, and no others."""
    categories = {category_of(arrow) for arrow in ARROW.values()}

    assert categories == set(CONVERSIONS)
    assert {target for targets in CONVERSIONS.values() for target in targets} <= categories
    assert not category_of(pa.null())


# Protocols that write only labels: some of these columns cannot be read as numbers.
ONLY_LABELS = {
    (protocol, name)
    for protocol in ("debezium", "debezium-avro", "avro", "csv", "mysql-rows")
    for name in ("enum", "set")
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_kernel_makes_the_type_that_it_is_asked_for(protocol: str) -> None:
    """A conversion that the matrix allows works in every protocol, and its result has exactly the target type."""
    for type_, target in itertools.product(map(parse_type, ARROW), TARGETS):
        try:
            run = reading(PROTOCOLS[protocol].facts.kernels[type_.name], type_, target, Settings()).run
        except SchemaError:
            assert not convertible(type_.arrow, target) or (protocol, type_.name) in ONLY_LABELS, f"{type_} as {target}"
        else:
            assert run([None]).type == target, f"{protocol}: {type_} as {target}"
