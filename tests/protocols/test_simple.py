"""simple: a row is read by the version of its table that it names."""

import json
from typing import Any

import pytest

from tests.support.captured import Captured, load, make_options, single, whole
from tests.support.messages import TSO, Message, dump, simple, simple_definition
from ticdc_source.errors import DecodeError, UnsupportedTypeError
from ticdc_source.pipeline.spec import read_spec
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.protocols.base import Learned
from ticdc_source.protocols.decoding import splits_of
from ticdc_source.protocols.simple import definitions_of
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import parse_type

INT = {"mysqlType": "int", "charset": "binary", "length": 11}
VARCHAR = {"mysqlType": "varchar", "charset": "utf8mb4", "length": 9}


def enum(*labels: str) -> dict[str, Any]:
    return {"mysqlType": "enum", "charset": "utf8mb4", "length": 9, "elements": list(labels)}


def read(*messages: Message, **options: str) -> list[dict[str, Any]]:
    """Infer and read the messages of one topic partition, in chunks of any size."""
    rows: list[dict[str, Any]] = Captured.of(*messages).read(sizes=whole, **options).to_pylist()
    assert Captured.of(*messages).read(sizes=single, **options).to_pylist() == rows
    return rows


@pytest.mark.parametrize("scenario", ["simple.json.types", "simple.json.ops"])
def test_a_definition_is_the_table(scenario: str) -> None:
    """Names, types, NOT NULL and keys are those that TiDB has, in the order of the table."""
    captured = load(scenario)
    defined = {}
    for offset_range in captured.ranges():
        for chunk in captured.fetch(offset_range):
            for split in splits_of(PROTOCOLS["simple"], chunk):
                defined.update(definitions_of([*split.ddl, *split.bootstraps]))
    compared = 0

    for table in captured.header["tables"]:
        columns = defined.get((TableName(table["schema"], table["table"]), table["table_version"]))
        if columns is None:
            continue
        compared += len(columns)
        assert [column.name for column in columns] == [column["name"] for column in table["columns"]]
        for column, declared in zip(columns, table["columns"], strict=True):
            assert column.type is not None
            assert column.type.arrow == parse_type(declared["mysql_type"]).arrow, declared
            assert column.facts.nullable == declared["nullable"]
            assert column.facts.primary_key in (None, column.name in table["primary_key"])
        doubtful = {column.facts.handle_key for column in columns} == {None}
        assert doubtful == (table["table"] == "uk_only")
        assert doubtful or {column.name for column in columns if column.key} == set(table["handle_key"])

    assert compared > 50


def test_rows_of_two_versions_have_their_own_labels() -> None:
    """A number stands for the label of the version that the row names, whatever the commit-ts says."""
    rows = read(
        simple_definition("CREATE", {"id": INT, "e": enum("a", "b")}, TSO - 9),
        simple_definition("ALTER", {"id": INT, "e": enum("b", "a")}, TSO - 5),
        simple(data={"id": "1", "e": "1"}, version=TSO - 9),
        simple(data={"id": "2", "e": "1"}, version=TSO - 5, commitTs=TSO - 7),
    )

    assert [row["e"] for row in rows] == ["a", "b"]


def test_a_row_may_come_before_its_definition() -> None:
    """Within a read, a BOOTSTRAP behind a row defines it too."""
    late = [simple(data={"id": "1", "v": "x"}), simple_definition("BOOTSTRAP", {"id": INT, "v": VARCHAR})]

    assert [row["v"] for row in Captured.of(*late).read().to_pylist()] == ["x"]


@pytest.mark.parametrize("kind", ["CREATE", "BOOTSTRAP"])
def test_a_definition_in_other_letters_defines_the_rows(kind: str) -> None:
    """TiDB's DDL jobs have the database in lower case; names of the table and its columns count without case, too."""
    message = simple_definition(kind, {"id": INT, "Total": VARCHAR}, table="orders")
    define = message[0], (message[1] or b"").replace(b'"schema":"test"', b'"schema":"shop_b"')
    row = simple(data={"id": "1", "TOTAL": "x"}, database="Shop_B", table="Orders")
    captured = Captured.of(define, row)

    assert captured.read(sizes=whole, tables="shop_b.orders").to_pylist()[0]["TOTAL"] == "x"
    assert captured.read(sizes=single, includeMetadata="all").to_pylist()[0]["_database"] == "Shop_B"


def with_start_ts(number: int) -> Message:
    """Return a row; every other one has a start-ts, in TiCDC's place."""
    key, value = simple(data={"id": str(number)})
    start_ts = b',"startTs":%d' % (TSO - 100 + number) if number % 2 else b""
    return key, (value or b"").replace(b',"buildTs":', start_ts + b',"buildTs":')


@pytest.mark.parametrize("native_code", ["auto", "off"])
def test_a_row_has_the_start_ts_of_its_message(native_code: str) -> None:
    """`startTs` is `_start_ts`; a message without it has NULL there."""
    define = simple_definition("BOOTSTRAP", {"id": INT})

    found = read(define, *map(with_start_ts, range(6)), includeMetadata="all", nativeCode=native_code)

    assert [row["_start_ts"] for row in found] == [TSO - 100 + n if n % 2 else None for n in range(6)]


@pytest.mark.usefixtures("native_path")
def test_messages_with_and_without_a_start_ts_take_the_native_path() -> None:
    """Once templates are learned, native code reads both kinds."""
    captured = Captured.of(simple_definition("BOOTSTRAP", {"id": INT}), *map(with_start_ts, range(300)))
    options, schema = make_options(), captured.schema()
    context = captured.context(schema, options)
    (chunk,) = captured.fetch(captured.ranges()[0])
    decoder, learned = PROTOCOLS["simple"], Learned(definitions=context.definitions)
    (events,) = decoder.split(chunk).tables.values()
    plan = read_spec(schema, options, context).plan

    decoder.decode(events, plan, learned)
    native = decoder.decode(events, plan, learned)

    assert not native.parsed
    assert native.start_ts.null_count == 150


def test_a_version_that_nobody_defines_is_an_error_with_advice() -> None:
    """The error names the version, the table and the record, and says how to get a BOOTSTRAP."""
    with pytest.raises(DecodeError, match=rf"version {TSO - 9} of test.t is not known: .*send-bootstrap") as raised:
        read(simple(data={"id": "1"}))

    assert raised.value.address.offset == 0


def test_an_unknown_version_among_others_is_one_bad_record() -> None:
    """The rows of versions that are known are read."""
    known = simple_definition("BOOTSTRAP", {"id": INT})
    rows = read(known, simple(data={"id": "1"}), simple(data={"id": "2"}, version=TSO), mode="PERMISSIVE")

    assert [row["id"] for row in rows] == [1, None]
    assert f"version {TSO} of test.t is not known" in rows[1]["_corrupt_record"]


@pytest.mark.parametrize(("cell", "zone", "expected"), [
    ({"location": "Asia/Shanghai", "value": "2026-01-02 08:00:00"}, "UTC", "2026-01-02T00:00:00+00:00"),
    ({"location": "UTC", "value": "2026-01-02 00:00:00.5"}, "UTC", "2026-01-02T00:00:00.500000+00:00"),
    ({"location": "Local", "value": "2026-01-02 08:00:00"}, "Asia/Shanghai", "2026-01-02T00:00:00+00:00"),
    ({"location": "UTC", "value": "0000-00-00 00:00:00"}, "UTC", None),
    (None, "UTC", None),
])  # fmt: skip
def test_a_timestamp_is_in_its_own_zone(cell: Any, zone: str, expected: str | None) -> None:
    """`location` is the zone; `Local` is that of the server's process, which `timeZone` says."""
    column = {"mysqlType": "timestamp", "charset": "binary", "length": 19}
    define = simple_definition("BOOTSTRAP", {"id": INT, "at": column})

    (row,) = read(define, simple(data={"id": "1", "at": cell}), timeZone=zone)

    assert (None if row["at"] is None else row["at"].isoformat()) == expected


@pytest.mark.parametrize(
    "cell",
    [
        "2026-01-02",
        {"location": "Nowhere/City", "value": "2026-01-02 00:00:00"},
        {},
        {"location": None, "value": "2026-01-02 00:00:00"},
    ],
)
def test_a_timestamp_in_another_form_is_a_bad_record(cell: Any) -> None:
    """A text without a zone, a zone that does not exist, and an object without members are errors of the column."""
    column = {"mysqlType": "timestamp", "charset": "binary", "length": 19}
    define = simple_definition("BOOTSTRAP", {"id": INT, "at": column})

    with pytest.raises(DecodeError) as raised:
        read(define, simple(data={"id": "1", "at": cell}))

    assert raised.value.address.column == "at"


def test_rows_of_several_zones_are_read_together() -> None:
    """Each cell has its own zone."""
    column = {"mysqlType": "timestamp", "charset": "binary", "length": 19}
    define = simple_definition("BOOTSTRAP", {"id": INT, "at": column})
    cells = [None, *({"location": zone, "value": "2026-01-02 08:00:00"} for zone in ("UTC", "Asia/Shanghai"))]

    rows = read(define, *(simple(data={"id": str(number), "at": cell}) for number, cell in enumerate(cells)))

    assert [row["at"] and row["at"].hour for row in rows] == [None, 8, 0]


def test_a_type_that_is_unknown_is_an_error() -> None:
    """A view's columns have no type; a table with an unknown one is refused by name."""
    odd = {"mysqlType": "geometry", "charset": "binary", "length": -1}

    with pytest.raises(UnsupportedTypeError, match=r"Column g of test\.t: type geometry is not supported"):
        read(simple_definition("BOOTSTRAP", {"id": INT, "g": odd}), simple(data={"id": "1", "g": "x"}))


@pytest.mark.parametrize("column", [{"mysqlType": 5}, {**VARCHAR, "length": 1.5}, {**INT, "mysqlType": "("}, None])
def test_a_broken_definition_is_a_bad_record(column: Any) -> None:
    """It is reported where it stands, and defines nothing."""
    message = simple_definition("BOOTSTRAP", {"id": INT, "x": column})

    with pytest.raises(DecodeError, match="not a simple message") as raised:
        read(simple_definition("BOOTSTRAP", {"id": INT}), simple(data={"id": "1"}), message)

    assert raised.value.address.offset == 2


def test_a_bootstrap_is_an_event_that_changes_nothing() -> None:
    """`event` has it with the definition and no commit-ts; `record` says which table it defines."""
    messages = [
        (None, dump({"version": 1, "type": "QUERY", "sql": "DROP DATABASE IF EXISTS `s x`", "commitTs": TSO,
                     "buildTs": 5})),
        simple_definition("BOOTSTRAP", {"id": INT}),
        simple(data={"id": "1"}),
        (None, dump({"version": 1, "type": "WATERMARK", "commitTs": TSO, "buildTs": 5})),
    ]  # fmt: skip

    events = read(*messages, outputFormat="event")
    records = read(*messages, outputFormat="record")

    assert [row["_event_type"] for row in events] == ["ddl", "bootstrap", "row", "watermark"]
    assert [(row["_database"], row["_table"]) for row in events[:2]] == [("s x", None), ("test", "t")]
    assert (events[0]["ddl_kind"], events[1]["_commit_version"]) == ("drop_database", None)
    assert json.loads(events[1]["table_changes"])[0]["version"] == TSO - 9
    assert [row["_event_types"] for row in records] == [["ddl"], ["bootstrap"], ["row"], ["watermark"]]
    assert [row["_tables"] for row in records] == [[], ["test.t"], ["test.t"], []]


def test_the_schema_carries_the_definitions() -> None:
    """The read schema has the versions that the sample defines, so that a range without a BOOTSTRAP is read."""
    define, row = simple_definition("BOOTSTRAP", {"id": INT, "e": enum("a", "b")}), simple(data={"id": "1", "e": "2"})
    schema = Captured.of(define, row).schema()

    assert [each["e"] for each in Captured.of(row).read(schema=schema).to_pylist()] == ["b"]
    index = schema.get_field_index("id")
    metadata = {name: text for name, text in schema.field(index).metadata.items() if name != b"ticdc.definitions"}
    with pytest.raises(DecodeError, match="is not known"):
        Captured.of(row).read(schema=schema.set(index, schema.field(index).with_metadata(metadata)))


@pytest.mark.parametrize("unique", [["id"], ["v"]])
def test_a_key_in_doubt_is_stated_by_ddl(unique: list[str]) -> None:
    """A primary key that repeats a unique key may be none: then only DDL or `tableDDL` tells the handle key."""
    columns = {"id": INT, "v": INT}
    define = json.loads(simple_definition("BOOTSTRAP", columns)[1] or b"")
    for column in define["tableSchema"]["columns"]:
        column["nullable"] = False
    indexes = [("uk_v", ["v"], False), ("uk", ["id"], False), ("primary", ["id"], True)]
    define["tableSchema"]["indexes"] = [
        {"name": name, "unique": True, "primary": primary, "nullable": False, "columns": names}
        for name, names, primary in indexes
    ]
    captured = Captured.of((None, dump(define)), simple(data={"id": "1", "v": "2"}))
    ddl = f"CREATE TABLE t (id int not null, v int not null, PRIMARY KEY ({unique[0]}))"

    keys = [
        {field.name for field in captured.schema(**given) if b"ticdc.key" in (field.metadata or {})}
        for given in ({}, {"tableDDL": ddl})
    ]

    assert keys == [set(), set(unique)]


def test_local_timestamps_need_a_zone() -> None:
    """If the sample has the zone of the server's process, `load` warns as with a protocol that names no zone."""
    define = simple_definition("BOOTSTRAP", {"id": INT, "at": {"mysqlType": "timestamp", "charset": "binary"}})
    row = simple(data={"id": "1", "at": {"location": "Local", "value": "2026-01-02 08:00:00"}})

    with pytest.warns(UserWarning, match="time zone of the TiCDC server"):
        Captured.of(define, row).schema()
    Captured.of(define, row).schema(timeZone="UTC")


@pytest.mark.parametrize("options", [{"startingCommitTs": "1"}, {"endingCommitTs": str(TSO + 1)}])
def test_a_bootstrap_is_in_any_commit_range(options: dict[str, str]) -> None:
    """It has no commit-ts, and is needed for the rows of any."""
    events = read(
        simple_definition("BOOTSTRAP", {"id": INT}), simple(data={"id": "1"}), outputFormat="event", **options
    )

    assert [row["_event_type"] for row in events] == ["bootstrap", "row"]


def test_avro_tells_the_commit_ts_without_a_parse() -> None:
    """Records in Avro have the commit-ts of the same records in JSON."""
    of_json, of_avro = (load(f"simple.{name}.ops").read(outputFormat="record") for name in ("json", "avro"))

    assert of_avro["_event_types"] == of_json["_event_types"]
    assert [each is None for each in of_avro["_commit_version"].to_pylist()] == [
        each is None for each in of_json["_commit_version"].to_pylist()
    ]


def test_options_of_a_read_hold_for_simple() -> None:
    """Columns, operations and hints are those of any protocol."""
    define = simple_definition("BOOTSTRAP", {"id": INT, "v": VARCHAR})
    changes = [
        simple("UPDATE", {"id": "1", "v": "b"}, {"id": "1", "v": "a"}),
        simple("DELETE", None, {"id": "1", "v": "b"}),
    ]

    rows = read(define, *changes, operations="update", schemaHints="id bigint")

    assert [(row["_change_type"], row["id"], row["v"]) for row in rows] == [
        ("update_preimage", 1, "a"), ("update_postimage", 1, "b"),
    ]  # fmt: skip
    assert make_options(protocol="simple").protocol == "simple"
