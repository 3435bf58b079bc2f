"""What load() tells the user about the types of a table: one warning, with lines to paste."""

import itertools
import json
import re
import warnings
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, make_options
from tests.support.messages import TSO, Message, canal, cell, debezium, debezium_ddl, declared, open_message, open_row
from ticdc_source.errors import DecodeError, OptionError, SchemaError
from ticdc_source.pipeline.context import ReadContext
from ticdc_source.pipeline.metadata import Layout
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import read_spec
from ticdc_source.schema.types import ColumnType, merge_types

TYPES = {"id": "int", "total": "decimal", "rest": "decimal", "at": "timestamp"}
ROW = {"id": "1", "total": None, "rest": None, "at": "2026-01-01 00:00:00"}


def message(row: dict[str, Any] = ROW, types: dict[str, str] = TYPES) -> Message:
    return canal("INSERT", [row], None, types, {}, _tidb={"commitTs": TSO})


def told(*messages: Message, **options: str) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Captured.of(*messages).schema(**options)
    return [str(warning.message) for warning in caught]


def test_a_table_has_one_warning_with_lines_to_paste() -> None:
    """All columns whose types are open are in one warning, in Spark's words; tableDDL is the first remedy."""
    (text,) = told(message(), timeZone="UTC")

    assert text.splitlines() == [
        "The messages of test.t do not fully say the types of its columns:",
        "  total is read as decimal(38,18) (DECIMAL without precision, only NULLs in the sample)",
        "  rest is read as decimal(38,18) (DECIMAL without precision, only NULLs in the sample)",
        "To set the types, paste what SHOW CREATE TABLE `test`.`t` prints:",
        '  .option("tableDDL", """CREATE TABLE `test`.`t` (…)""")',
        "To keep these types, or to choose others:",
        '  .option("schemaHints", "total decimal(38,18), rest decimal(38,18)")',
    ]


def test_the_pasted_line_ends_the_warning() -> None:
    """The schemaHints line of the warning is valid, keeps earlier hints, and leaves nothing to warn of."""
    first, *_ = told(message(), timeZone="UTC", schemaHints="total decimal(10,2)")
    (line,) = re.findall(r'\.option\("schemaHints", "(.*)"\)', first)

    assert line == "total decimal(10,2), rest decimal(38,18)"
    assert told(message(), timeZone="UTC", schemaHints=line) == []


def test_ddl_in_the_topic_leaves_nothing_to_warn_of() -> None:
    create = "create table t (id int, total decimal(10,2), rest decimal(5,1), at timestamp)"
    ddl = canal("CREATE", isDdl=True, sql=create, _tidb={"commitTs": TSO - 1})

    assert len(told(message(), timeZone="UTC")) == 1
    assert told(ddl, message(), timeZone="UTC") == []


def test_ddl_is_no_remedy_for_what_it_does_not_change() -> None:
    """A decimal of more than 38 digits stays text: only schemaHints is advised."""
    (text,) = told(message({"id": "1", "d": "9" * 40}, {"id": "int", "d": "decimal"}))

    assert "  d is read as string (DECIMAL of more than 38 digits, which Spark does not have)" in text.splitlines()
    assert "tableDDL" not in text


def test_a_timestamp_without_its_zone_is_noticed() -> None:
    """The notice names the columns and the line to set; timeZone, a hint and a wire with zones make it needless."""
    row = message({"id": "1", "at": "2026-01-01 00:00:00"}, {"id": "int", "at": "timestamp"})
    (text,) = told(row)

    assert text.startswith("TIMESTAMP columns of test.t (at) come in the time zone of the TiCDC server")
    assert text.endswith('  .option("timeZone", "UTC")')
    assert told(row, timeZone="UTC") == []
    assert told(row, schemaHints="at string") == []
    zoned = {"type": "string", "field": "at", "name": "io.debezium.time.ZonedTimestamp"}
    assert told(debezium("c", after={"at": "2026-01-01T00:00:00Z"}, fields=[zoned])) == []


def test_with_a_users_schema_advice_does_not_speak_of_hints() -> None:
    """Where the user gave the schema, the error says what to write there, with Spark's name of the type."""
    captured = Captured.of(message({"id": "many"}, {"id": "bigint"}))
    schema = pa.schema([("_change_type", pa.string()), ("id", pa.int64())])
    spec = read_spec(schema, make_options(), ReadContext(protocol="canal-json"))

    with pytest.raises(DecodeError, match=r"does not fit bigint: id string in \.schema\(…\) reads its text") as caught:
        list(read(captured.fetch(captured.ranges()[0]), spec))
    assert "schemaHints" not in str(caught.value)


def test_types_in_errors_are_sparks() -> None:
    wrong = pa.schema([("_change_type", pa.string()), ("_commit_version", pa.int32()), ("id", pa.int32())])

    with pytest.raises(SchemaError, match="_commit_version has the type int; as a metadata column it must be bigint"):
        Layout.of(wrong, make_options())
    with pytest.raises(SchemaError, match=r"can be read as int, or as boolean, .*tinyint to bigint, string"):
        Captured.of(message()).schema(schemaHints="id date")


def undecided(*messages: Message, **options: str) -> list[str]:
    """Return the columns whose metadata says that their type is not decided."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schema = Captured.of(*messages).schema(**options)
    return [field.name for field in schema if (field.metadata or {}).get(b"ticdc.undecided") == b"true"]


NULLS: dict[str, Message] = {  # the column c has only NULLs
    "canal-json, decimal": message({"id": "1", "c": None}, {"id": "int", "c": "decimal"}),
    "canal-json, sqlType of a decimal": canal("INSERT", [{"id": "1", "c": None}], None, None, {"id": 4, "c": 3}),
    "canal-json, no type": canal("INSERT", [{"id": "1", "c": None}], None, {"id": "int"}, {"id": 4}),
    "open-protocol, decimal": open_message(open_row({"u": {"id": cell(3, 1, 11), "c": cell(246, None, 65)}})),
    "open-protocol, type Null": open_message(open_row({"u": {"id": cell(3, 1, 11), "c": cell(6, None, 65)}})),
    "debezium without schema": debezium("c", None, {"id": 1, "c": None}),
}
DECIMAL = NULLS["canal-json, decimal"]


@pytest.mark.parametrize("form", NULLS)
def test_only_nulls_decide_no_type(form: str) -> None:
    """A column whose type only values could tell, and that has only NULLs, is marked; `tableDDL` decides its type."""
    assert undecided(NULLS[form]) == ["c"]
    assert undecided(NULLS[form], schemaHints="c string") == []
    assert undecided(NULLS[form], tableDDL="CREATE TABLE t (id int, c decimal(10,2))") == []


def test_a_value_a_type_and_an_option_each_decide() -> None:
    """A column is not marked if one row has a value, if messages have the exact type, or if an option names a type."""
    value = message({"id": "2", "c": "1.50"}, {"id": "int", "c": "decimal"})
    exact = message({"id": "2", "c": None}, {"id": "int", "c": "decimal(10,2)"})

    assert undecided(DECIMAL, value) == undecided(value, DECIMAL) == []
    assert undecided(DECIMAL, unspecifiedDecimal="decimal(20,4)") == []
    for messages in ((DECIMAL, exact), (exact, DECIMAL)):
        assert undecided(*messages) == []
        assert str(Captured.of(*messages).schema().field("c").type) == "decimal128(10, 2)"


def test_a_decimal_says_whether_its_precision_is_stated() -> None:
    """A DECIMAL that has 38 digits for want of a precision is marked; one whose precision is stated is not."""
    value = message({"id": "2", "c": "1.50"}, {"id": "int", "c": "decimal"})
    exact = message({"id": "2", "c": "1.50"}, {"id": "int", "c": "decimal(38,2)"})
    declared = {"tableDDL": "CREATE TABLE t (id int, c decimal(38,2))"}

    def is_marked(shown: Message, **options: str) -> bool:
        field = Captured.of(shown).schema(**options).field("c")
        assert str(field.type) == "decimal128(38, 2)"
        return b"ticdc.unstated_precision" in field.metadata

    assert is_marked(value)
    assert not is_marked(exact)
    assert not is_marked(value, **declared)
    assert not is_marked(value, schemaHints="C decimal(38,2)")
    assert not is_marked(value, unspecifiedDecimal="decimal(38,2)")


def test_nulls_of_a_decimal_and_integers_are_read_as_a_decimal() -> None:
    """A column that was a DECIMAL with only NULLs and is an INT now has values: its type is a guess, with a warning."""
    now = message({"id": "2", "c": "7"}, {"id": "int", "c": "int"})
    then = message({"id": "2", "c": "7"}, {"id": "int", "c": "smallint"})

    assert undecided(DECIMAL, now) == []
    for messages in ((DECIMAL, now), (DECIMAL, now, DECIMAL, now), (DECIMAL, now, then), (then, now, DECIMAL)):
        with pytest.warns(UserWarning, match="c is read as decimal\\(38,18\\)"):
            assert str(Captured.of(*messages).schema().field("c").type) == "decimal128(38, 18)"


def test_the_order_of_messages_decides_no_type_of_a_decimal() -> None:
    """Whichever comes first: a DECIMAL with NULLs only, one with digits, a declared one, or integers."""
    nulls, integer, long = ColumnType("decimal"), ColumnType("int"), ColumnType("bigint")
    digits, exact = ColumnType("decimal", whole=3, scale=4), ColumnType("decimal", length=10, scale=2)
    for number in (2, 3, 4, 5):
        for types in itertools.combinations((nulls, integer, long, digits, exact), number):
            merged = {reduce(merge_types, order) for order in itertools.permutations(types)}  # type: ignore[arg-type]
            assert len(merged) == 1, (types, merged)


def _with_ddl(*columns: str) -> list[Message]:
    """Return a DDL event that creates test.t, and a row of which only NULL is known of column c."""
    query = f"CREATE TABLE `t` (`id` int NOT NULL PRIMARY KEY, {', '.join(columns)})"
    ddl = ({"ts": TSO - 5, "scm": "test", "tbl": "t", "t": 2}, {"q": query, "t": 3})
    return [open_message(ddl), open_message(open_row({"u": {"id": cell(3, 1, 11), "c": cell(6, None, 64)}}))]


def _of_debezium(value: Any, field: dict[str, Any]) -> Message:
    return debezium(after={"id": 1, "c": value}, fields=[{"type": "int32", "field": "id"}, {"field": "c", **field}])


_ROW = open_message(open_row({"u": {"id": cell(3, 1, 11), "c": cell(246, "1.50", 64)}}))
_CONNECT = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}
_IMPOSSIBLE: dict[str, tuple[list[Message], dict[str, Any]]] = {
    "schemaHints": ([_ROW], {"schemaHints": "c decimal(0,0)"}),
    "schemaHints with a scale": ([_ROW], {"schemaHints": "`c` decimal(2,5)"}),
    "tableDDL": ([_ROW], {"tableDDL": "CREATE TABLE t (id int PRIMARY KEY, c decimal(0,0))"}),
    "tableDDL without arguments": ([_ROW], {"tableDDL": "CREATE TABLE test.t (id int PRIMARY KEY, c numeric(0))"}),
    "DDL": (_with_ddl("`c` decimal(0,0)"), {}),
    "DDL with a scale": (_with_ddl("`c` decimal(2, 5) DEFAULT NULL"), {}),
    "DDL that alters": (
        [
            _with_ddl("`c` int")[0],
            open_message(({"ts": TSO - 4, "scm": "test", "tbl": "t", "t": 2},
                          {"q": "ALTER TABLE t DROP COLUMN c, ADD COLUMN c dec(0) NULL", "t": 61})),
            _with_ddl("`c` int")[1],
        ],
        {},
    ),
    "mysqlType": (
        [canal(data=[{"id": "1", "c": "1"}], mysql_type={"id": "int", "c": "decimal(0,0)"}, sql_type={"c": 3})],
        {},
    ),
    "tidb_type": ([_of_debezium(1.0, {"type": "double", "tidb_type": "decimal(0,0)"})], {}),
    "tableChanges": (
        [
            debezium_ddl(TSO - 5, "", [declared("id", "INT"), declared("c", "DECIMAL", length=0, scale=0)]),
            _of_debezium(1.0, {"type": "double"}),
        ],
        {},
    ),
    "Connect's parameters": (
        [_of_debezium("AQ==", {**_CONNECT, "parameters": {"scale": "0", "connect.decimal.precision": "0"}})],
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("native_code", ["off", "auto"])
@pytest.mark.parametrize("source", _IMPOSSIBLE)
def test_a_decimal_without_digits_is_an_error_that_names_the_column(source: str, native_code: str) -> None:
    """Whoever says decimal(0,0), or more digits behind the point than there are: a hint, `tableDDL`, DDL, a message."""
    messages, options = _IMPOSSIBLE[source]
    expected = OptionError if options else SchemaError
    with pytest.raises(expected, match=r"[Cc]olumn c( of t| of test\.t)?: .*decimal\([02],[05]\)"):
        Captured.of(*messages).read(nativeCode=native_code, **options)


@pytest.mark.parametrize("native_code", ["off", "auto"])
@pytest.mark.parametrize("source", [name for name, (_, options) in _IMPOSSIBLE.items() if not options])
def test_a_hint_reads_what_has_such_a_type(source: str, native_code: str) -> None:
    """The values are there all the same: a hint reads their text, on both paths, and outputFormat=event has them."""
    messages, _ = _IMPOSSIBLE[source]
    captured = Captured.of(*messages, *messages[-1:] * 3)

    values = captured.read(schemaHints="c string", nativeCode=native_code)["c"].to_pylist()
    documents = captured.read(outputFormat="event", nativeCode=native_code)["after"].drop_null().to_pylist()

    assert {None if value is None else Decimal(value) for value in values} <= {None, Decimal(1)}
    assert [Decimal(json.loads(text)["c"] or 0) for text in documents] == [Decimal(value or 0) for value in values]


@pytest.mark.parametrize("scale", ["-3", "1000000000"])
def test_a_connect_decimal_of_an_impossible_scale_is_no_value(scale: str) -> None:
    """It is a bad value, and no other number, also where a hint reads it."""
    message = _of_debezium("AQ==", {**_CONNECT, "parameters": {"scale": scale, "connect.decimal.precision": "5"}})
    with pytest.raises(DecodeError, match=f"a decimal of scale {scale}, .*column=c"):
        Captured.of(message).read(schemaHints="c string")
