"""Changelog frames written down as tuples, and the lake of a test."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DecimalType, IntegerType, StringType, StructField, StructType

from lakehouse.tests.targets.memory import Lake
from ticdc_lakehouse import MergeReport, merge_into
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.table_name import TableName

Change: TypeAlias = tuple[Any, ...]  # change type, commit-ts, then the values of the columns
SEQUENCE = "struct<commit_ts:bigint,rank:int,partition:int,offset:bigint,index:int>"
TARGET = "lake.shop.t"
# Columns whose types are defaults, because a sample had only NULLs.
_MARK = {"ticdc.undecided": "true"}
PRICE = StructType([StructField("id", IntegerType()), StructField("price", DecimalType(38, 18), metadata=_MARK)])
# A column of which the messages have values and no precision.
LONG_PRICE = StructType(
    [
        StructField("id", IntegerType()),
        StructField("price", DecimalType(38, 2), metadata={"ticdc.unstated_precision": "true"}),
    ]
)
OPEN = StructType([*PRICE, StructField("note", StringType(), metadata=_MARK)])
_GONE = ("delete", "update_preimage")


def frame_of(
    spark: SparkSession, changes: Sequence[Change], columns: str | StructType = "id int, v string", *, first: int = 0
) -> DataFrame:
    """Return a changelog frame; each change has an offset of its own, from the first on."""
    rows = [
        (kind, (commit_ts, 0 if kind in _GONE else 1, 0, offset, 0), *values)
        for offset, (kind, commit_ts, *values) in enumerate(changes, first)
    ]
    own = f"_change_type string, _sequence {SEQUENCE}"
    if isinstance(columns, StructType):
        schema = spark.createDataFrame([], own).schema
        return spark.createDataFrame(rows, StructType([*schema, *columns]))
    return spark.createDataFrame(rows, f"{own}, {columns}" if columns else own)


def ddl(query: str, commit_ts: int | None) -> DDLEvent:
    return DDLEvent(position=0, index=0, commit_ts=commit_ts, table=TableName("shop", "t"), query=query, type="")


class Writer:
    """A stream that merges micro-batches into one target, by the key `id`."""

    def __init__(self, lake: Lake, **options: Any) -> None:
        self.lake = lake
        self.options: dict[str, Any] = {"keys": ["id"], "app_id": "me", "on_destructive_ddl": "apply", **options}

    def merge(
        self, batch_id: int, changes: Sequence[Change], columns: str | StructType = "id int, v string", **options: Any
    ) -> MergeReport:
        """Merge a micro-batch; without changes it has no columns, as DDL alone."""
        frame = frame_of(self.lake.spark, changes, columns if changes else "")
        return merge_into(frame, TARGET, batch_id=batch_id, **{**self.options, **options})
