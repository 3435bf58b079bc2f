"""One table in one protocol: its changes, the rebuilt table, and the comparison with SQL."""

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
    """The result for one table: rows compared, rows equal, and whether everything is as expected."""

    rows: int
    equal: int
    good: bool


def show_table(screen: Screen, changes: DataFrame, truth: TableTruth, added: Iterable[AddedColumn]) -> Verdict:
    """Show the changes of a table, rebuild it, and compare it."""
    changes = changes.cache()  # read from Kafka once, used twice
    by_type = {row["_change_type"]: row for row in summary(changes).toArrow().to_pylist()}
    screen.changes(truth.table, changes.schema, {change_type: row["first"] for change_type, row in by_type.items()})
    complete = _show_counts(screen, by_type, truth)

    added = [column for column in added if column.table == truth.table]
    rows = fill_added_columns(current_rows(changes), added).toArrow()
    changes.unpersist()
    for column in added:
        _show_added_column(screen, column, rows)
    numbers = numbered_columns(truth, rows)
    if numbers:
        screen.say(
            f"{' and '.join(numbers)}: these messages have no labels of ENUM and SET, only numbers. "
            "They are compared with SQL's numbers."
        )
    comparison = compare(truth, rows)
    screen.say(f"{comparison.rows:,} rows compared with SQL, in every column: {comparison.equal:,} are equal.")
    if comparison.differences:
        screen.differences(comparison.differences)
    return Verdict(comparison.rows, comparison.equal, complete and not comparison.differences)


def _show_counts(screen: Screen, by_type: Mapping[str, Mapping[str, Any]], truth: TableTruth) -> bool:
    """Print the number of changes; return whether it is the number that TiCDC sent."""
    named = {"insert": "insert", "update": "update_postimage", "delete": "delete"}
    found = {operation: by_type[change_type] for operation, change_type in named.items() if change_type in by_type}
    changes = {operation: found[operation]["count"] if operation in found else 0 for operation in named}
    repeated = sum(row["count"] - row["different"] for row in found.values())
    counts = ", ".join(f"{count:,} {operation}s" for operation, count in changes.items())
    screen.say(f"{counts}. {repeated:,} of them arrived twice, because TiCDC restarted and delivers at least once.")
    if (changes, repeated) == (truth.changes, truth.repeated):
        return True
    screen.say(f"[bold red]TiCDC sent {truth.changes}, {truth.repeated:,} of them twice.[/]")
    return False


def _show_added_column(screen: Screen, column: AddedColumn, rows: pa.Table) -> None:
    """Print how many rows have a value that no row message has, and where the value comes from."""
    older = pc.sum(pc.less(rows["_commit_version"], column.commit_ts)).as_py() or 0
    screen.say(
        f"{column.name}: {older:,} rows were last written before this column was added. TiDB gives them the "
        "default of the column without writing them, so no row message has it. The demo takes it from the DDL "
        f"message: [italic]{column.query}[/]"
    )
