"""The rows that differ → one merge that gives them TiDB's values as of the TSO of the audit.

The rows have the `_sequence` of the TSO, so a later change still wins, and an earlier one still loses.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from ticdc_source.audit.canonical import row_text_in_spark, row_text_in_tidb
from ticdc_source.audit.differences import EXTRA, KIND, NUMBER
from ticdc_source.audit.sides import KEY, Comparison, TiDBQueries
from ticdc_source.snapshots.jdbc import SnapshotRows

__all__ = ["REPAIR_RANK", "repairing_changes"]

REPAIR_RANK = 4  # in `_sequence`: after every change of the same commit-ts, which the snapshot has


def repairing_changes(
    snapshot: SnapshotRows, comparison: Comparison, differing: DataFrame, buckets: Collection[int], rows: DataFrame
) -> DataFrame:
    """Return the changelog frame that repairs a target.

    Args:
        snapshot: the table in TiDB.
        comparison: what was compared.
        differing: the rows that differ, as `Differences.frame` has them.
        buckets: their buckets.
        rows: the rows of the target.
    """
    queries = TiDBQueries(snapshot.table.quoted, comparison)
    theirs = differing.where(F.col(KIND) != EXTRA).select(KEY)
    key = row_text_in_tidb(comparison.keys)
    values = snapshot.with_text(key, KEY, queries.condition(buckets), rank=REPAIR_RANK)
    changes = values.join(F.broadcast(theirs), KEY, "left_semi").drop(KEY)
    # Of a key that the target has twice, the row itself is not extra.
    ours = differing.where((F.col(KIND) == EXTRA) & (F.col(NUMBER) == 1)).select(KEY)
    gone = rows.withColumn(KEY, F.expr(row_text_in_spark(comparison.keys)))
    gone = gone.join(F.broadcast(ours), KEY, "left_semi")
    return changes.unionByName(_deletes(snapshot, comparison, gone))


def _deletes(snapshot: SnapshotRows, comparison: Comparison, rows: DataFrame) -> DataFrame:
    """Return deletes of rows of a target: their keys, in the form in which JDBC would read them."""
    keys = {column.name: column for column in comparison.keys}
    read = []
    for column in snapshot.table.columns:
        key = keys.get(column.name)
        value = F.lit(None) if key is None else F.expr(key.spark if column.comes_as_text else key.value)
        read.append(value.cast(snapshot.read_as(column)).alias(column.alias))
    return snapshot.as_changes(rows.select(*read), change_type="delete", rank=REPAIR_RANK)
