"""Rows of a real TiDB as changes: types and keys are those of the messages, and rows are chosen by conditions."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from examples.local_kafka import produce
from tests.encoders.canal_json import CanalJSON
from tests.encoders.tables import table_of
from tests.fixtures import Kafka
from tests.support.captured import load
from tests.tidb.matrix import Matrix, declared, quoted
from tests.tidb.server import TiDB
from tests.tidb.sql import Session
from ticdc_lakehouse.tidb import TiDBConfig
from ticdc_source.errors import DataLossError, OptionError, TiCDCSourceError
from ticdc_source.options.topics import TableFilter, parse_table
from ticdc_source.schema.table_name import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow("starts a TiDB"), pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")]
# The changefeeds whose messages are compared: labels of ENUM and SET, precisions and lengths come from `tableDDL`.
CHANGES = ("open-protocol.default", "canal-json.content-compatible", "debezium.default")
FIRST = ("_change_type", "_commit_version", "_commit_timestamp", "_sequence")
# Defaults that a statement writes in another way than information_schema (tests/planning/test_column_facts.py).
AS_WRITTEN = frozenset({"2001-02-03 04:05:06.789", "2001-02-03 04:05:06.5", "ab", "ab\\0\\0"})
READERS_OWN = frozenset({"ticdc.protocol", "ticdc.versions", "ticdc.definitions"})  # metadata for reading messages


@pytest.fixture(scope="module")
def read(spark: "SparkSession", tidb: TiDB) -> "Any":
    """A function that returns the rows of a table of this TiDB, or some of them."""

    def take(table: str, at: int, condition: str = "") -> "DataFrame":
        rows = TiDBConfig(url=tidb.url, user="root").table(parse_table(table), at, prefix="_")
        return rows.where(spark, condition, {}, rank=1)

    return take


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


def test_rows_and_texts_are_chosen(spark: "SparkSession", tidb: TiDB, sql: Session) -> None:
    """A condition chooses rows, in ranges of equal size, and TiDB computes texts of them, all at one moment."""
    sql.run("CREATE DATABASE chosen", "USE chosen", "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(9), at TIME(2))")
    sql.run("INSERT INTO t VALUES " + ", ".join(f"({n}, 'n{n}', '-{n}:00:01.5')" for n in range(100)))  # noqa: S608
    config = TiDBConfig(url=tidb.url, user="root", rows_per_range=10)
    rows = config.table(TableName("chosen", "t"), sql.tso())
    sql.run("DELETE FROM t")

    odd = rows.where(spark, "id % 2 = 1", {"__ticdc_key": "CONCAT(id, ':', name)"}, rank=3, index=7)
    texts = rows.texts(spark, "id < 3", {"a": "CAST(id AS CHAR)", "b": "NULLIF(name, 'n1')"})

    assert odd.rdd.getNumPartitions() == 5
    found = odd.select("id", "__ticdc_key", "__ticdc_sequence.rank", "__ticdc_sequence.index").collect()
    assert [tuple(row) for row in found] == [(n, f"{n}:n{n}", 3, 7) for n in range(1, 100, 2)]
    assert [tuple(row) for row in texts.collect()] == [("0", "n0"), ("1", None), ("2", "n2")]
    assert rows.answer("SELECT COUNT(*) FROM chosen.t") == [("100",)]
    assert rows.where(spark, "id < 0", {}, rank=3).collect() == []


def test_a_delete_has_the_key_and_no_more(spark: "SparkSession", tidb: TiDB, sql: Session) -> None:
    """Deletes of rows of a target have TiDB's types, a negative TIME too, and unite with rows."""
    from pyspark.sql import functions as F  # noqa: N812

    sql.run("CREATE DATABASE gone", "USE gone", "CREATE TABLE t (at TIME(2), id BIGINT, n INT, PRIMARY KEY (at, id))")
    sql.run("INSERT INTO t VALUES ('-838:59:58.25', 1, 5)")
    rows = TiDBConfig(url=tidb.url, user="root").table(TableName("gone", "t"), sql.tso())
    kept = spark.createDataFrame([("-838:59:58.25", "1")], "a string, b string")

    deletes = rows.deletes(kept, {"at": F.col("a"), "id": F.col("b")}, rank=3)
    both = rows.where(spark, "", {}, rank=3).unionByName(deletes).collect()

    assert [row["__ticdc_change_type"] for row in both] == ["insert", "delete"]
    assert both[0]["at"] == both[1]["at"]
    assert [(row["id"], row["n"]) for row in both] == [(1, 5), (1, None)]


def test_tables_and_moments(tidb: TiDB, sql: Session) -> None:
    """Tables are listed without views; a table that is missing, or may not be read, is an error of its own."""
    sql.run("CREATE DATABASE listed", "USE listed", "CREATE TABLE a (id INT)", "CREATE TABLE `B.c` (id INT)")
    sql.run("CREATE VIEW v AS SELECT * FROM a", "CREATE USER looker", "GRANT SELECT ON listed.a TO looker")
    root, looker = (TiDBConfig(url=tidb.url, user=user) for user in ("root", "looker"))
    at = root.now()

    assert [one.table for one in root.tables_at(TableFilter((("Listed", "*"),)), at)] == ["B.c", "a"]
    assert root.tables_at(TableFilter((("nothing", "*"),)), at) == []
    assert looker.table(TableName("listed", "a"), at).create_sql() == "CREATE TABLE `listed`.`a` (`id` int)"
    with pytest.raises(TiCDCSourceError, match="listed"):
        looker.table(TableName("listed", "B.c"), at)
    with pytest.raises(OptionError, match=r"TiDB had no table listed\.nothing"):
        root.table(TableName("listed", "nothing"), at)
    known = root.life_time(at)
    assert known is not None
    assert 0 < known[1] <= known[0]
    with pytest.raises(DataLossError, match="tidb_gc_life_time"):
        root.life_time(1_500_000_000_000 << 18)
