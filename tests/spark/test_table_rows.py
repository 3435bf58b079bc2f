"""Chosen rows of a table of TiDB, of a recorded conversation: `python -m tests.tidb.record` records it."""

from typing import TYPE_CHECKING

import pytest

from tests.tidb.conversation import Conversation, replayed
from tests.tidb.record import PATH, ROWS, ROWS_PER_RANGE, TABLE
from tests.tidb.snapshots import address
from ticdc_source.options.topics import parse_table
from ticdc_source.schema.model import Column
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import parse_type
from ticdc_source.sources.tidb.sql import StoredRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_ranges_are_read_side_by_side(spark: "SparkSession") -> None:
    """Each range is a task, ranges go on behind others, and the rows are those of `snapshot=only`."""
    from ticdc_source.spark.table_rows import TableRows

    conversation = Conversation.of(PATH)
    at = int(str(conversation.facts["at"]))
    with replayed(conversation) as port:
        given = {"tidb.password": "secret-1", **address("127.0.0.1", port)}
        rows = TableRows.of(given, parse_table(TABLE), at)
        first = rows.ranges(ROWS_PER_RANGE, most=1)
        ranges = [*first, *rows.ranges(ROWS_PER_RANGE, first[-1].after)]
        frame = rows.frame(spark, ranges)
        found = frame.toArrow()
        partitions = frame.rdd.getNumPartitions()
        nothing = rows.frame(spark, [])

    assert [each.rows for each in ranges] == [ROWS_PER_RANGE, ROWS_PER_RANGE, ROWS - 2 * ROWS_PER_RANGE]
    assert [each.after is None for each in ranges] == [False, False, True]
    assert partitions == len(ranges)
    assert (found.num_rows, found["_commit_version"].unique().to_pylist()) == (ROWS, [at])
    recorded = conversation.facts["rows"]
    assert isinstance(recorded, list)
    for text, a, b in zip(recorded, found["a"].to_pylist(), found["b"].to_pylist(), strict=True):
        assert f"'a': {a!r}, 'b': {b!r}" in text
    assert nothing.schema == frame.schema == rows.schema
    assert nothing.isEmpty()


def test_conditions_and_texts_are_parts_of_the_statements() -> None:
    """A condition counts for bounds and for rows, and what TiDB computes comes behind the columns."""
    column = Column("a", parse_type("int"))
    rows = StoredRows(TableName("d", "t"), [column], [column], ("CONCAT(a)",), "a > 1 OR a < 0")

    assert rows.select(("5",), None) == (
        "SELECT t.`a`, CONCAT(a) FROM `d`.`t` AS t USE INDEX () WHERE (a > 1 OR a < 0) AND t.`a` >= 5 ORDER BY t.`a`"
    )
    assert rows.next_bound(None, None, 9).endswith(" WHERE (a > 1 OR a < 0) ORDER BY t.`a` LIMIT 9, 1")
    assert rows.count(None, ("5",)).endswith(" WHERE (a > 1 OR a < 0) AND t.`a` < 5")
