"""schemaHints: Spark's DDL, read without a JVM."""

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from ticdc_source.errors import OptionError
from ticdc_source.options import hints
from ticdc_source.options.hints import parse_hint_type, parse_hints
from ticdc_source.schema.types import FLOATS, TIME
from ticdc_source.spark.schema import to_arrow


def test_hints_are_names_and_types() -> None:
    """Names are lower case, as column names are compared without case; types are Arrow's."""
    assert parse_hints("Amount decimal(10,2), flag BOOLEAN") == {"amount": pa.decimal128(10, 2), "flag": pa.bool_()}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        (" , ", {}),
        ("a: int", {"a": pa.int32()}),
        ("a:int", {"a": pa.int32()}),
        ("a\n\tint ,\nb  bigint", {"a": pa.int32(), "b": pa.int64()}),
        ("`order id` string", {"order id": pa.string()}),
        ("`a,b` int, `tick``s` long", {"a,b": pa.int32(), "tick`s": pa.int64()}),
        ("`a:b` int", {"a:b": pa.int32()}),
        ("a decimal ( 10 , 2 ), b int", {"a": pa.decimal128(10, 2), "b": pa.int32()}),
        ("a int COMMENT 'the first'", {"a": pa.int32()}),
        ("日本 date", {"日本": pa.date32()}),
        ("v array < float >", {"v": FLOATS}),
        ("t interval  day to second", {"t": TIME}),
    ],
)
def test_sparks_ddl_is_read_however_it_is_written(text: str, found: dict[str, pa.DataType]) -> None:
    assert parse_hints(text) == found


@pytest.mark.usefixtures("spark")
def test_every_type_is_sparks_type_of_that_name() -> None:
    names = [*hints._TYPES, "decimal(20,4)"]

    theirs = StructType.fromDDL(", ".join(f"c{index} {name}" for index, name in enumerate(names)))
    ours = [parse_hint_type(name, "schemaHints") for name in names]

    assert isinstance(theirs, StructType)
    assert dict(zip(names, to_arrow(theirs).types, strict=True)) == dict(zip(names, ours, strict=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amount", "expected e.g. amount decimal(10,2), flag boolean; got 'amount'"),
        ("amount:", "expected e.g."),
        ("a text", "unknown type 'text'; known types are decimal(p,s), boolean"),
        ("a varchar(10)", "unknown type 'varchar(10)'"),
        ("a decimal(10,2", "unknown type 'decimal(10,2'"),
        ("a decimal(39,0)", "decimal(39,0) is not a Spark decimal (at most 38 digits)"),
        ("a decimal(0,0)", "is not a Spark decimal"),
        ("a decimal(2,3)", "is not a Spark decimal"),
        ("a int, b int, A string", "A is given twice"),
        ("`a int", "a backtick is not closed"),
    ],
)
def test_what_is_not_ddl_is_refused(text: str, expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_hints(text)

    assert str(caught.value).startswith("Option 'schemaHints': ")
    assert expected in str(caught.value)
