"""What a real TiDB answered to the questions of an audit; `python -m lakehouse.tests.tidb.record_audit` writes it."""

import gzip
import json
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from ticdc_lakehouse.audits.sides import Checksum, Comparison
    from ticdc_source.schema.model import Column

FOLDER = ROOT / "lakehouse/tests/data/audit"
KEYS = ("id",)


def comparison_of(columns: "Sequence[Column]", schema: "StructType") -> "Comparison":
    """Return how columns of TiDB are compared with those of a frame."""
    from ticdc_lakehouse.audits.canonical import columns_of
    from ticdc_lakehouse.audits.sides import Comparison

    compared, _ = columns_of(columns, {field.name: field.dataType for field in schema})
    return Comparison(compared, tuple(column for column in compared if column.name in KEYS))


class RecordedSide:
    """TiDB's side of an audit, as it was recorded."""

    def __init__(self, spark: "SparkSession", comparison: "Comparison") -> None:
        self._spark = spark
        self._comparison = comparison

    @cached_property
    def answers(self) -> dict[str, Any]:
        return answers()

    def total(self) -> "Checksum":
        from ticdc_lakehouse.audits.sides import Checksum

        return Checksum(*self.answers["total"])

    def buckets(self) -> "dict[int, Checksum]":
        from ticdc_lakehouse.audits.sides import Checksum

        return {bucket: Checksum(rows, hashes) for bucket, rows, hashes in self.answers["buckets"]}

    def rows(self, buckets: Collection[int]) -> "DataFrame":
        from ticdc_lakehouse.audits.sides import KEY

        names = (KEY, *self._comparison.names)
        rows = [tuple(row[name] for name in names) for row in self.answers["rows"]]
        schema = ", ".join(f"{name} STRING" for name in names)
        chosen = self._spark.createDataFrame(rows, schema)
        bucket = f"crc32(CAST({KEY} AS BINARY)) % {self._comparison.buckets}"
        return chosen.where(f"{bucket} IN ({', '.join(map(str, buckets))})")


def answers() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress((FOLDER / "answers.json.gz").read_bytes()))
    return found
