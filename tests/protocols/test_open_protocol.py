"""open-protocol: framing, row events and types that the corpus does not show."""

import base64
import datetime
from dataclasses import astuple
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, rows
from tests.support.messages import TSO, Message, cell, dump, framed, open_message, open_row
from ticdc_source.errors import DecodeError, FramingError, SchemaError, UnsupportedTypeError

INT, VARCHAR, BLOB, HANDLE, BINARY, UNSIGNED = 3, 15, 252, 2, 1, 128


def one_value(code: int, value: Any, flags: int = 0, **options: str) -> Any:
    body = {"u": {"id": cell(INT, 1, HANDLE), "c": cell(code, value, flags)}}
    return rows(open_message(open_row(body)), **options)[0]["c"]


def test_old_values_without_names_never_share_a_repeated_column() -> None:
    """Flat members of `p` go to a column each, also if a broken message has a member of `u` twice: the last counts."""
    broken = b'{"u":{%b,%b,%b},"p":{"t":3,"f":65,"v":7,"t":3,"f":65,"v":8}}' % (
        dump({"a": cell(INT, None, 65)})[1:-1],
        dump({"a": cell(INT, None, 65)})[1:-1],
        dump({"b": cell(INT, None, 65), "id": cell(INT, 1, HANDLE)})[1:-1],
    )

    decoded = [(row["a"], row["b"]) for row in rows(open_message(open_row(broken)))]

    assert decoded == [(7, 8), (None, None)]


@pytest.mark.parametrize("as_text", [False, True])
def test_a_ddl_code_is_its_type(as_text: bool) -> None:
    """A DDL code has the name and the kind that TiCDC's documentation says, as a number and as the text it prints."""
    found = {}
    for code in (1, 3, 6, 11, 16, 20, 23, 26, 27, 36):
        message = open_message(
            ({"ts": TSO, "scm": "test", "tbl": "t", "t": 2}, {"q": "…", "t": f"{code}" if as_text else code})
        )
        (row,) = rows(message, outputFormat="event")
        assert row["ddl_type_code"] == code
        found[row["ddl_type"]] = row["ddl_kind"]

    assert found == {
        "create schema": "create_database", "create table": "create_table", "drop column": "alter_table",
        "truncate table": "truncate_table", "shard row ID": "alter_table", "drop partition": "drop_partition",
        "truncate partition": "truncate_partition", "modify schema charset and collate": "alter_database",
        "lock table": "other", "drop sequence": "drop_sequence",
    }  # fmt: skip


@pytest.mark.parametrize(("code", "flags", "value", "expected"), [
    (1, UNSIGNED, 255, 255),
    (8, UNSIGNED, 2**64 - 1, Decimal(2**64 - 1)),
    (8, 0, -(2**63), -(2**63)),
    (4, 0, 1e-38, pytest.approx(1e-38, rel=1e-6)),
    (5, 0, 1e21, 1e21),
    (5, 0, 7, 7.0),
    (246, 0, "-0.10", Decimal("-0.10")),
    (16, UNSIGNED | 65, 2**63, -(2**63)),
    (13, UNSIGNED | 65, 0, 0),
    (10, 65, "0000-00-00", None),
    (14, 65, "2024-02-29", datetime.date(2024, 2, 29)),
    (10, 65, "2023-02-29", None),
    (12, 65, "1969-12-31 23:59:59.999999", datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
    (7, 65, "2024-02-29 12:00:00", datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc)),
    (11, 65, "-838:59:59.5", -datetime.timedelta(hours=838, minutes=59, seconds=59.5)),
    (11, 65, "-00:00:00.000001", -datetime.timedelta(microseconds=1)),
    (247, 0, 3, 3),
    (248, 0, 2**63 + 1, Decimal(2**63 + 1)),
    (245, 0, '{"a": 1}', '{"a": 1}'),
    (225, 0, "[1,-0.5,1e3]", [1.0, -0.5, 1000.0]),
    (225, 0, "[]", []),
    (254, BINARY, r"\x00\a\b\f\n\r\t\v\\\"\xff" + "é☃😀" + r"\u00ad\U000e0001'", b'\x00\x07\x08\x0c\n\r\t\x0b\\"\xff'
     + "é☃😀\xad\U000e0001'".encode()),
    (BLOB, BINARY, base64.b64encode(bytes(range(256))).decode(), bytes(range(256))),
    (BLOB, 64, base64.b64encode("text ☃".encode()).decode(), "text ☃"),
])  # fmt: skip
def test_types(code: int, flags: int, value: Any, expected: Any) -> None:
    """Each type code with its flags gives the value that TiDB has, in the type of the type table."""
    assert one_value(code, value, flags) == expected


def test_null_columns_take_their_type_from_other_messages() -> None:
    """MySQL's Null type does not say the type of a column; another message does."""
    first = open_message(open_row({"u": {"id": cell(INT, 1), "c": cell(6, None)}}))
    second = open_message(open_row({"u": {"id": cell(INT, 2), "c": cell(12, "2024-01-01 00:00:00")}}))

    decoded = rows(first, second)

    assert [row["c"] for row in decoded] == [None, datetime.datetime(2024, 1, 1)]  # noqa: DTZ001


def test_other_messages_replace_a_lost_binary_flag() -> None:
    """With flags 0 of TiCDC's cache, a column is binary if other messages say so (docs/wire.md, item 104)."""
    first = open_message(open_row({"u": {"id": cell(INT, 1), "c": cell(VARCHAR, r"\xff", BINARY | 64)}}))
    second = open_message(open_row({"u": {"id": cell(INT, 2), "c": cell(VARCHAR, r"\xfe", 0)}}))

    assert [row["c"] for row in rows(first, second)] == [b"\xff", b"\xfe"]


def test_other_messages_replace_lost_flags() -> None:
    """One message is enough to say that an integer is unsigned, a BLOB binary or a column part of the key."""
    flagged = {"id": cell(8, 1, HANDLE | UNSIGNED), "b": cell(BLOB, "/w==", BINARY | 64), "x": cell(BLOB, "eA==", 64)}
    lost = {"id": cell(8, 2**64 - 1, 0), "b": cell(BLOB, "/g==", 0), "x": cell(BLOB, "eQ==", 0)}
    messages = [open_message(open_row({"u": lost})), open_message(open_row({"u": flagged}))]

    decoded = rows(*messages)

    assert [(row["id"], row["b"], row["x"]) for row in decoded] == [
        (Decimal(2**64 - 1), b"\xfe", "y"),
        (Decimal(1), b"\xff", "x"),
    ]
    assert Captured.of(*messages).schema().field("id").metadata[b"ticdc.key"] == b"true"


@pytest.mark.parametrize(("column", "read_as", "expected"), [
    (cell(VARCHAR, r"\xfe", 0), pa.binary(), b"\xfe"),
    (cell(BLOB, "/g==", 0), pa.binary(), b"\xfe"),
    (cell(8, 2**64 - 1, 0), pa.decimal128(20, 0), Decimal(2**64 - 1)),
])  # fmt: skip
def test_the_users_schema_replaces_lost_flags(column: Any, read_as: pa.DataType, expected: Any) -> None:
    """If no other message has the flags, the schema decides (docs/wire.md, item 104)."""
    captured = Captured.of(open_message(open_row({"u": {"id": cell(INT, 1, HANDLE), "c": column}})))
    schema = captured.schema()
    schema = schema.set(schema.get_field_index("c"), pa.field("c", read_as, metadata=schema.field("c").metadata))

    assert captured.read(schema=schema)["c"].to_pylist() == [expected]


# Flags of MySQL (pingcap/tidb pkg/parser/mysql/type.go), as TiDB sets them.
NOT_NULL, PRIMARY, UNIQUE, BLOBS, UNSIGNED_, BINARY_, AUTO, NO_DEFAULT = 1, 2, 4, 16, 32, 128, 512, 4096
RAW = {
    "id": cell(8, 2**64 - 1, NOT_NULL | PRIMARY | UNSIGNED_ | NO_DEFAULT, h=True),
    "v": cell(VARCHAR, r"\xfe\"", BINARY_),
    "s": cell(VARCHAR, r"\xfe", NOT_NULL | NO_DEFAULT),
    "b": cell(BLOB, "/g==", BLOBS | BINARY_),
    "x": cell(BLOB, "eA==", BLOBS),
    "n": cell(INT, -1, NOT_NULL),
    "u": cell(INT, 2**32 - 1, UNSIGNED_),
    "d": cell(10, "2026-01-01", BINARY_),
    "k": cell(INT, 7, NOT_NULL | UNIQUE | NO_DEFAULT),
}
RAW_VALUES = {
    "id": Decimal(2**64 - 1), "v": b'\xfe"', "s": r"\xfe", "b": b"\xfe", "x": "x", "n": -1, "u": 2**32 - 1,
    "d": datetime.date(2026, 1, 1), "k": 7,
}  # fmt: skip


@pytest.mark.parametrize("key", [NOT_NULL | PRIMARY | UNSIGNED_ | NO_DEFAULT, NOT_NULL | PRIMARY | UNSIGNED_ | AUTO])
def test_flags_of_mysql_are_recognized(key: int) -> None:
    """Some builds wrote MySQL's flags (docs/wire.md, item 103). A key shows it, with AUTO_INCREMENT or without."""
    message = open_message(open_row({"u": {**RAW, "id": {**RAW["id"], "f": key}}}))

    (decoded,) = rows(message)

    assert {name: decoded[name] for name in RAW} == RAW_VALUES
    schema = Captured.of(message).schema()
    assert [field.name for field in schema if b"ticdc.key" in (field.metadata or {})] == ["id"]


def test_flags_of_mysql_and_of_ticdc_mean_the_same() -> None:
    """Messages from before and after an upgrade have one schema."""
    columns = {
        "id": cell(8, 1, BINARY | HANDLE | 8 | UNSIGNED, h=True), "v": cell(VARCHAR, "a", BINARY | 64),
        "s": cell(VARCHAR, "a", 0), "b": cell(BLOB, "", BINARY | 64), "x": cell(BLOB, "", 64), "n": cell(INT, 1, 1),
        "u": cell(INT, 1, BINARY | UNSIGNED | 64), "d": cell(10, None, BINARY | 64), "k": cell(INT, 1, BINARY | 16),
    }  # fmt: skip
    mysql, ticdc = open_message(open_row({"u": RAW})), open_message(open_row({"u": columns}))

    assert Captured.of(mysql).schema() == Captured.of(ticdc).schema() == Captured.of(mysql, ticdc).schema()
    decoded = rows(mysql, ticdc)
    assert {name: decoded[0][name] for name in RAW} == RAW_VALUES


def test_flags_of_mysql_in_an_old_row_alone_do_no_harm() -> None:
    """v8.5.4 and v8.5.5 write them in `p` (docs/wire.md, item 103): `u` says what a column is."""
    new = {
        "id": cell(8, 1, HANDLE | UNSIGNED, h=True),
        "v": cell(VARCHAR, r"\xff", BINARY | 64),
        "s": cell(15, "a", 64),
    }
    old = {"v": cell(VARCHAR, r"\xfe", BINARY_), "s": cell(VARCHAR, r"\b", NOT_NULL | NO_DEFAULT)}

    decoded = rows(open_message(open_row({"u": new, "p": old})))

    assert [(row["id"], row["v"], row["s"]) for row in decoded] == [
        (Decimal(1), b"\xfe", r"\b"),
        (Decimal(1), b"\xff", "a"),
    ]


def test_times_without_their_fraction_are_times() -> None:
    """v8.5.4 and v8.5.5 drop the fraction (docs/wire.md, item 106): whole seconds are left."""
    messages = [open_message(open_row({"u": {"c": cell(11, text, 65)}})) for text in ("-01:02:03", "01:02:03.5")]

    assert [row["c"].total_seconds() for row in rows(*messages)] == [-3723.0, 3723.5]


@pytest.mark.parametrize(("message", "reason"), [
    ((None, b"{}"), "no key"),
    ((b"", b""), "empty"),
    (((2).to_bytes(8, "big"), b""), "0000000000000002"),
    (((1).to_bytes(8, "big") + b"\0\0\0", b""), "inside a frame's length"),
    (((1).to_bytes(8, "big") + framed(b"{}")[:-1], b""), "2 bytes where 1 are left"),
    ((open_message(open_row({"u": {}}))[0], framed(b"{}{}")[:-3]), "cut short"),
    ((open_message(open_row({"u": {}}))[0], b""), "1 event in the key, 0 in the value"),
    ((open_message(open_row({"u": {}}))[0], None), "1 event in the key, 0 in the value"),
    (((1).to_bytes(8, "big"), framed(b"{}")), "a key without events"),
    (((1).to_bytes(8, "big") + (2**63).to_bytes(8, "big"), b""), "9223372036854775808 bytes"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_frames_that_do_not_add_up(message: Message, reason: str) -> None:
    """Broken framing is a FramingError that says what is wrong, and where."""
    with pytest.raises(FramingError, match=reason) as raised:
        rows(message, protocol="open-protocol")

    assert astuple(raised.value.address)[:3] == ("captured", 0, 0)


@pytest.mark.parametrize(("event", "reason"), [
    (open_row({"u": {"id": cell(INT, 1)}}, ohk=True), "handle-key-only"),
    (open_row({"u": {"id": cell(INT, 1)}}, ohk=True, ccl="file:///x.json"), "claim-check"),
    (open_row({"u": {"id": cell(INT, 1)}, "p": {"t": 3, "f": 65, "v": 7}}), "fit no column that became NULL"),
    (open_row({"u": {"id": cell(INT, 1)}, "p": {"x": 7}}), "a member 'x' of 'p' that is not a column"),
    (open_row({"p": {"id": cell(INT, 1)}}), "without a new one"),
    (open_row(b"\x04\x22\x4d\x18abc"), "looks compressed"),
    (open_row({"u": {"id": {"t": 3, "f": 0}}}), "no member 'v'"),
])  # fmt: skip
def test_events_that_cannot_be_read_say_why(event: tuple[dict[str, Any], Any], reason: str) -> None:
    """The error names the cause and the address."""
    good = open_message(open_row({"u": {"id": cell(INT, 1)}}))

    with pytest.raises(DecodeError, match=reason) as raised:
        rows(good, open_message(event))

    assert raised.value.address.offset == 1
    assert raised.value.address.table == "test.t"


def test_an_unknown_type_code_is_an_error_that_names_the_column() -> None:
    """GEOMETRY (255) is not a type of TiDB: an UnsupportedTypeError, unless a hint asks for text."""
    with pytest.raises(UnsupportedTypeError, match=r"Column c of test\.t: type type code 255 .*schemaHints"):
        one_value(255, "POINT(1 1)")

    assert one_value(255, "POINT(1 1)", schemaHints="c string") == "POINT(1 1)"


def test_a_column_that_the_schema_lacks_is_an_error_or_left_out() -> None:
    """By default, a new column fails the read, and the error says what to do; `ignore` leaves the column out."""
    old, new = (open_message(open_row({"u": columns})) for columns in (
        {"id": cell(INT, 1)}, {"id": cell(INT, 2), "added": cell(INT, 3)}))  # fmt: skip
    schema = Captured.of(old).schema()

    with pytest.raises(SchemaError, match=r"lacks: added int.*offset=1"):
        Captured.of(old, new).read(schema=schema)

    ignored = Captured.of(old, new).read(schema=schema, onSchemaDrift="ignore").to_pylist()
    assert [row["id"] for row in ignored] == [1, 2]


@pytest.mark.parametrize(
    "described", [{"f": 64.0}, {"f": True}, {"t": 3.0}, {"t": True}, {"t": None}, {"h": 1}, {"f": "64"}], ids=str
)
def test_types_and_flags_are_json_integers(described: dict[str, Any]) -> None:
    """A column whose type, flags or mark is of another JSON type is a bad record that names the column."""
    message = open_message(open_row({"u": {"id": cell(3, 1, 11), "c": {**cell(3, 5, 64), **described}}}))
    good = open_message(open_row({"u": {"id": cell(3, 1, 11), "c": cell(3, 5, 64)}}))
    schema = Captured.of(good).schema(mode="PERMISSIVE")

    table = Captured.of(good, message).read(schema=schema, mode="PERMISSIVE")

    assert table["c"].to_pylist() == [5, None]
    assert "not an open-protocol row: column 'c' has " in table["_corrupt_record"].to_pylist()[1]


@pytest.mark.parametrize("described", [{"f": 64 | 1 << 64}, {"t": 3 | 1 << 64}], ids=str)
def test_a_number_beyond_64_bits_describes_no_column_whatever_stands_beside_it(described: dict[str, Any]) -> None:
    """Such a number is a float unless another message, here with 6.0 for an integer, asks for all digits."""
    bad = open_message(open_row({"u": {"id": cell(3, 1, 11), "c": {**cell(3, 5, 64), **described}}}))
    good = open_message(open_row({"u": {"id": cell(3, 1, 11), "c": cell(3, 5, 64)}}))
    beside = open_message(open_row({"u": {"id": cell(3, 1, 11), "c": cell(3, 6.0, 64)}}))
    schema = Captured.of(good).schema(mode="PERMISSIVE")

    table = Captured.of(good, bad, beside).read(schema=schema, mode="PERMISSIVE")

    assert table["c"].to_pylist()[:2] == [5, None]
    assert "not an open-protocol row: column 'c' has " in table["_corrupt_record"].to_pylist()[1]
