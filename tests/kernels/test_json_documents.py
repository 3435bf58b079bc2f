"""JSON documents: one writer for `outputFormat=event` and for the rescued column."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, load
from tests.support.messages import canal, cell, open_message, open_row
from ticdc_source.kernels.json_documents import json_writer, rescue_writer
from ticdc_source.kernels.wire import Settings
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.schema.change_order import SEQUENCE
from ticdc_source.schema.model import PROTOCOL, TABLE
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import TYPES, ColumnType, parse_type

OPEN, CANAL, DEBEZIUM, SIMPLE = "open-protocol", "canal-json", "debezium", "simple"

# A type, its value as each protocol writes it, and the JSON that stands for it.
FORMS: list[tuple[str, Mapping[str, Any], str]] = [
    *((name, {OPEN: 42, CANAL: "42", DEBEZIUM: 42}, "42") for name in ("tinyint", "smallint", "mediumint", "int")),
    ("bigint", {OPEN: -(2**63), CANAL: str(-(2**63)), DEBEZIUM: -(2**63)}, str(-(2**63))),
    ("bigint unsigned", {OPEN: 2**64 - 1, CANAL: str(2**64 - 1), DEBEZIUM: -1}, str(2**64 - 1)),
    ("int(5) unsigned zerofill", {OPEN: 42, CANAL: "00042", DEBEZIUM: 42}, "42"),
    ("decimal(10,2)", {OPEN: "-0.50", CANAL: "-0.50", DEBEZIUM: -0.5}, "-0.50"),
    ("decimal(10,2) unsigned", {CANAL: "00000012.50", DEBEZIUM: 12.5}, "12.50"),
    ("decimal(60,10)", {OPEN: "9" * 50 + ".5000000000", CANAL: "9" * 50 + ".5000000000"}, "9" * 50 + ".5000000000"),
    ("year", {OPEN: 0, CANAL: "0", DEBEZIUM: 0}, "0"),
    ("year", {OPEN: 2155, CANAL: "2155", DEBEZIUM: 2155}, "2155"),
    ("float", {OPEN: 1.5, CANAL: "1.5", DEBEZIUM: 1.5}, "1.5"),
    ("double", {OPEN: 1e21, DEBEZIUM: 1e21}, "1" + "0" * 21),
    ("double", {CANAL: "1e+21"}, "1e+21"),
    ("bit(1)", {OPEN: 1, CANAL: "1", DEBEZIUM: True}, "1"),
    ("bit(9)", {OPEN: 257, CANAL: "257", DEBEZIUM: "AQE="}, "257"),
    ("date", {OPEN: "0000-00-00", CANAL: "0000-00-00"}, '"0000-00-00"'),
    ("date", {OPEN: "2026-01-02", CANAL: "2026-01-02", DEBEZIUM: 20455}, '"2026-01-02"'),
    ("datetime(3)", {OPEN: "2026-01-02 03:04:05.600", CANAL: "2026-01-02 03:04:05.600", DEBEZIUM: 1767323045600},
     '"2026-01-02 03:04:05.600"'),
    ("timestamp", {OPEN: "2026-01-02 03:04:05", CANAL: "2026-01-02 03:04:05", DEBEZIUM: "2026-01-01T19:04:05Z"},
     '"2026-01-01 19:04:05"'),
    ("time", {OPEN: "-838:59:59", CANAL: "-838:59:59", DEBEZIUM: -3020399000000}, '"-838:59:59"'),
    *((name, {OPEN: 'é"5', CANAL: 'é"5', DEBEZIUM: 'é"5'}, '"é\\"5"') for name in ("char(9)", "varchar(9)")),
    *((name, {OPEN: "NQ==", CANAL: "5", DEBEZIUM: "5"}, '"5"')
      for name in ("tinytext", "text", "mediumtext", "longtext")),
    *((name, {OPEN: "\\x00\\xff", CANAL: "\x00ÿ", DEBEZIUM: "AP8="}, '"AP8="')
      for name in ("binary(2)", "varbinary(2)")),
    *((name, {OPEN: "AP8=", CANAL: "\x00ÿ", DEBEZIUM: "AP8="}, '"AP8="')
      for name in ("tinyblob", "blob", "mediumblob", "longblob")),
    ("enum", {OPEN: 5, CANAL: "5"}, "5"),
    ("enum", {DEBEZIUM: "5"}, '"5"'),
    ("enum('a','5')", {OPEN: 2, CANAL: "2", DEBEZIUM: "5"}, '"5"'),
    ("set", {OPEN: 2**63, CANAL: str(2**63)}, str(2**63)),
    ("set", {DEBEZIUM: "x,y"}, '"x,y"'),
    ("set('x','y')", {OPEN: 3, CANAL: "3", DEBEZIUM: "x,y"}, '"x,y"'),
    ("json", {OPEN: '{"a": 1.0}', CANAL: '{"a": 1.0}', DEBEZIUM: '{"a": 1.0}'}, '"{\\"a\\": 1.0}"'),
    ("vector(2)", {OPEN: "[1,2.5]", CANAL: "[1,2.5]", DEBEZIUM: "[1,2.5]"}, '"[1,2.5]"'),
]  # fmt: skip
# simple writes as canal-json does, but bytes and the zone of a TIMESTAMP.
_IN_SIMPLE = {
    "timestamp": {"location": "Asia/Shanghai", "value": "2026-01-02 03:04:05"},
    **dict.fromkeys(("binary(2)", "varbinary(2)", "tinyblob", "blob", "mediumblob", "longblob"), "AP8="),
}
CASES = [(text, protocol, cells[protocol], written) for text, cells, written in FORMS for protocol in cells]
CASES += [
    (text, SIMPLE, _IN_SIMPLE.get(text, cells[CANAL]), written) for text, cells, written in FORMS if CANAL in cells
]
# avro writes numbers as debezium does, labels too, dates and times as canal-json does, and bytes as they are;
# debezium-avro is debezium.
_BINARIES = ("binary(2)", "varbinary(2)", "tinyblob", "blob", "mediumblob", "longblob")
_IN_AVRO = {
    **dict.fromkeys(_BINARIES, b"\x00\xff"),
    "bit(1)": b"\x01",
    "bit(9)": b"\x01\x01",
    "decimal(60,10)": "9" * 50 + ".5000000000",
}


def _as_avro(text: str, cells: Mapping[str, object]) -> object:
    kind = parse_type(text)
    if kind.family in ("datetime", "timestamp", "time") or kind.name == "decimal":
        return cells.get(CANAL)
    return cells.get(DEBEZIUM)


CASES += [(text, "debezium-avro", cells[DEBEZIUM], written) for text, cells, written in FORMS if DEBEZIUM in cells]
CASES += [
    (text, "avro", value, written)
    for text, cells, written in FORMS
    if (value := _IN_AVRO.get(text, _as_avro(text, cells))) is not None
]
# csv writes as canal-json does, but bytes, and labels.
CASES += [
    (text, "csv", value, written)
    for text, cells, written in FORMS
    if (
        value := _IN_SIMPLE[text] if text in _BINARIES else cells.get(DEBEZIUM if text[:3] in ("enu", "set") else CANAL)
    )
    is not None
]
# TiDB itself sends MySQL's text, TIMESTAMP in UTC, and bytes as they are.
_IN_ROWS = {**_IN_AVRO, "timestamp": "2026-01-01 19:04:05"}
CASES += [
    (text, "mysql-rows", value, written)
    for text, cells, written in FORMS
    if (value := _IN_ROWS.get(text, cells.get(DEBEZIUM if text[:3] in ("enu", "set") else CANAL))) is not None
]
SETTINGS = Settings(time_zone="Asia/Shanghai")


def written_by_both(protocol: str, type_: ColumnType, value: object, settings: Settings = SETTINGS) -> tuple[str, str]:
    wire = PROTOCOLS[protocol].facts.kernels[type_.name]
    (event,), (rescued,) = (make(wire, type_, settings)([value]) for make in (json_writer, rescue_writer))
    return event, rescued


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_value_has_one_form(protocol: str) -> None:
    """Numbers are numbers, TIMESTAMP is in UTC: the protocol and the column of the JSON change nothing."""
    for text, _, value, written in (case for case in CASES if case[1] == protocol):
        assert written_by_both(protocol, parse_type(text), value) == (written, written), text
        assert written_by_both(protocol, parse_type(text), None) == ("null", "null"), text


def test_every_type_has_a_form() -> None:
    """The table above leaves no type and no protocol out."""
    assert {(parse_type(text).name, protocol) for text, protocol, _, _ in CASES} == {
        (name, protocol) for name in TYPES for protocol in PROTOCOLS
    }


def without_ddl(captured: Captured) -> Captured:
    """Leave the DDL out: it tells types of columns, which only inference learns."""
    return replace(
        captured,
        partitions={
            partition: [record for record in records if record.truth["op"] != "ddl"]
            for partition, records in captured.partitions.items()
        },
    )


def origin(row: Mapping[str, Any]) -> tuple[int, int, int]:
    sequence = row["_sequence"]
    return sequence["partition"], sequence["offset"], sequence["index"]


@pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")
@pytest.mark.parametrize(
    ("scenario", "zone"),
    [
        ("open-protocol.default.types", "UTC"),
        ("open-protocol.default.tz-shanghai", "Asia/Shanghai"),
        pytest.param("canal-json.tidb-extension.types", "UTC", marks=pytest.mark.slow("as content-compatible")),
        ("canal-json.content-compatible.types", "UTC"),
        ("canal-json.content-compatible.tz-shanghai", "Asia/Shanghai"),
        pytest.param("debezium.tidb-extension.types", "UTC", marks=pytest.mark.slow("as with disable-schema")),
        ("debezium.disable-schema.types", "UTC"),
    ],
)
def test_a_row_is_rescued_as_it_is_written_in_an_event(scenario: str, zone: str) -> None:
    """For every row image of the corpus, a schema without any of its columns rescues the document of the event."""
    captured = without_ddl(load(scenario))
    documents: dict[TableName, dict[tuple[int, int, int, str], str]] = {}
    for row in captured.read(outputFormat="event", timeZone=zone).to_pylist():
        if row["_event_type"] == "row":
            expected = documents.setdefault(TableName(row["_database"], row["_table"]), {})
            expected |= {(*origin(row), image): row[image] for image in ("before", "after")}
    checked = 0
    for table, expected in documents.items():
        metadata = {TABLE: str(table), PROTOCOL: captured.header["protocol"]}
        schema = pa.schema([
            ("_change_type", pa.string()),
            ("_sequence", SEQUENCE),
            pa.field("in no message", pa.string(), metadata=metadata),
            ("_rescued_data", pa.string()),
        ])  # fmt: skip

        rows = captured.read(schema=schema, onSchemaDrift="rescue", tables=str(table), timeZone=zone).to_pylist()

        for row in rows:
            image = "before" if row["_change_type"] in ("delete", "update_preimage") else "after"
            key = (*origin(row), image)
            assert row["_rescued_data"] == expected[key]
            checked += 1
    assert checked > (300 if "types" in scenario else 20)


@pytest.mark.parametrize(("text", "protocol", "value", "kept"), [
    ("int", OPEN, "x", '"x"'),
    ("int", CANAL, 1.5, "1.5"),
    ("int", CANAL, "0x10", '"0x10"'),
    ("bigint", DEBEZIUM, 2**70, str(2**70)),
    ("decimal(10,2)", DEBEZIUM, [1, "é"], '[1, "é"]'),
    ("timestamp", CANAL, "yesterday", '"yesterday"'),
    ("blob", OPEN, "?", '"?"'),
    ("enum('a')", OPEN, 7, "7"),
    ("enum('a')", CANAL, "7", "7"),
    ("set('a')", CANAL, "2", "2"),
    ("enum('a')", DEBEZIUM, "b", '"b"'),
])  # fmt: skip
def test_what_does_not_fit_its_type_is_rescued_as_it_is(text: str, protocol: str, value: object, kept: str) -> None:
    """Nothing in the rescued column fails, and a number of ENUM or SET without a label stays a number."""
    write = rescue_writer(PROTOCOLS[protocol].facts.kernels[parse_type(text).name], parse_type(text), SETTINGS)

    assert write([value]) == [kept]
    assert write([None, value]) == ["null", kept]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("invalid_utf8", ["replace", "fail"])
@pytest.mark.parametrize("type_", [ColumnType("varchar"), ColumnType("json")])
def test_text_that_is_not_utf8_keeps_its_bytes_when_rescued(
    protocol: str, invalid_utf8: str, type_: ColumnType
) -> None:
    """An event has U+FFFD for each bad byte, or fails; the rescued column has the bytes in both cases."""
    wire, settings = PROTOCOLS[protocol].facts.kernels[type_.name], Settings(invalid_utf8=invalid_utf8)

    assert rescue_writer(wire, type_, settings)(["a\udcff", "b"]) == ['{"base64":"Yf8="}', '"b"']
    if invalid_utf8 == "replace":
        assert json_writer(wire, type_, settings)(["a\udcff"]) == ['"a\ufffd"']
    else:
        with pytest.raises(ValueError, match="not UTF-8"):
            json_writer(wire, type_, settings)(["a\udcff"])


def test_a_value_without_a_type_stays_the_json_that_it_is() -> None:
    """A number beyond a double's range fails in an event, and is a text in the rescued column."""
    values: list[object] = [True, 1, 1.5, "é", None, [1, {"a": None}]]
    event, rescue = (make(None, ColumnType("json"), SETTINGS) for make in (json_writer, rescue_writer))

    assert event(values) == rescue(values) == ["true", "1", "1.5", '"é"', "null", '[1, {"a": null}]']
    with pytest.raises(ValueError, match="JSON compliant"):
        event([float("inf")])
    assert rescue([float("inf"), "\udcff", "\ud800", ["\udcff"]]) == [
        '"inf"', '{"base64":"/w=="}', '{"base64":"7aCA"}', r'["\udcff"]',
    ]  # fmt: skip


@pytest.mark.parametrize("output_format", ["changelog", "envelope"])
def test_year_zero_and_zerofill_are_numbers_when_rescued(output_format: str) -> None:
    """The rescued column of both formats has 0 and 42, not "0000" and "00042"."""
    narrow = canal("INSERT", [{"id": "1"}], None, {"id": "int"})
    wide = canal(
        "INSERT",
        [{"id": "2", "y": "0", "z": "00042"}],
        None,
        {"id": "int", "y": "year", "z": "int(5) unsigned zerofill"},
    )
    schema = Captured.of(narrow).schema(outputFormat=output_format, onSchemaDrift="rescue")

    found = Captured.of(narrow, wide).read(schema=schema, outputFormat=output_format, onSchemaDrift="rescue")

    rescued = json.loads(found.to_pylist()[1]["_rescued_data"])
    assert (rescued if output_format == "changelog" else rescued["after"]) == {"y": 0, "z": 42}


def test_a_value_that_does_not_fit_is_written_by_the_type_that_ddl_tells() -> None:
    """What inference knows of a column, as the labels of an ENUM, holds for its rescued values too."""
    ddl = open_message(({"ts": 1 << 40, "scm": "test", "tbl": "t", "t": 2}, {
        "q": "create table t (id int primary key, e enum('a','b'))", "t": 3,
    }))  # fmt: skip
    rows = [
        open_message(open_row({"u": {"id": cell(3, 1, 11), "e": cell(247, member, 64)}})) for member in (1, 2, 9, "x")
    ]
    captured = Captured.of(ddl, *rows)

    found = captured.read(onSchemaDrift="rescue").to_pylist()

    assert [(row["e"], row["_rescued_data"]) for row in found] == [
        ("a", None), ("b", None), (None, '{"e":9}'), (None, '{"e":"x"}'),
    ]  # fmt: skip
