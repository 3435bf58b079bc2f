"""Changes that give rows TiDB's values as of a TSO: rows that an audit finds different, and those of keys alone.

The rows have the `_sequence` of the TSO, so a later change still wins, and an earlier one still loses. Of messages with
only the key (TiCDC's `handle-key-only`), the TSO is the newest commit-ts of the micro-batch: the target is then the
table up to its resolved ts, as without such messages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DataType

from ticdc_lakehouse.audits.canonical import row_text_in_spark, row_text_in_tidb
from ticdc_lakehouse.audits.sides import EXTRA, KEY, KIND, NUMBER, Comparison, TiDBSide
from ticdc_lakehouse.common.verbatim import computed
from ticdc_lakehouse.snapshots.jdbc import SnapshotRows, gc_state_of
from ticdc_lakehouse.snapshots.queries import SnapshotColumn, TiDBAddress, can_be_literal
from ticdc_lakehouse.targets.merge import KEYS
from ticdc_lakehouse.targets.target import Target
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_source.developer_api import REPAIR_RANK, loads

_OTHERWISE = ("time", "enum", "set", "json", "vector")


def repairing_changes(
    snapshot: SnapshotRows,
    comparison: Comparison,
    differing: DataFrame,
    buckets: Collection[int],
    rows: DataFrame,
    index: int,
) -> DataFrame:
    """Return the changelog frame that repairs a target with `rows`, of which those in `differing` differ.

    `index` is the last part of the `_sequence` of the repair: larger than that of an earlier one at the same TSO.
    """
    theirs = differing.where(F.col(KIND) != EXTRA).select(KEY)
    key = row_text_in_tidb(comparison.keys)
    condition = TiDBSide(snapshot, comparison).condition(buckets)
    values = snapshot.with_text(key, KEY, condition, rank=REPAIR_RANK, index=index)
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
    """Return changes with the types of a target, which `schemaHints` may have made other ones."""
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


MOST_KEYS = 10_000  # of one micro-batch; with more, the whole table is read


def rows_of_keys(
    key_only: DataFrame, target: Target, tidb: TiDBAddress, table: str, at: int, *, prefix: str, zero_date: str
) -> DataFrame | None:
    """Return what TiDB has of some keys as of a TSO, as a changelog frame: an insert or a delete for each key.

    None if the whole table must be read instead: there are more than `MOST_KEYS` keys, a key is NULL, of a type that
    SQL has no exact literal for, or not a key in TiDB; or TiDB no longer has that moment.
    """
    names: list[str] = loads(target.properties()[KEYS])
    spelt = {name.lower(): name for name in key_only.columns}
    if not all(name.lower() in spelt for name in names) or not gc_state_of(key_only.sparkSession, tidb, at).is_inside:
        return None
    rows = SnapshotRows.of(
        key_only.sparkSession, tidb, table, at=at, zero_date=zero_date, metadata_column_prefix=prefix
    )
    keys = {name.lower() for name in names}
    columns = [column for column in rows.table.columns if column.name.lower() in keys]
    if len(columns) != len(keys) or not all(column.facts.handle_key and can_be_literal(column) for column in columns):
        return None
    alone = key_only.select(*(F.col(quoted(spelt[one.name.lower()])).alias(one.alias) for one in columns)).distinct()
    asked = alone.limit(MOST_KEYS + 1).collect()
    if not asked or len(asked) > MOST_KEYS or any(value is None for key in asked for value in key):
        return None
    values = [[bytes(value) if isinstance(value, bytearray) else value for value in key] for key in asked]
    inserts = rows.of_keys([one.name for one in columns], values, rank=REPAIR_RANK)
    inserts = computed(inserts)  # TiDB is asked once
    theirs = inserts.select(*(F.col(quoted(one.name)).alias(one.alias) for one in columns))
    gone = alone.join(theirs, [one.alias for one in columns], "left_anti")
    aliases = {one.alias for one in columns}
    read = [
        (F.col(one.alias) if one.alias in aliases else F.lit(None)).cast(rows.read_as(one)).alias(one.alias)
        for one in rows.table.columns
    ]
    deletes = rows.as_changes(gone.select(*read), change_type="delete", rank=REPAIR_RANK)
    return as_stored(inserts.unionByName(deletes), rows.table.columns, target.columns())
