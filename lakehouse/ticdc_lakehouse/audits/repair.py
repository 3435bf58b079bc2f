"""Changes that set rows to TiDB's values as of a TSO: rows that an audit finds different, or rows of key-only messages.

Their `_sequence` is that of the TSO, so later changes win over them, and earlier ones lose. For messages with only the
key (TiCDC's `handle-key-only`), the TSO is the newest commit-ts of the micro-batch, so that the target is the table up
to its resolved ts, as without such messages.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DataType

from ticdc_lakehouse.audits.canonical import row_text_in_spark, row_text_in_tidb
from ticdc_lakehouse.audits.sides import EXTRA, KEY, KIND, NUMBER, Comparison, TiDBSide
from ticdc_lakehouse.targets.merge import KEYS
from ticdc_lakehouse.targets.sessions import computed
from ticdc_lakehouse.targets.target import Target
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_lakehouse.tidb import SnapshotTable, TiDBConfig, mysql_type
from ticdc_source.developer_api import REPAIR_RANK, Column, ColumnType, loads, parse_table, quoted_name
from ticdc_source.errors import DataLossError

_OTHERWISE = ("time", "enum", "set", "json", "vector")
_AS_TEXT = ("datetime", "timestamp", "time")  # types of keys that a target may have as another type
KeyValue = int | Decimal | str | bytes | datetime.date


def repairing_changes(
    snapshot: SnapshotTable,
    comparison: Comparison,
    differing: DataFrame,
    buckets: Collection[int],
    rows: DataFrame,
    index: int,
) -> DataFrame:
    """Return the changelog frame that repairs a target, given its `rows` and those of them that differ.

    `index` is the last part of the repair's `_sequence`: larger than that of earlier repairs at the same TSO.
    """
    theirs = differing.where(F.col(KIND) != EXTRA).select(KEY)
    texts = {KEY: row_text_in_tidb(comparison.keys)}
    condition = TiDBSide(snapshot, comparison).condition(buckets)
    values = snapshot.where(rows.sparkSession, condition, texts, rank=REPAIR_RANK, index=index)
    changes = values.join(theirs, KEY, "left_semi").drop(KEY)
    # Of a key that the target has twice, the row itself is not extra.
    ours = differing.where((F.col(KIND) == EXTRA) & (F.col(NUMBER) == 1)).select(KEY)
    gone = rows.select("*", F.expr(row_text_in_spark(comparison.keys)).alias(KEY))
    gone = gone.join(ours, KEY, "left_semi")
    columns = {column.name: column for column in snapshot.columns}
    keys = {
        key.name: F.expr(key.spark if mysql_type(columns[key.name]).family in _AS_TEXT else key.value)
        for key in comparison.keys
    }
    return changes.unionByName(snapshot.deletes(gone, keys, rank=REPAIR_RANK, index=index))


def as_stored(changes: DataFrame, columns: Sequence[Column], types: Mapping[str, DataType]) -> DataFrame:
    """Return changes with the types of a target, which `schemaHints` may have changed."""
    wanted = {name.lower(): type_ for name, type_ in types.items()}
    cast = {}
    for column in columns:
        field = next((one for one in changes.schema if one.name == column.name), None)
        type_ = wanted.get(column.name.lower())
        # What merge_into stores in another type itself: TIME, labels, and JSON as VARIANT.
        if field is None or type_ is None or field.dataType == type_ or mysql_type(column).family in _OTHERWISE:
            continue
        cast[column.name] = changes[quoted(column.name)].cast(type_).alias(column.name, metadata=field.metadata)
    return changes.select(*(cast.get(name, changes[quoted(name)]) for name in changes.columns))


MOST_KEYS = 10_000  # of one micro-batch; with more, the whole table is read


def rows_of_keys(
    key_only: DataFrame, target: Target, tidb: TiDBConfig, table: str, at: int, *, prefix: str, zero_date: str
) -> DataFrame | None:
    """Read the rows of some keys from TiDB as of a TSO, as a changelog frame: an insert or a delete for each key.

    None if the whole table must be read instead: there are more than `MOST_KEYS` keys; a key is NULL, has a type
    without exact literals in SQL, or is no key in TiDB; or TiDB no longer has the rows of the TSO.
    """
    names: list[str] = loads(target.properties()[KEYS])
    spelt = {name.lower(): name for name in key_only.columns}
    if not all(name.lower() in spelt for name in names):
        return None
    try:
        rows = tidb.table(parse_table(table), at, prefix=prefix, zero_date=zero_date)
    except DataLossError:
        return None
    keys = {name.lower() for name in names}
    columns = [column for column in rows.columns if column.name.lower() in keys]
    if len(columns) != len(keys) or not all(column.key and _has_literals(column) for column in columns):
        return None
    alone = key_only.select(
        *(F.col(quoted(spelt[column.name.lower()])).alias(f"k{number}") for number, column in enumerate(columns))
    ).distinct()
    asked = alone.limit(MOST_KEYS + 1).collect()
    if not asked or len(asked) > MOST_KEYS or any(value is None for key in asked for value in key):
        return None
    values = [[bytes(value) if isinstance(value, bytearray) else value for value in key] for key in asked]
    inserts = rows.where(key_only.sparkSession, keys_condition(columns, values), {}, rank=REPAIR_RANK)
    inserts = computed(inserts)  # TiDB is asked once
    theirs = inserts.select(*(F.col(quoted(one.name)).alias(f"k{number}") for number, one in enumerate(columns)))
    gone = alone.join(theirs, alone.columns, "left_anti")
    by_name = {column.name: F.col(f"k{number}") for number, column in enumerate(columns)}
    deletes = rows.deletes(gone, by_name, rank=REPAIR_RANK)
    return as_stored(inserts.unionByName(deletes), rows.columns, target.columns())


def _has_literals(column: Column) -> bool:
    """Whether each value of a column has an SQL literal that equals this value and no other."""
    return mysql_type(column).family in ("number", "text", "binary") or mysql_type(column).name == "date"


def keys_condition(columns: Sequence[Column], keys: Iterable[Sequence[KeyValue]]) -> str:
    """Return TiDB's SQL for the condition that a row has one of these keys."""
    names = ", ".join(quoted_name(column.name) for column in columns)
    values = (
        ", ".join(_literal(mysql_type(column), value) for column, value in zip(columns, key, strict=True))
        for key in keys
    )
    return f"({names}) IN ({', '.join(f'({each})' for each in values)})"


def _literal(type_: ColumnType, value: KeyValue) -> str:
    """Return the SQL literal of a key's value; it has no backslashes, whose meaning depends on `sql_mode`."""
    match value:
        case str() if type_.family == "number":  # a DECIMAL of more digits than Spark has
            return str(Decimal(value))
        case str():
            return f"_utf8mb4 x'{value.encode().hex()}'"
        case bytes():
            return f"x'{value.hex()}'"
        case datetime.date():
            return f"'{value}'"
        case _:
            return f"{value:f}" if isinstance(value, Decimal) else str(int(value))
