"""`outputFormat=event` returns every event of every table in order, with rows as JSON."""

import json
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, Sizes, load, make_options, random_sizes, whole
from tests.support.messages import TSO, Message, canal, debezium, debezium_ddl, open_message
from ticdc_source.errors import DecodeError, OptionError, SchemaError
from ticdc_source.options.options import Options
from ticdc_source.pipeline.context import BatchScope, DDLCoverage, ReadContext
from ticdc_source.planning.read_context import warn_of_absent_tables, warn_of_missing_ddl
from ticdc_source.schema.table_name import TableName

SEED = 20261122
INT = {"id": "int", "v": "varchar"}
SCENARIOS = [
    "open-protocol.default.types",
    "open-protocol.default.ops",
    "open-protocol.only-output-updated-columns.types",
    "canal-json.tidb-extension.types",
    "canal-json.tidb-extension.ops",
    "canal-json.content-compatible.types",
    "debezium.tidb-extension.types",
    "debezium.tidb-extension.disable-schema.types",
    "debezium.tidb-extension.disable-schema.ops",
]


def true_events(captured: Captured) -> Iterator[tuple[tuple[int, int, int], Mapping[str, Any]]]:
    """Yield the (partition, offset, index) of each event that a read must return, in order, and its truth."""
    broadcast = captured.header["protocol"] != "canal-json"
    lowest = min(captured.partitions)
    for partition, records in captured.partitions.items():
        for offset, record in enumerate(records):
            events = record.truth["events"] if record.truth["op"] == "batch" else [record.truth]
            for index, event in enumerate(events):
                if event["op"] == "ddl" and broadcast and partition != lowest:
                    continue
                yield (partition, offset, index), event


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(
    "sizes",
    [pytest.param(whole, marks=pytest.mark.slow("as in random chunks, once more")), random_sizes(SEED)],
    ids=["whole", f"random-{SEED}"],
)
def test_a_topic_of_many_tables_has_exactly_the_events_that_were_written(scenario: str, sizes: Sizes) -> None:
    """Rows, DDL and watermarks of all tables come in the order of their partition, and a broadcast DDL event once.

    tests/corpus/test_outputs.py compares the values of the rows.
    """
    captured = load(scenario)
    protocol = captured.header["protocol"]

    rows = captured.read(outputFormat="event", sizes=sizes).to_pylist()

    seen: Counter[str] = Counter()
    true = [(address, event) for address, event in true_events(captured) if event["op"] != "bootstrap"]
    assert len(rows) == len(true)
    for row, (address, event) in zip(rows, true, strict=True):
        sequence = row["_sequence"]
        assert (sequence["partition"], sequence["offset"], sequence["index"]) == address
        seen[row["_event_type"]] += 1
        if event["op"] == "watermark":
            assert (row["_event_type"], row["watermark_ts"]) == ("watermark", event["commit_ts"])
            assert row["_commit_version"] == event["commit_ts"]
        elif event["op"] == "ddl":
            assert (row["_event_type"], row["ddl_query"]) == ("ddl", event["ddl_query"])
            assert row["_commit_version"] >> 18 == event["commit_ts"] >> 18
            if protocol == "open-protocol":
                assert (row["ddl_type"], row["ddl_type_code"]) == (event["ddl_type"], event["ddl_type_code"])
            assert (row["table_changes"] is not None) == (protocol == "debezium")
        else:
            assert (row["_event_type"], row["_op"]) == ("row", event["op"])
            assert (row["_database"], row["_table"]) == (event["schema"], event["table"])
            assert row["_commit_version"] == event["commit_ts"]
            if row["key"] is not None and event["handle_key"]:
                assert set(json.loads(row["key"])) == set(event["handle_key"])
    assert set(seen) == {"row", "ddl", "watermark"}


def insert(row: Mapping[str, Any], types: Mapping[str, str] = INT, **more: Any) -> Message:
    return canal("INSERT", [row], None, {name: types[name] for name in row}, None, **more)


def test_tables_selects_rows_and_ddl() -> None:
    """`tables` selects rows and DDL events, and keeps the DDL of a database if it selects one of its tables."""
    messages = Captured.of(
        canal("QUERY", None, isDdl=True, database="db", table="", sql="create database db"),
        canal("CREATE", None, isDdl=True, database="db", table="a", sql="create table a (id int)"),
        canal("CREATE", None, isDdl=True, database="db", table="b", sql="create table b (id int)"),
        canal("CREATE", None, isDdl=True, database="other", table="a", sql="create table a (id int)"),
        insert({"id": "1"}, database="db", table="a"),
        insert({"id": "1"}, database="db", table="b"),
    )

    rows = messages.read(outputFormat="event", tables="db.a").to_pylist()

    assert [(row["_event_type"], row["_database"], row["_table"]) for row in rows] == [
        ("ddl", "db", None), ("ddl", "db", "a"), ("row", "db", "a"),
    ]  # fmt: skip


def test_timestamps_of_events_are_in_utc() -> None:
    """TIMESTAMP text is in UTC whatever the server's time zone, and DATETIME text and zero dates stay as they are."""
    row = {"id": "1", "t": "2024-01-01 08:00:00.250", "d": "2024-01-01 08:00:00", "z": "0000-00-00 00:00:00"}
    types = {"id": "int", "t": "timestamp", "d": "datetime", "z": "timestamp"}
    messages = Captured.of(insert(row, types))

    (event,) = messages.read(outputFormat="event", timeZone="Asia/Shanghai").to_pylist()

    assert json.loads(event["after"]) == {
        "id": 1, "t": "2024-01-01 00:00:00.250", "d": "2024-01-01 08:00:00", "z": "0000-00-00 00:00:00",
    }  # fmt: skip


def test_mode_controls_bad_values_of_events() -> None:
    """A value that does not fit its type becomes a row with the reason in mode PERMISSIVE."""
    messages = Captured.of(insert({"id": "1"}), insert({"id": 7}))

    rows = messages.read(outputFormat="event", mode="PERMISSIVE").to_pylist()

    assert [row["_event_type"] for row in rows] == ["row", None]
    assert json.loads(rows[1]["_corrupt_record"])["column"] == "id"


CREATE = "create table t (id int primary key, level enum('basic','gold'), tags set('a','b'))"
ENUMS = {"id": "int", "level": "enum", "tags": "set"}


def ddl(sql: str, commit_ts: int = TSO - 9, kind: str = "CREATE") -> Message:
    return canal(kind, None, None, isDdl=True, sql=sql, _tidb={"commitTs": commit_ts})


def levels(captured: Captured, **options: str) -> list[Any]:
    rows = captured.read(sizes=whole, schema=None, outputFormat="event", **options).to_pylist()
    return [json.loads(row["after"])["level"] for row in rows if row["_event_type"] == "row"]


def test_labels_come_from_the_ddl_in_the_topic() -> None:
    """A number of ENUM or SET is the label that a DDL event in the topic gives it, as in `changelog`."""
    row = insert({"id": "1", "level": "2", "tags": "3"}, ENUMS)
    open_row = open_message((
        {"ts": TSO, "scm": "test", "tbl": "t", "t": 1},
        {"u": {"id": {"t": 3, "h": True, "f": 11, "v": 1}, "level": {"t": 247, "f": 64, "v": 2}}},
    ))  # fmt: skip
    open_ddl = open_message(({"ts": TSO - 9, "scm": "test", "tbl": "t", "t": 2}, {"q": CREATE, "t": 3}))

    _, found = Captured.of(ddl(CREATE), row).read(outputFormat="event").to_pylist()

    assert json.loads(found["after"]) == {"id": 1, "level": "gold", "tags": "a,b"}
    assert levels(Captured.of(open_ddl, open_row)) == ["gold"]


def test_labels_follow_the_version_of_the_row() -> None:
    """A row has the labels of its own version of the table, and those of the first version before it."""
    older, newer = (insert({"id": "1", "level": "2"}, ENUMS, _tidb={"commitTs": TSO + n}) for n in (0, 9))
    altered = ddl("alter table t modify level enum('basic','silver','gold')", TSO + 5, "ALTER")

    assert levels(Captured.of(ddl(CREATE), older, altered, newer)) == ["gold", "silver"]


def test_table_ddl_gives_labels_to_the_table_that_it_names() -> None:
    """`tableDDL` gives labels to its table, in any letter case, and without a database to each table of that name."""
    named = [insert({"id": "1", "level": "2"}, ENUMS, database=database, table="T") for database in ("test", "other")]

    assert levels(Captured.of(*named), tableDDL=CREATE) == ["gold", "gold"]
    assert levels(Captured.of(*named), tableDDL=CREATE.replace(" t ", " test.t ")) == ["gold", 2]


def test_table_ddl_gives_labels_to_a_table_that_no_sample_shows() -> None:
    """`tableDDL` also gives labels to a table whose rows come after the sample."""
    rows = [insert({"id": "1"}, INT, table="other")] * 40
    captured = Captured.of(*rows, insert({"id": "1", "level": "2"}, ENUMS), *rows)

    assert levels(captured, tables="test.t", tableDDL=CREATE, inferSchema__maxRecords="2") == ["gold"]
    context = captured.context(captured.schema(outputFormat="event"), make_options(
        outputFormat="event", tableDDL=CREATE, inferSchema__maxRecords="2", inferSchema__maxScannedRecords="2",
    ))  # fmt: skip
    assert [(column.name, str(column.type)) for column in context.columns_of(TableName("test", "T"))] == [
        ("id", "int"), ("level", "enum('basic','gold')"), ("tags", "set('a','b')"),
    ]  # fmt: skip


def test_a_table_that_does_not_occur_is_warned_of() -> None:
    """A table of `tableDDL` or `tables` that no message of the sample is about is one warning, which names it."""

    def told(statements: str, tables: str = "test.*", **given: str) -> list[str]:
        create = canal("CREATE", None, None, isDdl=True, sql="create table u (id int)", table="u")
        captured = Captured.of(insert({"id": "1"}, INT), create)
        options = make_options(outputFormat="event", tableDDL=statements, tables=tables, **given)
        sample = captured.sample(options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_of_absent_tables(sample, options)
        return [str(warning.message) for warning in caught]

    assert told("create table T (id int); create table test.u (id int)") == []
    (text,) = told("create table t (id int); create table x (id int); create table other.t (id int)")
    assert text.startswith("Option 'tableDDL' creates x, other.t, but no message of the sample is about x, other.t")
    (text,) = told("create table u (id int)", "test.tt")
    assert text.startswith("No row of test.tt among 2 records; tables found: test.t. ")
    (text,) = told("create table u (id int)", "test.tt,test.u,test.T,other.*")
    assert text.startswith("No row of test.tt, other.* among 2 records; tables found: test.t. ")


def test_rows_behind_the_sample_are_no_reason_to_warn() -> None:
    """Of a table that the sample does not reach, and in a stream, no one can say that it has no row: no warning."""
    first, last = insert({"id": "1"}, INT), insert({"id": "1"}, INT, table="u")
    captured = Captured.of(*[first] * 40, last, *[first] * 40)

    def told(*, is_stream: bool = False, **given: str) -> list[str]:
        options = make_options(outputFormat="event", tables="test.t,test.u,test.v", **given)
        sample = captured.sample(options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_of_absent_tables(sample, replace(options, is_stream=is_stream))
        return [str(warning.message) for warning in caught]

    assert told(inferSchema__maxRecords="2", inferSchema__maxScannedRecords="32") == []
    assert told(is_stream=True) == []
    (text,) = told()
    assert text.startswith("No row of test.v among 81 records; tables found: test.t, test.u.")


@pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")
def test_go_quoted_binary_is_base64() -> None:
    """Binary that messages write with Go's escapes is base64 of its bytes, as `changelog` has them."""
    key, value = {"ts": TSO, "scm": "test", "tbl": "t", "t": 1}, {"u": {"v": {"t": 15, "f": 1, "v": "\\x89PNG"}}}
    captured = Captured.of(open_message((key, value)))

    assert captured.read().column("v").to_pylist() == [b"\x89PNG"]
    assert captured.read(outputFormat="event").column("after").to_pylist() == ['{"v":"iVBORw=="}']


def test_a_number_without_a_label_stays_a_number() -> None:
    """A number of ENUM or SET beyond the known labels is written as it is: a later DDL event has its label."""
    rows = [insert({"id": "1", "level": level, "tags": tags}, ENUMS) for level, tags in (("1", "4"), ("3", "1"))]

    found = Captured.of(*rows).read(outputFormat="event", tableDDL=CREATE).to_pylist()

    assert [json.loads(row["after"]) for row in found] == [
        {"id": 1, "level": "basic", "tags": 4}, {"id": 1, "level": 3, "tags": "a"},
    ]  # fmt: skip


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name.endswith("types")])
def test_all_events_say_when_they_were_written(scenario: str) -> None:
    """DDL and watermarks have `_build_ts` and `_cluster_id` if rows have them: if the protocol carries them."""
    captured = load(scenario)
    values = {
        (partition, offset): json.loads(record.value) if captured.header["protocol"] != "open-protocol" else {}
        for partition, records in captured.partitions.items()
        for offset, record in enumerate(records)
        if record.value
    }

    rows = captured.read(outputFormat="event", includeMetadata="all").to_pylist()

    for row in rows:
        message = values.get((row["_partition"], row["_offset"]), {})
        payload = message.get("payload", message)
        assert row["_build_ts"] == payload.get("ts", payload.get("ts_ms"))
        assert row["_cluster_id"] == payload.get("source", {}).get("cluster_id")
    expected_ts = {"open-protocol": False, "canal-json": True, "debezium": True}[captured.header["protocol"]]
    known = Counter((row["_event_type"], row["_build_ts"] is not None) for row in rows)
    assert {kind for kind, is_known in known if is_known == expected_ts} == {"row", "ddl", "watermark"}


def with_bytes(message: Message, written: bytes) -> Message:
    return message[0], (message[1] or b"").replace(b"XX", written)


@pytest.mark.parametrize("message", [
    with_bytes(canal("CREATE", None, None, isDdl=True, sql="create XX"), b"\xff"),
    with_bytes(canal("CREATE", None, None, isDdl=True, sql="create XX"), b"\\ud800"),
    open_message(({"ts": TSO, "scm": "test", "tbl": "t", "t": 2}, b'{"q":"create \xff","t":3}')),
    with_bytes(debezium_ddl(TSO, "create XX", [{"name": "XX", "typeName": "INT"}]), b"\xff"),
], ids=["canal-json", "canal-json escape", "open-protocol", "debezium"])  # fmt: skip
def test_ddl_that_is_not_utf8_is_read(message: Message) -> None:
    """U+FFFD replaces each invalid byte of a DDL statement, and of debezium's description of the table."""
    (row,) = Captured.of(message).read(outputFormat="event").to_pylist()

    assert row["ddl_query"] == "create \ufffd"
    assert row["table_changes"] is None or '"name": "\ufffd"' in row["table_changes"]


@pytest.mark.parametrize("code", ["3000000000", "1e30", '"99999999999"', "-1"])
def test_a_ddl_type_that_tidb_cannot_have_is_a_bad_record(code: str) -> None:
    """A DDL type that TiDB cannot have makes a bad record."""
    body = b'{"q":"create","t":%b}' % code.encode()
    captured = Captured.of(open_message(({"ts": TSO, "scm": "test", "tbl": "t", "t": 2}, body)))

    (row,) = captured.read(outputFormat="event", mode="PERMISSIVE").to_pylist()

    assert "DDL type" in json.loads(row["_corrupt_record"])["reason"]


@pytest.mark.parametrize(("value", "shown"), [
    (b"a\xffb", "a\ufffdb"), (b"a\\ud800", "a\ufffd\ufffd\ufffd"),
])  # fmt: skip
def test_values_of_unknown_type_that_are_not_utf8_are_read(value: bytes, shown: Any) -> None:
    """Schema-less debezium without DDL has U+FFFD for invalid UTF-8, unless invalidUtf8=fail makes it an error."""
    captured = Captured.of(with_bytes(debezium("c", None, {"id": 1, "s": "XX"}), value))

    (row,) = captured.read(outputFormat="event").to_pylist()
    assert json.loads(row["after"]) == {"id": 1, "s": shown}
    with pytest.raises(DecodeError, match="column=s"):
        captured.read(outputFormat="event", invalidUtf8="fail")


def test_a_number_too_large_for_a_double_is_an_error() -> None:
    """A number too large for a double is an error with its column, because JSON has no Infinity."""
    message = debezium("c", None, {"id": 1, "s": 7})

    with pytest.raises(DecodeError, match="column=s"):
        Captured.of((message[0], (message[1] or b"").replace(b"7}", b"1e999}"))).read(outputFormat="event")


@pytest.mark.parametrize("text", ["0x10", "", "-", "5 "])
def test_text_that_is_not_a_number_stays_text(text: str) -> None:
    """Text that is not a number stays unchanged in the JSON of an integer column."""
    (row,) = Captured.of(insert({"id": "1"}), insert({"id": text})).read(outputFormat="event").to_pylist()[1:]

    assert json.loads(row["after"]) == {"id": text}


def test_two_columns_of_one_name_are_refused() -> None:
    """An empty prefix that makes two columns `key` is an error that names the option."""
    messages = Captured.of(insert({"id": "1"}))

    with pytest.raises(OptionError, match=r"two columns key.*metadataColumnPrefix"):
        messages.read(outputFormat="event", metadataColumnPrefix="", includeMetadata="kafka")


def test_a_schema_of_the_users_may_leave_columns_out() -> None:
    """A user's schema may leave columns out, and a column that the format lacks is refused by name."""
    messages = Captured.of(insert({"id": "1"}))

    rows = messages.read(outputFormat="event", schema=pa.schema([("after", pa.string()), ("_op", pa.string())]))
    assert rows.to_pylist() == [{"after": '{"id":1}', "_op": "insert"}]
    with pytest.raises(SchemaError, match="Column v: outputFormat=event has no such column"):
        messages.read(outputFormat="event", schema=pa.schema([("v", pa.string())]))


def test_a_read_without_partition_0_warns_of_missing_ddl() -> None:
    """canal-json has DDL in partition 0 only, so a read without that partition warns."""
    options = Options.of({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "outputFormat": "event"})
    context = ReadContext(protocol="canal-json")

    with pytest.warns(UserWarning, match="Partition 0 of t is not read; canal-json has its DDL in partition 0 only"):
        warn_of_missing_ddl(context, BatchScope(ddl_copies={"t": {1: DDLCoverage()}}), options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_missing_ddl(context, BatchScope(ddl_copies={"t": {0: DDLCoverage()}}), options)
