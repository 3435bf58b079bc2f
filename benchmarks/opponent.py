"""What one would use instead: Spark's own Kafka source and `from_json`, with a schema written by hand."""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.corpus import COLUMNS
from examples.local_kafka import KafkaSetupError, jars

_POM = Path(__file__).parent / "opponent" / "pom.xml"

SPARK_TYPES = {
    "id": "bigint",
    "customer_id": "int",
    "status": "string",
    "amount": "decimal(12,2)",
    "quantity": "smallint",
    "rate": "double",
    "note": "string",
    "created_at": "timestamp_ntz",
    "updated_at": "timestamp",
    "due": "date",
}

_ROW = "struct<" + ",".join(f"{name}:string" for name, _, _ in COLUMNS) + ">"
_MESSAGE = f"type string, data array<{_ROW}>, old array<{_ROW}>, _tidb struct<commitTs:bigint>"
_IMAGES = """
    inline(case m.type
        when 'INSERT' then array(struct('insert' as _change_type, 1 as rank, m.data[0] as row))
        when 'DELETE' then array(struct('delete' as _change_type, 0 as rank, m.data[0] as row))
        when 'UPDATE' then array(
            struct('update_preimage' as _change_type, 0 as rank, m.old[0] as row),
            struct('update_postimage' as _change_type, 1 as rank, m.data[0] as row))
    end)
"""


def opponent_jars() -> list[Path]:
    """Give the jars of Spark's Kafka source, after fetching them when the cache has none for this `pom.xml`.

    Raises:
        KafkaSetupError: Maven is missing, or could not fetch them.
    """
    cache = jars._cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"opponent-{hashlib.sha256(_POM.read_bytes()).hexdigest()[:12]}"
    if not jars._is_whole(folder):
        with jars._locked(cache / ".lock"):
            if not jars._is_whole(folder):  # another process may have fetched them while this one waited
                _fetch_into(folder)
    return sorted(folder.glob("*.jar"))


def _fetch_into(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        message = f"the jars of Spark's Kafka source are not in {folder}: install Apache Maven, which would fetch them"
        raise KafkaSetupError(message)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as name:
        download = Path(name) / "jars"
        command = [maven, "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={download}", "-DincludeScope=runtime"]
        answer = subprocess.run(command, check=False, capture_output=True, text=True)
        found = sorted(jar.name for jar in download.glob("*.jar"))
        if answer.returncode != 0 or not found:
            message = f"Maven could not fetch Spark's Kafka source:\n{answer.stdout}{answer.stderr}"
            raise KafkaSetupError(message)
        (download / jars._LISTING).write_text("\n".join(found) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        download.rename(folder)


def load(spark: SparkSession, options: Mapping[str, str], *, streaming: bool) -> DataFrame:
    """Read canal-json rows of `corpus.COLUMNS` with Spark's own means: the columns that `ticdc` gives by default."""
    reader = spark.readStream if streaming else spark.read
    records = reader.format("kafka").options(**options).load()
    parsed = records.selectExpr("partition", "offset", f"from_json(cast(value as string), '{_MESSAGE}') as m")
    images = parsed.selectExpr("partition", "offset", "m._tidb.commitTs as ts", _IMAGES)
    return images.selectExpr(
        "_change_type",
        "ts as _commit_version",
        "timestamp_millis(shiftright(ts, 18)) as _commit_timestamp",
        "struct(ts as commit_ts, rank, partition, offset, 0 as index) as _sequence",
        *(f"cast(row.{name} as {SPARK_TYPES[name]}) as {name}" for name, _, _ in COLUMNS),
    )
