"""An audit without TiDB: its answers were recorded, of a table with all types of the corpus."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lakehouse.tests.audits.recorded import FOLDER, RecordedSide, answers, comparison_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ticdc_lakehouse.audits.sides import Comparison
    from ticdc_source.schema.model import Column

pytestmark = [pytest.mark.spark]


@pytest.fixture(scope="module")
def rows(spark: "SparkSession") -> "DataFrame":
    """The rows of the target."""
    return spark.read.parquet(str(FOLDER / "rows.parquet")).localCheckpoint()


def snapshot_columns() -> "list[Column]":
    from ticdc_source.schema.model import Column
    from ticdc_source.schema.types import parse_type

    return [Column(name, parse_type(text)) for name, text in answers()["columns"]]


@pytest.fixture(scope="module")
def comparison(rows: "DataFrame") -> "Comparison":
    """What is compared, by the types that TiDB has."""
    return comparison_of(snapshot_columns(), rows.schema)


@pytest.fixture(autouse=True)
def settings(spark: "SparkSession") -> "Iterator[None]":
    """The settings of the session of an audit."""
    from ticdc_lakehouse.audits.table_audit import SETTINGS
    from ticdc_lakehouse.targets.sessions import configured

    with configured(spark, SETTINGS):
        yield


def test_equal_rows_have_the_checksums_of_tidb(
    spark: "SparkSession", comparison: "Comparison", rows: "DataFrame"
) -> None:
    """Spark computes the checksums that TiDB has computed, of values of every type."""
    from ticdc_lakehouse.audits.sides import SparkSide

    ours, theirs = SparkSide(rows, comparison), RecordedSide(spark, comparison)

    assert ours.total() == theirs.total()
    assert ours.buckets() == theirs.buckets()


@pytest.mark.slow("jobs of Spark on both sides")
def test_what_differs_is_found(spark: "SparkSession", comparison: "Comparison", rows: "DataFrame") -> None:
    """A changed, a missing and a doubled row are found, with the cell that differs, and no other bucket is read.

    A row that the target no longer has, because it changed after the TSO, is no difference.
    """
    from pyspark.sql import functions as F  # noqa: N812

    from ticdc_lakehouse.audits.sides import KEY, SparkSide, differing_buckets, differing_rows

    ids = sorted(row["id"] for row in rows.select("id").collect())
    column = next(one.name for one in comparison.columns if one.name != "id")
    wrong = F.when(F.col("id") == ids[0], None).otherwise(F.col(column))
    damaged = rows.withColumn(column, wrong).where(f"id NOT IN ({ids[1]}, {ids[3]})")
    ours = SparkSide(damaged.union(rows.where(f"id = {ids[2]}")), comparison)
    theirs = RecordedSide(spark, comparison)
    newer = rows.where(f"id = {ids[3]}").selectExpr(f"CAST(id AS STRING) AS {KEY}").localCheckpoint()

    buckets = differing_buckets(theirs.buckets(), ours.buckets())
    found = differing_rows(comparison, theirs.rows(buckets), ours.rows(buckets), newer)

    assert len(buckets) == 4
    assert found.rows_read == 4
    assert found.counts == {"changed": 1, "missing": 1, "extra": 1}
    assert found.columns == {column: 1}
    by_kind = {one.kind: one for one in found.sample(comparison, 20)}
    assert {kind: one.key["id"] for kind, one in by_kind.items()} == {
        "changed": str(ids[0]), "missing": str(ids[1]), "extra": str(ids[2]),
    }  # fmt: skip
    assert by_kind["changed"].cells[column][1] is None


def test_columns_of_other_letters_are_the_same(spark: "SparkSession", rows: "DataFrame") -> None:
    """TiDB compares names without case: a target may spell its columns and its key otherwise."""
    from ticdc_lakehouse.audits.sides import SparkSide

    columns = snapshot_columns()
    other = rows.toDF(*(name.swapcase() for name in rows.columns))
    compared_here = comparison_of(columns, other.schema)

    assert len(compared_here.columns) == len(columns)
    assert SparkSide(other, compared_here).total() == RecordedSide(spark, compared_here).total()
