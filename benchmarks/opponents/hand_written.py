"""What a skilled user writes instead of `ticdc-lakehouse sync`: Spark's Kafka source, and one MERGE a table.

`from_json` parses the messages with schemas that are written by hand. `foreachBatch` keeps the records of a
micro-batch, asks which tables are among them, and merges these one after another: the newest change of each key, by
commit-ts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from benchmarks.corpus import COLUMN_TYPES, Table

__all__ = ["create", "merging", "records_of", "types_of"]

_HEAD = "`table` string, type string, isDdl boolean, _tidb struct<commitTs:bigint>"
_ROWS = ("INSERT", "UPDATE", "DELETE")


def types_of(table: Table) -> dict[str, str]:
    """Return the types of a table's columns; an ENUM is the number of its label."""
    return {name: COLUMN_TYPES[type_name].spark for name, type_name in table.columns}


def create(spark: SparkSession, engine: str, targets: Mapping[str, str], tables: Sequence[Table]) -> None:
    """Create the targets."""
    for table in tables:
        columns = ", ".join(f"`{name}` {type_}" for name, type_ in types_of(table).items())
        spark.sql(f"CREATE TABLE IF NOT EXISTS {targets[table.name]} ({columns}, _commit_ts bigint) USING {engine}")


def records_of(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the stream of records."""
    return spark.readStream.format("kafka").options(**options).load()


def merging(targets: Mapping[str, str], tables: Sequence[Table]) -> Callable[[DataFrame, int], None]:
    """Return what `foreachBatch` calls."""

    def merge(batch: DataFrame, _: int) -> None:
        spark = batch.sparkSession
        texts = batch.selectExpr("cast(value as string) as value")
        records = texts.selectExpr("value", f"from_json(value, '{_HEAD}') as head")
        kept = records.where(f"head.type in {_ROWS}").selectExpr("value", "head.`table` as name").persist()
        try:
            changed = {row["name"] for row in kept.select("name").distinct().collect()}
            for table in tables:
                if table.name in changed:
                    _merge_one(spark, kept.where(f"name = '{table.name}'"), targets[table.name], table)
        finally:
            kept.unpersist()

    return merge


def _merge_one(spark: SparkSession, records: DataFrame, target: str, table: Table) -> None:
    key, *others = (name for name, _ in table.columns)
    row = "struct<" + ",".join(f"{name}:string" for name, _ in table.columns) + ">"
    message = f"type string, data array<{row}>, _tidb struct<commitTs:bigint>"
    parsed = records.selectExpr(f"from_json(value, '{message}') as m").selectExpr(
        *(f"cast(m.data[0].{name} as {type_}) as {name}" for name, type_ in types_of(table).items()),
        "m.type = 'DELETE' as _gone",
        "m._tidb.commitTs as _commit_ts",
    )
    parsed.createOrReplaceTempView("changes")
    values = ", ".join([*others, "_gone", "_commit_ts"])
    newest = spark.sql(
        f"SELECT {key}, image.* FROM (SELECT {key}, max_by(struct({values}), _commit_ts) AS image "  # noqa: S608
        f"FROM changes GROUP BY {key})"
    )
    newest.createOrReplaceTempView("newest")
    names = [key, *others, "_commit_ts"]
    spark.sql(
        f"MERGE INTO {target} t USING newest s ON t.{key} = s.{key} "  # noqa: S608
        "WHEN MATCHED AND s._commit_ts > t._commit_ts AND s._gone THEN DELETE "
        f"WHEN MATCHED AND s._commit_ts > t._commit_ts THEN UPDATE SET {', '.join(f't.{n} = s.{n}' for n in names)} "
        f"WHEN NOT MATCHED AND NOT s._gone THEN INSERT ({', '.join(names)}) "
        f"VALUES ({', '.join(f's.{n}' for n in names)})"
    )
