"""Compares the tables of a sync with those of a running TiDB as of a TSO. Needs no pytest.

    python -m lakehouse.tests.tidb.compare SYNC_TOML TSO TABLE…

It prints a line of JSON: of each table how many rows TiDB has, how many of them the target lacks, how many rows of the
target TiDB has not, and which columns of TiDB the target lacks.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.types import DayTimeIntervalType

from ticdc_lakehouse import resolved_ts_of
from ticdc_lakehouse.syncs.session_and_catalog import session_of
from ticdc_lakehouse.syncs.status import statuses_of
from ticdc_lakehouse.syncs.sync_toml import read_toml

OURS = ("_change_type", "_commit_version", "_commit_timestamp", "_sequence")


def main(file: str, at: str, *tables: str) -> None:
    """Compare the tables."""
    config = read_toml(Path(file).read_text(encoding="utf-8"), folder=Path(file).parent)
    spark = session_of(config)
    statuses = {each.table_name: each for each in statuses_of(spark, config)}
    assert config.tidb is not None
    found: dict[str, object] = {}
    for table in tables:
        status = statuses[table]
        reader = spark.read.format("ticdc").option("snapshot", "only").options(**config.tidb.options())
        expected = reader.option("tables", table).option("snapshot.at", at).load().drop(*OURS)
        target = spark.table(status.target)
        gone = "_is_deleted" if status.kind == "table" else "_change = 'delete'"
        found[table] = {
            **difference(expected, target.where(f"NOT ({gone})")),
            "kind": status.kind,
            "state": status.state,
            "complete_since": status.complete_since,
            "loaded_ts": status.loaded_ts,
            "resolved_ts": resolved_ts_of(spark, status.target),
        }
    sys.stdout.write(f"{json.dumps(found)}\n")
    spark.stop()


def difference(expected: DataFrame, found: DataFrame) -> dict[str, object]:
    """Return how the rows differ; a TIME is a number in a target, and left out."""
    there = {name.lower() for name in found.columns}
    fields = [field for field in expected.schema if not isinstance(field.dataType, DayTimeIntervalType)]
    common = [field.name for field in fields if field.name.lower() in there]
    rows, its = expected.select(common).cache(), found.select(common).cache()
    return {
        "rows": rows.count(),
        "missing": rows.exceptAll(its).count(),
        "wrong": its.exceptAll(rows).count(),
        "no columns": [field.name for field in fields if field.name.lower() not in there],
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
