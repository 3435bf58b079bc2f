"""The rows that differ → one merge that gives them TiDB's values as of the TSO of the audit.

The rows have the `_sequence` of the TSO, so a later change still wins, and an earlier one still loses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DataType

from ticdc_lakehouse.audits.canonical import row_text_in_spark, row_text_in_tidb
from ticdc_lakehouse.audits.differences import EXTRA, KIND, NUMBER
from ticdc_lakehouse.audits.sides import KEY, Comparison, TiDBQueries
from ticdc_lakehouse.snapshots.jdbc import SnapshotRows
from ticdc_lakehouse.snapshots.queries import SnapshotColumn
from ticdc_lakehouse.targets.target import quoted

__all__ = ["REPAIR_RANK", "as_stored", "repairing_changes"]

_OTHERWISE = ("time", "enum", "set", "json", "vector")
REPAIR_RANK = 4  # in `_sequence`: after every change of the same commit-ts, which the snapshot has


def repairing_changes(
    snapshot: SnapshotRows,
    comparison: Comparison,
    differing: DataFrame,
    buckets: Collection[int],
    rows: DataFrame,
    index: int,
) -> DataFrame:
    """Return the changelog frame that repairs a target.

    Args:
        snapshot: the table in TiDB.
        comparison: what was compared.
        differing: the rows that differ, as `Differences.frame` has them.
        buckets: their buckets.
        rows: the rows of the target.
        index: the last part of the `_sequence` of the repair: larger than that of an earlier one at the same TSO.
    """
    queries = TiDBQueries(snapshot.table.quoted, comparison)
    theirs = differing.where(F.col(KIND) != EXTRA).select(KEY)
    key = row_text_in_tidb(comparison.keys)
    values = snapshot.with_text(key, KEY, queries.condition(buckets), rank=REPAIR_RANK, index=index)
    changes = values.join(theirs, KEY, "left_semi").drop(KEY)
    # Of a key that the target has twice, the row itself is not extra.
    ours = differing.where((F.col(KIND) == EXTRA) & (F.col(NUMBER) == 1)).select(KEY)
    gone = rows.select("*", F.expr(row_text_in_spark(comparison.keys)).alias(KEY))
    gone = gone.join(ours, KEY, "left_semi")
    return changes.unionByName(_deletes(snapshot, comparison, gone, index))


def _deletes(snapshot: SnapshotRows, comparison: Comparison, rows: DataFrame, index: int) -> DataFrame:
    """Return deletes of rows of a target: their keys, in the form in which JDBC would read them."""
    keys = {column.name: column for column in comparison.keys}
    read = []
    for column in snapshot.table.columns:
        key = keys.get(column.name)
        value = F.lit(None) if key is None else F.expr(key.spark if column.comes_as_text else key.value)
        read.append(value.cast(snapshot.read_as(column)).alias(column.alias))
    return snapshot.as_changes(rows.select(*read), change_type="delete", rank=REPAIR_RANK, index=index)


def as_stored(changes: DataFrame, columns: Sequence[SnapshotColumn], types: Mapping[str, DataType]) -> DataFrame:
    """Return changes with the types of a target, which `schemaHints` may have made other ones.

    Args:
        changes: the changes.
        columns: the columns of the table.
        types: the types of the target's columns.
    """
    wanted = {name.lower(): type_ for name, type_ in types.items()}
    cast = {}
    for column in columns:
        field = next((one for one in changes.schema if one.name == column.name), None)
        type_ = wanted.get(column.name.lower())
        # What merge_into stores in another type itself: TIME, labels, and JSON as VARIANT.
        if field is None or type_ is None or field.dataType == type_ or column.type.family in _OTHERWISE:
            continue
        cast[column.name] = changes[quoted(column.name)].cast(type_).alias(column.name, metadata=field.metadata)
    return changes.select(*(cast.get(name, changes[quoted(name)]) for name in changes.columns))
