"""Defects that were found by trying to break the connector stay fixed."""

import datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.support.captured import Captured, Sizes, make_options, rows, single, whole
from tests.support.messages import (
    TSO,
    Message,
    canal,
    cell,
    debezium,
    debezium_ddl,
    declared,
    dump,
    open_message,
    open_row,
)
from ticdc_source.errors import DecodeError
from ticdc_source.pipeline.read import read
from ticdc_source.protocols.compression import Compression

pytestmark = pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")

ID = {"id": "int"}
KEY = {"type": "int32", "optional": False, "field": "id"}


def insert(value: Any, mysql_type: str) -> Message:
    return canal("INSERT", [{"id": "1", "x": value}], None, {**ID, "x": mysql_type}, {"id": 4, "x": 12})


def text_field(tidb_type: str | None = None) -> dict[str, Any]:
    return {"type": "string", "optional": True, "field": "x", **({"tidb_type": tidb_type} if tidb_type else {})}


@pytest.mark.parametrize("value", [
    "2979998326651559421399819507705176805774.9947667",
    "493682185944899873439712315158777836213.25",
    "1e38",
    "9" * 37 + ".00",
])  # fmt: skip
def test_a_decimal_that_does_not_fit_is_an_error(value: str) -> None:
    """A decimal with more digits than the sample's is an error, although Arrow's cast of long texts wraps around."""
    sample = [insert("1.50", "decimal")] * 700

    with pytest.raises(DecodeError, match="column=x"):
        rows(*sample, insert(value, "decimal"), *sample)


def test_a_long_decimal_that_fits_is_exact() -> None:
    """A decimal of thirty-eight digits is exact, with a sign or with leading zeros."""
    texts = ["-" + "9" * 36 + ".99", "0" * 30 + "12.50"]

    found = [row["x"] for row in rows(*(insert(text, "decimal(38,2)") for text in texts))]

    assert found == [Decimal(text) for text in texts]


def test_old_values_without_names_are_matched_in_bounded_time() -> None:
    """Forty old values without names are matched to columns at once, among eighty NULLs."""
    new = {f"{prefix}{n}": cell(code, None, 65) for n in range(40) for prefix, code in (("i", 3), ("s", 15))}
    flat = ",".join(f'"t":3,"f":65,"v":{n}' for n in range(40))
    body = b'{"u":%b,"p":{%b}}' % (dump({"id": cell(3, 1, 2), **new}), flat.encode())

    before = rows(open_message(open_row(body)))[0]

    assert [before[f"i{n}"] for n in range(40)] == list(range(40))


def test_a_column_named_as_a_metadata_column_that_was_not_requested_is_data() -> None:
    """A table column may have the name of a metadata column that was not requested."""
    types = {**ID, "_topic": "varchar", "_corrupt_record": "varchar"}
    row = rows(canal("INSERT", [{"id": "1", "_topic": "mine", "_corrupt_record": "too"}], None, types))[0]

    assert (row["_topic"], row["_corrupt_record"]) == ("mine", "too")


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_a_broken_description_does_not_affect_other_messages(mode: str) -> None:
    """The columns of a message that cannot be read are not used for the next message."""
    good, bad = canal("INSERT", [{"id": "1"}], None, ID), canal("INSERT", [{"id": "7"}], None, {"id": "(("})
    fields: list[dict[str, Any]] = [{"field": "id"}]
    broken = debezium("c", None, {"id": 7}, fields)
    fine = debezium("c", None, {"id": 1}, [KEY])

    for first, second in ((good, bad), (fine, broken)):
        found = rows(first, second, second, first, second, second, mode=mode)
        assert [row["id"] for row in found if row["_change_type"]] == [1, 1]


def test_a_message_is_decoded_by_its_own_tidb_type() -> None:
    """Each message is decoded by its own tidb_type, so a VARCHAR is not base64 although the sample has a VARBINARY."""
    binary = debezium("c", None, {"id": 1, "x": "YWJj"}, [KEY, text_field("varbinary")])
    text = debezium("c", None, {"id": 1, "x": "abcd"}, [KEY, text_field("varchar")])

    assert [row["x"] for row in rows(binary, text)] == [b"abc", b"abcd"]


def test_a_datetime_in_another_unit_is_an_error() -> None:
    """A DATETIME in microseconds that is declared in milliseconds is an error, because it is beyond the year 9999."""
    ddl = debezium_ddl(TSO - 1, "", [declared("id", "INT"), declared("x", "DATETIME", length=3)])
    good = debezium("c", None, {"id": 1, "x": 1_600_000_000_123})
    captured = Captured.of(ddl, good, debezium("c", None, {"id": 1, "x": 1_600_000_000_123_456}))

    assert rows(ddl, good)[0]["x"] == datetime.datetime(2020, 9, 13, 12, 26, 40, 123000)  # noqa: DTZ001
    with pytest.raises(DecodeError, match="precision of the DATETIME"):
        captured.read()


@pytest.mark.parametrize("message", [
    open_message(open_row({"u": {"id": cell(3, 1), "x": cell(252, "//4=", 64)}})),
    open_message(open_row({"u": {"id": cell(3, 1), "x": cell(15, "\\xff\\xfe", 0)}})),
    debezium("c", None, {"id": 1, "x": "//4="}, [KEY, text_field()]),
])  # fmt: skip
def test_a_hint_of_binary_returns_the_bytes(message: Message) -> None:
    """If the message does not say whether a column is text, a hint of binary decodes its bytes."""
    assert rows(message, schemaHints="x binary")[0]["x"] == b"\xff\xfe"


def test_the_text_of_a_small_decimal_has_no_exponent() -> None:
    """A DECIMAL that debezium sends as a double is the text that MySQL prints, not Arrow's 1E-10."""
    ddl = debezium_ddl(TSO - 1, "", [declared("id", "INT"), declared("x", "DECIMAL", length=12, scale=10)])
    values = [0, 1e-10, -2e-7, 1.5]

    found = rows(ddl, *(debezium("c", None, {"id": 1, "x": x}) for x in values), schemaHints="x string")

    assert [row["x"] for row in found] == ["0.0000000000", "0.0000000001", "-0.0000002000", "1.5000000000"]


def test_a_name_with_quotes_finds_its_ddl() -> None:
    """A table name with quotes, which TiCDC does not escape in a tableChanges id, has its DDL's types."""
    key, value = debezium_ddl(TSO - 1, "", [declared("id", "INT"), declared("x", "DATE")])
    ddl = (
        key,
        (value or b"").replace(rb"\"test\".\"t\"", rb"\"test\".\"a\"b\"").replace(b'"table":"t"', rb'"table":"a\"b"'),
    )
    row = debezium("c", None, {"id": 1, "x": 0}, source={"table": 'a"b'})

    assert rows(ddl, row)[0]["x"] == datetime.date(1970, 1, 1)


def test_a_decimal_of_the_extension_without_ddl_is_a_double() -> None:
    """A decimal without DDL is a double, because tidb_type never has the precision."""
    field = {"type": "double", "optional": True, "field": "x", "tidb_type": "decimal"}

    assert rows(debezium("c", None, {"id": 1, "x": 1e25}, [KEY, field]))[0]["x"] == 1e25


@pytest.mark.parametrize("message", [
    canal("INSERT", [{"id": "1"}, None], None, ID),
    open_message(open_row({"u": {"id": cell(3, 1)}, "d": {"id": cell(3, 1)}})),
])  # fmt: skip
def test_a_missing_row_is_an_error(message: Message) -> None:
    """A null among the rows, or an insert and a delete in one event, is an error with its offset."""
    good = (
        canal("INSERT", [{"id": "1"}], None, ID)
        if message[0] == b""
        else open_message(open_row({"u": {"id": cell(3, 1)}}))
    )

    with pytest.raises(DecodeError, match="offset=1"):
        rows(good, message)


@pytest.mark.parametrize("messages", [
    [debezium("c", None, {"id": 1, "x": 5}), debezium("c", None, {"id": 1, "x": "abc"})],
    [debezium("c", None, {"id": 1, "x": True}), debezium("c", None, {"id": 1, "x": "abc"})],
    [debezium("c", None, {"id": 1, "x": {"a": 1}})],
])  # fmt: skip
def test_values_of_unknown_type_can_be_text(messages: list[Message]) -> None:
    """Schema-less debezium values of several JSON types, without DDL, are read as their JSON."""
    found = [row["x"] for row in rows(*messages)]

    assert found[0] in ("5", "true", '{"a": 1}')


def test_the_order_of_columns_is_that_of_the_new_row() -> None:
    """Columns have the order of the new row, even if the old row has only some of them."""
    new = {"id": cell(3, 1), "a": cell(3, 2), "b": cell(3, 3)}
    schema = Captured.of(open_message(open_row({"u": new, "p": {"b": cell(3, 9)}}))).schema()

    assert schema.names[4:] == ["id", "a", "b"]


@pytest.mark.parametrize("hint", ["tinyint", "double"])
def test_bits_do_not_leak_their_sign(hint: str) -> None:
    """A BIT of 64 set bits is 2^64-1 and not -1, so neither type can hold it."""
    with pytest.raises(DecodeError):
        rows(insert("18446744073709551615", "bit"), schemaHints=f"x {hint}")


def test_hints_may_have_brackets_in_names_and_commas_in_comments() -> None:
    """Backticks and quotes in hints protect the brackets and commas inside them."""
    message = canal("INSERT", [{"a(b": "1", "c": "2"}], None, {"a(b": "int", "c": "int"})

    row = rows(message, schemaHints="`a(b` bigint COMMENT 'x, (y', c string NOT NULL")[0]

    assert (row["a(b"], row["c"]) == (1, "2")


@pytest.mark.parametrize("sizes", [whole, single])
def test_a_table_has_one_name_wherever_chunks_are_cut(sizes: Sizes) -> None:
    """After a RENAME that only changes case, `_table` is the name of the table that is read."""
    messages = [canal("INSERT", [{"id": str(n)}], None, ID, table="t" if n < 2 else "T") for n in range(4)]

    found = Captured.of(*messages).read(sizes=sizes, includeMetadata="all").to_pylist()

    assert len({row["_table"] for row in found}) == 1
    assert [row["id"] for row in found] == [0, 1, 2, 3]


@pytest.mark.parametrize("connectors", [("mysql", "TiCDC"), ("TiCDC", "mysql")])
@pytest.mark.parametrize("sizes", [whole, single])
def test_messages_of_ticdc_and_of_native_debezium_are_distinguished(sizes: Sizes, connectors: tuple[str, str]) -> None:
    """Each message is decoded by its own writer, not by the previous one's: only TiCDC writes base64."""
    messages = [
        debezium("c", None, {"id": n, "x": "/w=="}, [KEY, text_field()], {"connector": connectors[n % 2]}, {"id": n})
        for n in range(6)
    ]
    ddl = debezium_ddl(TSO - 1, "", [declared("id", "INT"), declared("x", "BLOB")])

    found = Captured.of(ddl, *messages).read(sizes=sizes, schemaHints="x binary").to_pylist()

    ticdc = connectors.index("TiCDC")
    assert {row["x"] for row in found[ticdc::2]} == {b"\xff"}
    assert {row["x"] for row in found[1 - ticdc :: 2]} == {b"/w=="}


@pytest.mark.parametrize("block", [b"\xff\xff\xff\xff\x0f\x00{abc}", b"\xff\xff\xff\xff\x07\xf0{abc}"])
def test_a_block_that_declares_gigabytes_is_not_unpacked(block: bytes) -> None:
    """Eleven bytes of garbage that look like a large snappy block are an error, and allocate nothing."""
    assert Compression().decompressed(block) == block
    with pytest.raises(DecodeError, match=r"11 bytes cannot decompress to \d{10}"):
        Compression("snappy").decompressed(block)


@pytest.mark.parametrize("moment", [-1, 2**63 // 1000, 2**63 - 1])
def test_a_kafka_timestamp_out_of_range_is_null(moment: int) -> None:
    """A Kafka timestamp that Arrow's type cannot hold is NULL."""
    captured = Captured.of(insert("1", "int"))
    options, schema = make_options(includeMetadata="kafka"), captured.schema(includeMetadata="kafka")
    (chunk,) = captured.fetch(captured.ranges()[0])
    chunk.timestamps[0] = moment
    context = captured.context(schema, options)

    (batch,) = read([chunk], captured.spec(schema, options, context, captured.ranges()[0]))

    assert batch.column("_timestamp").null_count == 1


def test_rows_of_one_message_with_different_columns_are_an_error() -> None:
    """Rows of one message with different columns are an error, so no value is lost silently."""
    types = {**ID, "v": "varchar"}
    bad = canal("INSERT", [{"id": "1"}, {"id": "2", "v": "lost"}], None, types)

    with pytest.raises(DecodeError, match="rows of 'data' have different columns"):
        rows(canal("INSERT", [{"id": "1", "v": "x"}], None, types), bad)


@pytest.mark.parametrize("length", [0.5, "7", True, {}])
def test_a_declared_length_that_is_no_integer_declares_nothing(length: Any) -> None:
    """A description of a table with such a length is passed over, instead of failing every read of the table."""
    ddl = debezium_ddl(TSO - 1, "CREATE", [declared("id", "INT"), declared("c", "DATETIME", length=length)])

    found = rows(ddl, debezium("c", None, {"id": 1, "c": 1000}))

    assert [row["id"] for row in found] == [1]


def test_a_table_without_a_database_is_read() -> None:
    """Messages with an empty database name are read: the name of their table can be written and parsed again."""
    message = canal(data=[{"id": "1"}], mysql_type=ID, sql_type={"id": 4}, database="")

    assert [row["id"] for row in rows(message)] == [1]
