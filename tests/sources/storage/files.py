"""Reads of a changefeed's files without Spark, and their comparison with the truth."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.corpus.test_corpus import differences, quoted
from tests.support.captured import Captured, Record
from tests.support.storage_sink import StorageSink
from tests.support.truth import tables_with_rows, true_rows
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadState, read_spec
from ticdc_source.planning.fetchers import fetch_settings, record_source
from ticdc_source.planning.load import batch_options, infer_schema, plan_batch


def read_files(path: Path, **options: str) -> pa.Table:
    """Infer and read, as the Spark source does."""
    given = {"path": str(path), **{name.replace("__", "."): value for name, value in options.items()}}
    parsed, schema = batch_options(given), infer_schema(given)
    plan = plan_batch(schema, parsed)
    spec = read_spec(schema, parsed, plan.context, plan.scope)
    state, settings = ReadState.of(spec), fetch_settings(parsed, plan.context.protocol)
    fetcher = record_source(parsed).fetcher(settings, protocol=plan.context.protocol)
    batches = [batch for piece in plan.partitions for each in piece for batch in read(fetcher.fetch(each), spec, state)]
    return pa.Table.from_batches(batches, schema)


def compare(sink: StorageSink, header: Mapping[str, Any], **options: str) -> int:
    """Read each table and compare each row, and where it is, with the truth; return how many rows were compared."""
    captured = Captured(header, {0: [Record(None, None, event) for *_, event in sink.placed]})
    count = 0
    for database, table in tables_with_rows(captured):
        rows = read_files(sink.folder, tables=quoted(database, table), includeMetadata="kafka", **options).to_pylist()
        found = {(row["_topic"], row["_offset"], row["_change_type"]): row for row in rows}
        true = list(true_rows(captured, database, table))
        assert len(found) == len(rows) == len(true), f"{table}: {len(rows)} rows, not {len(true)}"
        for truth in true:
            path, number, position, _ = sink.placed[truth.offset]
            row = found[path, position, truth.change_type]
            there = replace(truth, partition=number, offset=position)
            wrong = differences(header, there, row, Counter())
            assert not wrong, f"{table} {path} {position}: {wrong}"
        count += len(rows)
    return count
