"""The rescued column holds unknown columns, and values that do not fit the read schema."""

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, make_options, rows, single
from tests.support.messages import TSO, Message, canal, cell, debezium, dump, open_message, open_row
from ticdc_source.errors import DecodeError, OptionError, SchemaError
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadState, read_spec
from ticdc_source.planning.inference import infer_table
from ticdc_source.planning.read_context import context_of_table

pytestmark = pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")

BINARY = b"\x00\xff\xe9"
CODES = {"int": 3, "bigint": 8, "varchar": 15, "decimal": 246, "datetime": 12, "varbinary": 15, "double": 5, "bit": 16}
FIELDS: dict[str, dict[str, Any]] = {
    "int": {"type": "int32"},
    "bigint": {"type": "int64"},
    "varchar": {"type": "string"},
    "decimal": {"type": "double"},
    "datetime": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    "varbinary": {"type": "string", "tidb_type": "varbinary(8)"},
    "double": {"type": "double"},
    "bit": {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "8"}},
}


def message(protocol: str, types: Mapping[str, str], new: Mapping[str, Any], old: Mapping[str, Any] | None) -> Message:
    if protocol == "canal-json":
        data = [{name: None if value is None else str(value) for name, value in new.items()}]
        before = None if old is None else [{name: None if v is None else str(v) for name, v in old.items()}]
        codes = {name: 2004 if type_name == "varbinary" else 12 for name, type_name in types.items()}
        return canal("INSERT" if old is None else "UPDATE", data, before, dict(types), codes)
    if protocol == "open-protocol":
        flags = {name: {"varbinary": 1}.get(type_name, 11 if name == "id" else 64) for name, type_name in types.items()}
        body = {"u": {name: cell(CODES[types[name]], value, flags[name]) for name, value in new.items()}}
        if old is not None:
            body["p"] = {name: cell(CODES[types[name]], value, flags[name]) for name, value in old.items()}
        return open_message(open_row(body))
    fields = [{"optional": True, "field": name, **FIELDS[type_name]} for name, type_name in types.items()]
    return debezium("c" if old is None else "u", None if old is None else dict(old), dict(new), fields, key={"id": 1})


PROTOCOLS = ("open-protocol", "canal-json", "debezium")
NARROW = {"id": "int", "a": "int"}
WIDE = {
    **NARROW, "big": "bigint", "t": "varchar", "d": "decimal", "w": "datetime", "b": "varbinary", "f": "double",
    "n": "bit",
}  # fmt: skip
# The values of the new columns, as each protocol writes them.
ADDED: dict[str, dict[str, Any]] = {
    "open-protocol": {"big": 2**63 - 1, "t": 'é"x', "d": "-12345678901234567890.50", "w": "2026-01-02 03:04:05.600000",
                      "b": "\\x00\\xff\\xe9", "f": 1.5, "n": 5},
    "canal-json": {"big": 2**63 - 1, "t": 'é"x', "d": "-12345678901234567890.50", "w": "2026-01-02 03:04:05.600000",
                   "b": BINARY.decode("latin-1"), "f": "1.5", "n": "5"},
    "debezium": {"big": 2**63 - 1, "t": 'é"x', "d": -12.5, "w": 1767323045600000,
                 "b": base64.b64encode(BINARY).decode(), "f": 1.5, "n": "BQ=="},
}  # fmt: skip
OLD: dict[str, dict[str, Any]] = {name: {**dict.fromkeys(values), "big": 7} for name, values in ADDED.items()}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_columns_that_the_schema_lacks_are_kept_as_json(protocol: str) -> None:
    """Unknown columns are JSON in both row images: numbers keep all digits, and binary values are base64."""
    first = message(protocol, NARROW, {"id": 1, "a": 2}, None)
    later = message(protocol, WIDE, {"id": 1, "a": 3, **ADDED[protocol]}, {"id": 1, "a": 2, **OLD[protocol]})
    schema = Captured.of(first).schema(onSchemaDrift="rescue")

    found = Captured.of(first, later).read(schema=schema, onSchemaDrift="rescue", sizes=single).to_pylist()

    assert schema.names[-1] == "_rescued_data"
    assert [row["_rescued_data"] is None for row in found] == [True, False, False]
    assert [(row["_change_type"], row["a"]) for row in found[1:]] == [("update_preimage", 2), ("update_postimage", 3)]
    before, after = (json.loads(row["_rescued_data"], parse_float=str) for row in found[1:])
    assert before == {**dict.fromkeys(ADDED[protocol]), "big": 7}
    assert after == {
        "big": 2**63 - 1, "t": 'é"x', "d": "-12.5" if protocol == "debezium" else "-12345678901234567890.50",
        "w": "2026-01-02 03:04:05.600000", "b": base64.b64encode(BINARY).decode(), "f": "1.5", "n": 5,
    }  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_value_that_does_not_fit_is_rescued_and_its_cell_is_null(protocol: str) -> None:
    """A value that does not fit its column is NULL there and is rescued, instead of making a bad record."""
    first = message(protocol, {**NARROW, "a": "int"}, {"id": 1, "a": 2}, None)
    later = message(protocol, {**NARROW, "a": "bigint"}, {"id": 2, "a": 1 << 40}, None)
    captured = Captured.of(first, later)
    schema = Captured.of(first).schema(onSchemaDrift="rescue", mode="FAILFAST")

    found = captured.read(schema=schema, onSchemaDrift="rescue").to_pylist()

    assert [(row["id"], row["a"], row["_rescued_data"]) for row in found] == [
        (1, 2, None),
        (2, None, f'{{"a":{1 << 40}}}'),
    ]
    with pytest.raises(DecodeError, match="column=a"):
        captured.read(schema=Captured.of(first).schema())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_column_that_has_become_another_type_is_rescued_whole(protocol: str) -> None:
    """A column whose new type cannot be read as the schema's type is NULL, and its values are rescued."""
    first = message(protocol, NARROW, {"id": 1, "a": 2}, None)
    value = 0 if protocol == "debezium" else "1970-01-01 00:00:00"
    later = message(protocol, {**NARROW, "a": "datetime"}, {"id": 2, "a": value}, None)
    schema = Captured.of(first).schema(onSchemaDrift="rescue")

    row = Captured.of(first, later).read(schema=schema, onSchemaDrift="rescue").to_pylist()[1]

    assert row["a"] is None
    assert json.loads(row["_rescued_data"])["a"].startswith("1970-01-01 00:00:00")
    with pytest.raises(SchemaError, match=r"Column a: .*offset=1 table=test\.t"):
        Captured.of(first, later).read(schema=Captured.of(first).schema())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_key_is_never_rescued(protocol: str) -> None:
    """A key value that does not fit makes a bad record, because a row without its key cannot be applied."""
    first = message(protocol, NARROW, {"id": 1, "a": 2}, None)
    later = message(protocol, {**NARROW, "id": "bigint"}, {"id": 1 << 40, "a": 2}, None)
    schema = Captured.of(first).schema(onSchemaDrift="rescue")

    with pytest.raises(DecodeError, match="column=id"):
        Captured.of(first, later).read(schema=schema, onSchemaDrift="rescue")


INVALID: list[Message] = [
    open_message(open_row(b'{"u":{"id":%b,"x":{"t":15,"f":64,"v":"a\xff"}}}' % dump(cell(3, 1, 11)))),
    open_message(open_row({"u": {"id": cell(3, 1, 11), "x": cell(252, base64.b64encode(b"a\xff").decode(), 64)}})),
    debezium("c", None, {"id": 1, "x": "a?"}, [{"type": "int32", "field": "id"}, {"type": "string", "field": "x"}]),
]
INVALID[2] = INVALID[2][0], (INVALID[2][1] or b"").replace(b'"a?"', b'"a\xff"')


@pytest.mark.parametrize("invalid", INVALID, ids=["open varchar", "open text", "debezium"])
def test_text_that_is_not_utf8_keeps_its_bytes(invalid: Message) -> None:
    """Invalid UTF-8 becomes U+FFFD in its column, and `rescuedDataColumn` alone is enough to keep its bytes."""
    row = rows(invalid, rescuedDataColumn="kept")[0]

    assert row["x"] == "a\ufffd"
    assert json.loads(row["kept"]) == {"x": {"base64": base64.b64encode(b"a\xff").decode()}}


def test_a_replacement_character_that_was_written_is_a_character() -> None:
    """U+FFFD in the message itself, which canal-json writes for invalid UTF-8, is not rescued."""
    row = rows(canal("INSERT", [{"id": "1", "x": "a\ufffd"}], None, {"id": "int", "x": "text"}), rescuedDataColumn="r")

    assert (row[0]["x"], row[0]["r"]) == ("a\ufffd", None)


@pytest.mark.parametrize("invalid", INVALID, ids=["open varchar", "open text", "debezium"])
def test_texts_that_are_not_utf8_are_counted(invalid: Message) -> None:
    """The counter `invalid_utf8` counts values that are not UTF-8, with or without a rescued column."""
    for more in ({}, {"rescuedDataColumn": "kept"}):
        captured, options = Captured.of(invalid, invalid), make_options(**more)
        schema = captured.schema(**more)
        context = captured.context(schema, options)
        state = ReadState()
        list(read(captured.fetch(captured.ranges()[0]), read_spec(schema, options, context), state))

        assert (state.counters.invalid_utf8, state.counters.rescued) == (2, 2 if more else 0)


def test_a_new_column_with_text_that_is_not_utf8_is_base64() -> None:
    """Invalid UTF-8 in an unknown column is a JSON object with base64, so it cannot be mistaken for text."""
    first = open_message(open_row({"u": {"id": cell(3, 1, 11)}}))
    schema = Captured.of(first).schema(onSchemaDrift="rescue")

    row = Captured.of(INVALID[0]).read(schema=schema, onSchemaDrift="rescue").to_pylist()[0]

    assert json.loads(row["_rescued_data"]) == {"x": {"base64": base64.b64encode(b"a\xff").decode()}}


def test_a_rescued_column_alone_does_not_rescue_drift() -> None:
    """Without onSchemaDrift=rescue a new column is an error, or is left out if onSchemaDrift is `ignore`."""
    first, later = (
        canal("INSERT", [row], None, dict.fromkeys(row, "int")) for row in ({"id": "1"}, {"id": "1", "b": "2"})
    )
    schema = Captured.of(first).schema(rescuedDataColumn="r")

    with pytest.raises(SchemaError, match="b int"):
        Captured.of(first, later).read(schema=schema, rescuedDataColumn="r")
    found = Captured.of(first, later).read(schema=schema, rescuedDataColumn="r", onSchemaDrift="ignore").to_pylist()
    assert [row["r"] for row in found] == [None, None]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_columns_that_were_dropped_are_left_out(protocol: str) -> None:
    """If TiDB told the schema, an unknown column is an error in changes that are later than that, and only there."""
    rows = {"id": 1, "a": 7}, {"id": 1, "t": "x", "a": 7}
    narrow, wide = (Captured.of(message(protocol, {name: WIDE[name] for name in row}, row, None)) for row in rows)
    options = make_options(protocol=protocol)
    schema = narrow.schema(protocol=protocol)
    context = narrow.context(schema, options)

    def read_as_of(tso: int) -> list[Any]:
        spec = read_spec(schema, options, replace(context, told_at=tso))
        return [row for batch in read(wide.fetch(wide.ranges()[0]), spec) for row in batch.to_pylist()]

    assert [(row["id"], row["a"]) for row in read_as_of(TSO)] == [(1, 7)]
    with pytest.raises(SchemaError, match="columns that the schema lacks: t"):
        read_as_of(TSO - (1 << 18))


def test_bad_records_have_nothing_rescued() -> None:
    """A bad record is a row of its own, in order, with NULL in the rescued column."""
    good = canal("INSERT", [{"id": "1", "x": "1"}], None, {"id": "int", "x": "int"})
    odd = canal("INSERT", [{"id": "1", "x": "?"}], None, {"id": "int", "x": "int"})

    found = rows(good, (b"", b"{"), odd, onSchemaDrift="rescue", mode="PERMISSIVE")

    assert [(row["id"], row["x"], row["_rescued_data"]) for row in found] == [
        (1, 1, None),
        (None, None, None),
        (1, None, '{"x":"?"}'),
    ]


def test_what_a_schema_of_the_users_leaves_out_is_rescued() -> None:
    """Columns that a user's schema leaves out are rescued, and that schema must have the rescued column."""
    captured = Captured.of(canal("INSERT", [{"id": "1", "x": "5"}], None, {"id": "int", "x": "int"}))
    options = make_options(onSchemaDrift="rescue", protocol="canal-json")
    inferred = captured.schema(onSchemaDrift="rescue")
    context = captured.context(inferred, options)
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("_RESCUED_data", pa.string())])

    batch = next(read(captured.fetch(captured.ranges()[0]), read_spec(schema, options, context)))

    assert batch.to_pylist() == [{"id": 1, "_RESCUED_data": '{"x":5}'}]
    with pytest.raises(SchemaError, match="_rescued_data STRING"):
        read_spec(pa.schema([pa.field("id", pa.int64())]), options, context)


def test_what_a_schema_of_the_users_leaves_out_has_its_labels() -> None:
    """A rescued column that a user's schema lacks has the labels that DDL in the topic gives it, as in `event`."""
    create = "create table t (id int, level enum('basic','gold'))"
    captured = Captured.of(
        canal("CREATE", None, None, isDdl=True, sql=create, _tidb={"commitTs": TSO - 9}),
        canal("INSERT", [{"id": "1", "level": "2"}], None, {"id": "int", "level": "enum"}),
    )
    options = make_options(onSchemaDrift="rescue")
    sample = captured.sample(options)
    context = context_of_table(infer_table(sample), sample)
    schema = pa.schema([("id", pa.int32()), ("_rescued_data", pa.string())])

    batches = list(read(captured.fetch(captured.ranges()[0]), read_spec(schema, options, context)))

    assert pa.Table.from_batches(batches).to_pylist() == [{"id": 1, "_rescued_data": '{"level":"gold"}'}]


@pytest.mark.parametrize(("options", "match"), [
    ({"rescuedDataColumn": "x"}, "'rescuedDataColumn'.*_drift"),
    ({"rescuedDataColumn": "_SEQUENCE"}, "rescuedDataColumn.*is a metadata column"),
    ({"rescuedDataColumn": "_corrupt_record", "mode": "PERMISSIVE"}, "rescuedDataColumn"),
])  # fmt: skip
def test_the_rescued_columns_name_must_be_free(options: dict[str, str], match: str) -> None:
    """A rescued column that has the name of a table or metadata column is an error that names the option."""
    with pytest.raises(OptionError, match=match):
        rows(canal("INSERT", [{"id": "1", "x": "5"}], None, {"id": "int", "x": "int"}), **options)
