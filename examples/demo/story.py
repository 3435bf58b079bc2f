"""One table in one protocol: what came, what became of it, and whether SQL says the same."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from examples.data import TableTruth
from examples.demo.added_columns import AddedColumn
from examples.demo.compare import compare, numbered_columns
from examples.demo.pipeline import current_rows, fill_added_columns, summary
from examples.demo.screen import Screen

_NO_PRECISION = """\
They do not tell a DECIMAL's precision, so Spark reads decimal(38, scale). Values are compared digit by digit."""

WIRE = {
    "open-protocol": _NO_PRECISION,
    "canal-json": _NO_PRECISION,
    "debezium": """\
TiCDC's debezium sends a DECIMAL as a JSON double, good for 15 digits. Its DDL messages tell the precision, so
Spark reads decimal(p, s) all the same; no value here has more digits, and they are compared digit by digit. It
also sends the DEFAULT of a column that is NULL; no column here may be NULL and has one, so nothing is excused.""",
}
"""What a protocol's messages lack. tests/examples/test_demo_data.py holds these texts against the data."""


@dataclass(frozen=True)
class Verdict:
    """What came out for one table: rows compared, rows equal, and whether all is as it should be."""

    rows: int
    equal: int
    good: bool


def show_table(screen: Screen, changes: DataFrame, truth: TableTruth, added: Iterable[AddedColumn]) -> Verdict:
    """Show the changes of a table, rebuild it, and compare it."""
    changes = changes.cache()  # read from Kafka once, used twice
    kinds = {row["_change_type"]: row for row in summary(changes).toArrow().to_pylist()}
    screen.changes(truth.table, changes.schema, {kind: row["first"] for kind, row in kinds.items()})
    complete = _show_counts(screen, kinds, truth)

    added = [column for column in added if column.table == truth.table]
    rows = fill_added_columns(current_rows(changes), added).toArrow()
    changes.unpersist()
    for column in added:
        _show_added_column(screen, column, rows)
    numbers = numbered_columns(truth, rows)
    if numbers:
        screen.say(
            f"{' and '.join(numbers)}: an ENUM or SET has no labels in these messages, only numbers. "
            "Compared with SQL's numbers."
        )
    comparison = compare(truth, rows)
    screen.say(f"{comparison.rows:,} rows compared with SQL's, every column: {comparison.equal:,} equal.")
    if comparison.differences:
        screen.differences(comparison.differences)
    return Verdict(comparison.rows, comparison.equal, complete and not comparison.differences)


def _show_counts(screen: Screen, kinds: Mapping[str, Mapping[str, Any]], truth: TableTruth) -> bool:
    """Print how many changes came; tell whether those are as many as were sent."""
    named = {"insert": "insert", "update": "update_postimage", "delete": "delete"}
    found = {operation: kinds[kind] for operation, kind in named.items() if kind in kinds}
    changes = {operation: found[operation]["count"] if operation in found else 0 for operation in named}
    repeated = sum(row["count"] - row["different"] for row in found.values())
    counts = ", ".join(f"{count:,} {operation}s" for operation, count in changes.items())
    screen.say(f"{counts}. {repeated:,} of them came twice: TiCDC restarted, and it delivers at least once.")
    if (changes, repeated) == (truth.changes, truth.repeated):
        return True
    screen.say(f"[bold red]TiCDC sent {truth.changes}, {truth.repeated:,} of them twice.[/]")
    return False


def _show_added_column(screen: Screen, column: AddedColumn, rows: pa.Table) -> None:
    """Say how many rows have a value that no row message carries, and where it is from."""
    older = pc.sum(pc.less(rows["_commit_version"], column.commit_ts)).as_py() or 0
    screen.say(
        f"{column.name}: {older:,} rows were last written before this column was added. TiDB gives them its "
        "default without writing them, so no row message has it. The demo takes it from the stream's own DDL "
        f"message: [italic]{column.query}[/]"
    )
