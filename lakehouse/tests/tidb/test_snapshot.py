"""`snapshot` on a real TiDB: every type of the corpus, every JDBC partition at one moment, and the changes after it."""

import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from examples.local_kafka import produce
from tests.encoders.canal_json import CanalJSON
from tests.encoders.tables import table_of
from tests.fixtures import Kafka
from tests.support.captured import load
from tests.support.truth import is_true
from tests.tidb.matrix import Matrix, declared, quoted
from tests.tidb.server import TiDB
from tests.tidb.sql import SAFE_POINT, Session
from ticdc_source.errors import TiCDCSourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow("starts a TiDB"), pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")]
# The changefeeds whose messages are compared: labels of ENUM and SET, precisions and lengths come from `tableDDL`.
CHANGES = ("open-protocol.default", "canal-json.content-compatible", "debezium.default")
FIRST = ("_change_type", "_commit_version", "_commit_timestamp", "_sequence")
# Defaults that a statement writes in another way than information_schema (tests/planning/test_column_facts.py).
AS_WRITTEN = frozenset({"2001-02-03 04:05:06.789", "2001-02-03 04:05:06.5", "ab", "ab\\0\\0"})
READERS_OWN = frozenset({"ticdc.protocol", "ticdc.versions"})  # metadata for reading messages


@pytest.fixture(scope="module")
def read(spark: "SparkSession", tidb: TiDB) -> "Any":
    """`snapshot` of this TiDB, as root."""
    from ticdc_lakehouse.snapshots.jdbc import snapshot

    def take(table: str, at: int, **options: Any) -> "DataFrame":
        return snapshot(spark, tidb.jdbc_url, table, at=at, user="root", **options)

    return take


def test_every_value_is_the_truth_of_its_moment(matrix: Matrix, read: Any) -> None:
    """Every value of the type matrix is what SQL wrote: after the inserts, and after updates of the same rows."""
    values = 0

    for at, state in matrix.states[:2]:
        for name, rows in state.items():
            if at == matrix.states[0][0] and name[1] != "t_all":  # it has all types: for the others, once is enough
                continue
            found = read(quoted(*name), at).toArrow().to_pylist()
            assert len(found) == len(rows), name
            for row in found:
                assert (row["_change_type"], row["_commit_version"]) == ("insert", at)
                key = next(column for column in row if column not in FIRST)
                for column, true in rows[str(row[key])].items():
                    assert is_true(row[column], true["after"], true["mysql_type"]), (name, column, row[column], true)
                    values += 1

    assert values > 2000


@pytest.mark.parametrize("changefeed", CHANGES)
def test_types_and_metadata_are_those_of_the_changes(matrix: Matrix, read: Any, changefeed: str) -> None:
    """Every column has the Spark type and the field metadata that a changelog frame has with the table's `tableDDL`."""
    from ticdc_source.spark.schema import to_spark

    captured = load(f"{changefeed}.types")
    after, state = matrix.states[1]
    columns = 0

    for name in state:
        entry = declared(captured)[name]
        changes = to_spark(captured.schema(tables=quoted(*name), tableDDL=entry["ddl"], timeZone="UTC"))
        found = read(quoted(*name), after).schema
        assert found.names == changes.names
        for mine, theirs in zip(found, changes, strict=True):
            wanted = {key: value for key, value in theirs.metadata.items() if key not in READERS_OWN}
            if wanted.get("ticdc.default") in AS_WRITTEN:
                wanted["ticdc.default"] = mine.metadata["ticdc.default"]
            assert (mine.name, mine.dataType.simpleString()) == (theirs.name, theirs.dataType.simpleString())
            assert mine.metadata == {**mine.metadata, **wanted}, (name, mine.name)  # messages may leave facts out
            assert mine.metadata.get("ticdc.key") == wanted.get("ticdc.key")
            columns += 1

    assert columns > 200


def test_the_changes_after_a_snapshot_make_the_next_one(
    spark: "SparkSession", broker: Kafka, topic: Callable[..., str], matrix: Matrix, read: Any
) -> None:
    """A snapshot, united without a cast with the changes from `startingCommitTs=at + 1`, gives each later state.

    The topic begins before the snapshot, each message comes twice, and the newest image of a key is that by _sequence.
    """
    from pyspark.sql import functions as F  # noqa: N812

    name = ("types_a", "t_all")
    encoder = CanalJSON(extension=True, content_compatible=True)
    table = table_of(declared(load("canal-json.content-compatible.types"))[name])
    messages = [encoder.message([event], [table]) for event in matrix.events]
    records = [(number % 2, *message, (), None) for number, message in enumerate(messages)]
    (at, _), (updated, _), (last, state) = matrix.states
    feed = topic(partitions=2)
    produce(broker.bootstrap_servers, feed, [*records, *records])
    source = spark.read.format("ticdc").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    source = source.options(subscribe=feed, timeZone="UTC", preimages="false", startingCommitTs=str(at + 1))
    first = read(quoted(*name), at)

    for moment in (updated, last):
        changes = source.option("endingCommitTs", str(moment + 1)).load()
        assert [one.dataType for one in first.schema] == [one.dataType for one in changes.schema]
        newest = first.unionByName(changes).groupBy("id").agg(F.max_by(F.struct("*"), "_sequence").alias("newest"))
        rows = newest.select("newest.*").where("_change_type <> 'delete'").drop(*FIRST)
        assert by_id(rows) == by_id(read(quoted(*name), moment).drop(*FIRST))
    assert len(by_id(rows)) == len(state[name])
    assert {event["op"] for event in matrix.events} == {"insert", "update", "delete"}
    assert sum(event["commit_ts"] <= at for event in matrix.events) > 0


def by_id(frame: "DataFrame") -> dict[int, dict[str, Any]]:
    """Return rows by their column `id`."""
    return {row["id"]: row for row in frame.toArrow().to_pylist()}


def test_the_key_is_that_of_ticdc(sql: Session, read: Any) -> None:
    """The columns with `ticdc.key` are the handle key that TiCDC chose, for tables with keys of all kinds."""
    captured = load("canal-json.tidb-extension.ops")
    kinds = set()

    for (database, table), entry in declared(captured).items():
        sql.run(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}", f"USE {quoted(database)}", entry["ddl"])
        found = read(quoted(database, table), sql.tso()).schema
        key = [field.name for field in found if field.metadata.get("ticdc.key") == "true"]
        assert key == sorted(entry["handle_key"] or [], key=found.names.index), table
        kinds.add((bool(entry["primary_key"]), len(key)))

    assert {(True, 1), (True, 2), (False, 1), (False, 0)} <= kinds


@pytest.fixture(scope="module")
def numbers(sql: Session) -> int:
    """Tables of 1000 rows, changed in every row after the moment that is returned."""
    sql.run(
        "CREATE DATABASE parts",
        "CREATE TABLE parts.clustered (id BIGINT UNSIGNED PRIMARY KEY, n INT)",
        "CREATE TABLE parts.keyless (id INT, n INT)",
    )
    ids = [*range(1, 1000), 2**64 - 1]
    for table, of in (("clustered", ids), ("keyless", [*range(1, 1001)])):
        sql.run(f"INSERT INTO parts.{table} VALUES " + ",".join(f"({number}, 1)" for number in of))  # noqa: S608
    moment = sql.tso()
    sql.run(
        "UPDATE parts.clustered SET n = 2",
        "UPDATE parts.keyless SET n = 2",
        "DELETE FROM parts.clustered WHERE id % 2 = 0",
        "DELETE FROM parts.keyless WHERE id < 500",
    )
    return moment


@pytest.mark.parametrize(
    ("table", "column", "bounds"),
    [
        ("parts.clustered", "ID", {}),
        ("parts.clustered", "id", {"lower_bound": 300, "upper_bound": 600}),
        ("parts.keyless", "id", {}),
    ],
)
def test_all_partitions_read_one_moment(
    numbers: int, read: Any, table: str, column: str, bounds: dict[str, int]
) -> None:
    """Ranges of a key or of another column give each row once, as it was before every later change."""
    found = read(table, numbers, partition_column=column, num_partitions=4, **bounds)

    rows = [(int(row.id), row.n) for row in found.collect()]
    assert found.rdd.getNumPartitions() == 4
    assert len(rows) == len(set(rows)) == 1000
    assert {n for _, n in rows} == {1}
    assert found.columns == [*FIRST, "id", "n"]


def test_columns_are_those_of_the_moment(sql: Session, read: Any) -> None:
    """A table that was altered, renamed or dropped afterwards is read as it was, with the columns that it had."""
    sql.run(
        "CREATE DATABASE past",
        "CREATE TABLE past.t (id INT PRIMARY KEY, gone VARCHAR(9), kept TINYINT)",
        "INSERT INTO past.t VALUES (1, 'x', 3)",
    )
    moment = sql.tso()
    sql.run(
        "ALTER TABLE past.t DROP COLUMN gone", "ALTER TABLE past.t MODIFY kept BIGINT", "ALTER TABLE past.t ADD z INT"
    )
    altered = sql.tso()
    sql.run("DROP TABLE past.t")

    assert [row[4:] for row in read("past.t", moment).collect()] == [(1, "x", 3)]
    assert read("past.t", moment).schema["kept"].dataType.simpleString() == "tinyint"
    assert [row[4:] for row in read("past.t", altered).collect()] == [(1, 3, None)]


def test_strings_are_compared_as_in_the_changes(sql: Session, read: Any) -> None:
    """A CHAR or ENUM has no blanks at its end, and a filter compares bytes, not by the collation of the column."""
    sql.run(
        "CREATE TABLE past.text (id INT PRIMARY KEY, c CHAR(9) COLLATE utf8mb4_general_ci, e ENUM('a', 'bcd'))",
        "INSERT INTO past.text VALUES (1, 'ab', 'a'), (2, 'AB', 'bcd')",
    )
    frame = read("past.text", sql.tso())

    assert [row[4:] for row in frame.where("c = 'ab'").collect()] == [(1, "ab", "a")]
    assert frame.where("e = 'bcd'").count() == 1


def test_a_zero_date_is_null_or_an_error(sql: Session, read: Any) -> None:
    """zero_date=fail names the column of a zero date; without it the date is NULL, and NULL is no error."""
    sql.run(
        "CREATE TABLE past.dates (id INT PRIMARY KEY, day DATE, moment DATETIME(3))",
        "INSERT INTO past.dates VALUES (1, '0000-00-00', '2024-02-31 00:00:00'), (2, NULL, '0001-01-01 00:00:00.5')",
    )
    at = sql.tso()

    rows = {row.id: (row.day, row.moment) for row in read("past.dates", at).collect()}
    assert (rows[1], rows[2][0], rows[2][1].microsecond) == ((None, None), None, 500_000)
    with pytest.raises(Exception, match=r"column day of past\.dates has a zero or invalid date"):
        read("past.dates", at, zero_date="fail").select("day").collect()
    assert len(read("past.dates", at, zero_date="fail").where("id = 2").select("id").collect()) == 1


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown table": ({"table": "past.nothing"}, r"TiDB had no table past\.nothing at TSO \d+"),
    "future": ({"moves": 10**6}, r"that moment lies in TiDB's future: take ticdc_lakehouse\.current_tso"),
    "collected": ({"moves": -(10**6)}, r"older than TiDB's GC safe point: SET GLOBAL tidb_gc_life_time"),
    "no driver": (
        {"properties": {"driver": "com.example.Missing"}},
        r"start it with spark\.jars\.packages=com\.mysql:mysql-connector-j:9\.4\.0",
    ),
    "wrong password": ({"user": "root", "password": "secret-1"}, r"the user or the password is wrong"),
    "password in the address": ({"url": "jdbc:mysql://root:secret-1@{host}:{port}/"}, "the user or the password is"),
    "nobody there": ({"url": "jdbc:mysql://root:secret-1@127.0.0.1:9/"}, "no server answers at the host and port"),
    "malformed address": ({"url": "jdbc:mysql://root:secret-1@127.0.0.1:port/"}, "the JDBC URL is not jdbc:mysql://"),
    "column of text": (
        {"partition_column": "c", "num_partitions": 2},
        r"past\.text has it as char\(9\); .* and it has id",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_error_says_what_to_do(spark: "SparkSession", tidb: TiDB, sql: Session, mistake: str) -> None:
    """Each mistake is a TiCDCSourceError that names the remedy, without Java's traceback and without the password."""
    from ticdc_lakehouse.snapshots.jdbc import snapshot

    options, message = MISTAKES[mistake]
    now = sql.tso()
    given: dict[str, Any] = {"table": "past.text", "user": "root", "url": tidb.jdbc_url, **options}
    given["at"] = now + (given.pop("moves", 0) * 1000 << 18)
    url, table = given.pop("url").format(host=tidb.host, port=tidb.port), given.pop("table")
    if mistake == "collected":
        sql.run(SAFE_POINT.format("20260101-00:00:00 +0000"))
        given["at"] = 1_767_000_000_000 << 18

    with pytest.raises(TiCDCSourceError, match=message) as caught:
        snapshot(spark, url, table, **given)

    sql.run(SAFE_POINT.format("20200101-00:00:00 +0000"))
    assert "secret-1" not in "".join(traceback.format_exception(caught.value))
    assert len(str(caught.value)) < 400


def test_a_plan_shows_no_password(spark: "SparkSession", tidb: TiDB, sql: Session) -> None:
    """explain() has the SQL and neither the password nor the user."""
    from ticdc_lakehouse.snapshots.jdbc import snapshot

    sql.run("CREATE USER reader IDENTIFIED BY 'secret-2'", "GRANT SELECT ON past.* TO reader")
    frame = snapshot(spark, tidb.jdbc_url, "past.text", at=sql.tso(), user="reader", password="secret-2")

    jvm: Any = spark._jvm
    plan = jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "extended")
    assert frame.count() == 2
    assert "FROM `past`.`text`" in plan
    assert "secret-2" not in plan
    assert "reader" not in plan
