"""canal-json: messages and types that the corpus does not show."""

import datetime
import json
import random
import re
import warnings
from decimal import Decimal
from typing import Any

import pytest

from tests.support.captured import Captured, make_options, rows
from tests.support.messages import TSO, Message, canal, dump
from ticdc_source.errors import DecodeError, SchemaError, UnsupportedTypeError
from ticdc_source.protocols import decoder_of
from ticdc_source.protocols.events import TableEvents
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import Chunk

ID = {"id": "int"}


def one_value(mysql_type: str, value: str | None, sql_type: int = 12, **options: str) -> Any:
    message = canal("INSERT", [{"id": "1", "c": value}], None, {**ID, "c": mysql_type}, {"id": 4, "c": sql_type})
    return rows(message, **options)[0]["c"]


@pytest.mark.parametrize(("mysql_type", "sql_type", "value", "expected"), [
    ("tinyint unsigned", 5, "200", 200),
    ("int(8) unsigned zerofill", -5, "4294967295", 4294967295),
    ("bigint unsigned", 3, "18446744073709551615", Decimal(2**64 - 1)),
    ("decimal(10,4)", 3, "1.5000", Decimal("1.5000")),
    ("decimal(10, 4)", 3, "1.5000", Decimal("1.5000")),
    ("float(10,3)", 7, "0.125", 0.125),
    ("double", 8, "100000000000000000000000", 1e23),
    ("bit", -7, "18446744073709551615", -1),
    ("bit(1)", -7, "1", True),
    ("year(4)", 12, "0", 0),
    ("binary(3)", 2004, "a\x00ÿ", b"a\x00\xff"),
    ("blob", 2004, "".join(map(chr, range(256))), bytes(range(256))),
    ("text", 2005, "é", "é"),
    ("text", 2004, "é", b"\xe9"),
    ("enum('binary','x')", 4, "1", "binary"),
    ("enum('a','b')", 4, "0", ""),
    ("enum", 4, "2", 2),
    ("set('a','it''s','é')", -7, "6", "it's,é"),
    ("set", -7, "9223372036854775808", Decimal(2**63)),
    ("timestamp", 93, "2024-05-06 07:08:09.123456",
     datetime.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=datetime.timezone.utc)),
    ("time(3)", 92, "-100:00:00.500", -datetime.timedelta(hours=100, milliseconds=500)),
    ("var_string", 12, "x", "x"),
    ("vector(2)", 12, "[1,2.5]", [1.0, 2.5]),
])  # fmt: skip
def test_types(mysql_type: str, sql_type: int, value: str, expected: Any) -> None:
    """Each `mysqlType`, bare or full, gives the value that TiDB has, in the type of the type table."""
    assert one_value(mysql_type, value, sql_type) == expected


def test_an_update_without_old_has_no_preimage() -> None:
    """With `old: null` the old row of an UPDATE is unknown: only the new one is read."""
    assert [row["_change_type"] for row in rows(canal("UPDATE", [{"id": "1"}], None, ID))] == ["update_postimage"]


def test_without_the_extension_the_version_is_a_lower_bound() -> None:
    """Without `_tidb` the commit version is the event's time in ms, as a TSO."""
    row = rows(canal("INSERT", [{"id": "1"}], None, ID))[0]

    assert row["_commit_version"] == TSO >> 18 << 18
    assert row["_commit_timestamp"] == datetime.datetime.fromtimestamp((TSO >> 18) / 1000, datetime.timezone.utc)


@pytest.mark.parametrize("extension", [{}, None, {"commitTs": TSO, "rowkey": "AAE=", "originTs": 7}])
def test_unknown_and_missing_members_of_the_extension_are_no_error(extension: Any) -> None:
    """`_tidb` may be empty, null, or hold members of other releases."""
    row = rows(canal("INSERT", [{"id": "1"}], None, ID, _tidb=extension))[0]

    assert row["_commit_version"] == (TSO if extension else TSO >> 18 << 18)


def test_escaped_names_are_the_same_table() -> None:
    """A name with JSON escapes is parsed and found to be the same table."""
    plain = canal("INSERT", [{"id": "1"}], None, ID, table="tä")
    escaped = (b"", (canal("INSERT", [{"id": "2"}], None, ID, table="@")[1] or b"").replace(b"@", b"t\\u00e4"))

    assert [row["id"] for row in rows(plain, escaped)] == [1, 2]


@pytest.mark.parametrize(("message", "reason"), [
    ((b"", b"\xff\xfe garbage"), "does not begin like JSON"),
    (canal("MERGE", [{"id": "1"}], None, ID), "message type 'MERGE'"),
    (canal("INSERT", None, None, ID), "without 'data'"),
    (canal("INSERT", [{"id": "1"}], None, ID, _tidb={"commitTs": TSO, "onlyHandleKey": True}), "handle-key-only"),
    (canal("INSERT", [{"id": "1"}], None, ID, _tidb={"commitTs": TSO, "claimCheckLocation": "f"}), "claim-check"),
    (canal("INSERT", [{"id": "x"}], None, ID), "not an integer"),
    (canal("INSERT", [{"id": "99999999999"}], None, ID), 'schemaHints="id string"'),
    (canal("INSERT", [{"id": 5}], None, ID), "JSON number where a string is expected"),
])  # fmt: skip
def test_messages_that_cannot_be_read_say_why(message: Message, reason: str) -> None:
    """The error of a bad message has the reason and the offset; PERMISSIVE keeps the message as a row of its own."""
    good = canal("INSERT", [{"id": "1"}], None, ID)

    with pytest.raises(DecodeError, match=reason) as raised:
        rows(good, message, protocol="canal-json")
    assert raised.value.address.offset == 1

    kept = rows(good, message, good, protocol="canal-json", mode="PERMISSIVE")
    assert [row["id"] for row in kept] == [1, None, 1]
    assert json.loads(kept[1]["_corrupt_record"])["offset"] == 1
    assert len(rows(good, message, protocol="canal-json", mode="DROPMALFORMED")) == 1


def test_an_unknown_type_is_an_error_that_names_the_column() -> None:
    """The error names a `mysqlType` that the type table lacks; a hint can ask for its text."""
    with pytest.raises(UnsupportedTypeError, match=r"Column c of test\.t: type geometry"):
        one_value("geometry", "x")

    assert one_value("geometry", "x", schemaHints="c string") == "x"


def test_decimals_without_precision_have_the_sampled_scale() -> None:
    """It is decimal(38,s), or text if 38 digits are too few; `unspecifiedDecimal` and hints override that."""
    with pytest.warns(UserWarning, match="only NULLs"):
        assert one_value("decimal", None) is None
    assert one_value("decimal", "12.3400") == Decimal("12.3400")
    with pytest.warns(UserWarning, match="38 digits"):
        assert one_value("decimal", "9" * 30 + "." + "9" * 20) == "9" * 30 + "." + "9" * 20
    assert one_value("decimal", "12.34", unspecifiedDecimal="string") == "12.34"
    assert one_value("decimal", "12.34", unspecifiedDecimal="decimal(20,4)") == Decimal("12.3400")
    with pytest.raises(DecodeError, match="column=c"):
        one_value("decimal", "12.345", schemaHints="c decimal(10,2)")


def coded(value: str, code: int, **options: str) -> Any:
    """Read one value of a column of which the message has the `sqlType` only."""
    message = canal("INSERT", [{"id": "1", "c": value}], None, ID, {"id": 4, "c": code})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rows(message, **options)[0]["c"]


@pytest.mark.parametrize(("code", "value", "hint", "expected"), [
    (-7, "1", "boolean", True),
    (-5, "1", "boolean", True),
    (12, "2024", "bigint", 2024),
    (12, "2024", "smallint", 2024),
    (12, "2024-01-02", "date", datetime.date(2024, 1, 2)),
    (1, "7", "int", 7),
    (3, "1.50", "double", 1.5),
    (7, "1.5", "decimal(10,2)", Decimal("1.50")),
    (8, "1.5", "decimal(10,2)", Decimal("1.50")),
    (8, "1.1", "float", pytest.approx(1.1)),
    (93, "2024-01-02 00:00:00", "timestamp", datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc)),
])  # fmt: skip
def test_a_hint_reads_the_text_of_a_column_without_mysqltype(code: int, value: str, hint: str, expected: Any) -> None:
    """A hint may ask for any type that the `sqlType` may stand for, or that the text of the value is."""
    assert coded(value, code, schemaHints=f"c {hint}", timeZone="UTC") == expected


@pytest.mark.parametrize(("code", "value", "hint"), [(8, "1.23456789012", "float"), (3, "0." + "1" * 20, "double")])
def test_a_hint_does_not_round_the_text_of_a_column_without_mysqltype(code: int, value: str, hint: str) -> None:
    """A text with more digits than the float of the hint holds is an error."""
    with pytest.raises(DecodeError, match="cannot hold all of its digits"):
        coded(value, code, schemaHints=f"c {hint}")


def test_a_refused_hint_names_no_type_that_the_message_does_not_say() -> None:
    """The error lists the types that the `sqlType` may stand for."""
    with pytest.raises(SchemaError, match=r"test\.t: int or bigint, signed or unsigned cannot be read as date without"):
        coded("1", -5, schemaHints="c date")


@pytest.mark.parametrize(("code", "value", "declared"), [
    (12, "b", "varbinary(3)"), (1, "b", "binary(1)"), (2005, "b", "blob"), (2004, "Ã©", "varchar(3)"),
])  # fmt: skip
def test_table_ddl_does_not_contradict_the_sqltype_of_binary(code: int, value: str, declared: str) -> None:
    """`sqlType` 2004 marks exactly the binary columns, so `tableDDL` cannot make text of them, or binary of others."""
    statement = f"create table t (id int, c {declared})"
    for output in ("changelog", "event"):
        with pytest.raises(SchemaError, match="which does not fit"):
            Captured.of(canal("INSERT", [{"id": "1", "c": value}], None, ID, {"id": 4, "c": code})).read(
                tableDDL=statement, outputFormat=output
            )


def test_a_message_that_breaks_half_way_gives_none_of_its_rows() -> None:
    """A message with two rows and one old row is bad as a whole: none of its rows is read."""
    types = {"id": "int"}
    broken = canal("UPDATE", [{"id": "1"}, {"id": "2"}], [{"id": "3"}], types)
    also_broken = canal("INSERT", [{"id": "1"}, 7], None, types)

    decoded = rows(broken, also_broken, canal("INSERT", [{"id": "9"}], None, types), mode="PERMISSIVE")

    assert [(row["id"], row["_corrupt_record"] is None) for row in decoded] == [(None, False), (None, False), (9, True)]


@pytest.mark.parametrize("data", [["id"], "1", [7]])
def test_a_message_without_rows_is_bad_if_its_operation_is_not_wanted_too(data: Any) -> None:
    """What is no row is a bad record, also of an operation that `operations` leaves out."""
    types = {"id": "int"}
    messages = [canal("INSERT", [{"id": "1"}], None, types), canal("INSERT", data, None, types)]

    (bad,) = rows(*messages, mode="PERMISSIVE", operations="delete")

    assert json.loads(bad["_corrupt_record"])["offset"] == 1


@pytest.mark.parametrize("member", ["ts", "es"])
def test_a_time_that_is_no_number_is_bad(member: str) -> None:
    """`true` is no time, though Python takes it for 1."""
    good = canal("INSERT", [{"id": "1"}], None, {"id": "int"})
    broken = dump({**json.loads(good[1] or b""), member: True, "_tidb": None})

    _, bad = rows(good, (good[0], broken), mode="PERMISSIVE")

    assert "a time True" in json.loads(bad["_corrupt_record"])["reason"]


@pytest.mark.parametrize("names", [("İ", "i̇"), ("ÀB", "àb"), ("K", "k")])
def test_columns_that_spark_cannot_tell_apart_are_refused(names: tuple[str, str]) -> None:
    """They are two columns for TiDB or for the message; one of them would be lost in silence."""
    both = canal("INSERT", [{"id": "1", names[0]: "2", names[1]: "3"}], None, dict.fromkeys(("id", *names), "int"))
    one = canal("INSERT", [{"id": "1", names[0]: "2"}], None, dict.fromkeys(("id", names[0]), "int"))

    with pytest.raises(SchemaError, match=f"Columns {names[0]} and {names[1]} of test.t: Spark compares") as raised:
        Captured.of(one, both).schema()
    assert "offset=1" in str(raised.value)
    with pytest.raises(SchemaError, match=f"Columns {names[0]} and {names[1]}"):
        Captured.of(both).read(schema=Captured.of(one).schema())
    assert json.loads(Captured.of(both).read(outputFormat="event").to_pylist()[0]["after"])[names[1]] == 3


@pytest.mark.parametrize("seed", range(20))
def test_a_commit_ts_is_found_wherever_the_extension_is(seed: int) -> None:
    """The short way, for messages that end with the commit-ts, finds what the search finds."""
    chance = random.Random(seed)
    last = b'{"a":1,"_tidb":{"commitTs":470613400855543808}}'
    others = [
        b'{"_tidb":{"commitTs":470613400855543808,"x":1}}',
        b'{"_tidb":{"commitTs":070613400855543808}}',
        b'{"_tidb":{"commitTs":4706134008555438081}}',
        b'{"_tidb":{"commitTs":47061340085554380}}',
        b'{"_tidb":{"commitTs":4706134\xff0855543808}}',
        b'{"_tidb":{"commitTs":47061340085554\n808}}',
        last + b" ",
        b"x" * 600 + last,
        b"{}",
        b"",
    ]
    for _ in range(50):
        payloads = [chance.choice(others) if chance.random() < 0.2 else last for _ in range(chance.randrange(1, 6))]
        events = TableEvents(Chunk("t", 0), TableName("shop", "a"), payloads=payloads)
        searched = [re.search(rb'"_tidb":\{"commitTs":([1-9]\d{0,17})[,}]', payload[-512:]) for payload in payloads]

        found = decoder_of("canal-json", make_options()).commit_versions(events).to_pylist()

        assert found == [None if match is None else int(match[1]) for match in searched]
