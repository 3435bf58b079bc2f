"""`snapshot(num_partitions=…)` on a real TiDB: each row once, for keys of every kind; and garbage collection."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.tidb.keys import AFTER, KINDS
from tests.tidb.server import TiDB
from tests.tidb.sql import SAFE_POINT, Session, session
from ticdc_lakehouse.snapshots.queries import TiDBAddress
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.options.topics import TableFilter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow("starts a TiDB")
_GENERAL = "VARCHAR(20) COLLATE utf8mb4_general_ci"


@pytest.fixture(scope="module")
def sql(spark: "SparkSession", tidb: TiDB) -> Iterator[Session]:
    """A session of root, which may read the past."""
    with session(spark, tidb.jdbc_url) as opened:
        opened.run(SAFE_POINT.format("20200101-00:00:00 +0000"), "CREATE DATABASE ranges", "USE ranges")
        opened.run("SET allow_auto_random_explicit_insert = 1")
        yield opened


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_is_in_one_range(spark: "SparkSession", tidb: TiDB, sql: Session, kind: str) -> None:
    """Seven ranges that TiDB chose have each row of their moment once, and no range has more than its share."""
    from pyspark.sql import functions as F  # noqa: N812

    from ticdc_lakehouse.snapshots.jdbc import snapshot

    columns, values = KINDS[kind]
    table = f"ranges.`{kind}`"
    sql.run(f"CREATE TABLE {table} ({columns}, n INT) {AFTER.get(kind, '')}")
    rows = ", ".join(f"({value}, {number})" for number, value in enumerate(values))
    sql.run(f"INSERT INTO {table} VALUES {rows}")  # noqa: S608 (a test's own)
    at = sql.tso()
    sql.run(f"DELETE FROM {table} WHERE n % 2 = 0", f"UPDATE {table} SET n = -1")  # noqa: S608

    frame = snapshot(spark, tidb.jdbc_url, table, at=at, user="root", num_partitions=7)
    found = frame.select("n", F.spark_partition_id().alias("range")).collect()

    assert sorted(row.n for row in found) == list(range(len(values)))
    sizes = Counter(row.range for row in found)
    if kind != "zero dates":  # invalid dates are no bounds, so ranges are fewer
        assert frame.rdd.getNumPartitions() == len(sizes) == 7
        assert max(sizes.values()) <= 10  # TiDB's text of a negative DECIMAL(5,5) lacks a digit
    assert len(sizes) > 2


def test_tidb_reads_only_the_range(spark: "SparkSession", tidb: TiDB, sql: Session) -> None:
    """For a clause of a composite key, TiDB scans a range of the table, and not all of it."""
    from ticdc_lakehouse.snapshots.jdbc import SnapshotRows

    sql.run(f"CREATE TABLE ranges.scanned (a {_GENERAL}, b BIGINT, n INT, PRIMARY KEY (a, b) CLUSTERED)")
    values = ", ".join(f"('t{one % 5}', {one}, 1)" for one in range(100))
    sql.run(f"INSERT INTO ranges.scanned VALUES {values}")  # noqa: S608 (a test's own)
    rows = SnapshotRows.of(spark, TiDBAddress(url=tidb.jdbc_url, user="root"), "ranges.scanned", at=sql.tso())

    clauses = [one.clause for one in rows.ranges(8)]

    assert len(clauses) == 8
    key = "a AS k0, b AS k1"
    for clause in clauses:
        query = f"SELECT n FROM (SELECT n, {key} FROM ranges.scanned) AS snapshot WHERE {clause}"  # noqa: S608
        plan = " ".join(str(cell) for row in sql.rows(f"EXPLAIN {query}") for cell in row)
        assert "TableRangeScan" in plan, plan
        assert "TableFullScan" not in plan, plan


def test_regions_are_ranges(spark: "SparkSession", tidb: TiDB, sql: Session) -> None:
    """A table of sixteen regions needs no look at all of its keys: ranges begin where regions begin."""
    from ticdc_lakehouse.snapshots.jdbc import SnapshotRows

    sql.run("CREATE TABLE ranges.split (id BIGINT PRIMARY KEY, n INT)")
    values = ", ".join(f"({one}000, {one})" for one in range(1600))
    sql.run(f"INSERT INTO ranges.split VALUES {values}")  # noqa: S608 (a test's own)
    sql.run("SPLIT TABLE ranges.split BETWEEN (0) AND (1600000) REGIONS 16")
    rows = SnapshotRows.of(spark, TiDBAddress(url=tidb.jdbc_url, user="root"), "ranges.split", at=sql.tso())

    few, many = rows.ranges(4), rows.ranges_of(10**6)

    assert few[1].clause == "k0 >= 400000 AND k0 < 800000"
    assert len(many) == 16
    assert rows.frame([one.clause for one in many]).count() == 1600
    first_and_last = rows.frame([few[0].clause, few[3].clause]).agg({"n": "sum"}).collect()
    assert [total for (total,) in first_and_last] == [sum([*range(400), *range(1200, 1600)])]


def test_an_empty_table_and_a_view(spark: "SparkSession", tidb: TiDB, sql: Session) -> None:
    """A table without rows has no ranges; a view is refused with what to give instead."""
    from ticdc_lakehouse.snapshots.jdbc import snapshot

    sql.run(
        "CREATE TABLE ranges.empty (a VARCHAR(9) PRIMARY KEY)", "CREATE VIEW ranges.v AS SELECT * FROM ranges.empty"
    )
    at = sql.tso()

    assert snapshot(spark, tidb.jdbc_url, "ranges.empty", at=at, user="root", num_partitions=3).collect() == []
    with pytest.raises(TiCDCSourceError, match=r"ranges\.v is a view.*give partition_column"):
        snapshot(spark, tidb.jdbc_url, "ranges.v", at=at, user="root", num_partitions=3)


def test_the_tables_of_a_moment(spark: "SparkSession", tidb: TiDB, sql: Session) -> None:
    """Patterns select tables as they were: no views, sequences or local temporary tables, and nothing of TiDB's own."""
    from ticdc_lakehouse.snapshots.jdbc import tables_at

    sql.run("CREATE DATABASE listed", "CREATE TABLE listed.a (id INT)", "CREATE TABLE listed.`B.c` (id INT)")
    sql.run("CREATE VIEW listed.v AS SELECT * FROM listed.a", "CREATE SEQUENCE listed.s")
    sql.run("CREATE TEMPORARY TABLE listed.t (id INT)")
    at = sql.tso()
    sql.run("DROP TABLE listed.a", "CREATE TABLE listed.later (id INT)")
    address = TiDBAddress(url=tidb.jdbc_url, user="root")

    assert [one.table for one in tables_at(spark, address, TableFilter((("Listed", "*"),)), at=at)] == ["a", "B.c"]
    databases = {one.database.lower() for one in tables_at(spark, address, TableFilter(), at=at)}
    assert not databases & {"mysql", "information_schema", "performance_schema", "sys", "metrics_schema"}


def test_garbage_collection_is_asked(spark: "SparkSession", tidb: TiDB, sql: Session) -> None:
    """The life time and the safe point of TiDB are known; a user who may not see the latter gets the former."""
    from ticdc_lakehouse.snapshots.jdbc import gc_state_of

    sql.run("CREATE USER IF NOT EXISTS looker", "SET GLOBAL tidb_gc_life_time = '30m'")
    at = sql.tso()

    state, blind = (gc_state_of(spark, TiDBAddress(url=tidb.jdbc_url, user=user), at) for user in ("root", "looker"))
    assert (state.life_time, blind.life_time, blind.safe_point) == (1800, 1800, None)
    assert state.safe_point is not None
    assert 1700 < state.seconds_left < 1801
    assert state.is_inside
    sql.run("SET GLOBAL tidb_gc_life_time = '10m'")
    assert not gc_state_of(spark, TiDBAddress(url=tidb.jdbc_url, user="root"), 1_500_000_000_000 << 18).is_inside
