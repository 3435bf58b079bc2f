"""`outputFormat=envelope` returns one row per event, with the row before and the row after."""

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, Sizes, load, make_options, single, whole
from tests.support.messages import TSO, canal, debezium, dump
from ticdc_source.errors import SchemaError
from ticdc_source.pipeline.context import ReadContext
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import read_spec
from ticdc_source.schema.table_name import TableName

TYPES = {"id": "int", "v": "varchar"}


def change(operation: str, row: dict[str, Any], old: dict[str, Any] | None = None, **more: Any) -> Any:
    return canal(operation, [row], None if old is None else [old], TYPES, **more)


def test_an_event_is_one_row_with_before_and_after() -> None:
    """An insert has no `before`, a delete has no `after`, and an update has both."""
    messages = Captured.of(
        change("INSERT", {"id": "1", "v": "a"}),
        change("UPDATE", {"id": "1", "v": "b"}, {"v": "a"}, _tidb={"commitTs": TSO + 1}),
        change("DELETE", {"id": "1", "v": "b"}, _tidb={"commitTs": TSO + 2}),
    )

    rows = messages.read(outputFormat="envelope").to_pylist()

    assert [(row["op"], row["before"], row["after"]) for row in rows] == [
        ("c", None, {"id": 1, "v": "a"}),
        ("u", {"id": 1, "v": "a"}, {"id": 1, "v": "b"}),
        ("d", {"id": 1, "v": "b"}, None),
    ]
    assert [row["_sequence"]["rank"] for row in rows] == [1, 1, 0]


def test_source_says_where_an_event_comes_from() -> None:
    """`source` has Debezium's members, then the commit-ts, the protocol, the Kafka address and the cluster id."""
    message = debezium("c", after={"id": 1}, fields=[{"field": "id", "type": "int32"}], key={"id": 1})
    (row,) = Captured.of(message).read(outputFormat="envelope").to_pylist()

    source = row["source"]
    moment = source.pop("commit_timestamp")
    assert round(moment.timestamp() * 1000) == TSO >> 18
    assert source == {
        "version": "2.4.0.Final", "connector": "TiCDC", "name": "default", "ts_ms": TSO >> 18, "snapshot": "false",
        "db": "test", "table": "t", "commit_ts": TSO, "start_ts": None, "cluster_id": "default", "protocol": "debezium",
        "topic": "captured", "partition": 0, "offset": 0, "index": 0, "database": "test",
    }  # fmt: skip


@pytest.mark.parametrize(("prefix", "names"), [("_", ["op", "_op"]), ("meta_", ["op", "meta_op"]), ("", ["op"])])
def test_op_has_a_second_name_under_the_prefix(prefix: str, names: list[str]) -> None:
    """`_op` repeats `op`, unless `metadataColumnPrefix` is empty."""
    messages = Captured.of(change("DELETE", {"id": "1", "v": "a"}))

    (row,) = messages.read(outputFormat="envelope", metadataColumnPrefix=prefix).to_pylist()

    assert {name: row[name] for name in row if name.endswith("op")} == dict.fromkeys(names, "d")


DEBEZIUMS = ("version", "connector", "name", "ts_ms", "snapshot", "db", "table")


@pytest.mark.parametrize("scenario", ["debezium.default.ops", "debezium.tidb-extension.disable-schema.ops"])
@pytest.mark.parametrize("sizes", [whole, single], ids=["whole", "single"])
def test_an_envelope_of_debezium_has_what_the_message_has(scenario: str, sizes: Sizes) -> None:
    """Each member of the message that the envelope has, and `op` and `ts_ms`, are those of the message."""
    captured = load(scenario).only("ops", "acct")

    rows = captured.read(outputFormat="envelope", tables="ops.acct", sizes=sizes).to_pylist()

    assert {row["op"] for row in rows} == {"c", "u", "d"}
    for row in rows:
        at = row["_sequence"]
        payload = json.loads(captured.partitions[at["partition"]][at["offset"]].value or b"")["payload"]
        assert {name: row["source"][name] for name in DEBEZIUMS} == {
            name: payload["source"][name] for name in DEBEZIUMS
        }
        assert (row["op"], row["ts_ms"]) == (payload["op"], payload["ts_ms"])


@pytest.mark.parametrize("scenario", ["open-protocol.default.ops", "canal-json.tidb-extension.ops"])
def test_an_envelope_of_another_protocol_has_what_is_known(scenario: str) -> None:
    """Version, connector and name are NULL, no row is one of a snapshot, and open-protocol has no `ts_ms`."""
    rows = load(scenario).only("ops", "acct").read(outputFormat="envelope", tables="ops.acct").to_pylist()

    for row in rows:
        source = row["source"]
        assert [source[name] for name in DEBEZIUMS] == [
            None, None, None, row["_sequence"]["commit_ts"] >> 18, "false", "ops", "acct",
        ]  # fmt: skip
        assert (row["ts_ms"] is None) == (source["protocol"] == "open-protocol")


NATIVE = {"version": "3.3.1.Final", "connector": "mysql", "name": "shop", "ts_ms": TSO >> 18, "snapshot": "first",
          "db": "test", "sequence": None, "table": "t", "query": None}  # fmt: skip


@pytest.mark.parametrize(("written", "shown"), [
    ({}, {}),
    ({"snapshot": True}, {"snapshot": "true"}),
    ({"query": "select '}'"}, {}),
    ({"name": 'a "name"'}, {"name": 'a "name"'}),
    ({"name": None, "version": None}, {"name": None, "version": None}),
], ids=["now", "boolean", "brace", "quote", "null"])  # fmt: skip
def test_a_snapshot_of_native_debezium_is_read_as_r(written: dict[str, Any], shown: dict[str, Any]) -> None:
    """Native Debezium's `r` is the op of a row without `before`, and its `source` is shown however it is written."""
    source = {**NATIVE, **written}
    values = [{"before": None, "after": {"id": n}, "source": source, "op": op} for n, op in enumerate("rc")]
    messages = Captured.of(*((dump({"id": 0}), dump(value)) for value in values))

    rows = messages.read(outputFormat="envelope", schemaHints="id int").to_pylist()

    assert [(row["op"], row["before"], row["after"]["id"]) for row in rows] == [("r", None, 0), ("c", None, 1)]
    for row in rows:
        expected = {**{name: NATIVE[name] for name in DEBEZIUMS}, **shown}
        assert {name: row["source"][name] for name in DEBEZIUMS} == expected


def test_a_schema_of_the_users_chooses_members_of_source() -> None:
    """A user's schema may have some members of `source`, in any order, and repeated columns or not."""
    messages = Captured.of(change("INSERT", {"id": "1", "v": "a"}))
    inferred = messages.schema(outputFormat="envelope")
    source = pa.struct([("table", pa.string()), ("database", pa.string()), ("ts_ms", pa.int64())])
    schema = pa.schema([("_op", pa.string()), ("source", source), inferred.field("after"), ("op", pa.string())])

    (row,) = messages.read(outputFormat="envelope", schema=schema).to_pylist()

    assert row == {"_op": "c", "op": "c", "after": {"id": 1, "v": "a"},
                   "source": {"table": "t", "database": "test", "ts_ms": TSO >> 18}}  # fmt: skip


@pytest.mark.parametrize(("source", "message"), [
    (pa.struct([("file", pa.string())]), r"Column source\.file: source has no such member; it has version, connector"),
    (pa.struct([("ts_ms", pa.string())]), r"Column source\.ts_ms has the type string; it must be bigint"),
    (pa.struct([]), "Column source has the type struct<>; as a metadata column it must be struct"),
    (pa.string(), "Column source has the type string; as a metadata column it must be struct"),
], ids=["unknown", "type", "no member", "no struct"])  # fmt: skip
def test_a_source_of_the_users_that_is_wrong_is_refused(source: pa.DataType, message: str) -> None:
    """A member that `source` lacks, such as a binlog position, is refused with those there are."""
    messages = Captured.of(change("INSERT", {"id": "1", "v": "a"}))
    schema = pa.schema([messages.schema(outputFormat="envelope").field("after"), ("source", source)])

    with pytest.raises(SchemaError, match=message):
        messages.read(outputFormat="envelope", schema=schema)


def test_a_prefix_is_for_metadata_columns_alone() -> None:
    """`metadataColumnPrefix` is before metadata columns and not before Debezium's names, which a table cannot take."""
    types = {"op": "int", "source": "int", "ts_ms": "int"}
    messages = Captured.of(canal("INSERT", [{"op": "1", "source": "2", "ts_ms": "3"}], None, types))

    table = messages.read(outputFormat="envelope", metadataColumnPrefix="", includeMetadata="all")

    assert table.column_names[:7] == ["before", "after", "source", "op", "ts_ms", "sequence", "topic"]
    assert table.column("after").to_pylist() == [{"op": 1, "source": 2, "ts_ms": 3}]


def test_one_column_has_one_type_in_both_images() -> None:
    """A schema with two types of one column in `before` and `after` is an error that names the column."""
    messages = Captured.of(change("INSERT", {"id": "1", "v": "a"}))
    before, after = (
        pa.struct([pa.field("id", type_, metadata={"ticdc.table": "`test`.`t`", "ticdc.protocol": "canal-json"})])
        for type_ in (pa.int64(), pa.string())
    )

    with pytest.raises(SchemaError, match="Column id has different types in 'before' and 'after'"):
        messages.read(outputFormat="envelope", schema=pa.schema([("before", before), ("after", after)]))


def test_what_is_rescued_names_its_image() -> None:
    """Unknown columns of the two images are rescued separately, as `before` and `after`."""
    messages = Captured.of(change("UPDATE", {"id": "1", "v": "b"}, {"v": "a"}))
    inferred = messages.schema(outputFormat="envelope", onSchemaDrift="rescue")
    narrow = pa.struct([inferred.field("after").type.field("id")])
    schema = pa.schema([pa.field(name, narrow) for name in ("before", "after")] + [inferred.field("_rescued_data")])

    (row,) = messages.read(schema=schema, outputFormat="envelope", onSchemaDrift="rescue").to_pylist()

    rescued = json.loads(row["_rescued_data"])
    assert (rescued["before"]["v"], rescued["after"]["v"]) == ("a", "b")


def read_as(image: pa.DataType, *messages: Any) -> list[dict[str, Any]]:
    """Read events with a user's schema whose `before` and `after` have this type."""
    captured = Captured.of(*messages)
    options = make_options(outputFormat="envelope", protocol="canal-json", tables="test.t")
    schema = pa.schema([("_op", pa.string()), ("before", image), ("after", image)])
    spec = read_spec(schema, options, ReadContext(protocol="canal-json", table=TableName("test", "t")))
    found: list[dict[str, Any]] = pa.Table.from_batches(
        list(read(captured.fetch(captured.ranges()[0]), spec)), schema
    ).to_pylist()
    return found


def test_a_not_null_column_of_an_image_has_no_null() -> None:
    """NULL in a NOT NULL column of an image is an error, because Spark would read 0, but an image may be missing."""
    image = pa.struct([pa.field("id", pa.int32(), nullable=False), pa.field("v", pa.string(), nullable=False)])

    assert read_as(image, change("INSERT", {"id": "1", "v": "a"}))[0]["before"] is None
    with pytest.raises(SchemaError, match=r"Column after\.v is NOT NULL"):
        read_as(image, change("INSERT", {"id": "1", "v": None}))


@pytest.mark.parametrize("image", [pa.string(), pa.list_(pa.int32()), pa.map_(pa.string(), pa.int32())], ids=str)
def test_an_image_is_a_struct(image: pa.DataType) -> None:
    """A user's schema in which an image is not a struct is refused with the column's name."""
    with pytest.raises(SchemaError, match=r"Column before has the type .* struct of the table's columns"):
        read_as(image, change("INSERT", {"id": "1", "v": "a"}))
