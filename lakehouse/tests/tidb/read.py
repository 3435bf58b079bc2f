"""Reads a table of a running TiDB, and prints its schema and rows: for PySparks that have no pytest beside them.

python -m lakehouse.tests.tidb.read JDBC_URL JAR TABLE TSO
"""

import json
import sys

import pyspark
from pyspark.sql import DataFrame, SparkSession

from ticdc_lakehouse.snapshots.jdbc import snapshot


def rows_of(frame: DataFrame) -> list[str]:
    """Return the rows as Python shows them, by id; PySpark before 4.1 gives binary values as `bytearray`."""
    rows = sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda row: int(row["id"]))
    return [
        repr({name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.items()})
        for row in rows
    ]


def main(url: str, jar: str, table: str, at: str) -> None:
    """Print a line of JSON: PySpark's version, the schema, and the rows as Python shows them."""
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jar).config("spark.ui.enabled", "false")
    for name in ("spark.driver.bindAddress", "spark.driver.host"):
        builder = builder.config(name, "127.0.0.1")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    frame = snapshot(spark, url, table, at=int(at), user="root", partition_column="id", num_partitions=2)
    rows = rows_of(frame)
    report = {"pyspark": pyspark.__version__, "schema": json.loads(frame.schema.json()), "rows": rows}
    sys.stdout.write(f"{json.dumps(report)}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
