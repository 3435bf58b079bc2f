"""`outputFormat=envelope` returns one row per event, with the row before and the row after."""

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, load, make_options
from tests.support.messages import TSO, canal, debezium
from ticdc_source.driver.context import ReadContext
from ticdc_source.driver.read_spec import read_spec
from ticdc_source.errors import SchemaError
from ticdc_source.events import TableName
from ticdc_source.pipeline.read import read

TYPES = {"id": "int", "v": "varchar"}


def change(operation: str, row: dict[str, Any], old: dict[str, Any] | None = None, **more: Any) -> Any:
    """Make a canal-json row message of test.t."""
    return canal(operation, [row], None if old is None else [old], TYPES, **more)


def test_an_event_is_one_row_with_before_and_after() -> None:
    """An insert has no `before`, a delete has no `after`, and an update has both."""
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


def test_source_says_where_an_event_comes_from() -> None:
    """`source` holds an event's table, commit-ts, protocol, Kafka address and, if the message has one, cluster id."""
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
    """With `preimages=false`, `before` is NULL in an update and stays in a delete."""
    messages = Captured.of(change("UPDATE", {"id": "1", "v": "b"}, {"v": "a"}), change("DELETE", {"id": "1", "v": "b"}))

    rows = messages.read(outputFormat="envelope", preimages="false").to_pylist()

    assert [row["before"] for row in rows] == [None, {"id": 1, "v": "b"}]


def test_a_schema_of_the_users_chooses_columns_of_both_images() -> None:
    """A user's schema can have different columns in `before` and `after`."""
    messages = Captured.of(change("UPDATE", {"id": "1", "v": "b"}, {"v": "a"}))
    inferred = messages.schema(outputFormat="envelope")
    schema = pa.schema([
        pa.field("before", pa.struct([inferred.field("before").type.field("v")])),
        pa.field("after", inferred.field("after").type),
    ])  # fmt: skip

    rows = messages.read(outputFormat="envelope", schema=schema).to_pylist()

    assert rows == [{"before": {"v": "a"}, "after": {"id": 1, "v": "b"}}]


def test_one_column_has_one_type_in_both_images() -> None:
    """A schema with two types of one column in `before` and `after` is an error that names the column."""
    messages = Captured.of(change("INSERT", {"id": "1", "v": "a"}))
    before, after = (
        pa.struct([pa.field("id", type_, metadata={"ticdc.table": "`test`.`t`", "ticdc.protocol": "canal-json"})])
        for type_ in (pa.int64(), pa.string())
    )

    with pytest.raises(SchemaError, match="Column id has one type in 'before' and another in 'after'"):
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


@pytest.mark.parametrize(
    "scenario", ["open-protocol.default.ops", "canal-json.tidb-extension.ops", "debezium.default.ops"]
)
def test_the_envelope_holds_the_rows_of_the_changelog(scenario: str) -> None:
    """For tables of the operations matrix, the envelope holds the same rows as the changelog, in the same order."""
    captured = load(scenario)
    for table in ("`ops`.`acct`", "`ops`.`part`", "`ops`.`comp`"):
        rows = captured.read(tables=table).to_pylist()
        events = captured.read(tables=table, outputFormat="envelope").to_pylist()

        images = []
        for event in events:
            for member, image in (("before", event["before"]), ("after", event["after"])):
                if image is not None:
                    images.append((event["_sequence"]["offset"], member, image))
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
