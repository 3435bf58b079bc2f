"""Audits a table of a running TiDB that is kept in Delta or Iceberg, damages it, and repairs it. Needs no pytest.

    python -m lakehouse.tests.tidb.audit ENGINE URL FOLDER TABLE AT LATER

It prints a line of JSON: of each step, what the audit found.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakehouse.tests.engines.engines import ENGINES
from ticdc_lakehouse import TiDBConfig, append_log, audit, commits_of, merge_into
from ticdc_lakehouse.audits.table_audit import AuditReport
from ticdc_source.spark.source import TiCDCDataSource

# A commit-ts that no change has.
NEVER = "named_struct('commit_ts', 9000000000000000000L, 'rank', 1, 'partition', 0, 'offset', 0L, 'index', 0)"
TARGET = {"delta-4.4": "spark_catalog.audited.t", "iceberg-1.12": "lake.audited.t"}


def main(engine: str, url: str, folder: str, table: str, at: str, later: str) -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = dict(ENGINES[engine].settings(Path(folder)))
    settings |= {"spark.sql.session.timeZone": "Asia/Kolkata"}  # an audit depends on no zone
    spark = SparkSession.builder.master("local[2]").config(map={**settings}).getOrCreate()
    spark.dataSource.register(TiCDCDataSource)
    spark.sql(f"CREATE NAMESPACE {TARGET[engine].rpartition('.')[0]}")
    found = {
        deletes: steps(spark, f"{TARGET[engine]}_{deletes}", url, table, int(at), int(later), deletes)
        for deletes in ("soft", "hard")
    }
    sys.stdout.write(f"{json.dumps(found)}\n")
    spark.stop()


def steps(
    spark: SparkSession, target: str, url: str, table: str, at: int, later: int, deletes: str
) -> dict[str, object]:
    tidb = TiDBConfig(url=url, user="root")
    reader = spark.read.format("ticdc").option("snapshot", "only").option("tables", table).options(**tidb.options())
    first, second = (reader.option("snapshot.at", moment).load() for moment in (at, later))

    def audited(name: str = target, **given: object) -> dict[str, object]:
        report: AuditReport = audit(spark, name, tidb=tidb, **given)  # type: ignore[arg-type]
        return {**report.tables[0].as_json(), "exit_code": report.exit_code}

    found: dict[str, object] = {}
    merge_into(first, target, app_id="load", batch_id=0, deletes=deletes)  # type: ignore[arg-type]
    found["unresolved"] = audited()
    merge_into(first, target, app_id="load", batch_id=1, resolved_ts=at)
    found["equal"] = audited()
    found["verified"] = spark.sql(f"SHOW TBLPROPERTIES {target}").where("key = 'ticdc.verified_ts'").first()["value"]  # type: ignore[index]
    found["later"] = audited(at=later)
    found["before"] = audited(at=at - (1 << 18))

    extra = spark.table(target).where("id = 12").withColumn("id", F.lit(100_012).cast("bigint")).localCheckpoint()
    spark.sql(f"UPDATE {target} SET name = concat(name, ' ') WHERE id IN (7, 8)")  # noqa: S608 (a test's own)
    spark.sql(f"DELETE FROM {target} WHERE id = 11")  # noqa: S608 (a test's own)
    extra.writeTo(target).append()
    by_hand = extra.withColumn("id", F.lit(100_013).cast("bigint")).withColumn("_sequence", F.lit(None))
    by_hand.withColumn("_sequence", by_hand["_sequence"].cast(extra.schema["_sequence"].dataType)).writeTo(
        target
    ).append()
    found["damaged"] = audited()
    found["repaired"] = audited(repair=True)
    found["again"] = audited()
    spark.sql(f"UPDATE {target} SET name = 'once more' WHERE id = 7")  # noqa: S608 (a test's own)
    never = extra.withColumns({"id": F.lit(100_014).cast("bigint"), "_sequence": F.expr(NEVER)})
    never.writeTo(target).append()
    found["repaired again"] = audited(repair=True)
    spark.sql(f"DELETE FROM {target} WHERE id = 100014")  # noqa: S608 (a test's own)
    writers = [commit.facts.app_id or "" for commit in commits_of(spark, target)]
    found["commits"] = [one for one in writers if one.startswith("repair-")]

    # Later changes win over the repair, and earlier ones lose. What changed later is left out at `at`.
    merge_into(second.where("id IN (7, 12)"), target, app_id="stream", batch_id=0)
    gone = second.where("id = 30").withColumn("_change_type", F.lit("delete"))
    merge_into(gone, target, app_id="stream", batch_id=1)
    merge_into(first, target, app_id="stream", batch_id=2)
    found["newer"] = audited()
    found["at"] = audited(at=at)
    found["complete"] = audited(complete=later)
    before = commits_of(spark, target)[0].version
    merge_into(second.where("id <> 21"), target, app_id="stream", batch_id=3, resolved_ts=later)
    if "spark_catalog" in target:  # Iceberg tells no version that was rolled back
        spark.sql(f"RESTORE TABLE {target} TO VERSION AS OF {before}")
        found["restored"] = audited(at=later)
    append_log(first, f"{target}__log", format=None, app_id="log", batch_id=0, resolved_ts=at)
    found["log"] = audited(f"{target}__log")
    found["nothing"] = audited(f"{target}_nothing")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
