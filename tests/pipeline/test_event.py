"""`outputFormat=event`: every table and every kind of event, in order, rows as JSON."""

import base64
import json
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, Record, Sizes, load, random_sizes, single, whole
from tests.support.messages import TSO, Message, canal, debezium, debezium_ddl, open_message
from tests.support.truth import expected, is_true
from ticdc_source.driver.context import ReadContext, lowest_partitions, warn_of_missing_ddl
from ticdc_source.errors import DecodeError, OptionError, SchemaError
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition

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
    """Yield (partition, offset, index) and the truth of what a read must give, in its order."""
    broadcast = captured.header["protocol"] != "canal-json"
    lowest = min(captured.partitions)
    for partition, records in captured.partitions.items():
        for offset, record in enumerate(records):
            events = record.truth["events"] if record.truth["op"] == "batch" else [record.truth]
            for index, event in enumerate(events):
                if event["op"] == "ddl" and broadcast and partition != lowest:
                    continue
                yield (partition, offset, index), event


def holds(value: Any, truth: Any, mysql_type: str) -> bool:
    """Tell whether a value of a JSON document is the truth."""
    if truth is None or value is None:
        return bool(truth is value)
    kind = mysql_type.split("(", maxsplit=1)[0].split(maxsplit=1)[0]
    if kind in ("tinyint", "smallint", "mediumint", "int", "bigint", "year"):
        return type(value) is int and value == int(truth)
    if kind == "decimal":
        return isinstance(value, (int, Decimal)) and Decimal(value) == Decimal(truth)
    if kind in ("float", "double"):
        return not isinstance(value, str) and bool(is_true(float(value), truth, mysql_type))
    if isinstance(truth, dict) and "label" in truth:
        return bool(value in (truth["label"], truth["number"]))
    if isinstance(truth, dict) and "number" in truth:
        return type(value) is int and value == truth["number"]
    if isinstance(truth, dict):
        return bool(base64.b64decode(value).hex() == truth["hex"])
    if kind in ("datetime", "timestamp", "time"):  # as many digits of fraction as the wire tells
        return bool(value == truth or value == truth.rstrip("0").rstrip(".") or value.rstrip("0").rstrip(".") == truth)
    return bool(value == truth)


def wrong_members(text: str | None, event: Mapping[str, Any], image: str, protocol: str) -> list[str]:
    """Return what differs between a document and the columns of a true row."""
    columns = {
        column["name"]: column
        for column in event["columns"]
        if image in column and column.get("generated") != "VIRTUAL"
    }
    if text is None:
        return [f"no {image}"] if columns else []
    found = json.loads(text, parse_float=Decimal)
    out = [] if list(found) and set(found) == set(columns) else [f"columns {set(found) ^ set(columns)}"]
    for name in set(found) & set(columns):
        left, _ = expected(protocol, {"default": None, "nullable": True, **columns[name]}, columns[name][image])
        if isinstance(left, dict) and "double" in left:
            ok = float(found[name]) == left["double"]
        else:
            ok = holds(found[name], left, columns[name]["mysql_type"])
        if not ok:
            out.append(f"{name} {columns[name]['mysql_type']}: {found[name]!r}, not {left!r}")
    return out


def declared(captured: Captured, event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Complete a row's truth by what its table's declaration says of the columns."""
    if "columns" not in event:
        return event
    for entry in captured.header["tables"]:
        if (entry["schema"], entry["table"], entry["table_version"]) == (
            event["schema"], event["table"], event["table_version"],
        ):  # fmt: skip
            columns = {column["name"]: column for column in entry["columns"]}
            context = {"change_type": "", **{of: captured.header[of] for of in ("time_zone", "config")}}
            whole_columns = [{**columns.get(c["name"], {}), **c, **context} for c in event["columns"]]
            keyless = not entry["primary_key"] and not entry["handle_key"]
            return {**event, "columns": whole_columns, "handle_key": [] if keyless else event["handle_key"]}
    return event


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("sizes", [whole, random_sizes(SEED)], ids=["whole", f"random-{SEED}"])
def test_a_topic_of_many_tables_gives_exactly_the_events_that_were_written(scenario: str, sizes: Sizes) -> None:
    """Rows, DDL and watermarks of all tables come in the order of the partition, a broadcast DDL once."""
    captured = load(scenario)
    protocol = captured.header["protocol"]

    rows = captured.read(outputFormat="event", sizes=sizes).to_pylist()

    seen: Counter[str] = Counter()
    true = [(place, event) for place, event in true_events(captured) if event["op"] != "bootstrap"]
    assert len(rows) == len(true)
    for row, (place, event) in zip(rows, true, strict=True):
        sequence = row["_sequence"]
        assert (sequence["partition"], sequence["offset"], sequence["index"]) == place
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
            full = declared(captured, event)
            for image in ("before", "after"):
                wrong = wrong_members(row[image], full, image, protocol)
                assert not wrong, f"{place} {event['table']} {image}: {wrong}"
            key = {} if row["key"] is None else json.loads(row["key"])
            if protocol != "canal-json" or key:  # which has no handle key but the primary key (docs/wire.md, item 42)
                assert set(key) == set(full["handle_key"])
    assert set(seen) == {"row", "ddl", "watermark"}


def test_documents_are_the_same_however_records_are_cut() -> None:
    """One record a chunk gives the same events as all records at once."""
    captured = load("open-protocol.default.ops")

    assert captured.read(outputFormat="event", sizes=single).equals(captured.read(outputFormat="event"))


def insert(row: Mapping[str, Any], types: Mapping[str, str] = INT, **more: Any) -> Message:
    """Make an INSERT of test.t."""
    return canal("INSERT", [row], None, {name: types[name] for name in row}, None, **more)


def test_tables_chooses_rows_and_ddl() -> None:
    """`tables` holds for DDL too, and the DDL of a database stays where one of its tables is wanted."""
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


def test_operations_and_preimages_hold_for_events() -> None:
    """`operations` leaves rows out, `preimages=false` the row before an update."""
    messages = Captured.of(
        insert({"id": "1", "v": "a"}),
        canal("UPDATE", [{"id": "1", "v": "b"}], [{"v": "a"}], INT),
        canal("DELETE", [{"id": "1", "v": "b"}], None, INT),
    )

    rows = messages.read(outputFormat="event", operations="update", preimages="false").to_pylist()

    assert [(row["_op"], row["before"], row["after"]) for row in rows] == [("update", None, '{"id":1,"v":"b"}')]


def test_timestamps_of_events_are_in_utc() -> None:
    """TIMESTAMP text is in UTC whatever the server's zone is; DATETIME is left as it is, zero dates too."""
    row = {"id": "1", "t": "2024-01-01 08:00:00.250", "d": "2024-01-01 08:00:00", "z": "0000-00-00 00:00:00"}
    types = {"id": "int", "t": "timestamp", "d": "datetime", "z": "timestamp"}
    messages = Captured.of(insert(row, types))

    (event,) = messages.read(outputFormat="event", timeZone="Asia/Shanghai").to_pylist()

    assert json.loads(event["after"]) == {
        "id": 1, "t": "2024-01-01 00:00:00.250", "d": "2024-01-01 08:00:00", "z": "0000-00-00 00:00:00",
    }  # fmt: skip


def test_a_bad_value_of_an_event_is_met_as_mode_says() -> None:
    """A value that does not fit its type fails the read, or becomes a row with the reason."""
    messages = Captured.of(insert({"id": "1"}), insert({"id": 7}))

    rows = messages.read(outputFormat="event", mode="PERMISSIVE").to_pylist()

    assert [row["_event_type"] for row in rows] == ["row", None]
    assert json.loads(rows[1]["_corrupt_record"])["column"] == "id"


def with_bytes(message: Message, written: bytes) -> Message:
    """Put bytes in the place of XX."""
    return message[0], (message[1] or b"").replace(b"XX", written)


@pytest.mark.parametrize("message", [
    with_bytes(canal("CREATE", None, None, isDdl=True, sql="create XX"), b"\xff"),
    with_bytes(canal("CREATE", None, None, isDdl=True, sql="create XX"), b"\\ud800"),
    open_message(({"ts": TSO, "scm": "test", "tbl": "t", "t": 2}, b'{"q":"create \xff","t":3}')),
    with_bytes(debezium_ddl(TSO, "create XX", [{"name": "XX", "typeName": "INT"}]), b"\xff"),
], ids=["canal-json", "canal-json escape", "open-protocol", "debezium"])  # fmt: skip
def test_ddl_that_is_not_utf8_is_read(message: Message) -> None:
    """U+FFFD stands for each byte that is none, in the statement and in debezium's description of the table."""
    (row,) = Captured.of(message).read(outputFormat="event").to_pylist()

    assert row["ddl_query"] == "create \ufffd"
    assert row["table_changes"] is None or '"name": "\ufffd"' in row["table_changes"]


@pytest.mark.parametrize("code", ["3000000000", "1e30", '"99999999999"', "-1"])
def test_a_ddl_type_that_tidb_cannot_have_is_no_ddl(code: str) -> None:
    """It is met as mode says, and breaks nothing else."""
    body = b'{"q":"create","t":%b}' % code.encode()
    captured = Captured.of(open_message(({"ts": TSO, "scm": "test", "tbl": "t", "t": 2}, body)))

    (row,) = captured.read(outputFormat="event", mode="PERMISSIVE").to_pylist()

    assert "DDL type" in json.loads(row["_corrupt_record"])["reason"]


@pytest.mark.parametrize(("value", "shown"), [
    (b"a\xffb", "a\ufffdb"), (b"a\\ud800", "a\ufffd\ufffd\ufffd"),
])  # fmt: skip
def test_values_of_no_known_type_that_are_not_utf8_are_read(value: bytes, shown: Any) -> None:
    """Schema-less debezium without DDL: what the JSON held, and U+FFFD where that is no text."""
    captured = Captured.of(with_bytes(debezium("c", None, {"id": 1, "s": "XX"}), value))

    (row,) = captured.read(outputFormat="event").to_pylist()
    assert json.loads(row["after"]) == {"id": 1, "s": shown}
    with pytest.raises(DecodeError, match="column=s"):
        captured.read(outputFormat="event", invalidUtf8="fail")


def test_a_number_beyond_double_is_no_json() -> None:
    """What would be written as Infinity, which is no JSON, is an error with its address."""
    message = debezium("c", None, {"id": 1, "s": 7})

    with pytest.raises(DecodeError, match="column=s"):
        Captured.of((message[0], (message[1] or b"").replace(b"7}", b"1e999}"))).read(outputFormat="event")


@pytest.mark.parametrize("text", ["0x10", "", "-", "5 "])
def test_what_is_no_number_stays_what_it_was(text: str) -> None:
    """In the JSON of an integer column a text that is no number is neither cut nor made into one."""
    (row,) = Captured.of(insert({"id": "1"}), insert({"id": text})).read(outputFormat="event").to_pylist()[1:]

    assert json.loads(row["after"]) == {"id": text}


def test_two_columns_of_one_name_are_refused() -> None:
    """An empty prefix makes the Kafka key and the handle key one name: the error says which option helps."""
    messages = Captured.of(insert({"id": "1"}))

    with pytest.raises(OptionError, match=r"two columns key.*metadataColumnPrefix"):
        messages.read(outputFormat="event", metadataColumnPrefix="", includeMetadata="kafka")


def test_a_schema_of_the_users_may_leave_columns_out() -> None:
    """Only what is asked for is given; a column that the format does not have is refused by name."""
    messages = Captured.of(insert({"id": "1"}))

    rows = messages.read(outputFormat="event", schema=pa.schema([("after", pa.string()), ("_op", pa.string())]))
    assert rows.to_pylist() == [{"after": '{"id":1}', "_op": "insert"}]
    with pytest.raises(SchemaError, match="Column v: outputFormat=event has no such column"):
        messages.read(outputFormat="event", schema=pa.schema([("v", pa.string())]))


def test_the_lowest_partition_of_each_topic_keeps_ddl() -> None:
    """Of a broadcast DDL the copy of the lowest partition that is read is kept, for each topic on its own."""
    places = [TopicPartition("a", 2), TopicPartition("a", 1), TopicPartition("b", 0)]

    assert lowest_partitions(places) == {"a": 1, "b": 0}


def test_a_read_without_partition_0_warns_of_missing_ddl() -> None:
    """canal-json has its DDL in partition 0 only: a read without it says so, a read with it does not."""
    options = Options.of({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "outputFormat": "event"})

    with pytest.warns(UserWarning, match="Partition 0 of t is not read; canal-json has its DDL in partition 0 only"):
        warn_of_missing_ddl(ReadContext(protocol="canal-json", ddl_partitions={"t": 1}), options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_missing_ddl(ReadContext(protocol="canal-json", ddl_partitions={"t": 0}), options)


def test_broadcast_ddl_is_collapsed() -> None:
    """open-protocol sends a DDL to every partition: one is kept; watermarks are kept from each."""
    ddl = open_message(({"ts": TSO, "scm": "db", "tbl": "t", "t": 2}, {"q": "drop table t", "t": 4}))
    mark = open_message(({"ts": TSO, "t": 3}, b""))
    captured = Captured({}, {1: [Record(*ddl), Record(*mark)], 2: [Record(*ddl), Record(*mark)]})

    rows = captured.read(outputFormat="event").to_pylist()

    assert [(row["_sequence"]["partition"], row["_event_type"]) for row in rows] == [
        (1, "ddl"), (1, "watermark"), (2, "watermark"),
    ]  # fmt: skip
    assert (rows[0]["ddl_type"], rows[0]["ddl_type_code"]) == ("drop table", 4)
