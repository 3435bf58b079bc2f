"""Records what TiDB answers to the two questions of an audit, for tests without TiDB, `lakehouse/tests/audits`.

    python -m lakehouse.tests.tidb.record_audit          # writes lakehouse/tests/data/audit/

The table is `types_a.t_all` of the corpus, after the updates. `rows.parquet` has its rows as `merge_into` stores them.
"""

import gzip
import json
import os
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from lakehouse.tests.audits.recorded import FOLDER, comparison_of
from tests.support.spark_settings import LOCAL
from tests.tidb.matrix import filled
from tests.tidb.server import running
from tests.tidb.snapshots import text_session
from tests.tidb.sql import SAFE_POINT
from ticdc_lakehouse.audits.sides import TiDBSide
from ticdc_lakehouse.targets.changelog import read_changelog, stored_column
from ticdc_lakehouse.tidb import TiDBConfig
from ticdc_source.schema.table_name import TableName

TABLE = ("types_a", "t_all")


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config(map={**LOCAL}).getOrCreate()
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as tidb, text_session(tidb) as sql:
        sql.run(SAFE_POINT.format("20200101-00:00:00 +0000"))
        at, _ = filled(sql).states[1]
        snapshot = TiDBConfig(url=tidb.url, user="root").table(TableName(*TABLE), at)
        changes = read_changelog(snapshot.where(spark, "", {}, rank=1))
        stored = (stored_column(changes, field).alias(field.name) for field in changes.columns)
        rows = changes.frame.select(*stored)
        comparison = comparison_of(snapshot.columns, rows.schema)
        side = TiDBSide(snapshot, comparison)
        answers = {
            "columns": [[column.name, str(column.type)] for column in snapshot.columns],
            "total": list(side.total()),
            "buckets": [[bucket, *each] for bucket, each in sorted(side.buckets().items())],
            "rows": [row.asDict() for row in side.rows(spark, range(comparison.buckets)).collect()],
        }
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / "answers.json.gz").write_bytes(gzip.compress(json.dumps(answers).encode(), mtime=0))
        pq.write_table(rows.toArrow(), FOLDER / "rows.parquet", compression="zstd")
    spark.stop()


if __name__ == "__main__":
    main()
