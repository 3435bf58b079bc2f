"""Layouts of targets: clauses of SQL, what engines refuse, and targets that have another one."""

import re

import pytest
from pyspark.sql import SparkSession

from lakehouse.tests.targets.changes import TARGET, Writer, ddl, frame_of
from lakehouse.tests.targets.memory import Lake
from ticdc_lakehouse import append_log
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets.data_layout import DataLayout
from ticdc_lakehouse.targets.opening import ENGINES
from ticdc_source.errors import OptionError

COLUMNS = ("id", "Created At", "v", "days(v)")


@pytest.fixture
def lake(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """An empty lake in memory."""
    lake = Lake(spark)
    lake.serve(monkeypatch)
    return lake


@pytest.mark.parametrize(("layout", "clause"), [
    (DataLayout(), ""),
    (DataLayout(("V", "id")), " PARTITIONED BY (`v`, `id`)"),
    (DataLayout(("days(created at)", "bucket(16, ID)")), " PARTITIONED BY (days(`Created At`), bucket(16, `id`))"),
    (DataLayout(("days(v)",)), " PARTITIONED BY (`days(v)`)"),
    (DataLayout(cluster_by=("id", "v")), " CLUSTER BY (`id`, `v`)"),
])  # fmt: skip
def test_clauses(layout: DataLayout, clause: str) -> None:
    """A layout names columns as the table has them, whatever their case and characters are."""
    assert layout.in_sql(TARGET, COLUMNS) == clause


@pytest.mark.parametrize(("layout", "engine", "error"), [
    (DataLayout(("id",), ("v",)), "delta", "exclude each other"),
    (DataLayout(cluster_by=("v",)), "iceberg", "which Iceberg lacks. Use partition_by"),
    (DataLayout(("days(at)",)), "delta", "and not by days(at)"),
])  # fmt: skip
def test_what_an_engine_lacks(layout: DataLayout, engine: str, error: str) -> None:
    """What an engine cannot do is refused before anything is written."""
    with pytest.raises(OptionError, match=re.escape(error)):
        ENGINES[engine].check_layout(layout, "lake.t")
    with pytest.raises(TargetError, match="its layout has the column nope"):
        DataLayout(("bucket(4, nope)",)).in_sql(TARGET, COLUMNS)


@pytest.mark.slow("some merges")
def test_a_layout_is_chosen_once(lake: Lake) -> None:
    """A target is created with its layout; afterwards another one is an error, and none is no question."""
    writer = Writer(lake)
    writer.merge(1, [("insert", 10, 1, "a")], partition_by=["v"])
    assert lake.layouts[TARGET] == " PARTITIONED BY (`v`)"
    writer.merge(2, [("insert", 11, 2, "b")], partition_by=["v"])
    writer.merge(3, [("insert", 12, 3, "c")])
    with pytest.raises(TargetError, match="was created with the layout"):
        writer.merge(4, [("insert", 13, 4, "d")], partition_by=["id"])
    assert lake.rows(TARGET) == [(1, "a"), (2, "b"), (3, "c")]

    log = f"{TARGET}__log"
    append_log(frame_of(lake.spark, [("insert", 10, 1, "a")]), log, format="delta", cluster_by=["id"])
    assert lake.layouts[log] == " CLUSTER BY (`id`)"
    with pytest.raises(TargetError, match="was created with the layout"):
        append_log(frame_of(lake.spark, [("insert", 11, 2, "b")]), log, partition_by=["id"])


def test_a_target_that_only_had_ddl(lake: Lake) -> None:
    """A target without columns gets its layout with its first rows, and keeps what DDL has told it."""
    writer = Writer(lake, partition_by=["v"])
    writer.merge(1, [], ddl=[ddl("TRUNCATE TABLE t", 20)])
    assert lake.layouts[TARGET] == ""
    writer.merge(2, [("insert", 10, 1, "a"), ("insert", 30, 2, "b")])
    assert lake.layouts[TARGET] == " PARTITIONED BY (`v`)"
    assert lake.rows(TARGET) == [(2, "b")]
