"""`inspect --pipeline` writes Python that makes one table of each table of the topics."""

import ast

import pytest

from tests.cli.test_inspect import of_messages
from tests.support.messages import TSO, Message, canal
from ticdc_source.cli.inspect import PLATFORMS, pipeline_file
from ticdc_source.errors import OptionError


def row(table: str, number: int = 1, database: str = "shop", keys: tuple[str, ...] = ("id",), **more: str) -> Message:
    types = {"id": "int", **dict.fromkeys(more, "timestamp")}
    data = [{"id": str(number), **more}]
    commit = {"commitTs": TSO + number}
    return canal("INSERT", data, None, types, database=database, table=table, pkNames=list(keys), _tidb=commit)


def file_of(*messages: Message, platform: str = "databricks", **options: str) -> tuple[dict[str, str], list[str]]:
    inspection = of_messages(*messages, **options)
    inspection.options = {"subscribe": "t", **options}
    text = "\n".join(pipeline_file(inspection, platform))
    tree = ast.parse(text)
    given = next(
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OPTIONS"
    )
    statements = (ast.unparse(node) for node in tree.body if isinstance(node, ast.Expr))
    calls = [text for text in statements if text.startswith(("append(", "keep(", "newest("))]
    assert isinstance(given, ast.Dict)
    return {
        ast.literal_eval(key): ast.unparse(value) for key, value in zip(given.keys, given.values, strict=True) if key
    }, calls


KEPT = {
    "databricks": ["keep('orders', 'shop.orders', ['id'])"],
    "oss": ["append('orders_changes', 'shop.orders')", "newest('orders', 'orders_changes', ['id'])"],
}


@pytest.mark.parametrize("platform", KEPT)
def test_a_table_with_a_key_is_kept_and_others_are_appended(platform: str) -> None:
    """A table that had its key only for a while is appended: rows of before may have one key, and one is deleted."""
    some = (row("orders"), row("notes", keys=()), row("late", keys=()), row("late", 2))

    _, calls = file_of(*some, platform=platform)

    assert calls == ["append('late', 'shop.late')", "append('notes', 'shop.notes')", *KEPT[platform]]


def test_each_table_has_a_name_that_spark_takes() -> None:
    """Letters, digits and underscores, in small letters; with the database, or a number, if another one has it."""
    some = (
        row("a b"),
        row("A-B"),
        row("orders"),
        row("orders", database="crm"),
        row("orders_changes"),
        row("é"),
        row("2024"),
    )

    _, calls = file_of(*some)

    names = [ast.literal_eval(call.partition("(")[2].split(",")[0]) for call in calls]
    assert len({*names, *(f"{name}_changes" for name in names)}) == 2 * len(some)
    assert all(name.isidentifier() and name.isascii() and name == name.lower() for name in names)
    assert {"orders", "crm_orders"} & set(names)


def test_a_key_is_a_column_whatever_its_name() -> None:
    """Spark reads a key as an expression: another character than of words is in backticks."""
    message = canal("INSERT", [{"x.y": "1"}], None, {"x.y": "int"}, pkNames=["x.y"], _tidb={"commitTs": TSO})

    assert file_of(message)[1] == ["keep('t', 'test.t', ['`x.y`'])"]


def test_options_are_written_once_and_secrets_never() -> None:
    """Those of the user and those that all tables need; what a stream refuses, or the file sets itself, is left out."""
    secret = {"kafka.sasl.jaas.config": "…", "endingOffsets": "latest", "preimages": "true", "includeMetadata": "all"}

    given, calls = file_of(row("orders", at="2026-11-21 07:54:00"), **{**secret, "startingOffsets": "earliest"})

    assert given == {
        "startingOffsets": "'earliest'",
        "kafka.sasl.jaas.config": "spark.conf.get('ticdc.kafka.sasl.jaas.config')",
        "subscribe": "'t'",
        "timeZone": "'UTC'",
    }
    assert calls == ["keep('orders', 'shop.orders', ['id'])"]


def test_a_prefix_that_no_column_of_a_pipeline_has_is_refused() -> None:
    with pytest.raises(OptionError, match="letters, digits and underscores"):
        file_of(row("orders"), metadataColumnPrefix="a b")
    inspection = of_messages(row("orders"), metadataColumnPrefix="x_")
    inspection.options = {"metadataColumnPrefix": "x_"}
    assert all('"x_sequence"' in "\n".join(pipeline_file(inspection, platform)) for platform in PLATFORMS)
