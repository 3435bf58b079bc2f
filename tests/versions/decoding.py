"""What must hold of `decode` and `tables` on every PySpark since 3.5, which has no Python Data Source API.

    python -m tests.versions.decoding FOLDER

Needs PySpark and the dependencies of the package, but no pytest and no broker. Its last line of output is a report in
JSON.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import DataFrame, SparkSession

import ticdc_source
from tests.support.captured import Captured, in_order, load, rows_of, whole
from tests.support.spark_settings import LOCAL
from tests.support.truth import tables_with_rows

SCENARIOS = ("open-protocol.default", "canal-json.tidb-extension", "debezium.default")


def equal(found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"found {found!r}, expected {expected!r}")


def read(captured: Captured, **options: str) -> pa.Table:
    """Read as `format("ticdc")` does, without Spark."""
    return captured.read(sizes=whole, schema=None, **options)


def arrow(frame: DataFrame) -> pa.Table:
    """Return the rows of a DataFrame; PySpark 3.5 has no `toArrow`."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    collect = getattr(frame, "_collect_as_arrow")  # noqa: B009 (3.5 has no public way)
    return pa.Table.from_batches(collect())


def batch(spark: SparkSession, folder: Path) -> int:
    """Rows of every type are those of the source; so are those of the other outputs."""
    compared = 0
    for scenario in SCENARIOS:
        captured = load(f"{scenario}.types")
        frame = records(spark, captured, folder / scenario)
        database, table = next(name for name in tables_with_rows(captured) if name[1] == "t_all")
        zone = captured.header["time_zone"]
        for more in ({"includeMetadata": "all"}, {"outputFormat": "envelope"}, {"outputFormat": "event"}):
            options = {"tables": f"`{database}`.`{table}`", "timeZone": zone, **more}
            expected = read(captured, **options)
            found = arrow(ticdc_source.decode(frame, **options)).cast(expected.schema)
            equal(in_order(found).equals(in_order(expected)), True)
            compared += len(found)
    return compared


def stream(spark: SparkSession, folder: Path) -> int:
    """A stream of records is decoded, and its micro-batches are split into tables with SyncState."""
    captured = load("open-protocol.default.ops")
    frame = records(spark, captured, folder / "stream")
    database, table = max(tables_with_rows(captured))
    options = {"tables": f"`{database}`.`{table}`", "timeZone": captured.header["time_zone"]}
    expected = read(captured, **options)
    streaming = spark.readStream.schema(frame.schema).parquet(str(folder / "stream"))

    schema = ticdc_source.infer_schema(frame, **options)
    decoded = ticdc_source.decode(streaming, schema, **options).select("_sequence")
    writer = decoded.writeStream.format("parquet").option("checkpointLocation", str(folder / "state"))
    writer.trigger(availableNow=True).start(str(folder / "rows")).awaitTermination()
    equal(spark.read.parquet(str(folder / "rows")).count(), len(expected))

    state = ticdc_source.SyncState(str(folder / "sync"), partitions=len(captured.partitions))
    counts: dict[str, int] = {}

    def split(micro_batch: DataFrame, batch_id: int) -> None:
        found = ticdc_source.tables(micro_batch, state=state, batch_id=batch_id, timeZone=options["timeZone"])
        for name, changes in found.items():
            counts[name] = counts.get(name, 0) + changes.count()

    writer = streaming.writeStream.foreachBatch(split).option("checkpointLocation", str(folder / "tables"))
    writer.trigger(availableNow=True).start().awaitTermination()
    equal(counts[f"{database}.{table}"], len(expected))
    return sum(counts.values())


def records(spark: SparkSession, captured: Captured, folder: Path) -> DataFrame:
    folder.mkdir()
    pq.write_table(pa.Table.from_batches([rows_of(captured)]), folder / "records.parquet")
    return spark.read.parquet(str(folder))


def without_the_source() -> bool:
    """On PySpark 3.5 everything but the data source works; return whether it has none."""
    try:
        source = ticdc_source.TiCDCDataSource
    except ImportError as error:
        equal("PySpark 4.0" in str(error), True)
        return True
    equal(source.name(), "ticdc")
    return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.versions.decoding")
    parser.add_argument("folder", type=Path, help="where to put what Spark writes")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    folders = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    spark = SparkSession.builder.master("local[2]").config(map={**LOCAL, **folders}).getOrCreate()
    try:
        report = {
            "pyspark": pyspark.__version__,
            "without_the_source": without_the_source(),
            "rows": batch(spark, folder),
            "rows of tables": stream(spark, folder),
        }
    finally:
        spark.stop()
    print(json.dumps(report))  # noqa: T201


if __name__ == "__main__":
    main()
