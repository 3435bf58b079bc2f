"""`snapshot=only` on a real TiDB: every type, keys of every kind, one moment, and what is refused."""

import json
import random
import re
import time
import traceback
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.truth import is_true
from tests.tidb.keys import AFTER, KINDS
from tests.tidb.matrix import Matrix, filled, quoted
from tests.tidb.record import TABLE, statements
from tests.tidb.server import TiDB
from tests.tidb.snapshots import TextSession, address, partitions_of, planned, rows_of, text_session
from tests.tidb.sql import SAFE_POINT
from ticdc_source.errors import AccessRefusedError, DataLossError, OptionError, TiCDCSourceError
from ticdc_source.options.options import Options
from ticdc_source.protocols import FORMATS
from ticdc_source.sources.tidb.client import Session
from ticdc_source.sources.tidb.progress import SnapshotProgress
from ticdc_source.sources.tidb.source import RowRange, SnapshotSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow("starts a TiDB")


@pytest.fixture(scope="session")
def sql(tidb: TiDB) -> Iterator[TextSession]:
    with text_session(tidb) as opened:
        opened.run(SAFE_POINT.format("20200101-00:00:00 +0000"), "CREATE DATABASE snaps")
        opened.run("SET allow_auto_random_explicit_insert = 1")
        yield opened


@pytest.fixture(scope="session")
def matrix(sql: TextSession) -> Matrix:
    """The type matrix, after the inserts, the updates and the deletes of the corpus."""
    return filled(sql)


def read(tidb: TiDB, table: str, at: int, **others: str) -> dict[str, str]:
    return address(tidb.host, tidb.port, tables=table, snapshot_at=str(at), **others)


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize("native", ["auto", "off"])
def test_every_value_is_the_truth_of_its_moment(tidb: TiDB, matrix: Matrix, native: str) -> None:
    """Every value of the type matrix is what SQL wrote: after the inserts, and after updates of the same rows."""
    values = 0

    for at, state in matrix.states[:2]:
        for name, rows in state.items():
            if at == matrix.states[0][0] and name[1] != "t_all":  # it has all types: for the others, once is enough
                continue
            found = rows_of(read(tidb, quoted(*name), at, nativeCode=native)).to_pylist()
            assert len(found) == len(rows), name
            for row in found:
                assert (row["_change_type"], row["_commit_version"]) == ("insert", at)
                key = next(column for column in row if not column.startswith("_"))
                for column, true in rows[str(row[key])].items():
                    assert is_true(row[column], true["after"], true["mysql_type"]), (name, column, row[column], true)
                    values += 1

    assert values > 2000


@pytest.mark.usefixtures("native_path")
def test_random_rows_are_alike_on_both_paths(tidb: TiDB, sql: TextSession) -> None:
    """Native code reads random rows of every type as the general path, most of them itself."""
    for statement in statements(400, seed=random.SystemRandom().randrange(1 << 32)):
        sql.run(statement)
    at = sql.tso()

    general, native = (rows_of(read(tidb, TABLE, at, nativeCode=path)) for path in ("off", "auto"))

    assert general.num_rows == 400
    assert native.equals(general)


@pytest.mark.usefixtures("native_path")
def test_bytes_that_are_not_utf8_and_large_rows(tidb: TiDB, sql: TextSession) -> None:
    """Text with other bytes has U+FFFD for each; rows that are larger than what arrives at once are whole."""
    sql.run(
        "SET tidb_txn_entry_size_limit = 8000000, tidb_skip_utf8_check = 1"
    )  # the store of tests has no larger rows
    sql.run("CREATE TABLE snaps.large (id INT PRIMARY KEY, c TEXT CHARACTER SET utf8mb4, b LONGBLOB)")
    sql.run("INSERT INTO snaps.large VALUES (1, x'61FF62C3', REPEAT(x'FE', 7000000)), (2, 'é', NULL)")
    sql.run("INSERT INTO snaps.large VALUES (3, NULL, REPEAT('x', 65536)), (4, '', '')")

    for path in ("auto", "off"):
        rows = rows_of(read(tidb, "snaps.large", sql.tso(), nativeCode=path)).to_pylist()
        assert [row["c"] for row in rows] == ["a\ufffdb\ufffd", "é", None, ""]
        assert [None if row["b"] is None else len(row["b"]) for row in rows] == [7_000_000, None, 65_536, 0]
        assert set(rows[0]["b"]) == {0xFE}


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_is_in_one_range(tidb: TiDB, sql: TextSession, kind: str) -> None:
    """Ranges that TiDB chose have each row of their moment once, and all but the last as many as asked for."""
    columns, values = KINDS[kind]
    table = f"snaps.`{kind}`"
    sql.run(f"CREATE TABLE {table} ({columns}, n INT) {AFTER.get(kind, '')}")
    rows = ", ".join(f"({value}, {number})" for number, value in enumerate(values))
    sql.run(f"INSERT INTO {table} VALUES {rows}")  # noqa: S608 (a test's own)
    at = sql.tso()
    sql.run(f"DELETE FROM {table} WHERE n % 2 = 0", f"UPDATE {table} SET n = -1")  # noqa: S608

    parts = list(partitions_of(read(tidb, table, at, snapshot_rowsPerRange="9")))

    assert sorted(n for part in parts for n in part["n"].to_pylist()) == list(range(len(values)))
    sizes = [part.num_rows for part in parts]
    if kind not in ("zero dates", "set of 60"):  # invalid dates and large doubles are no bounds
        assert sizes[:-1] == [9] * (len(sizes) - 1)
    assert len(sizes) > 2


def test_a_stream_plans_the_same_ranges_again(tidb: TiDB, sql: TextSession) -> None:
    """What lies between two offsets is what was planned there: in another process, with another size, and from JSON."""
    kinds = ("text of general_ci", "text, number, bytes", "zero dates", "no key, NULLs and equal rows", "empty")
    sql.run("CREATE DATABASE replays")
    for kind in kinds:
        columns, values = KINDS.get(kind, ("a INT PRIMARY KEY", []))
        sql.run(f"CREATE TABLE replays.`{kind}` ({columns}, n INT)")
        rows = ", ".join(f"({value}, {number})" for number, value in enumerate(values))
        sql.run(*([f"INSERT INTO replays.`{kind}` VALUES {rows}"] if rows else []))  # noqa: S608 (a test's own)

    def source(size: int, tso: int | None = None) -> SnapshotSource:
        given = address(tidb.host, tidb.port, tables="replays.*", outputFormat="event", snapshot_rowsPerRange=str(size))
        return SnapshotSource(Options.of({**given, **({"snapshot.at": str(tso)} if tso else {})}), FORMATS)

    with closing(source(9)) as first:
        progress = [first.begin()]
        sql.run(*(f"UPDATE replays.`{kind}` SET n = -1" for kind in kinds))  # noqa: S608
        while not progress[-1].is_done:
            after, ranges = first.advance(progress[-1], 4)
            before = progress[-1] if len(progress) > 1 else after.beginning
            with closing(source(5, after.tso)) as again:
                later = SnapshotProgress.of_json(json.loads(json.dumps(after.as_json())))
                assert later == after
                repeated = again.between(before, later)
                assert repeated == ranges
                assert [getattr(each, "sql", "") for each in repeated] == [getattr(each, "sql", "") for each in ranges]
            progress.append(after)
        sql.run(SAFE_POINT.format(time.strftime("%Y%m%d-%H:%M:%S +0000", time.gmtime(time.time() + 60))))
        try:
            with pytest.raises(DataLossError, match="no longer has the rows"):  # although its session was there
                first.advance(progress[0], 4)
        finally:
            sql.run(SAFE_POINT.format("20200101-00:00:00 +0000"))

    assert [len(KINDS[kind][1]) if kind in KINDS else 0 for kind in sorted(kinds)] == [
        table.rows for _, table in sorted(progress[-1].tables.items())
    ]
    assert progress[-1].ranges == progress[-1].expected_ranges


def test_rows_with_the_same_row_id(tidb: TiDB, sql: TextSession) -> None:
    """Partitions that were exchanged have the same `_tidb_rowid` twice: rows with the same are in one range."""
    sql.run(
        "CREATE TABLE snaps.exchanged (n INT) PARTITION BY RANGE (n) "
        "(PARTITION p0 VALUES LESS THAN (20), PARTITION p1 VALUES LESS THAN (40))",
        "CREATE TABLE snaps.exchanges (n INT)",
    )
    for table, first in (("exchanged", 20), ("exchanges", 0)):
        values = ", ".join(f"({first + number})" for number in range(20))
        sql.run(f"INSERT INTO snaps.{table} VALUES {values}")  # noqa: S608 (a test's own)
    sql.run("ALTER TABLE snaps.exchanged EXCHANGE PARTITION p0 WITH TABLE snaps.exchanges")
    assert sql.rows("SELECT COUNT(DISTINCT _tidb_rowid) FROM snaps.exchanged") == [("20",)]

    for size in ("1", "7", "8"):
        parts = list(partitions_of(read(tidb, "snaps.exchanged", sql.tso(), snapshot_rowsPerRange=size)))
        assert sorted(n for part in parts for n in part["n"].to_pylist()) == list(range(40))
        assert len(parts) > 2


def test_keys_that_are_not_utf8(tidb: TiDB, sql: TextSession) -> None:
    """They are no bounds: as UTF-8 they would be other values, and planning found the same bound for ever."""
    sql.run(
        "SET tidb_skip_utf8_check = 1", "CREATE TABLE snaps.broken (a VARCHAR(9), n INT, PRIMARY KEY (a) CLUSTERED)"
    )
    values = ", ".join(f"(x'61{'62' if number % 3 else 'FF'}{number:02X}', {number})" for number in range(60))
    sql.run(f"INSERT INTO snaps.broken VALUES {values}")  # noqa: S608 (a test's own)

    parts = list(partitions_of(read(tidb, "snaps.broken", sql.tso(), snapshot_rowsPerRange="9")))

    assert sorted(n for part in parts for n in part["n"].to_pylist()) == list(range(60))
    assert len(parts) > 2


def test_settings_of_the_whole_server_change_no_answer(tidb: TiDB, sql: TextSession) -> None:
    """Fewer rows of each answer, another moment for all reads, and a time of now that lies in the past."""
    before = sql.tso()
    sql.run("CREATE TABLE snaps.whole (a INT PRIMARY KEY, b INT, c INT)", "INSERT INTO snaps.whole VALUES (1, 2, 3)")
    time.sleep(0.01)
    sql.run(
        "SET GLOBAL sql_select_limit = 1, GLOBAL tidb_low_resolution_tso = 1",
        f"SET GLOBAL tidb_external_ts = {before}",
        "SET GLOBAL tidb_enable_external_ts_read = 1",
    )
    try:
        with closing(Session(Options.of(address(tidb.host, tidb.port)))) as session:
            assert session.now() > sql.tso() - (5 << 18) > before
            assert session.rows("SELECT @@sql_select_limit > 1, @@tidb_low_resolution_tso") == [("1", "0")]
        rows = rows_of(read(tidb, "snaps.whole", sql.tso())).to_pylist()
    finally:
        sql.run(
            "SET GLOBAL tidb_enable_external_ts_read = 0",
            "SET GLOBAL sql_select_limit = DEFAULT, GLOBAL tidb_low_resolution_tso = 0",
        )

    assert [(row["a"], row["b"], row["c"]) for row in rows] == [(1, 2, 3)]


def test_a_range_is_scanned_and_not_sorted(tidb: TiDB, sql: TextSession) -> None:
    """For a composite key with a collation, TiDB scans a range of the table, and sorts nothing."""
    sql.run(
        "CREATE TABLE snaps.scanned (a VARCHAR(20) COLLATE utf8mb4_general_ci, b BIGINT, n INT, PRIMARY KEY (a, b))"
    )
    values = ", ".join(f"('t{one % 5}', {one}, 1)" for one in range(100))
    sql.run(f"INSERT INTO snaps.scanned VALUES {values}")  # noqa: S608 (a test's own)

    _, parts = planned(read(tidb, "snaps.scanned", sql.tso(), snapshot_rowsPerRange="13"))

    ranges = [each for part in parts for each in part.ranges if isinstance(each, RowRange)]
    assert len(ranges) == 8
    for query in ranges:
        steps = " ".join(str(cell) for row in sql.rows(f"EXPLAIN {query.sql}") for cell in row)
        assert "TableRangeScan" in steps, steps
        assert "Sort" not in steps, steps
        assert "TableFullScan" not in steps, steps


def test_the_table_is_that_of_its_moment(tidb: TiDB, sql: TextSession) -> None:
    """Later rows, columns, names and tables are not there; dropped ones are."""
    sql.run(
        "CREATE TABLE snaps.t (id INT PRIMARY KEY, d INT, v INT AS (id + 1))",
        "INSERT INTO snaps.t (id, d) VALUES (1, 1)",
    )
    at = sql.tso()
    sql.run("INSERT INTO snaps.t (id, d) VALUES (2, 2)", "ALTER TABLE snaps.t ADD COLUMN e INT DEFAULT 7")
    later = sql.tso()
    sql.run("ALTER TABLE snaps.t DROP COLUMN d", "RENAME TABLE snaps.t TO snaps.u", "TRUNCATE TABLE snaps.u")

    def table_at(name: str, at: int) -> list[tuple[object, ...]]:
        rows = rows_of(read(tidb, name, at))
        data = [column for column in rows.column_names if not column.startswith("_")]
        return [tuple(data), *(tuple(row[column] for column in data) for row in rows.to_pylist())]

    assert table_at("snaps.t", at) == [("id", "d"), (1, 1)]
    assert table_at("Snaps.T", later) == [("id", "d", "e"), (1, 1, 7), (2, 2, 7)]
    assert table_at("snaps.u", sql.tso()) == [("id", "e")]
    with pytest.raises(OptionError, match=r"no table snaps\.t at TSO .*Its database has: snaps"):
        rows_of(read(tidb, "snaps.t", sql.tso()))


def test_events_of_several_tables(tidb: TiDB, sql: TextSession) -> None:
    """outputFormat=event has the rows of all tables as JSON; the typed outputs list them."""
    sql.run("CREATE DATABASE several", "CREATE TABLE several.a (id INT PRIMARY KEY, b VARBINARY(3))")
    sql.run("CREATE TABLE several.`B.c` (t DATETIME)", "INSERT INTO several.a VALUES (1, x'00FF')")
    sql.run(
        "INSERT INTO several.`B.c` VALUES ('2026-01-02 03:04:05')", "CREATE VIEW several.v AS SELECT * FROM several.a"
    )
    given = read(tidb, "several.*", sql.tso())

    rows = rows_of({**given, "outputFormat": "event"}).to_pylist()

    assert [(row["_event_type"], row["_op"], row["_table"], row["key"], row["after"]) for row in rows] == [
        ("row", "insert", "B.c", None, '{"t":"2026-01-02 03:04:05"}'),
        ("row", "insert", "a", '{"id":1}', '{"id":1,"b":"AP8="}'),
    ]
    with pytest.raises(OptionError, match=r"selects 2 tables.*several\.`B\.c`, several\.a\. Choose one"):
        rows_of(given)
    with pytest.raises(OptionError, match=r"several\.v is a view"):
        rows_of(read(tidb, "several.v", sql.tso()))
    envelope = rows_of({**given, "tables": "several.a", "outputFormat": "envelope"}).to_pylist()
    assert [(row["_op"], row["before"], row["after"], row["source"]["commit_ts"]) for row in envelope] == [
        ("r", None, {"id": 1, "b": b"\0\xff"}, int(given["snapshot.at"]))
    ]


def test_what_cannot_be_read_is_refused(tidb: TiDB, sql: TextSession) -> None:
    """The future, a collected past, a user without privileges, a wrong password: before anything is read."""
    sql.run("CREATE TABLE snaps.refused (id INT PRIMARY KEY, c INT)", "CREATE USER poor IDENTIFIED BY 'secret-2'")
    now = sql.tso()
    poor = {"tidb.user": "poor", "tidb.password": "secret-2"}
    given = read(tidb, "snaps.refused", now)
    cases: list[tuple[dict[str, str], type[TiCDCSourceError], str]] = [
        ({"snapshot.at": str(now + (3_600_000 << 18))}, OptionError, "lies in TiDB's future"),
        (poor, OptionError, r"no table snaps\.refused at TSO .*GRANT SELECT"),
        ({**poor, "tidb.password": "secret-3"}, AccessRefusedError, "refuses the login of user 'poor'"),
        ({"tidb.ssl.mode": "required"}, AccessRefusedError, r"TLS with TiDB .* fails: .* Check 'tidb\.ssl\.mode'"),
    ]
    for changed, error, message in cases:
        with pytest.raises(error, match=message) as caught:
            planned({**given, **changed})
        assert not re.search("secret-", "".join(traceback.format_exception(caught.value)))
    sql.run("GRANT SELECT (id) ON snaps.refused TO poor", "GRANT INSERT ON snaps.* TO poor")
    with pytest.raises((AccessRefusedError, OptionError), match="SELECT"):
        planned({**given, **poor, "snapshot.at": str(sql.tso())})
    sql.run("GRANT SELECT ON snaps.* TO poor")
    assert rows_of({**given, **poor}).num_rows == 0
    sql.run(SAFE_POINT.format(time.strftime("%Y%m%d-%H:%M:%S +0000", time.gmtime())))
    try:
        with pytest.raises(DataLossError, match=r"no longer has the rows as of TSO .*tidb_gc_life_time"):
            planned({**given, "snapshot.at": str(now - (3_600_000 << 18))})
    finally:
        sql.run(SAFE_POINT.format("20200101-00:00:00 +0000"))


def test_spark_reads_it_in_parallel(spark: "SparkSession", tidb: TiDB, sql: TextSession) -> None:
    """A frame has the types of TiDB, a partition for each range, and the rows of the moment of load()."""
    sql.run("CREATE TABLE snaps.orders (id BIGINT PRIMARY KEY, amount DECIMAL(12,2), at TIMESTAMP(3) NULL)")
    values = ", ".join(f"({one}, {one}.25, '2026-01-01 00:00:00.5')" for one in range(1000))
    sql.run(f"INSERT INTO snaps.orders VALUES {values}")  # noqa: S608 (a test's own)
    sql.run("CREATE USER reader IDENTIFIED BY 'secret-4'", "GRANT SELECT ON snaps.* TO reader")
    given = address(tidb.host, tidb.port, tables="snaps.orders", snapshot_rowsPerRange="300")
    given |= {"tidb.user": "reader", "tidb.password": "secret-4"}

    frame = spark.read.format("ticdc").options(**given).load()
    sql.run("DELETE FROM snaps.orders")

    jvm: Any = spark._jvm
    assert "secret-4" not in jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "extended")
    assert frame.rdd.getNumPartitions() == 4
    assert frame.schema.simpleString().endswith("id:bigint,amount:decimal(12,2),at:timestamp>")
    assert [float(total) for (total,) in frame.agg({"amount": "sum"}).collect()] == [sum(range(1000)) + 250]
    assert frame.count() == 1000
    assert spark.read.format("ticdc").options(**given).load().count() == 0
    written = spark.read.format("ticdc").options(**given).schema("id bigint").load()
    assert written.count() == 0
