"""Checkpoints of releases: `python -m tests.spark.checkpoints` writes those of this release.

After a release, its folders in tests/data/checkpoints never change: streams of later releases must continue from them.
One folder is by the PySpark of this environment, the others are by older versions, each in an environment of its own.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.streams import Stream, write_rows
from ticdc_source import __version__

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "data" / "checkpoints"
OLDER = ("4.0.5", "4.1.4")  # they tell the source neither a start nor a limit, and write other files
TOPIC = "the-topic"
PARTITIONS, ROWS = 2, 20  # the row n is in partition n % 2, at offset n // 2

# By name: the offset where the stream starts in each partition, and the micro-batch in which it fails. A micro-batch
# has two rows of each partition.
CASES = {"in-the-first-batch": (3, 0), "in-the-third-batch": (0, 2)}


def write(spark: "SparkSession", servers: str, folder: Path) -> None:
    """Write each case into a folder of its own."""
    for name, (start, failing) in CASES.items():

        def each(_: "DataFrame", batch: int, failing: int = failing) -> None:
            if batch == failing:
                raise RuntimeError("on purpose")

        offsets = ", ".join(f'"{partition}": {start}' for partition in range(PARTITIONS))
        reader = spark.readStream.format("ticdc").option("kafka.bootstrap.servers", servers)
        reader = reader.option("subscribe", TOPIC).option("startingOffsets", f'{{"{TOPIC}": {{{offsets}}}}}')
        with tempfile.TemporaryDirectory() as temporary:
            stream = Stream(spark, reader.option("maxOffsetsPerTrigger", 4).load(), Path(temporary))
            query = stream.start(each)
            try:
                query.awaitTermination()
            except Exception as error:
                if "on purpose" not in str(error):
                    raise
            shutil.rmtree(folder / name, ignore_errors=True)
            shutil.copytree(Path(temporary) / "checkpoint", folder / name, ignore=shutil.ignore_patterns(".*"))
        for empty in [path for path in (folder / name).iterdir() if path.is_dir() and not any(path.iterdir())]:
            empty.rmdir()  # git does not keep it


def name_of(pyspark: str | None = None) -> str:
    """Return the name of the folder that this release writes with a version of PySpark; None for the newest."""
    return __version__ if pyspark is None else f"{__version__}-pyspark-{pyspark}"


def main() -> None:
    """Write the checkpoints of this release."""
    from examples.demo.session import spark_session
    from examples.local_kafka import LocalKafka, create_topic

    parser = argparse.ArgumentParser(prog="python -m tests.spark.checkpoints")
    parser.add_argument("name", nargs="?", help="write only this folder, with the PySpark of this environment")
    name = parser.parse_args().name
    with tempfile.TemporaryDirectory() as temporary, LocalKafka() as kafka, spark_session(Path(temporary)) as spark:
        create_topic(kafka.bootstrap_servers, TOPIC, PARTITIONS)
        write_rows(kafka.bootstrap_servers, TOPIC, *range(ROWS), partitions=PARTITIONS)
        write(spark, kafka.bootstrap_servers, FOLDER / (name or name_of()))
    if name is None:
        from tests.versions.environments import interpreter  # it needs pytest, which the environments have not

        for pyspark in OLDER:
            command = [str(interpreter(pyspark)), "-m", "tests.spark.checkpoints", name_of(pyspark)]
            subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)


if __name__ == "__main__":
    main()
