"""The messages of public bug reports and captures are read as their cases say (tests/data/README.md)."""

import datetime
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, Record, rows_of, single, whole
from tests.support.paths import ROOT
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.pipeline.context import BatchScope
from ticdc_source.pipeline.record_frames import decode_rows, survey
from ticdc_source.planning.frame_sample import (
    context_of_records,
    ddl_copies_in,
    frame_options,
    needs_sample,
    sample_of_records,
    schema_of_sample,
)
from ticdc_source.spark.schema import to_spark


def native(captured: Captured, options: dict[str, str]) -> pa.Table:
    return captured.read(sizes=whole, **options)


def general(captured: Captured, options: dict[str, str]) -> pa.Table:
    """Infer and read by the general path, one record after the other."""
    return captured.read(sizes=single, **{**options, "nativeCode": "off"})


def decoded(captured: Captured, options: dict[str, str]) -> pa.Table:
    """Infer and read the rows of a DataFrame, as `decode` does."""
    parsed, records = frame_options(options), rows_of(captured)
    sampled = sample_of_records(survey([records], parsed), parsed) if needs_sample(None, parsed) else None
    schema = schema_of_sample(sampled, parsed)
    context = context_of_records(schema, sampled, parsed)
    scope = BatchScope(ddl_copies=ddl_copies_in(sampled))
    return pa.Table.from_batches(decode_rows([records], schema, parsed, context, scope), schema)


def reads() -> list[Any]:
    found = []
    for line in (ROOT / "tests/data/public-cases.jsonl").read_text(encoding="ascii").splitlines():
        case = json.loads(line)
        partitions: dict[int, list[Record]] = {}
        for partition, *parts in case["records"]:
            key, value = (None if part is None else part.encode("utf-8", "surrogateescape") for part in parts)
            partitions.setdefault(partition, []).append(Record(key, value))
        captured = Captured({}, dict(sorted(partitions.items())))
        for read in case["reads"]:
            for door in (native, general, decoded):
                name = f"{case['name']}-{read['label']}-{door.__name__}"
                found.append(pytest.param(captured, read, door, id=name))
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("captured", "read", "door"), reads())
def test_reads_are_as_the_case_says(
    captured: Captured, read: Mapping[str, Any], door: Callable[[Captured, dict[str, str]], pa.Table]
) -> None:
    """A read of a public case has the rows, the types or the error that the case says, by every path and door."""
    options = read["options"]
    if "error" in read:
        with pytest.raises(TiCDCSourceError) as raised:
            door(captured, options)
        assert [word for word in read["error"] if word not in str(raised.value)] == [], raised.value
        return

    table = door(captured, options)

    rows = in_sequence(table, options.get("metadataColumnPrefix", "_"))
    types = {name: to_spark(table.schema)[name].dataType.simpleString() for name in read.get("schema", ())}
    assert types == read.get("schema", {})
    assert len(rows) == read.get("count", len(rows)), rows
    if "rows" in read:
        assert len(rows) == len(read["rows"]), rows
        named = [{name: row.get(name) for name in wanted} for row, wanted in zip(rows, read["rows"], strict=True)]
        assert named == read["rows"]
    if "sync_rows" in read:
        keys = [column.name for column in table.schema if (column.metadata or {}).get(b"ticdc.key")]
        newest = {tuple(row[key] for key in keys): row for row in rows}
        live = [row for row in newest.values() if row["_change_type"] != "delete"]
        assert [{name: row[name] for name in read["sync_rows"][0]} for row in live] == read["sync_rows"]


def in_sequence(table: pa.Table, prefix: str) -> list[dict[str, Any]]:
    name = f"{prefix}sequence"
    rows = table.to_pylist()
    # As Spark orders a struct: NULL first, then member by member.
    rows.sort(key=lambda row: [(value is not None, value or 0) for value in (row[name] or {}).values()])
    return [{name: printed(value) for name, value in row.items()} for row in rows]


def printed(value: object) -> object:
    """Write a value of a read as the cases do: decimals and times as Python prints them."""
    match value:
        case bytes():
            return f"hex:{value.hex()}"
        case datetime.timedelta():
            return f"us:{value // datetime.timedelta(microseconds=1)}"
        case datetime.datetime():
            return str(value.replace(tzinfo=None))
        case Decimal():
            return format(value, "f")
        case datetime.date():
            return str(value)
        case _:
            return value
