"""Each protocol reads a table whose schema changes within a topic, in a batch and across a stream's restart."""

import warnings
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, rows, single, whole
from tests.support.messages import TSO, Message, canal, cell, debezium, declared, dump, open_message
from ticdc_source.errors import DecodeError, OptionError, SchemaError

Values = Mapping[str, tuple[str, Any]]  # MySQL type and value by column


class OpenProtocol:
    """Writes messages as open-protocol has them."""

    name = "open-protocol"
    codes: Mapping[str, int] = {"tinyint": 1, "int": 3, "double": 5, "bigint": 8, "varchar": 15, "bit": 16,
                                "datetime": 12, "decimal": 246, "enum": 247, "set": 248}  # fmt: skip

    def row(self, ts: int, values: Values, image: str = "u") -> Message:
        cells = {
            name: cell(self.codes[type_.split("(")[0]], value, 11 if name == "id" else 64)
            for name, (type_, value) in values.items()
        }
        return open_message(({"ts": ts, "scm": "test", "tbl": "t", "t": 1}, {image: cells}))

    def ddl(self, ts: int, sql: str, table: str = "t") -> Message:
        return open_message(({"ts": ts, "scm": "test", "tbl": table, "t": 2}, {"q": sql, "t": 12}))


class CanalJSON:
    """Writes messages as canal-json with the TiDB extension has them."""

    name = "canal-json"

    def row(self, ts: int, values: Values, image: str = "u") -> Message:
        data = {name: None if value is None else str(value) for name, (_, value) in values.items()}
        types = {name: type_.split("(")[0] for name, (type_, _) in values.items()}
        return canal("INSERT" if image == "u" else "DELETE", [data], None, types, es=ts >> 18, _tidb={"commitTs": ts})

    def ddl(self, ts: int, sql: str, table: str = "t") -> Message:
        return canal("ALTER", isDdl=True, sql=sql, table=table, pkNames=None, es=ts >> 18, _tidb={"commitTs": ts})


class Debezium:
    """Writes messages as debezium with its schema has them."""

    name = "debezium"
    fields: Mapping[str, Mapping[str, Any]] = {
        "tinyint": {"type": "int16"}, "int": {"type": "int32"}, "bigint": {"type": "int64"},
        "double": {"type": "double"}, "varchar": {"type": "string"}, "decimal": {"type": "double"},
        "datetime": {"type": "int64", "name": "io.debezium.time.Timestamp"},
    }  # fmt: skip

    def row(self, ts: int, values: Values, image: str = "u") -> Message:
        row = {name: value for name, (_, value) in values.items()}
        fields = [{"optional": True, "field": name, **self.fields[type_.split("(")[0]]}
                  for name, (type_, _) in values.items()]  # fmt: skip
        sides = (None, row) if image == "u" else (row, None)
        source = {"commit_ts": ts, "ts_ms": ts >> 18}
        return debezium("c" if image == "u" else "d", sides[0], sides[1], fields, source, key={"id": row["id"]})


Writer = OpenProtocol | CanalJSON | Debezium
WRITERS = [pytest.param(writer, id=writer.name) for writer in (OpenProtocol(), CanalJSON(), Debezium())]
TEXTS = WRITERS[:2]  # whose DDL events have a text and no description of the table

ID = {"id": ("int", 1)}
COLUMNS = slice(4, None)  # after the metadata columns


def types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: str(field.type) for field in list(schema)[COLUMNS]}


CHANGES: dict[str, tuple[Values, Values, dict[str, str], list[Any]]] = {
    # columns before and after; the types in the batch's schema, and the values of its last column
    "add": (ID, {**ID, "b": ("varchar", "x")}, {"id": "int32", "b": "string"}, [None, "x"]),
    "drop": ({**ID, "b": ("varchar", "x")}, ID, {"id": "int32", "b": "string"}, ["x", None]),
    "rename": (
        {**ID, "a": ("int", 5)}, {**ID, "b": ("int", 6)}, {"id": "int32", "b": "int32", "a": "int32"}, [5, None]
    ),
    "widen": ({**ID, "a": ("int", 5)}, {**ID, "a": ("bigint", 1 << 40)}, {"id": "int32", "a": "int64"}, [5, 1 << 40]),
    "narrow": ({**ID, "a": ("bigint", 1 << 40)}, {**ID, "a": ("int", 5)}, {"id": "int32", "a": "int64"}, [1 << 40, 5]),
    "another family": (
        {**ID, "a": ("int", 5)}, {**ID, "a": ("varchar", "five")}, {"id": "int32", "a": "string"}, ["5", "five"]
    ),
    "back from another family": (
        {**ID, "a": ("varchar", "five")}, {**ID, "a": ("int", 5)}, {"id": "int32", "a": "string"}, ["five", "5"]
    ),
    "dropped and added again": (
        {**ID, "a": ("double", 1.5)}, {**ID, "a": ("varchar", "x")}, {"id": "int32", "a": "string"}, ["1.5", "x"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_batch_over_a_change_has_every_column_and_the_widest_type(writer: Writer, change: str) -> None:
    """A batch has every column with its widest type, or with text and a warning if no type holds all versions."""
    before, after, types_of_all, values = CHANGES[change]
    captured = Captured.of(writer.row(TSO, before), writer.row(TSO + 9, after))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        schema = captured.schema()
    found = [captured.read(schema=schema, sizes=sizes) for sizes in (whole, single)]

    assert types(schema) == types_of_all
    assert found[0].column(schema.names[-1]).to_pylist() == values
    assert found[0].equals(found[1])
    mixed = "its versions have types of different kinds"
    assert any(mixed in str(warning.message) for warning in caught) == ("family" in change or "again" in change)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("change", ["add", "rename"])
def test_a_new_column_fails_a_stream_and_its_restart_finds_it(writer: Writer, change: str) -> None:
    """A new column fails a stream with an error that names column, table and offset, and a restart infers it."""
    before, after, schema, _ = CHANGES[change]
    first, second = writer.row(TSO, before), writer.row(TSO + 9, after)
    started = Captured.of(first).schema()

    with pytest.raises(SchemaError, match=r"lacks: b .*restarting.*onSchemaDrift.*offset=1 table=test\.t"):
        Captured.of(first, second).read(schema=started)
    ignored = Captured.of(first, second).read(schema=started, onSchemaDrift="ignore")
    assert ignored.schema.names == started.names
    assert types(Captured.of(first, second).schema()) == schema


@pytest.mark.parametrize("writer", WRITERS)
def test_a_type_that_widens_in_a_running_stream_fails_where_a_value_does_not_fit(writer: Writer) -> None:
    """A running stream fails at the first value of a wider type that does not fit, and reads it after a restart."""
    before, after, _, values = CHANGES["widen"]
    first, second = writer.row(TSO, before), writer.row(TSO + 9, after)
    fits = writer.row(TSO + 5, {**ID, "a": ("bigint", 7)})
    started = Captured.of(first).schema()

    assert Captured.of(first, fits).read(schema=started).column("a").to_pylist() == [5, 7]
    with pytest.raises(DecodeError, match=r"altered, load .* restart.*offset=2 table=test\.t column=a"):
        Captured.of(first, fits, second).read(schema=started)
    assert Captured.of(first, fits, second).read().column("a").to_pylist() == [5, 7, values[1]]


CREATE = (
    "create table t (id int primary key, d decimal(10,2), e enum('a','b,c','d''e'), s set('x','y'), b bit(1),"
    " f tinyint(1))"
)


def of_create(
    d: str | None = "1.50", e: int | None = 2, s: int | None = 3, b: int | None = 1, f: int | None = 2
) -> Values:
    return {**ID, "d": ("decimal", d), "e": ("enum", e), "s": ("set", s), "b": ("bit", b), "f": ("tinyint", f)}


EXACT = {"id": "int32", "d": "decimal128(10, 2)", "e": "string", "s": "string", "b": "bool", "f": "int8"}


@pytest.mark.parametrize("writer", TEXTS)
@pytest.mark.parametrize("how", ["events", "option"])
def test_ddl_completes_the_types_of_messages(writer: OpenProtocol | CanalJSON, how: str) -> None:
    """Decimal precision, labels and bit length come from DDL events in the topic, or from the option tableDDL."""
    ddl = [writer.ddl(TSO - 9, CREATE)] if how == "events" else []
    options = {} if how == "events" else {"tableDDL": CREATE}
    captured = Captured.of(*ddl, writer.row(TSO, of_create()), writer.row(TSO, of_create(*[None] * 5)))

    table = captured.read(schema=captured.schema(**options))

    assert types(table.schema) == EXACT
    assert list(table.to_pylist()[0].values())[COLUMNS] == [1, Decimal("1.50"), "b,c", "x,y", True, 2]
    assert (table.schema.field("f").metadata or {})[b"ticdc.mysql_type"] == b"tinyint(1)"


@pytest.mark.parametrize("fields", [False, True])
def test_table_ddl_completes_the_types_of_debezium(fields: bool) -> None:
    """The option tableDDL completes the types of debezium: precision if it has its schema, and every type if not."""
    row = {"id": 1, "d": 1.5, "e": "b,c", "b": "AQ==", "w": 0}
    described: list[dict[str, Any]] = [{"type": "int32", "field": "id"}, {"type": "double", "field": "d"},
                 {"type": "string", "name": "io.debezium.data.Enum", "field": "e",
                  "parameters": {"allowed": "a,b\\,c"}},
                 {"type": "bytes", "name": "io.debezium.data.Bits", "field": "b", "parameters": {"length": "5"}},
                 {"type": "int64", "name": "io.debezium.time.Timestamp", "field": "w"}]  # fmt: skip
    text = "create table t (id int, d decimal(10,2), e enum('a','b,c'), b bit(5), w datetime(3))"

    table = Captured.of(debezium("c", None, row, described if fields else None)).read(tableDDL=text)

    assert types(table.schema) == {
        "id": "int32", "d": "decimal128(10, 2)", "e": "string", "b": "int64", "w": "timestamp[us]"
    }  # fmt: skip
    assert list(table.to_pylist()[0].values())[5:8] == [Decimal("1.50"), "b,c", 1]


@pytest.mark.parametrize("writer", TEXTS)
def test_ddl_events_hold_from_their_commit_ts_on(writer: OpenProtocol | CanalJSON) -> None:
    """A DDL event holds for rows with a larger commit-ts; a row with the same commit-ts has the schema before it."""
    captured = Captured.of(
        writer.ddl(TSO, "create table t (id int primary key, e enum('a','b'), d decimal(4,1))"),
        writer.row(TSO + 5, {**ID, "e": ("enum", 1), "d": ("decimal", "1.5")}),
        writer.row(TSO + 10, {**ID, "e": ("enum", 1), "d": ("decimal", "1.5")}),
        writer.ddl(TSO + 10, "alter table t modify e enum('z','a','b'), modify d decimal(6,3)"),
        writer.row(TSO + 11, {**ID, "e": ("enum", 1), "d": ("decimal", "1.500")}),
    )

    tables = [captured.read(sizes=sizes) for sizes in (whole, single)]

    assert types(tables[0].schema) == {"id": "int32", "e": "string", "d": "decimal128(6, 3)"}
    assert tables[0].column("e").to_pylist() == ["a", "a", "z"]
    assert tables[0].column("d").to_pylist() == [Decimal("1.5")] * 3
    assert tables[0].equals(tables[1])


@pytest.mark.parametrize("writer", TEXTS)
def test_labels_that_are_known_for_one_version_serve_all(writer: OpenProtocol | CanalJSON) -> None:
    """Rows before the first DDL event of a range use its labels, but not its precision, which it may have changed."""
    captured = Captured.of(
        writer.row(TSO, {**ID, "e": ("enum", 1), "d": ("decimal", "1.5")}),
        writer.ddl(TSO + 10, "alter table t modify e enum('a','b'), modify d decimal(6,3)"),
        writer.row(TSO + 11, {**ID, "e": ("enum", 2), "d": ("decimal", "1.500")}),
    )

    table = captured.read()

    assert types(table.schema) == {"id": "int32", "e": "string", "d": "decimal128(38, 3)"}
    assert table.column("e").to_pylist() == ["a", "b"]


@pytest.mark.parametrize("writer", TEXTS)
def test_ddl_that_the_values_contradict_is_ignored(writer: OpenProtocol | CanalJSON) -> None:
    """A DDL event whose decimal scale is not that of the values is ignored, because MySQL prints the column's scale."""
    captured = Captured.of(
        writer.ddl(TSO, "create table t (id int, d decimal(10,2))"),
        writer.row(TSO + 5, {**ID, "d": ("decimal", "1.500")}),
    )

    assert types(captured.schema())["d"] == "decimal128(38, 3)"


@pytest.mark.parametrize("writer", TEXTS)
def test_a_broken_ddl_text_is_skipped(writer: OpenProtocol | CanalJSON) -> None:
    """A DDL text that cannot be parsed is skipped, and the types are those of the messages."""
    captured = Captured.of(
        writer.ddl(TSO, "create table t (d decimal(10,2"), writer.row(TSO + 5, {"id": ("decimal", "1.5")})
    )

    assert types(captured.schema()) == {"id": "decimal128(38, 1)"}


@pytest.mark.parametrize("writer", TEXTS)
def test_ddl_of_a_range_that_was_not_scanned_whole_is_ignored(writer: OpenProtocol | CanalJSON) -> None:
    """DDL events of a range that was not scanned whole are ignored, because an ALTER in the gap may contradict them."""
    captured = Captured.of(
        writer.ddl(TSO, "create table t (id int, e enum('a','b'))"),
        *(writer.row(TSO + 5, {**ID, "e": ("enum", 1)}) for _ in range(200)),
    )
    few = {"inferSchema__maxRecords": "10", "inferSchema__maxScannedRecords": "100"}

    assert types(captured.schema(**few))["e"] == "int32"
    assert types(captured.schema(inferSchema__maxRecords="10"))["e"] == "string"


def test_sources_of_types_have_an_order() -> None:
    """A hint overrides tableDDL, which overrides DDL events, which override unspecifiedDecimal."""
    writer = CanalJSON()
    captured = Captured.of(
        writer.ddl(TSO, "create table t (id int, d decimal(10,2))"),
        writer.row(TSO + 5, {**ID, "d": ("decimal", "1.50")}),
    )
    ddl, unspecified = {"tableDDL": "create table t (d decimal(12,4))"}, {"unspecifiedDecimal": "decimal(20,8)"}

    assert types(captured.schema(**ddl, **unspecified, schemaHints="d decimal(14,5)"))["d"] == "decimal128(14, 5)"
    assert types(captured.schema(**ddl, **unspecified))["d"] == "decimal128(12, 4)"
    assert types(captured.schema(**unspecified))["d"] == "decimal128(10, 2)"


@pytest.mark.parametrize(("mysql_type", "value", "declared_type"), [
    ("varchar", "x", "int"),
    ("bigint", 5, "int"),
    ("int", 5, "smallint unsigned"),
    ("int", 5, "int unsigned"),
    ("decimal", "1.500", "decimal(10,2)"),
    ("decimal", "123.5", "decimal(3,1)"),
    ("datetime", "2026-01-01 00:00:00", "date"),
    ("int", 5, "varchar(5)"),
])  # fmt: skip
@pytest.mark.parametrize("writer", TEXTS)
def test_table_ddl_that_the_messages_contradict_is_an_error(
    writer: OpenProtocol | CanalJSON, mysql_type: str, value: Any, declared_type: str
) -> None:
    """A tableDDL that contradicts the messages is an error that names the column."""
    captured = Captured.of(writer.row(TSO, {**ID, "a": (mysql_type, value)}))

    with pytest.raises(SchemaError, match=r"Column a of test\.t: option 'tableDDL' says"):
        captured.schema(tableDDL=f"create table t (id int, a {declared_type})")


@pytest.mark.parametrize("writer", WRITERS)
def test_table_ddl_may_be_ahead_of_the_messages(writer: Writer) -> None:
    """A tableDDL may have a wider type than older messages, and columns it lacks keep the types of the messages."""
    captured = Captured.of(writer.row(TSO, {**ID, "a": ("int", 5), "old": ("varchar", "x")}))

    table = captured.read(tableDDL="create table test.T (ID int, A bigint, newer json)")

    assert types(table.schema) == {"id": "int32", "a": "int64", "old": "string"}
    assert table.column("a").to_pylist() == [5]


def test_table_ddl_of_another_table_is_an_error() -> None:
    """A tableDDL without the table that is read is an error that names its tables and that table."""
    with pytest.raises(OptionError, match=r"creates u, x\.t, but the read is of test\.t"):
        rows(CanalJSON().row(TSO, ID), tableDDL="create table u (id int); create table x.t (id int)")


def test_table_changes_of_debezium_change_a_precision() -> None:
    """The `tableChanges` of debezium's DDL events change a decimal's precision within a topic."""

    def ddl(ts: int, precision: int, scale: int) -> Message:
        columns = [declared("id", "INT"), declared("d", "DECIMAL", length=precision, scale=scale)]
        change = {"type": "ALTER", "id": '"test"."t"', "table": {"columns": columns}}
        source = {"db": "test", "table": "t", "commit_ts": ts, "ts_ms": ts >> 18}
        return dump({"payload": {}}), dump({"payload": {"source": source, "ddl": "", "tableChanges": [change]}})

    writer = Debezium()
    row: Callable[[int, float], Message] = lambda ts, d: writer.row(ts, {**ID, "d": ("decimal", d)})  # noqa: E731
    table = Captured.of(ddl(TSO, 4, 1), row(TSO + 5, 1.5), ddl(TSO + 6, 6, 3), row(TSO + 7, 1.125)).read()

    assert types(table.schema)["d"] == "decimal128(6, 3)"
    assert table.column("d").to_pylist() == [Decimal("1.500"), Decimal("1.125")]
