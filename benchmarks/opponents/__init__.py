"""What you would use instead: Spark's own Kafka source, and the code that a skilled user would write for it.

They return what `ticdc` returns by default: the same columns, types and rows.
"""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from benchmarks.corpus import Table, Work
from benchmarks.opponents import avro, canal_json, debezium, open_protocol, simple
from benchmarks.opponents.kafka_jars import opponent_jars

__all__ = ["HOW", "load", "opponent_jars"]

_PROTOCOLS: dict[str, Callable[[DataFrame, Table], DataFrame]] = {
    "avro": avro.changes,
    "canal-json": canal_json.changes,
    "debezium": debezium.changes,
    "open-protocol": open_protocol.changes,
    "simple": simple.changes,
}

# How each reads its messages.
HOW = {
    "avro": "from_avro, casts, inline",
    "canal-json": "from_json, casts, inline",
    "debezium": "from_json, casts, inline",
    "simple": "from_json, casts, inline",
    "open-protocol": "mapInArrow, orjson",  # no Spark function cuts its frames
}


def load(spark: SparkSession, work: Work, options: Mapping[str, str], *, streaming: bool = False) -> DataFrame:
    """Return the frame that reads the topic of a work."""
    reader = spark.readStream if streaming else spark.read
    return _PROTOCOLS[work.protocol](reader.format("kafka").options(**options).load(), work.table)
