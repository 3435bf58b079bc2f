"""SQL: views and tables of a topic, and the options that Spark does not keep."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import MakeTopic
from tests.spark.streams import Stream, write_rows


@pytest.fixture
def options(spark: SparkSession, servers: str, topic: MakeTopic) -> Iterator[dict[str, str]]:
    """The options of a topic with five rows; the test's view or table is dropped afterwards."""
    name = topic()
    write_rows(servers, name, *range(5))
    yield {"kafka.bootstrap.servers": servers, "subscribe": name, "strictOptions": "true"}
    spark.catalog.dropTempView("sql_feed")
    spark.sql("DROP TABLE IF EXISTS sql_feed")


def written(options: dict[str, str]) -> str:
    return ", ".join(f"`{name}` = '{value}'" for name, value in options.items())


def test_a_temporary_view_keeps_its_options(spark: SparkSession, options: dict[str, str]) -> None:
    """CREATE TEMPORARY VIEW … USING ticdc works with an inferred or a given schema, and twice in one query."""
    spark.sql(f"CREATE TEMPORARY VIEW sql_feed USING ticdc OPTIONS ({written(options)})")
    assert spark.sql("SELECT count(*) n FROM sql_feed a JOIN sql_feed b USING (id)").collect()[0]["n"] == 5

    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW sql_feed (id BIGINT) USING ticdc OPTIONS ({written(options)})")
    assert spark.sql("SELECT sum(id) n FROM sql_feed").collect()[0]["n"] == 10


@pytest.mark.slow("a catalog of its own")
def test_a_table_loses_its_options(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> None:
    """The error for a table, whose options Spark does not keep, says what to do; with options a table can be read."""
    spark.sql(f"CREATE TABLE sql_feed USING ticdc OPTIONS ({written(options)})")

    with pytest.raises(PySparkException, match=r"(?s)kafka\.bootstrap\.servers.*CREATE TEMPORARY VIEW"):
        spark.sql("SELECT id FROM sql_feed").collect()
    assert spark.sql(f"SELECT sum(id) n FROM sql_feed WITH ({written(options)})").collect()[0]["n"] == 10  # noqa: S608
    assert spark.read.options(**options).table("sql_feed").count() == 5
    frame = spark.readStream.options(**options, startingOffsets="earliest").table("sql_feed")
    stream = Stream(spark, frame, tmp_path)
    stream.finish()
    assert stream.ids() == [0, 1, 2, 3, 4]


@pytest.mark.slow("some Spark queries")
def test_two_actions_on_a_frame(spark: SparkSession, options: dict[str, str], servers: str) -> None:
    """All actions on a DataFrame see the records that the first one saw; a new DataFrame sees later ones too."""
    frame = spark.read.format("ticdc").options(**options).load()
    assert sorted(row["id"] for row in frame.collect()) == [0, 1, 2, 3, 4]

    write_rows(servers, options["subscribe"], 5)

    assert frame.where("id > 2").count() == 2
    assert frame.count() == 5
    assert spark.read.format("ticdc").options(**options).load().count() == 6


def test_a_schema_of_the_users_own_may_allow_no_nulls(spark: SparkSession, options: dict[str, str]) -> None:
    """NOT NULL in the user's schema is kept if it holds; if not, the error names the column."""

    def load(schema: str) -> DataFrame:
        return spark.read.format("ticdc").options(**options).schema(schema).load()

    found = load("_change_type STRING NOT NULL, id INT NOT NULL")
    assert [field.nullable for field in found.schema] == [False, False]
    assert sorted(row["id"] for row in found.collect()) == [0, 1, 2, 3, 4]
    with pytest.raises(Exception, match=r"Column absent is NOT NULL in the schema.*partition=0 offset=0 to 4"):
        load("id INT, absent INT NOT NULL").collect()
