"""What the demo reads and says: a table's changes, the rebuilt table, and the comparison with SQL."""

import operator
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.types import DecimalType, FloatType, StructType

from examples.data import TableTruth
from examples.demo.added_columns import AddedColumn
from examples.demo.compare import Comparison, compare, numbered_columns
from examples.demo.pipeline import current_rows, fill_added_columns, read_changes, summary
from examples.demo.screen import SAMPLES, ColumnLine, Screen

OPERATIONS = {"insert": "insert", "update": "update_postimage", "delete": "delete"}

NOTES = {
    "open-protocol": "",
    "canal-json": "",
    "debezium": """\
TiCDC's debezium sends a DECIMAL as a JSON double, good for 15 digits; no value here has more. It also sends the DEFAULT
of a column that is NULL; no column here may be NULL and has one. So nothing is excused in the comparison.""",
}
"""What is special in a protocol's messages. tests/examples/test_demo_data.py holds it against the data."""


@dataclass(frozen=True)
class TableRead:
    """What was read of one table from one protocol.

    Attributes:
        truth: the table in SQL.
        schema: the schema of its changes.
        seconds: for each change type and second: `count`, `different`, and the `first` change.
        rows: the rebuilt table.
        added: its columns that were added during the stream.
        comparison: the result of the comparison with SQL.
        took: how long Spark took, in seconds.
    """

    truth: TableTruth
    schema: StructType
    seconds: list[dict[str, Any]]
    rows: pa.Table
    added: list[AddedColumn]
    comparison: Comparison
    took: float

    @property
    def changes(self) -> dict[str, int]:
        """The number of changes by operation, repeated ones included."""
        return {
            operation: sum(row["count"] for row in self.seconds if row["_change_type"] == change_type)
            for operation, change_type in OPERATIONS.items()
        }

    @property
    def repeated(self) -> int:
        """The number of changes that TiCDC sent a second time."""
        return sum(
            row["count"] - row["different"] for row in self.seconds if row["_change_type"] in OPERATIONS.values()
        )

    @property
    def as_sent(self) -> bool:
        """Whether these are the changes that TiCDC sent."""
        return (self.changes, self.repeated) == (self.truth.changes, self.truth.repeated)

    @property
    def good(self) -> bool:
        """Whether everything is as expected."""
        return self.as_sent and not self.comparison.differences


@dataclass(frozen=True)
class Source:
    """Where the messages of one protocol are, and the columns that were added during the stream."""

    spark: SparkSession
    bootstrap: str
    topic: str
    added: Sequence[AddedColumn]

    def read_table(self, truth: TableTruth) -> TableRead:
        """Read the changes of a table, rebuild it, and compare it."""
        began = time.monotonic()
        changes = read_changes(self.spark, self.bootstrap, self.topic, truth.table)
        changes = changes.cache()  # read from Kafka once, used twice
        seconds = summary(changes).toArrow().to_pylist()
        added = [column for column in self.added if column.table == truth.table]
        rows = fill_added_columns(current_rows(changes), added).toArrow()
        changes.unpersist()
        took = time.monotonic() - began
        return TableRead(truth, changes.schema, seconds, rows, added, compare(truth, rows), took)


def show_table(screen: Screen, read: TableRead) -> None:
    """Show the columns of a table and some of its changes."""
    first: dict[str, Mapping[str, Any]] = {}
    for row in sorted(read.seconds, key=operator.itemgetter("second")):
        first.setdefault(row["_change_type"], row["first"])
    lines = [
        ColumnLine(
            f"{field.name} [bold](key)[/]" if field.metadata.get("ticdc.key") else field.name,
            field.dataType.simpleString(),
            str(field.metadata.get("ticdc.mysql_type", "")),
            {
                change_type: _rounded(row[field.name]) if isinstance(field.dataType, FloatType) else row[field.name]
                for change_type, row in first.items()
            },
        )
        for field in read.schema
    ]
    screen.changes(read.truth.table, lines, [change_type for change_type in SAMPLES if change_type in first])
    for column in read.added:
        older = pc.sum(pc.less(read.rows["_commit_version"], column.commit_ts)).as_py() or 0
        screen.say(
            f"{column.name}: {older:,} rows were last written before this column was added. TiDB gives them the "
            "default of the column without writing them, so no row message has it. The demo takes it from the DDL "
            f"message: [italic]{column.query}[/]"
        )


def show_differences(screen: Screen, read: TableRead) -> None:
    """Show what is not as in SQL."""
    if not read.as_sent:
        screen.say(
            f"[bold red]{read.truth.table}: TiCDC sent {read.truth.changes}, {read.truth.repeated:,} of them twice; "
            f"read were {read.changes}, {read.repeated:,} of them twice.[/]"
        )
    if read.comparison.differences:
        screen.differences(read.truth.table, read.comparison.differences)


def show_protocol(screen: Screen, protocol: str, reads: Sequence[TableRead]) -> None:
    """Show a line for each table, and what is special in the messages."""
    lines = [
        (
            read.truth.table,
            *(f"{count:,}" for count in read.changes.values()),
            f"{read.repeated:,}",
            f"{read.comparison.rows:,}",
            f"{read.comparison.equal:,}",
            f"{read.took:.1f} s",
        )
        for read in reads
    ]
    screen.table(("table", "inserts", "updates", "deletes", "sent twice", "rows now", "as in SQL", "Spark"), lines)
    screen.say(about_decimals([read.schema for read in reads]))
    numbers = [name for read in reads for name in numbered_columns(read.truth, read.rows)]
    if numbers:
        screen.say(
            f"{' and '.join(numbers)}: these messages have no labels of ENUM and SET, only numbers. "
            "They are compared with SQL's numbers."
        )
    if NOTES[protocol]:
        screen.say(NOTES[protocol])


def about_decimals(schemas: Iterable[StructType]) -> str:
    """Say whether Spark's DECIMAL columns have the precision that they have in TiDB, as the tables show it."""
    types = [
        (field.name, field.dataType.simpleString(), str(field.metadata.get("ticdc.mysql_type", "decimal")))
        for schema in schemas
        for field in schema
        if isinstance(field.dataType, DecimalType) and "bigint" not in str(field.metadata.get("ticdc.mysql_type", ""))
    ]
    wider = [f"{name} is {spark} in Spark" for name, spark, tidb in types if spark != tidb]
    if wider:
        return f"The messages do not tell the precision of every DECIMAL: {', '.join(wider)}."
    return (
        f"DECIMAL columns ({', '.join(name for name, *_ in types)}) have in Spark the precision that they have in TiDB."
    )


def show_chart(screen: Screen, protocol: str, reads: Sequence[TableRead]) -> None:
    """Show how many changes of each table were read, and when they were committed."""
    screen.title(f"What was read from {protocol}")
    screen.bars({read.truth.table: read.changes for read in reads})
    per_second: dict[str, dict[datetime, int]] = {}
    for read in reads:
        counts = per_second.setdefault(read.truth.table, {})
        for row in read.seconds:
            if row["_change_type"] in OPERATIONS.values():
                counts[row["second"]] = counts.get(row["second"], 0) + row["count"]
    screen.curves(per_second)
    twice = [row["second"] for read in reads for row in read.seconds if row["count"] > row["different"]]
    if twice:
        screen.say(
            f"The changes committed from {min(twice):%H:%M:%S} to {max(twice):%H:%M:%S} arrived twice: "
            "TiCDC restarted, and it delivers at least once."
        )


def _rounded(value: float | None) -> str | None:
    return None if value is None else f"{value:.7g}"
