"""Avro schemas that TiCDC cannot have written, and that would take too long: each is an error, within seconds."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.captured import Record, load
from tests.support.corpus import scenario
from tests.support.registry import SchemaServer, schemas_of, serving
from ticdc_source.errors import DecodeError
from ticdc_source.options.logins import RegistrySettings
from ticdc_source.protocols.registry_framing import schema_of

EMPTY = {"type": "record", "name": "e", "fields": []}


def record(*types: Any, name: str = "t") -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": type_} for number, type_ in enumerate(types)]
    return {"type": "record", "name": name, "namespace": "default.d", "fields": fields}


def array(items: Any, kind: str = "array") -> dict[str, Any]:
    return {"type": kind, "items" if kind == "array" else "values": items}


def doubled(times: int) -> dict[str, Any]:
    """Return a record of 2 to the power of so many empty records, by names."""
    schema: dict[str, Any] = {**EMPTY, "namespace": "default.d"}
    for level in range(times):
        schema = record(schema, f"default.d.{schema['name']}", name=f"r{level}")
    return schema


def nested(depth: int) -> str:
    return '{"type":"array","items":' * depth + '"int"' + "}" * depth


REFUSED = {
    "nulls": json.dumps(record(array("null"))),
    "fixed of no bytes": json.dumps(record(array({"type": "fixed", "name": "z", "size": 0}))),
    "empty records": json.dumps(record(array(EMPTY))),
    "by name": json.dumps(record(EMPTY, array("default.d.e"))),
    "records of nulls": json.dumps(record(array(record("null", "null", name="n")))),
    "many nulls in a map": json.dumps(record(array(record(*["null"] * 4000, name="n"), "map"))),
    "an array in an array": json.dumps(record(array(array("null")))),
    "types": json.dumps(record(*[["null", "int"]] * 90_000)),
    "columns": json.dumps(record(*["int"] * 5_000)),
    "itself": json.dumps(record("long", ["null", "t"])),
    "itself in an array": json.dumps(record(array("t"))),
    "doubled": json.dumps(doubled(40)),
    "deep": json.dumps(record("X")).replace('"X"', nested(40_000)),
    "negative": json.dumps(record(array({"type": "fixed", "name": "z", "size": -1}))),
}


@pytest.fixture
def server() -> Iterator[SchemaServer]:
    with serving({str(number): text for number, text in enumerate(REFUSED.values(), 1)}) as server:
        yield server


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.timeout(30)
def test_a_schema_of_items_without_bytes_is_refused(server: SchemaServer, kind: str) -> None:
    """A schema by which a few bytes are billions of items is an error that names it, for each record as fast."""
    settings = RegistrySettings(urls=(server.url,))
    schema_id = list(REFUSED).index(kind) + 1
    began = time.monotonic()

    for _ in range(50):
        with pytest.raises(DecodeError, match=rf"schema {schema_id} "):
            schema_of(settings, schema_id)
    assert time.monotonic() - began < 5


def test_schemas_of_ticdc_are_within_the_limits() -> None:
    """Every schema of the corpus is taken, and a table with the most columns of TiDB."""
    names = ("avro.tidb-extension", "debezium-avro.default")
    texts = [text for name in names for text in schemas_of(scenario(name).header).values()]
    widest = record(*[["null", "int"]] * 4096, ["null", record(*[["null", "int"]] * 4096, name="before")])
    numbered = {str(number): text for number, text in enumerate([*texts, json.dumps(widest)], 1)}

    with serving(numbered) as server:
        taken = [schema_of(RegistrySettings(urls=(server.url,)), int(number)) for number in numbered]

    assert len(taken) == len(texts) + 1 > 1


@pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")
def test_a_source_that_is_not_utf8_ends_no_read() -> None:
    """A text of `source` with bytes that are not UTF-8 is shown with U+FFFD, and the other rows come as they are."""
    captured = load("debezium-avro.default")
    damaged = replace(captured, partitions={
        partition: [replace_value(record) for record in records] for partition, records in captured.partitions.items()
    })  # fmt: skip
    options: dict[str, Any] = {"outputFormat": "envelope", "tables": "types_a.t_int"}

    good, found = (each.read(**options).to_pylist() for each in (captured, damaged))

    assert len(found) == len(good) > 0
    assert {row["source"]["name"] for row in found} == {"\ufffdefault"}
    assert [row["after"] for row in found] == [row["after"] for row in good]


def replace_value(record: Record) -> Record:
    value = record.value and record.value.replace(b"Final\nTiCDC\x0edefault", b"Final\nTiCDC\x0e\xffefault")
    return replace(record, value=value)
