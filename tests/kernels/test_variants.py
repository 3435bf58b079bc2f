"""VARIANT: the same bytes as Spark's own parse_json makes."""

import json
import random
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.variant_utils import VariantUtils

from tests.support.captured import Captured, rows
from tests.support.messages import Message, canal, cell, debezium, open_message, open_row
from ticdc_source.errors import DecodeError
from ticdc_source.kernels.variants import variant_of
from ticdc_source.schema.types import VARIANT

SEED = 20261121

# A document, and its value and metadata as Spark 4.3's parse_json writes them.
KNOWN = {
    "null": ("00", "010000"),
    "true": ("04", "010000"),
    "-1": ("0cff", "010000"),
    "128": ("108000", "010000"),
    "2147483648": ("180000008000000000", "010000"),
    "1.50": ("200296000000", "010000"),
    "18446744073709551615": ("2800" + "ff" * 8 + "00" * 8, "010000"),
    "1e0": ("1c000000000000f03f", "010000"),
    '"ab"': ("096162", "010000"),
    "[]": ("030000", "010000"),
}


@pytest.mark.parametrize("text", KNOWN)
def test_a_document_has_the_bytes_that_spark_makes(text: str) -> None:
    """One document for each type of value."""
    value, metadata = variant_of(text)

    assert (value.hex(), metadata.hex()) == KNOWN[text]


def random_document(chooser: random.Random, depth: int = 4) -> Any:
    choice = chooser.randrange(10 if depth else 7)
    if choice == 0:
        return chooser.choice([None, True, False, "", {}, []])
    if choice == 1:
        return chooser.randrange(-(1 << 63), 1 << 63) >> chooser.randrange(64)
    if choice == 2:
        return chooser.randrange(-(10**27), 10**27)  # PySpark reads back 28 digits
    if choice in (3, 4, 5):
        return 'é😀"\\a'[: chooser.randrange(6)] * chooser.choice([1, 1, 9, 70])
    if choice == 6:
        return chooser.uniform(-1e9, 1e9)
    size = chooser.choice([1, 2, 3, 300]) if depth == 4 else chooser.randrange(4)
    if choice == 7:
        return [random_document(chooser, depth - 1) for _ in range(size)]
    return {f"{chooser.choice('abé😀')}{n}": random_document(chooser, depth - 1) for n in range(size)}


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [plain(member) for member in value]
    if isinstance(value, float):
        return Decimal(repr(value))
    return Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value


def test_random_documents_read_back() -> None:
    """PySpark's own reader of VARIANT returns the document that was written."""
    chooser = random.Random(SEED)
    for number in range(400):
        text = json.dumps(random_document(chooser))
        value, metadata = variant_of(text)

        assert plain(VariantUtils.to_python(value, metadata)) == plain(json.loads(text, parse_float=Decimal)), (
            SEED,
            number,
            text,
        )


ID = {"id": "int"}
DOCUMENT = '{"b": 1.50, "a": ["é", null]}'
MESSAGES = {
    "open-protocol": [
        open_message(open_row({"u": {"id": cell(3, 1, 11), "j": cell(245, value, 64)}})) for value in (DOCUMENT, None)
    ],
    "canal-json": [
        canal("INSERT", [{"id": "1", "j": value}], None, {"id": "int", "j": "json"}) for value in (DOCUMENT, None)
    ],
    "debezium": [
        debezium("c", None, {"id": 1, "j": value}, [
            {"type": "int32", "field": "id"}, {"type": "string", "name": "io.debezium.data.Json", "field": "j"}
        ])
        for value in (DOCUMENT, None)
    ],
}  # fmt: skip


@pytest.mark.parametrize("protocol", MESSAGES)
def test_json_columns_are_variants(protocol: str) -> None:
    """In all protocols. NULL stays NULL, and without the option the columns are text."""
    captured = Captured.of(*MESSAGES[protocol])

    table = captured.read(schema=captured.schema(variantJson="true"))

    assert table.schema.field("j").type == VARIANT
    first, second = table.column("j").to_pylist()
    read: Any = VariantUtils.to_python(first["value"], first["metadata"])
    assert read == {"a": ["é", None], "b": Decimal("1.50")}
    assert second is None
    assert captured.schema().field("j").type == pa.string()
    assert captured.schema(variantJson="true", schemaHints="j string").field("j").type == pa.string()


def broken(text: str) -> Message:
    return canal("INSERT", [{"id": "1", "j": text}], None, {"id": "int", "j": "json"})


@pytest.mark.parametrize("text", ["{", '{"a":1,"a":2}', "NaN", '"\\ud800"', "[" * 100_000])
def test_a_text_that_is_no_variant_is_a_bad_record(text: str) -> None:
    """The error has its address."""
    with pytest.raises(DecodeError, match="column=j"):
        rows(broken(text), variantJson="true")


@pytest.mark.parametrize("protocol", ["canal-json", "debezium without schema"])
@pytest.mark.parametrize("depth", [900, 1_200, 5_000, 100_000])
def test_a_deep_document_is_a_row_or_a_bad_record(protocol: str, depth: int) -> None:
    """However deep a document is, the rows beside it are read, and it is a row too or has an address."""
    for deep in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        if protocol == "canal-json":
            messages, hints = [broken("1"), broken(deep), broken("2")], {}
        else:
            odd = b'{"payload":{"source":{"db":"test","table":"t","commit_ts":7},"op":"c","after":{"j":%s}}}'
            messages = [(b"{}", odd % each.encode()) for each in ("{}", deep, "{}")]
            hints = {"schemaHints": "j string"}

        found = rows(*messages, variantJson="true", mode="PERMISSIVE", **hints)

        assert len(found) == 3
        assert [row["j"] is None for row in found[::2]] == [False, False]
        if found[1]["j"] is None:
            assert "offset" in found[1]["_corrupt_record"]
            assert re.search("too deep|depth (limit|exceeded)", found[1]["_corrupt_record"])
