"""The messages of public bug reports and captures are read as their cases say (tests/data/README.md)."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, rows_of, single, whole
from tests.support.public_cases import PublicCase, Read, cases, printed
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.pipeline.context import BatchScope
from ticdc_source.pipeline.record_frames import decode_rows, survey
from ticdc_source.planning.frame_sample import (
    context_of_records,
    frame_options,
    needs_sample,
    sample_of_records,
    schema_of_sample,
)
from ticdc_source.spark.schema import to_spark


def native(captured: Captured, options: dict[str, str]) -> pa.Table:
    """Infer and read, whole ranges at once."""
    return captured.read(sizes=whole, **options)


def general(captured: Captured, options: dict[str, str]) -> pa.Table:
    """Infer and read by the general path, one record after the other."""
    return captured.read(sizes=single, **{**options, "nativeCode": "off"})


def decoded(captured: Captured, options: dict[str, str]) -> pa.Table:
    """Infer and read the rows of a DataFrame, as `decode` does."""
    parsed, records = frame_options(options), rows_of(captured)
    sampled = sample_of_records(survey([records], parsed), parsed) if needs_sample(None, parsed) else None
    schema = schema_of_sample(sampled and sampled.sample, parsed)
    context = context_of_records(schema, sampled, parsed)
    scope = BatchScope(ddl_copies={} if sampled is None else sampled.ddl_copies)
    return pa.Table.from_batches(decode_rows([records], schema, parsed, context, scope, frozenset()), schema)


def reads() -> list[Any]:
    """Return every read of every case, by each door."""
    found = []
    for case in cases():
        for read in case.reads:
            for door in (native, general, decoded):
                name = f"{case.name}-{read.label}-{door.__name__}"
                found.append(pytest.param(case, read, door, id=name))
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("case", "read", "door"), reads())
def test_reads_are_as_the_case_says(
    case: PublicCase, read: Read, door: Callable[[Captured, dict[str, str]], pa.Table]
) -> None:
    """A read of a public case has the rows, the types or the error that the case says, by every path and door."""
    if read.error:
        with pytest.raises(TiCDCSourceError) as raised:
            door(case.captured, dict(read.options))
        assert [word for word in read.error if word not in str(raised.value)] == [], raised.value
        return

    table = door(case.captured, dict(read.options))

    rows = in_sequence(table, read.options.get("metadataColumnPrefix", "_"))
    types = {name: to_spark(table.schema)[name].dataType.simpleString() for name in read.schema}
    assert types == dict(read.schema)
    assert read.count is None or len(rows) == read.count, rows
    if read.rows is not None:
        assert len(rows) == len(read.rows), rows
        named = [{name: row.get(name) for name in wanted} for row, wanted in zip(rows, read.rows, strict=True)]
        assert named == read.rows
    if read.sync_rows is not None:
        keys = [column.name for column in table.schema if (column.metadata or {}).get(b"ticdc.key")]
        newest = {tuple(row[key] for key in keys): row for row in rows}
        live = [row for row in newest.values() if row["_change_type"] != "delete"]
        assert [{name: row[name] for name in read.sync_rows[0]} for row in live] == read.sync_rows


def in_sequence(table: pa.Table, prefix: str) -> list[dict[str, Any]]:
    """Return the rows in the order of `_sequence`, with values as the cases write them."""
    name = f"{prefix}sequence"
    rows = table.to_pylist()
    # As Spark orders a struct: NULL first, then member by member.
    rows.sort(key=lambda row: [(value is not None, value or 0) for value in (row[name] or {}).values()])
    return [{name: printed(value) for name, value in row.items()} for row in rows]
