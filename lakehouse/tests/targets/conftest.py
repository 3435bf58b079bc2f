"""A lake in memory, and a Spark session that is quick with few rows."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from lakehouse.tests.targets.memory import Lake

# To compile the plan of a query for five rows takes longer than to interpret it.
_QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture(scope="module")
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, with settings for few rows."""
    before = {name: spark.conf.get(name, None) for name in _QUICK}
    for name, value in _QUICK.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


@pytest.fixture
def lake(quick: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """An empty lake, in which the public functions find their tables."""
    lake = Lake(quick)
    lake.serve(monkeypatch)
    return lake
