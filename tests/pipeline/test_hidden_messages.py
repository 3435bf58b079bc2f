"""A message of another form among forty alike: the native path gives the rows and errors of nativeCode=off."""

import json
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from tests.support.captured import Captured, make_options, whole
from tests.support.messages import TSO, Message, canal, cell, debezium, debezium_ddl, dump, open_message, open_row
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadState, read_spec

pytestmark = pytest.mark.usefixtures("native_path")

ALIKE = 40
OPTIONS = {"mode": "PERMISSIVE", "onSchemaDrift": "rescue", "includeMetadata": "all", "tables": "test.t"}
FIELDS = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "a"},
    {"type": "bytes", "optional": True, "field": "b"},
]
TYPES, CODES = {"id": "bigint", "a": "varchar", "b": "blob"}, {"id": -5, "a": 12, "b": 2004}


def _canal(number: int, kind: str = "INSERT", old: object = None, **more: object) -> Message:
    row = {"id": str(number), "a": "text é", "b": "\x01ÿ"}
    given = {"data": [row], "old": old, "_tidb": {"commitTs": TSO + number}, **more}
    return canal(kind, mysql_type=TYPES, sql_type=CODES, **given)


def _debezium(number: int, op: str = "c", before: object = None, **more: object) -> Message:
    after = {"id": number, "a": "text é", "b": "Af8=", **more}
    return debezium(op, before, after, FIELDS, {"commit_ts": TSO + number})


def _open(number: int, **more: object) -> Message:
    return open_message(open_row(_open_body(number, **more), ts=TSO + number))


def _open_body(number: int, **more: object) -> dict[str, object]:
    return {"u": {"id": cell(8, number, 11), "a": cell(15, "text é", 64), "b": cell(252, "Af8=", 65)}, **more}


def _changed(message: Message, old: bytes, new: bytes) -> Message:
    key, value = message
    assert value is not None
    assert old in value
    return key, value.replace(old, new, 1)


def _cut(message: Message) -> Message:
    return message[0], (message[1] or b"")[:-9]


def _in_frame(number: int, body: bytes) -> Message:
    return open_message(open_row(body, ts=TSO + number))


MESSAGES: dict[str, Callable[[int], Message]] = {"canal-json": _canal, "debezium": _debezium, "open-protocol": _open}
OLD_ROW = {"id": "1", "a": "old", "b": None}
HIDDEN: dict[str, dict[str, Message]] = {
    "canal-json": {
        "one more column": canal(
            "INSERT", [{"id": "9", "a": "x", "b": "y", "c": "z"}], None, {**TYPES, "c": "int"}, {**CODES, "c": 4}
        ),
        "one column less": canal("INSERT", [{"id": "9", "a": "x"}], None, {"id": "bigint", "a": "varchar"}, CODES),
        "an escaped name": _changed(_canal(9), b'"a":"text', b'"\\u0061":"text'),
        "another order": _canal(9, data=[{"a": "x", "id": "9", "b": "y"}]),
        "DDL": canal("ALTER", None, None, isDdl=True, sql="ALTER TABLE t ADD c INT", pkNames=None),
        "a watermark": canal("TIDB_WATERMARK", None, None, database="", table="", _tidb={"watermarkTs": TSO}),
        "bad JSON": _cut(_canal(9)),
        "no value": (b"", None),
        "a claim check": _canal(9, _tidb={"commitTs": TSO, "claimCheckLocation": "file:///nowhere/1.json"}),
        "key columns only": _canal(9, data=[{"id": "9"}], _tidb={"commitTs": TSO, "onlyHandleKey": True}),
        "another sqlType": _changed(_canal(9), b'"a":12', b'"a":2004'),
        "a text that is no such binary": _canal(9, data=[{**OLD_ROW, "b": "測"}]),
        "an old row with fewer columns": _canal(9, "UPDATE", [{"a": "old"}]),
        "an old row": _canal(9, "UPDATE", [OLD_ROW]),
        "an old row with one more column": _canal(9, "UPDATE", [{**OLD_ROW, "c": "x"}]),
        "two rows": _canal(9, data=[OLD_ROW, OLD_ROW]),
        "a number that does not fit": _canal(9, data=[{**OLD_ROW, "id": "9223372036854775808"}]),
        "bytes that are not UTF-8": _changed(_canal(9), "é".encode(), b"\xff"),
        "no commit-ts": _changed(_canal(9), b',"_tidb"', b',"x"'),
    },
    "debezium": {
        "one more column": debezium(
            "c", None, {"id": 9, "a": "x", "b": None, "c": 1}, [*FIELDS, {**FIELDS[0], "field": "c"}]
        ),
        "one column less": debezium("c", None, {"id": 9, "a": "x"}, FIELDS[:2]),
        "an escaped name": _changed(_debezium(9), b'"a":"text', b'"\\u0061":"text'),
        "another order": debezium("c", None, {"a": "x", "id": 9, "b": None}, FIELDS),
        "DDL": debezium_ddl(TSO, "ALTER TABLE t ADD c INT", []),
        "a watermark": debezium("m", None, None, FIELDS),
        "bad JSON": _cut(_debezium(9)),
        "no value": (b"{}", None),
        "another type": debezium("c", None, {"id": 9, "a": 7, "b": None}, [FIELDS[0], {**FIELDS[0], "field": "a"}]),
        "an old row with fewer columns": _debezium(9, "u", {"id": 9}),
        "an old row": _debezium(9, "u", {"id": 9, "a": None, "b": ""}),
        "a delete": debezium("d", {"id": 9, "a": "gone", "b": None}, None, FIELDS),
        "an unknown op": _changed(_debezium(9), b'"op":"c"', b'"op":"x"'),
        "a number that does not fit": _changed(_debezium(9), b'"id":9,', b'"id":9223372036854775808,'),
        "bytes that are not UTF-8": _changed(_debezium(9), "é".encode(), b"\xff"),
        "another cluster": debezium("c", None, {"id": 9, "a": "x", "b": None}, FIELDS, {"cluster_id": "other"}),
        "no schema": debezium("c", None, {"id": 9, "a": "x", "b": None}),
    },
    "open-protocol": {
        "one more column": _in_frame(9, dump({"u": {**_open_body(9)["u"], "c": cell(3, 1, 65)}})),  # type: ignore[dict-item]
        "one column less": _in_frame(9, dump({"u": {"id": cell(8, 9, 11), "a": cell(15, "x", 64)}})),
        "an escaped name": _in_frame(9, dump(_open_body(9)).replace(b'"a"', b'"\\u0061"')),
        "DDL": open_message(({"ts": TSO, "scm": "test", "tbl": "t", "t": 2}, {"q": "ALTER TABLE t ADD c INT", "t": 5})),
        "a watermark": open_message(({"ts": TSO, "t": 3}, b"")),
        "bad JSON": _in_frame(9, dump(_open_body(9))[:-9]),
        "no value": (b"", None),
        "a cut frame": _cut(_open(9)),
        "a claim check": open_message(open_row({}, ccl="file:///nowhere/1.json")),
        "key columns only": open_message(open_row({"u": {"id": cell(8, 9, 11)}}, ohk=True)),
        "other flags": _in_frame(9, dump(_open_body(9)).replace(b'"f":64', b'"f":65')),
        "an old row with fewer columns": _open(9, p={"a": cell(15, "old", 64)}),
        "an old row": _open(9, p=_open_body(8)["u"]),
        "a delete": _in_frame(9, dump(_open_body(9)).replace(b'{"u"', b'{"d"')),
        "a number that does not fit": _in_frame(9, dump(_open_body(9)).replace(b'"v":9', b'"v":9223372036854775808')),
        "bytes that are not UTF-8": _in_frame(9, dump(_open_body(9)).replace("é".encode(), b"\xff")),
        "many events": open_message(*(open_row(_open_body(number), ts=TSO + number) for number in range(3))),
    },
}


def outcome(messages: Sequence[Message], schema: pa.Schema, given: dict[str, str]) -> tuple[pa.Table | str, int]:
    """Read messages in one chunk; return the rows or the error, and how many rows native code read."""
    captured, options = Captured.of(*messages), make_options(**given)
    spec = read_spec(schema, options, captured.context(schema, options))
    state = ReadState.of(spec)
    try:
        batches = list(read(captured.fetch(captured.ranges()[0], whole), spec, state))
    except TiCDCSourceError as error:
        return f"{type(error).__name__}: {error}", 0
    return pa.Table.from_batches(batches, schema), state.counters.native


# Positions of a message among the others: both ends, and where a template is learned already.
POSITIONS = (0, 1, ALIKE // 2, ALIKE)


@pytest.mark.parametrize(
    ("protocol", "name"), [(protocol, name) for protocol, hidden in HIDDEN.items() for name in hidden]
)
def test_one_message_of_another_form_changes_no_other(protocol: str, name: str) -> None:
    """At the ends of a chunk and within, a message of another form gives the rows and errors of nativeCode=off."""
    alike = [MESSAGES[protocol](number) for number in range(ALIKE)]
    schema = Captured.of(*alike).schema(**OPTIONS)

    for position in POSITIONS:
        messages = [*alike[:position], HIDDEN[protocol][name], *alike[position:]]
        found, in_native = outcome(messages, schema, OPTIONS)
        expected, in_general = outcome(messages, schema, {**OPTIONS, "nativeCode": "off"})
        assert found == expected, position
        assert in_native >= ALIKE - 4
        assert in_general == 0


@pytest.mark.parametrize(
    "name", ["bad JSON", "an escaped name", "an old row with fewer columns", "other flags", "a delete"]
)
def test_one_event_of_another_form_changes_no_other_of_its_message(name: str) -> None:
    """The same holds for an event among forty in one message."""
    bodies = [dump(_open_body(number)) for number in range(ALIKE)]
    hidden = (HIDDEN["open-protocol"][name][1] or b"")[8:]
    schema = Captured.of(_open(1)).schema(**OPTIONS)

    for position in POSITIONS:
        message = open_message(*map(open_row, [*bodies[:position], hidden, *bodies[position:]]))
        found, in_native = outcome([message], schema, OPTIONS)
        assert found == outcome([message], schema, {**OPTIONS, "nativeCode": "off"})[0], position
        assert in_native >= ALIKE - 4


def test_numbers_beyond_64_bits_keep_their_digits() -> None:
    """A JSON number of more than 64 bits is what it says on both paths, or a bad record if 20 digits do not hold it."""
    numbers = [*range(ALIKE), (1 << 64) - 1, 1 << 64, -(1 << 63) - 1, 10**19, 10**20 - 1, 10**20]
    messages = [open_message(open_row({"u": {"id": cell(8, 1, 11), "n": cell(8, number, 193)}})) for number in numbers]
    schema = Captured.of(messages[0]).schema(mode="PERMISSIVE")

    found, in_native = outcome(messages, schema, {"mode": "PERMISSIVE"})

    assert isinstance(found, pa.Table)
    assert found == outcome(messages, schema, {"mode": "PERMISSIVE", "nativeCode": "off"})[0]
    assert in_native >= ALIKE - 2
    bad = [number for number, row in zip(numbers, found.to_pylist(), strict=True) if row["_corrupt_record"] is not None]
    assert bad == [10**20]


def test_bytes_behind_texts_are_rescued() -> None:
    """Binary read as string: bytes that are not UTF-8 are counted and rescued as with nativeCode=off."""
    given = {**OPTIONS, "schemaHints": "b string"}
    alike = [_canal(number, data=[{"id": "1", "a": "x", "b": "plain"}]) for number in range(ALIKE)]
    messages = [*alike, _canal(1), *alike, _canal(2)]
    schema = Captured.of(*messages).schema(**given)

    found, in_native = outcome(messages, schema, given)

    assert isinstance(found, pa.Table)
    assert found == outcome(messages, schema, {**given, "nativeCode": "off"})[0]
    assert in_native >= ALIKE
    rescued = [json.loads(each) for each in found["_rescued_data"].to_pylist() if each is not None]
    assert rescued == [{"b": {"base64": "Af8="}}] * 2
