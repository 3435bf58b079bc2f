"""debezium: messages and types that the corpus does not show."""

import base64
import datetime
import json
import random
from decimal import Decimal
from typing import Any

import pytest

from tests.support.captured import Captured, rows
from tests.support.messages import TSO, Message, debezium, debezium_ddl, declared, dump
from ticdc_source.errors import DecodeError, UnsupportedTypeError
from ticdc_source.protocols.debezium.column_types import declared_columns
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import ColumnType, quote_labels

SEED = 20261123
ID = {"type": "int32", "optional": False, "field": "id"}


def field(type_: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": type_, "optional": True, "field": "c", **({"name": name} if name else {}), **more}


def one_value(described: dict[str, Any], value: Any, **options: str) -> Any:
    return rows(debezium("c", None, {"id": 1, "c": value}, [ID, described]), **options)[0]["c"]


@pytest.mark.parametrize(("described", "value", "expected"), [
    (field("int16"), 255, 255),
    (field("int64"), -1, -1),
    (field("int64", tidb_type="bigint unsigned"), -1, Decimal(2**64 - 1)),
    (field("int64", tidb_type="bigint unsigned"), "18446744073709551615", Decimal(2**64 - 1)),
    (field("double"), 1.5, 1.5),
    (field("boolean"), True, True),
    (field("bytes", "io.debezium.data.Bits", parameters={"length": "10"}), base64.b64encode(b"\x01\x02").decode(), 513),
    (field("bytes", "io.debezium.data.Bits", parameters={"length": "64"}), base64.b64encode(b"\xff" * 8).decode(), -1),
    (field("int32", "io.debezium.time.Date"), -719162, datetime.date(1, 1, 1)),
    (field("int64", "io.debezium.time.Timestamp"), -1, datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)),  # noqa: DTZ001
    (field("int64", "io.debezium.time.MicroTimestamp"), 1, datetime.datetime(1970, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
    (field("string", "io.debezium.time.ZonedTimestamp"), "2024-01-01T00:00:00.5Z",
     datetime.datetime(2024, 1, 1, 0, 0, 0, 500000, tzinfo=datetime.timezone.utc)),
    (field("int64", "io.debezium.time.MicroTime"), -3020399000000, -datetime.timedelta(seconds=3020399)),
    (field("int32", "io.debezium.time.Year"), 2155, 2155),
    (field("string", "io.debezium.data.Enum", parameters={"allowed": "a,b\\,c"}), "b,c", "b,c"),
    (field("string", "io.debezium.data.EnumSet", parameters={"allowed": "a,b"}), "a,b", "a,b"),
    (field("string", "io.debezium.data.Json"), "[1]", "[1]"),
    (field("string", "io.debezium.data.TiDBVectorFloat32"), "[0.5]", [0.5]),
    (field("string"), "AP8=", "AP8="),
    (field("string", tidb_type="varbinary"), "AP8=", b"\x00\xff"),
])  # fmt: skip
def test_types(described: dict[str, Any], value: Any, expected: Any) -> None:
    """Each Connect type, semantic name and `tidb_type` gives the value that TiDB has."""
    assert one_value(described, value) == expected


@pytest.mark.parametrize("other", [{"default": 0.0}, {"default": False}, {"optional": 1}], ids=str)
def test_what_a_message_says_of_a_column_does_not_depend_on_the_one_before(other: dict[str, Any]) -> None:
    """A field of another message that Python takes for equal, with 0.0 for 0 or 1 for true, has facts of its own."""
    exact, equal = field("int32", default=0), {**field("int32", default=0), **other}
    messages = [debezium("c", None, {"id": 1, "c": 1}, [ID, described]) for described in (exact, equal)]
    alone = [Captured.of(message).schema().field("c").metadata for message in messages]
    assert alone[0] != alone[1]
    for first, second in (messages, messages[::-1]):
        assert Captured.of(first, second).schema().field("c").metadata == alone[0]


@pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")
def test_without_schema_and_ddl_types_are_those_of_json() -> None:
    """Values then have JSON's types, and each column has a warning."""
    row = rows(debezium("c", None, {"id": 1, "x": 1.5, "s": "a", "b": True, "u": 2**64 - 1}))[0]

    assert {name: row[name] for name in ("id", "x", "s", "b", "u")} == {
        "id": 1, "x": 1.5, "s": "a", "b": True, "u": Decimal(2**64 - 1),
    }  # fmt: skip


def test_a_decimal_has_the_scale_that_ddl_declares() -> None:
    """A double has that many digits of fraction; one beyond the precision is the column's largest value."""
    ddl = debezium_ddl(TSO - 1, "CREATE", [declared("id", "INT"), declared("c", "DECIMAL", length=18, scale=2)])

    decoded = rows(ddl, *(debezium("c", None, {"id": 1, "c": value}) for value in (129012.12, -1e16, 5, "7.10", None)))

    assert [row["c"] for row in decoded] == [
        Decimal("129012.12"), Decimal("-9999999999999999.99"), Decimal("5.00"), Decimal("7.10"), None,
    ]  # fmt: skip


@pytest.mark.parametrize(("written", "labels"), [
    (["'e1'", "'e2'"], ("e1", "e2")),
    (["e1", "it's", "a,b"], ("e1", "it's", "a,b")),
    ("['e1', 'e2']", ("e1", "e2")),
    (" [ 'e1','e2' ] ", ("e1", "e2")),
    ("'e1', 'e2'", ("e1", "e2")),
    ('["e1", "e2"]', ("e1", "e2")),
    ("['a,b', 'c, d', '']", ("a,b", "c, d", "")),
    ("['it''s', 'x'', ''y']", ("it's", "x', 'y")),
    ("['it's', 'b']", ("it's", "b")),
    ("['it'', '[x]', ')(']", ("it'", "[x]", ")(")),
    ("['back\\slash', '日本']", ("back\\slash", "日本")),
    ("[]", ()),
    ("", ()),
    (None, ()),
])  # fmt: skip
@pytest.mark.parametrize("type_name", ["ENUM", "SET"])
def test_labels_are_a_list_or_its_text(type_name: str, written: object, labels: tuple[str, ...]) -> None:
    """`enumValues` as a list, and as the text that TiCDC's documentation shows, give the same labels."""
    changes = [{"id": '"test"."t"', "table": {"columns": [declared("c", type_name, enumValues=written)]}}]

    assert declared_columns(changes, TableName("test", "t")) == {"c": ColumnType(type_name.lower(), labels=labels)}


def test_labels_in_text_come_back() -> None:
    """Labels with any commas, quotes and blanks come back from a text in which quotes are doubled."""
    chooser = random.Random(SEED)
    for _ in range(500):
        labels = tuple("".join(chooser.choices("ab,' []()\\é", k=chooser.randrange(6))) for _ in range(3))
        written = f"[{', '.join(quote_labels((label,)) for label in labels)}]"
        changes = [{"id": '"test"."t"', "table": {"columns": [declared("c", "SET", enumValues=written)]}}]

        assert declared_columns(changes, TableName("test", "t"))["c"].labels == labels, (SEED, written)


@pytest.mark.parametrize("written", ["e1, e2", "['e1", "'", 5, {"a": 1}, [1], "5"])
def test_labels_in_no_known_form_are_not_guessed(written: object) -> None:
    """Other `enumValues` make the description of the table broken: it says nothing, and fails no read."""
    ddl = debezium_ddl(TSO - 1, "CREATE", [declared("id", "INT"), declared("c", "ENUM", enumValues=written)])

    with pytest.raises((TypeError, ValueError)):
        declared_columns(debezium_changes(ddl), TableName("test", "t"))

    assert [row["c"] for row in rows(ddl, debezium("c", None, {"id": 1, "c": "e1"}, [ID, field("string")]))] == ["e1"]


def test_table_changes_name_a_table_in_any_letters() -> None:
    """The `id` of a description may spell the table and its columns differently than rows."""
    ddl = debezium_ddl(TSO - 1, "CREATE", [declared("ID", "INT"), declared("C", "DECIMAL", length=9, scale=2)])
    message = ddl[0], (ddl[1] or b"").replace(rb"\"test\".\"t\"", rb"\"TEST\".\"T\"")

    assert message != ddl
    assert rows(message, debezium("c", None, {"id": 1, "c": 1.5}))[0]["c"] == Decimal("1.50")


def debezium_changes(ddl: Message) -> Any:
    return json.loads(ddl[1] or b"")["payload"]["tableChanges"]


@pytest.mark.parametrize(("type_name", "value", "number"), [("ENUM", "a,b", 2), ("SET", "e1,it's", 5)])
def test_rows_have_the_labels_of_a_text(type_name: str, value: str, number: int) -> None:
    """Rows without schema have the labels that DDL gives as text, and the numbers that stand for them."""
    labels = "['e1', 'a,b', 'it''s']" if type_name == "ENUM" else "['e1', 'x', 'it''s']"
    ddl = debezium_ddl(TSO - 1, "CREATE", [declared("id", "INT"), declared("c", type_name, enumValues=labels)])
    row = debezium("c", None, {"id": 1, "c": value})

    assert [found["c"] for found in rows(ddl, row)] == [value]
    assert [found["c"] for found in rows(ddl, row, schemaHints="c int")] == [number]


def test_key_columns_are_those_of_the_kafka_key() -> None:
    """The schema marks the columns of the handle key."""
    schema = Captured.of(debezium("c", None, {"id": 1, "c": 2}, [ID, field("int32")], key={"id": 1})).schema()

    assert schema.field("id").metadata[b"ticdc.key"] == b"true"
    assert b"ticdc.key" not in schema.field("c").metadata


def test_watermarks_and_ddl_are_no_rows() -> None:
    """Watermarks (op `m`) and DDL events never fail a read, even if their description is broken."""
    watermark = debezium("m", source={"db": "", "table": ""})
    broken = debezium_ddl(TSO, "ALTER", [{"name": 5}])

    assert [row["id"] for row in rows(watermark, broken, debezium("c", None, {"id": 1}, [ID]))] == [1]


@pytest.mark.parametrize(("message", "reason"), [
    ((b"{}", b"{}"), "no 'source'"),
    ((b"{}", dump([1])), "JSON list"),
    (debezium("x", None, {"id": 1}, [ID]), "op 'x'"),
    (debezium("c", None, None, [ID]), "op 'c' without after"),
    (debezium("d", None, None, [ID]), "op 'd' without before"),
    (debezium("c", None, {"id": 1.5}, [ID]), "number with a fraction"),
    (debezium("c", None, {"id": 1}, [ID], source={"commit_ts": "x"}), "a timestamp 'x'"),
])  # fmt: skip
def test_messages_that_cannot_be_read_say_why(message: Message, reason: str) -> None:
    """The error of a bad message has the reason and the offset."""
    good = debezium("c", None, {"id": 1}, [ID])

    with pytest.raises(DecodeError, match=reason) as raised:
        rows(good, message, protocol="debezium")

    assert raised.value.address.offset == 1


BINARY = field("string", tidb_type="varbinary")


@pytest.mark.parametrize("native_code", ["auto", "off"])
@pytest.mark.parametrize(("mode", "cell"), [
    ("base64", "+/8B"), ("base64-url-safe", "-_8B"), ("hex", "fbff01"), ("hex", "FBFF01"), ("bytes", "+/8B"),
])  # fmt: skip
def test_binary_values_are_read_as_the_option_says(mode: str, cell: str, native_code: str) -> None:
    """No message tells how binary is written; `debezium.binaryHandlingMode` does, with and without a schema."""
    ddl = debezium_ddl(TSO - 1, "CREATE", [declared("id", "INT"), declared("c", "VARBINARY", length=9)])
    given = {"debezium.binaryHandlingMode": mode, "nativeCode": native_code}

    for messages in ([debezium("c", None, {"id": n, "c": cell}, [ID, BINARY]) for n in range(20)],
                     [ddl, *(debezium("c", None, {"id": n, "c": cell}) for n in range(20))]):  # fmt: skip
        assert {row["c"] for row in rows(*messages, **given)} == {b"\xfb\xff\x01"}


def test_bytes_of_kafka_connect_are_base64_whatever_the_option_says() -> None:
    """A column whose schema says `bytes` says how it is written."""
    message = debezium("c", None, {"id": 1, "c": "AP8="}, [ID, field("bytes", tidb_type="varbinary")])

    assert rows(message, **{"debezium.binaryHandlingMode": "hex"})[0]["c"] == b"\x00\xff"


@pytest.mark.parametrize(("given", "cell", "fitting"), [
    (None, "fbff01", "hex"), (None, "-_8B", "base64-url-safe"), ("hex", "+/8B", "base64"),
    ("hex", "fb ff", "no other mode"), ("base64-url-safe", "+/8B", "base64"), (None, "AP8", "base64-url-safe"),
])  # fmt: skip
@pytest.mark.parametrize("native_code", ["auto", "off"])
def test_binary_in_another_form_is_an_error_that_says_which(
    given: str | None, cell: str, fitting: str, native_code: str
) -> None:
    """A value that is not in the form of the option is a bad record; the error names the option and what fits."""
    options = {"nativeCode": native_code} | ({} if given is None else {"debezium.binaryHandlingMode": given})

    with pytest.raises(DecodeError, match=rf"debezium\.binaryHandlingMode.*{fitting}") as raised:
        rows(debezium("c", None, {"id": 1, "c": cell}, [ID, BINARY]), **options)

    assert raised.value.address.column == "c"


def test_values_that_are_base64_and_hex_alike_are_told() -> None:
    """Without the option, a column whose values all fit both is a warning."""
    doubtful = [
        debezium("c", None, {"id": n, "c": cell}, [ID, BINARY]) for n, cell in enumerate(["0123abcd", "", None])
    ]
    clear = debezium("c", None, {"id": 9, "c": "AP8="}, [ID, BINARY])

    with pytest.warns(UserWarning, match=r"Column c of test\.t.*debezium\.binaryHandlingMode"):
        rows(*doubtful)

    rows(*doubtful, clear)
    rows(*doubtful, **{"debezium.binaryHandlingMode": "hex"})


undescribed = pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")

KEY = {"type": "int32", "optional": False, "field": "id"}
MYSQL = {"connector": "mysql", "commit_ts": None, "cluster_id": None}
MOMENT = datetime.datetime(2018, 6, 20, 6, 37, 3)  # noqa: DTZ001 (DATETIME has no zone)
CONNECT = "org.apache.kafka.connect.data"


def native_message(value: Any, literal: str, name: str | None = None, op: str = "c", **more: Any) -> Message:
    field = {"type": literal, "optional": True, "field": "x", **({} if name is None else {"name": name}), **more}
    row = {"id": 1, "x": value}
    return debezium(op, None, row, [KEY, field], source=MYSQL)


@undescribed
@pytest.mark.parametrize(("value", "literal", "name", "parameters", "decoded"), [
    ("AYag", "bytes", f"{CONNECT}.Decimal", {"scale": "2", "connect.decimal.precision": "10"}, Decimal("1000.00")),
    ("/w==", "bytes", f"{CONNECT}.Decimal", {"scale": "3", "connect.decimal.precision": "5"}, Decimal("-0.001")),
    (12.5, "bytes", f"{CONNECT}.Decimal", {"scale": "2", "connect.decimal.precision": "10"}, Decimal("12.50")),
    ("AP//////////", "bytes", f"{CONNECT}.Decimal", {"scale": "0"}, Decimal(2**64 - 1)),
    (17_000, "int32", f"{CONNECT}.Date", {}, datetime.date(2016, 7, 18)),
    (3_600_001, "int32", f"{CONNECT}.Time", {}, datetime.timedelta(hours=1, milliseconds=1)),
    (3_600_000_001, "int64", f"{CONNECT}.Time", {}, datetime.timedelta(hours=1, microseconds=1)),
    (1_529_476_623_123, "int64", f"{CONNECT}.Timestamp", {}, MOMENT + datetime.timedelta(milliseconds=123)),
    (3_600_001, "int32", "io.debezium.time.Time", {}, datetime.timedelta(hours=1, milliseconds=1)),
    (-1000, "int64", "io.debezium.time.NanoTime", {}, datetime.timedelta(microseconds=-1)),
    (1_529_476_623_000_001_000, "int64", "io.debezium.time.NanoTimestamp", {},
     MOMENT + datetime.timedelta(microseconds=1)),
    ([1, 2.5], "array", "io.debezium.data.FloatVector", {}, [1.0, 2.5]),
    ("AAEC", "bytes", None, {}, b"\x00\x01\x02"),
    ("AAEC", "string", None, {}, "AAEC"),
    ("1000.00", "string", None, {}, "1000.00"),
])  # fmt: skip
def test_a_semantic_type_is_read_as_documented(
    value: Any, literal: str, name: str | None, parameters: dict[str, str], decoded: Any
) -> None:
    """decimal.handling.mode, bigint.unsigned.handling.mode, binary.handling.mode and time.precision.mode."""
    assert rows(native_message(value, literal, name, parameters=parameters))[0]["x"] == decoded
    assert rows(native_message(None, literal, name, parameters=parameters))[0]["x"] is None


@undescribed
@pytest.mark.parametrize("name", ["io.debezium.data.geometry.Geometry", "io.debezium.data.geometry.Point"])
def test_a_spatial_column_is_refused_by_name(name: str) -> None:
    """TiDB has no such type: the error names it, and a hint of string reads its JSON."""
    spatial = native_message({"srid": None, "wkb": "AQEA"}, "struct", name)

    with pytest.raises(UnsupportedTypeError, match=rf"(?i)Column x .*{name}"):
        rows(spatial)
    assert rows(spatial, schemaHints="x string")[0]["x"] == '{"srid": null, "wkb": "AQEA"}'


@undescribed
@pytest.mark.parametrize(("value", "name"), [
    ("no base64", f"{CONNECT}.Decimal"), ("1", "io.debezium.time.Time"), (1.5, f"{CONNECT}.Time"),
    ([1, "a"], "io.debezium.data.FloatVector"),
])  # fmt: skip
def test_a_value_of_another_type_is_an_error(value: Any, name: str) -> None:
    """The error names the column."""
    with pytest.raises(DecodeError, match="column=x"):
        rows(native_message(value, "bytes", name, parameters={"scale": "2", "connect.decimal.precision": "10"}))


@undescribed
@pytest.mark.parametrize("snapshot", ["true", "first", "last", "incremental", True])
def test_rows_of_a_snapshot_are_inserts(snapshot: object) -> None:
    """A row with op `r` is an insert, with a lower bound of the commit-ts."""
    key, value = debezium("r", None, {"id": 1}, [KEY], source={**MYSQL, "snapshot": snapshot, "ts_ms": 1_000})

    row = rows((key, value))[0]

    assert (row["_change_type"], row["id"], row["_commit_version"]) == ("insert", 1, 1_000 << 18)


@undescribed
def test_a_hint_of_binary_does_not_decode_strings() -> None:
    """Nothing says whether binary.handling.mode was base64 or hex: the result is the bytes of the text."""
    assert rows(native_message("6162", "string"), schemaHints="x binary")[0]["x"] == b"6162"


@undescribed
def test_a_decimal_read_as_text_has_its_own_scale() -> None:
    """Two versions of a column with different scales are each read with the digits that MySQL prints."""
    parameters = [{"scale": str(scale), "connect.decimal.precision": "10"} for scale in (1, 3)]
    both = [native_message("AA==", "bytes", f"{CONNECT}.Decimal", parameters=each) for each in parameters]

    assert [row["x"] for row in rows(*both, schemaHints="x string")] == ["0.0", "0.000"]
