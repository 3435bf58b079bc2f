"""`outputFormat=envelope`: one row an event, with the row before and the row after."""

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, load, make_options
from tests.support.messages import TSO, canal, debezium
from ticdc_source.driver.context import ReadContext
from ticdc_source.driver.plan import read_spec
from ticdc_source.errors import SchemaError
from ticdc_source.events import TableName
from ticdc_source.pipeline.read import read

TYPES = {"id": "int", "v": "varchar"}


def change(kind: str, row: dict[str, Any], old: dict[str, Any] | None = None, **more: Any) -> Any:
    """Make a canal-json row message of test.t."""
    return canal(kind, [row], None if old is None else [old], TYPES, **more)


def test_an_event_is_one_row_with_before_and_after() -> None:
    """An insert has no before, a delete no after, an update both, each whole."""
    messages = Captured.of(
        change("INSERT", {"id": "1", "v": "a"}),
        change("UPDATE", {"id": "1", "v": "b"}, {"v": "a"}, _tidb={"commitTs": TSO + 1}),
        change("DELETE", {"id": "1", "v": "b"}),
    )

    rows = messages.read(outputFormat="envelope").to_pylist()

    assert [(row["_op"], row["before"], row["after"]) for row in rows] == [
        ("c", None, {"id": 1, "v": "a"}),
        ("u", {"id": 1, "v": "a"}, {"id": 1, "v": "b"}),
        ("d", {"id": 1, "v": "b"}, None),
    ]
    assert [row["_sequence"]["rank"] for row in rows] == [1, 1, 0]


def test_source_tells_where_an_event_comes_from() -> None:
    """`source` holds table, commit-ts, protocol and the place in Kafka; the wire's cluster id where there is one."""
    message = debezium("c", after={"id": 1}, fields=[{"field": "id", "type": "int32"}], key={"id": 1})
    (row,) = Captured.of(message).read(outputFormat="envelope").to_pylist()

    source = row["source"]
    moment = source.pop("commit_timestamp")
    assert round(moment.timestamp() * 1000) == TSO >> 18
    assert source == {
        "database": "test", "table": "t", "commit_ts": TSO, "cluster_id": "default", "protocol": "debezium",
        "topic": "captured", "partition": 0, "offset": 0, "index": 0,
    }  # fmt: skip


def test_preimages_false_leaves_before_out_of_updates() -> None:
    """Without pre-images `before` is NULL in an update, and stays in a delete."""
    messages = Captured.of(change("UPDATE", {"id": "1", "v": "b"}, {"v": "a"}), change("DELETE", {"id": "1", "v": "b"}))

    rows = messages.read(outputFormat="envelope", preimages="false").to_pylist()

    assert [row["before"] for row in rows] == [None, {"id": 1, "v": "b"}]


def test_a_schema_of_the_users_chooses_columns_of_both_images() -> None:
    """`before` and `after` may have fewer columns, and each its own."""
    messages = Captured.of(change("UPDATE", {"id": "1", "v": "b"}, {"v": "a"}))
    inferred = messages.schema(outputFormat="envelope")
    wanted = pa.schema([
        pa.field("before", pa.struct([inferred.field("before").type.field("v")])),
        pa.field("after", inferred.field("after").type),
    ])  # fmt: skip

    rows = messages.read(outputFormat="envelope", schema=wanted).to_pylist()

    assert rows == [{"before": {"v": "a"}, "after": {"id": 1, "v": "b"}}]


def test_one_column_has_one_type_in_both_images() -> None:
    """A schema that asks for different types of one column in `before` and `after` is refused by name."""
    messages = Captured.of(change("INSERT", {"id": "1", "v": "a"}))
    before, after = (
        pa.struct([pa.field("id", type_, metadata={"ticdc.table": "`test`.`t`", "ticdc.protocol": "canal-json"})])
        for type_ in (pa.int64(), pa.string())
    )

    with pytest.raises(SchemaError, match="Column id has one type in 'before' and another in 'after'"):
        messages.read(outputFormat="envelope", schema=pa.schema([("before", before), ("after", after)]))


def test_what_is_rescued_names_its_image() -> None:
    """What the schema lacks of both images is kept apart, as `before` and `after`."""
    messages = Captured.of(change("UPDATE", {"id": "1", "v": "b"}, {"v": "a"}))
    inferred = messages.schema(outputFormat="envelope", onSchemaDrift="rescue")
    narrow = pa.struct([inferred.field("after").type.field("id")])
    schema = pa.schema([pa.field(name, narrow) for name in ("before", "after")] + [inferred.field("_rescued_data")])

    (row,) = messages.read(schema=schema, outputFormat="envelope", onSchemaDrift="rescue").to_pylist()

    rescued = json.loads(row["_rescued_data"])
    assert (rescued["before"]["v"], rescued["after"]["v"]) == ("a", "b")


@pytest.mark.parametrize(
    "scenario", ["open-protocol.default.ops", "canal-json.tidb-extension.ops", "debezium.default.ops"]
)
def test_the_envelope_holds_the_rows_of_the_changelog(scenario: str) -> None:
    """Of every table of the operations matrix, both formats tell the same, row for row."""
    captured = load(scenario)
    for table in ("`ops`.`acct`", "`ops`.`part`", "`ops`.`comp`"):
        rows = captured.read(tables=table).to_pylist()
        events = captured.read(tables=table, outputFormat="envelope").to_pylist()

        images = []
        for event in events:
            for kind, image in (("before", event["before"]), ("after", event["after"])):
                if image is not None:
                    images.append((event["_sequence"]["offset"], kind, image))
        names = [name for name in rows[0] if not name.startswith("_")]
        assert images == [
            (
                row["_sequence"]["offset"],
                "before" if row["_change_type"] in ("delete", "update_preimage") else "after",
                {name: row[name] for name in names},
            )
            for row in rows
        ]


def read_as(image: pa.DataType, *messages: Any) -> list[dict[str, Any]]:
    """Read events by a schema of the user's, whose `before` and `after` have this type."""
    captured = Captured.of(*messages)
    options = make_options(outputFormat="envelope", protocol="canal-json", tables="test.t")
    schema = pa.schema([("_op", pa.string()), ("before", image), ("after", image)])
    reading = read_spec(schema, options, ReadContext(protocol="canal-json", table=TableName("test", "t")))
    found: list[dict[str, Any]] = pa.Table.from_batches(
        list(read(captured.fetch(captured.ranges()[0]), reading)), schema
    ).to_pylist()
    return found


def test_a_column_of_an_image_that_must_not_be_null_is_not() -> None:
    """Spark would take the NULL of an integer that is NOT NULL for a 0; an image that is not there has none."""
    image = pa.struct([pa.field("id", pa.int32(), nullable=False), pa.field("v", pa.string(), nullable=False)])

    assert read_as(image, change("INSERT", {"id": "1", "v": "a"}))[0]["before"] is None
    with pytest.raises(SchemaError, match=r"Column after\.v is NOT NULL"):
        read_as(image, change("INSERT", {"id": "1", "v": None}))


@pytest.mark.parametrize("image", [pa.string(), pa.list_(pa.int32()), pa.map_(pa.string(), pa.int32())], ids=str)
def test_an_image_is_a_struct(image: pa.DataType) -> None:
    """A schema of the user's in which it is something else is refused with the column's name."""
    with pytest.raises(SchemaError, match=r"Column before has the type .* struct of the table's columns"):
        read_as(image, change("INSERT", {"id": "1", "v": "a"}))
