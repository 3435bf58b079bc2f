"""Digits: a number of a message keeps each of them, unless its column is a double."""

import decimal
import json
import random
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from tests.support.captured import Captured, rows
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
    simple,
    simple_definition,
)
from ticdc_source.errors import DecodeError, SchemaError
from ticdc_source.protocols.messages import have_long_numbers, parse_exact_json, parse_json

pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.usefixtures("native_path")]

SEED = 41
CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
KEY = {"type": "int32", "optional": False, "field": "id"}
MYSQL = {"connector": "mysql", "commit_ts": None, "cluster_id": None}
DECIMALS = [(38, 0), (38, 18), (18, 4), (23, 4), (20, 0), (30, 10), (65, 30), (65, 0)]
_MARKED = re.compile(rb'"#([^"#]*)#"')


def number(text: str) -> str:
    """Return what stands in a message for a JSON number with this text; `bare` puts the number there."""
    return f"#{text}#"


def bare(message: Message) -> Message:
    key, value = message
    return key, _MARKED.sub(rb"\1", value or b"")


def random_decimal(chooser: random.Random, precision: int, scale: int) -> str:
    """Write a DECIMAL with random digits, sometimes with less of them."""
    digits = "".join(chooser.choices("0123456789", k=chooser.randrange(1, precision + 1))).rjust(scale + 1, "0")
    text = f"{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}" if scale else digits
    whole, point, fraction = text.partition(".")
    return chooser.choice(["", "-"]) + (whole.lstrip("0") or "0") + point + fraction


def tables(chooser: random.Random, count: int) -> list[dict[str, str]]:
    return [
        {f"d{index}": random_decimal(chooser, *decimal) for index, decimal in enumerate(DECIMALS)}
        for _ in range(count)
    ]  # fmt: skip


def of_connect(row: dict[str, str], _number: Callable[[str], Any]) -> Message:
    fields = [
        {"type": "bytes", "name": CONNECT_DECIMAL, "optional": True, "field": f"d{index}",
         "parameters": {"scale": str(scale), "connect.decimal.precision": str(precision)}}
        for index, (precision, scale) in enumerate(DECIMALS)
    ]  # fmt: skip
    return debezium("c", None, {"id": 1, **{name: _number(text) for name, text in row.items()}}, [KEY, *fields], MYSQL)


def of_ticdc(row: dict[str, str], _number: Callable[[str], Any], *, schema: bool = True, op: str = "c") -> Message:
    fields = [{"type": "double", "optional": True, "field": name, "tidb_type": "DECIMAL"} for name in row]
    image = {"id": 1, **{name: _number(text) for name, text in row.items()}}
    before, after = {"c": (None, image), "u": (image, image), "d": (image, None)}[op]
    return debezium(op, before, after, [KEY, *fields] if schema else None)


def of_canal(row: dict[str, str]) -> Message:
    types = {"id": "int", **{f"d{index}": f"decimal({p},{s})" for index, (p, s) in enumerate(DECIMALS)}}
    return canal(data=[{"id": "1", **row}], mysqlType=types, sqlType={"id": 4, **dict.fromkeys(row, 3)})


def of_open(row: dict[str, str]) -> Message:
    cells = {name: cell(246, text) for name, text in row.items()}
    return open_message(open_row({"u": {"id": cell(3, 1, 11, h=True), **cells}}))


def of_simple(row: dict[str, str]) -> Message:
    return simple(data={"id": "1", **row})


CSV_KEY = dump({"TableVersion": 1})


def csv_schema(*columns: tuple[str, dict[str, str]]) -> Message:
    listed = [{"ColumnName": name, **column} for name, column in columns]
    return None, dump({"Table": "t", "Schema": "test", "TableVersion": 1, "Query": "", "TableColumns": listed,
                       "TableColumnsTotal": len(listed)})  # fmt: skip


SIMPLE_TYPES: dict[str, dict[str, Any]] = {
    "id": {"mysqlType": "int", "length": 11},
    **{f"d{i}": {"mysqlType": "decimal", "length": p, "decimal": s} for i, (p, s) in enumerate(DECIMALS)},
}
TABLE_DDL = (
    "CREATE TABLE test.t (id int primary key, "
    + ", ".join(f"d{index} decimal({p},{s})" for index, (p, s) in enumerate(DECIMALS))
    + ")"
)
WIRES: dict[str, tuple[Callable[[dict[str, str]], Message], list[Message], dict[str, Any]]] = {
    "debezium with decimal.format=NUMERIC": (lambda row: of_connect(row, number), [], {}),
    "debezium with a schema": (lambda row: of_ticdc(row, number), [], {"tableDDL": TABLE_DDL}),
    "debezium updates": (lambda row: of_ticdc(row, number, op="u"), [], {"tableDDL": TABLE_DDL}),
    "debezium deletes": (lambda row: of_ticdc(row, number, op="d"), [], {"tableDDL": TABLE_DDL}),
    "debezium without a schema": (lambda row: of_ticdc(row, number, schema=False), [], {"tableDDL": TABLE_DDL}),
    "debezium with a DDL event": (
        lambda row: of_ticdc(row, number, schema=False),
        [debezium_ddl(TSO - 9, "CREATE TABLE t", [
            declared("id", "INT"),
            *(declared(f"d{i}", "DECIMAL", length=p, scale=s) for i, (p, s) in enumerate(DECIMALS)),
        ])],
        {},
    ),
    "canal-json": (of_canal, [], {"tableDDL": TABLE_DDL}),
    "open-protocol": (of_open, [], {"tableDDL": TABLE_DDL}),
    "simple": (of_simple, [simple_definition("BOOTSTRAP", SIMPLE_TYPES)], {}),
}  # fmt: skip


@pytest.mark.parametrize("native", ["auto", "off"])
@pytest.mark.parametrize("wire", WIRES)
def test_random_decimals_keep_each_digit(wire: str, native: str) -> None:
    """Decimals of up to 65 digits, read as they are, as strings and as documents, are what the messages have."""
    chooser = random.Random(f"{SEED} {wire}")
    write, first, options = WIRES[wire]
    given = tables(chooser, 12)
    captured = Captured.of(*first, *(bare(write(row)) for row in given))
    strings: dict[str, Any] = {"schemaHints": ", ".join(f"d{index} string" for index in range(len(DECIMALS)))}
    native_code: dict[str, Any] = {"nativeCode": native}

    none: dict[str, Any] = {}
    for more in (none, strings):
        decoded = captured.read(**options, **native_code, **more).to_pylist()
        found = [row for row in decoded if row["_change_type"] != "update_preimage"]
        assert [{name: Decimal(row[name]) for name in given[0]} for row in found] == [
            {name: Decimal(text) for name, text in row.items()} for row in given
        ], (SEED, wire)

    documents = captured.read(outputFormat="event", **native_code, **options).to_pylist()
    shown = [json.loads(row["after"] or row["before"], parse_float=Decimal) for row in documents
             if row["_event_type"] == "row"]  # fmt: skip
    assert [{name: Decimal(row[name]) for name in given[0]} for row in shown] == [
        {name: Decimal(text) for name, text in row.items()} for row in given
    ], (SEED, wire)


@pytest.mark.parametrize("native", ["auto", "off"])
@pytest.mark.parametrize("text", [
    "12345678901234.5678", "-9007199254740993.0001", "123456789012345678901234567890", "18446744073709551616",
    "-9223372036854775809", "0.10000000000000000555", "1234567890123456789e3", "99999999999999999999999999999999999998",
])  # fmt: skip
def test_a_number_of_no_known_type_keeps_its_digits(text: str, native: str) -> None:
    """Without a schema: inferred, hinted as string or decimal, rescued, nested, and in documents."""
    row = {"id": 1, "x": number(text), "y": {"a": [number(text), 1.5]}}
    captured = Captured.of(*(bare(debezium("c", None, row)) for _ in range(3)))
    last = len(captured.partitions[0]) - 1
    options: dict[str, Any] = {"nativeCode": native}

    def read(**more: Any) -> dict[str, Any]:
        decoded: dict[str, Any] = captured.read(**options, **more).to_pylist()[last]
        return decoded

    assert Decimal(read()["x"]) == Decimal(text)
    assert Decimal(read(schemaHints="x string")["x"]) == Decimal(text)
    assert Decimal(json.loads(read()["y"], parse_float=Decimal)["a"][0]) == Decimal(text)
    scale = 20 if "." in text and len(text) < 24 else 0
    if text != "-9007199254740993.0001":
        assert read(schemaHints=f"x decimal(38,{scale})")["x"] == Decimal(text)
    document = json.loads(read(outputFormat="event")["after"], parse_float=Decimal)
    assert (Decimal(document["x"]), Decimal(document["y"]["a"][0])) == (Decimal(text), Decimal(text))
    rescued = read(schemaHints="x date", onSchemaDrift="rescue")["_rescued_data"]
    assert Decimal(json.loads(rescued, parse_float=Decimal)["x"]) == Decimal(text)


def test_a_double_stays_the_double_that_its_text_is() -> None:
    """Beside numbers with more digits, doubles are the nearest ones, and their texts the shortest."""
    fields = [{"type": "double", "optional": True, "field": "x", "tidb_type": "DOUBLE"},
              {"type": "double", "optional": True, "field": "d", "tidb_type": "DECIMAL"}]  # fmt: skip
    for text in (
        "0.1",
        "1e-7",
        "-0.0",
        "0.12345678901234567",
        "1.7976931348623157e308",
        "5e-324",
        "123456789012345680000",
    ):
        message = bare(debezium("c", None, {"id": 1, "x": number(text), "d": number("0.10000000000000000555")},
                                [KEY, *fields]))  # fmt: skip
        for native in ("auto", "off"):
            options = {
                "nativeCode": native,
                "tableDDL": "CREATE TABLE test.t (id int primary key, x double, d decimal(38,20))",
            }
            decoded = rows(message, message, **options)[1]
            assert repr(decoded["x"]) == repr(float(text))
            assert decoded["d"] == Decimal("0.10000000000000000555")


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1e-400000000", "1e400000000", "1e99999999999999999999999"])
def test_a_number_beyond_all_types_is_an_error(text: str) -> None:
    """A number far beyond the range of a double is a bad record, and never ends the process."""
    field = {"type": "double", "optional": True, "field": "d", "tidb_type": "DECIMAL"}
    message = bare(debezium("c", None, {"id": 1, "d": number(text)}, [KEY, field]))
    plain = bare(debezium("c", None, {"id": 1, "d": number("1.5")}, [KEY, field]))

    with pytest.raises(DecodeError):
        rows(plain, message, tableDDL="CREATE TABLE test.t (id int primary key, d decimal(38,10))")


def test_a_decimal_with_more_digits_of_fraction_than_its_column_is_not_rounded() -> None:
    """A DECIMAL of more than 38 digits is a string, and a number that does not fit its scale an error."""
    field = {"type": "double", "optional": True, "field": "d", "tidb_type": "DECIMAL"}
    message = bare(debezium("c", None, {"id": 1, "d": number("1.239")}, [KEY, field]))

    with pytest.raises(DecodeError):
        rows(message, tableDDL="CREATE TABLE test.t (id int primary key, d decimal(60,2))")


def test_long_numbers_are_found_wherever_they_stand() -> None:
    """Random documents: the exact parse has each digit, and orjson's is taken only where it has them too."""
    chooser = random.Random(SEED)
    for _ in range(1_000):
        text = random_decimal(chooser, chooser.randrange(1, 39), chooser.choice([0, 0, 3, 20]))
        text += chooser.choice(["", "", "", f"e{chooser.randrange(-330, 300)}", "E+5"])
        form = chooser.choice(["[{}]", '{{"a":{}}}', '{{"b":[{}, 2]}}', '{{"a": {} }}', "[\n{}\n,1.5]"])
        document = form.format(text).encode()

        exact = first_of(parse_exact_json(document))
        shown = Decimal(repr(exact)) if isinstance(exact, float) else Decimal(exact)
        assert shown == Decimal(text), (SEED, document)
        assert repr(first_of(parse_exact_json(document + b" " * 2048))) == repr(exact), "other code finds it there"
        if not have_long_numbers([document]):
            assert first_of(parse_json(document)) == exact


def of_variant(cell: dict[str, bytes]) -> Decimal:
    """Return the number that a VARIANT holds (Parquet's Variant encoding)."""
    value = cell["value"]
    code = value[0] >> 2
    if code in (3, 4, 5, 6):
        return Decimal(int.from_bytes(value[1:], "little", signed=True))
    assert code in (8, 9, 10), "no exact number"
    unscaled = int.from_bytes(value[2:], "little", signed=True)
    return Decimal(unscaled).scaleb(-value[1])


JSON_FIELD = {"type": "string", "name": "io.debezium.data.Json", "optional": True, "field": "j"}
VARIANTS: dict[str, Callable[[str], Message]] = {
    "canal-json": lambda text: canal(data=[{"id": "1", "j": text}], mysqlType={"id": "int", "j": "json"}),
    "open-protocol": lambda text: open_message(open_row({"u": {"id": cell(3, 1, 11), "j": cell(245, text, 64)}})),
    "debezium": lambda text: debezium("c", None, {"id": 1, "j": text}, [KEY, JSON_FIELD]),
    "simple": lambda text: simple(data={"id": "1", "j": text}),
    "csv": lambda text: (CSV_KEY, f'"I","t","test",{TSO},1,"{text}"'.encode()),
}
BEFORE = {
    "simple": simple_definition("BOOTSTRAP", {"id": {"mysqlType": "int"}, "j": {"mysqlType": "json"}}),
    "csv": csv_schema(("id", {"ColumnType": "INT"}), ("j", {"ColumnType": "JSON"})),
}  # fmt: skip


@pytest.mark.parametrize("native", ["auto", "off"])
@pytest.mark.parametrize("wire", VARIANTS)
def test_random_numbers_in_variants_keep_each_digit(wire: str, native: str) -> None:
    """Numbers of up to 38 digits in JSON columns, read as VARIANT, are decimals or integers with all of them."""
    chooser = random.Random(f"{SEED} {wire} variant")
    with decimal.localcontext() as context:
        context.prec = 80
        given = [random_decimal(chooser, 38, chooser.choice([0, 0, 4, 18])) for _ in range(24)]
        first = [BEFORE[wire]] if wire in BEFORE else []
        captured = Captured.of(*first, *(VARIANTS[wire](text) for text in given))

        found = captured.read(variantJson="true", nativeCode=native).column("j").to_pylist()

        assert [of_variant(each) for each in found] == [Decimal(text) for text in given], (SEED, wire)


def test_random_decimals_of_csv_keep_each_digit() -> None:
    """Decimals of up to 65 digits in files of CSV, as they are, as strings and as documents."""
    chooser = random.Random(f"{SEED} csv")
    given = tables(chooser, 12)
    types = [(f"d{i}", {"ColumnType": "DECIMAL", "ColumnPrecision": str(p), "ColumnScale": str(s)})
             for i, (p, s) in enumerate(DECIMALS)]  # fmt: skip
    lines = [f'"I","t","test",{TSO},{",".join(row.values())}' for row in given]
    captured = Captured.of(csv_schema(*types), *((CSV_KEY, line.encode()) for line in lines))
    expected = [{name: Decimal(text) for name, text in row.items()} for row in given]

    for hints in ("", ", ".join(f"{name} string" for name, _ in types)):
        more: dict[str, Any] = {"schemaHints": hints} if hints else {}
        assert [
            {name: Decimal(row[name]) for name in given[0]} for row in captured.read(**more).to_pylist()
        ] == expected
    texts = filter(None, captured.read(outputFormat="event")["after"].to_pylist())
    documents = [json.loads(text, parse_float=Decimal) for text in texts]
    assert [{name: Decimal(row[name]) for name in given[0]} for row in documents] == expected


@pytest.mark.parametrize("text", ["12345678901234.5678", "123456789012345678901234567890", "18446744073709551616"])
def test_a_default_in_json_keeps_its_digits(text: str) -> None:
    """A default that a definition has as a JSON number is what the field metadata says."""
    column = {"ColumnType": "DECIMAL", "ColumnPrecision": "38", "ColumnScale": "4", "ColumnDefault": number(text)}
    of_csv = bare(csv_schema(("d", column)))
    csv = Captured.of(of_csv, (CSV_KEY, f'"I","t","test",{TSO},1'.encode())).schema()
    types: dict[str, dict[str, Any]] = {
        "id": {"mysqlType": "int"},
        "d": {"mysqlType": "decimal", "length": 38, "decimal": 4},
    }
    definition = simple_definition("BOOTSTRAP", types)
    value = (definition[1] or b"").replace(
        b'"nullable":true,"default":null', b'"nullable":true,"default":' + text.encode()
    )
    of_simple = Captured.of((None, value), simple(data={"id": "1", "d": "1"})).schema()

    for schema in (csv, of_simple):
        assert schema.field("d").metadata[b"ticdc.default"].decode() == text


@pytest.mark.parametrize("native", ["auto", "off"])
@pytest.mark.parametrize("text", ["9007199254740993", "-9007199254740993", "123456789012345678901"])
def test_an_integer_among_doubles_loses_no_digit(text: str, native: str) -> None:
    """A column that other messages show as a double refuses an integer that a double does not hold."""
    half = bare(debezium("c", None, {"id": 1, "x": 1.5}))
    integer = bare(debezium("c", None, {"id": 1, "x": number(text)}))
    before = bare(debezium("c", None, {"id": 1, "x": number(text), "dropped": 1}))
    options: dict[str, Any] = {"nativeCode": native}

    assert [row["x"] for row in rows(half, half, integer, **options)] == ["1.5", "1.5", text]
    if len(text) < 20:  # of another version of the table, whose values alone are integers
        with pytest.raises(DecodeError, match=r"a double cannot hold.*x string.*column=x"):
            rows(before, half, half, **options)
    started = Captured.of(half, half).schema()
    with pytest.raises(DecodeError, match=r"a double cannot hold.*x string.*column=x"):
        Captured.of(half, half, integer).read(schema=started, **options)
    assert [row["x"] for row in rows(half, half, integer, schemaHints="x string", **options)] == ["1.5", "1.5", text]


@pytest.mark.parametrize("native", ["auto", "off"])
def test_a_hint_reads_a_decimal_that_its_schema_calls_a_double(native: str) -> None:
    """TiCDC's schema calls a DECIMAL a double: a hint gives the column its type, as `tableDDL` does."""
    field = {"type": "double", "optional": True, "field": "d"}
    for fields in ([KEY, field], [KEY, {**field, "tidb_type": "DECIMAL"}]):
        message = bare(debezium("c", None, {"id": 1, "d": number("12345678901234.5678")}, fields))
        found = rows(message, message, message, schemaHints="d decimal(18,4)", nativeCode=native)
        assert [row["d"] for row in found] == [Decimal("12345678901234.5678")] * 3


@pytest.mark.parametrize("name", ["DOUBLE", "FLOAT"])
def test_a_hint_reads_no_decimal_from_a_double(name: str) -> None:
    """A column of which the message says that it is a DOUBLE or a FLOAT has no digits but those of its doubles."""
    field = {"type": name.lower(), "optional": True, "field": "d", "tidb_type": name}

    with pytest.raises(SchemaError, match=r"without loss"):
        rows(debezium("c", None, {"id": 1, "d": 1.5}, [KEY, field]), schemaHints="d decimal(18,4)")


def first_of(parsed: Any) -> Any:
    while isinstance(parsed, dict | list):
        parsed = next(iter(parsed.values())) if isinstance(parsed, dict) else parsed[0]
    return parsed
