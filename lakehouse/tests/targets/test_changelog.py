"""Which columns of a changelog frame are the table's, and the newest images of a wide table."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from ticdc_lakehouse.targets.changelog import newest_images, read_changelog
from ticdc_source.schema.change_order import SEQUENCE
from ticdc_source.spark.schema import to_spark

CHANGE = to_spark(pa.schema([("_change_type", pa.string()), ("_sequence", SEQUENCE)])).fields
MOST_COLUMNS = 1017  # that a table of TiDB has by default


@pytest.mark.parametrize("metadata", [{"ticdc.table": "shop.t"}, {"ticdc.mysql_type": "int"}])
def test_columns_of_the_table_that_have_names_of_metadata(spark: SparkSession, metadata: dict[str, str]) -> None:
    """A field that field metadata marks as the table's is its column; another one of such a name is metadata."""
    own = [StructField(name, IntegerType(), metadata=metadata) for name in ("id", "_value", "_key", "_rescued_data")]
    unmarked = [StructField(name, StringType()) for name in ("_topic", "_corrupt_record")]

    changes = read_changelog(spark.createDataFrame([], StructType([*CHANGE, *own, *unmarked])))

    assert [field.name for field in changes.columns] == ["id", "_value", "_key", "_rescued_data"]


def test_names_alone_tell_columns_without_field_metadata(spark: SparkSession) -> None:
    """A transformation may lose field metadata: then a name of a metadata column is metadata."""
    names = ["id", "_value", "v"]
    fields = [StructField(name, StringType()) for name in names]

    changes = read_changelog(spark.createDataFrame([], StructType([*CHANGE, *fields])))

    assert [field.name for field in changes.columns] == ["id", "v"]


@pytest.mark.slow("Spark takes seconds for so many columns")
def test_the_widest_table_can_be_planned(spark: SparkSession) -> None:
    """A table has as many columns as TiDB allows, and the images that have only their key are found."""
    names = ["id", *(f"c{number}" for number in range(MOST_COLUMNS - 1))]
    fields = [StructField(name, IntegerType()) for name in names]
    rest = [None] * (MOST_COLUMNS - 2)
    rows = [("delete", (1, 0, 0, 1, 0), 1, None, *rest), ("delete", (1, 0, 0, 2, 0), 2, 7, *rest)]
    changes = read_changelog(spark.createDataFrame(rows, StructType([*CHANGE, *fields])))

    images = newest_images(changes, ["id"]).frame.select("k0", "bare").collect()

    assert sorted(map(tuple, images)) == [(1, True), (2, False)]
