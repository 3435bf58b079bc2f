"""Messages with only the key (TiCDC's `handle-key-only`) → the rows of those keys, as TiDB has them.

The rows are read as of the newest commit-ts that a micro-batch has of their table, and are its last changes. So the
target is the table up to the resolved ts of the micro-batch, as without such messages.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from ticdc_lakehouse.audits.repair import REPAIR_RANK, as_stored
from ticdc_lakehouse.snapshots.jdbc import SnapshotRows, gc_state_of
from ticdc_lakehouse.snapshots.queries import TiDBAddress, can_be_literal
from ticdc_lakehouse.spark_sql.computed import computed
from ticdc_lakehouse.targets.merge import KEYS
from ticdc_lakehouse.targets.target import Target, quoted
from ticdc_source.developer_api import loads

__all__ = ["MOST_KEYS", "rows_of_keys"]

MOST_KEYS = 10_000  # of one micro-batch; with more, the whole table is read


def rows_of_keys(
    key_only: DataFrame, target: Target, tidb: TiDBAddress, table: str, at: int, *, prefix: str, zero_date: str
) -> DataFrame | None:
    """Return what TiDB has of some keys as of a TSO, as a changelog frame: an insert or a delete for each key.

    Args:
        key_only: changes of which only the key columns are known.
        target: the target of the table.
        tidb: where TiDB is.
        table: the name of the table.
        at: the TSO. No change among `key_only` is newer.
        prefix: begins the names of the metadata columns.
        zero_date: as in `snapshot`.

    Returns:
        The frame. None if the whole table must be read instead: there are more than `MOST_KEYS` keys, a key is NULL, of
        a type that SQL has no exact literal for, or not a key in TiDB; or TiDB no longer has that moment.

    Raises:
        TiCDCSourceError: TiDB cannot be read.
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
