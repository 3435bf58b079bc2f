"""The kind of a DDL event; DDL that removes rows upstream without delete events is found, and logged or refused."""

import contextlib
import logging
import re

import pytest

from tests.support.captured import Captured, Record, load, make_options
from tests.support.messages import TSO, Message, canal, debezium, debezium_ddl, open_message, open_row
from ticdc_source.errors import DataLossError
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadState
from ticdc_source.schema.ddl_event import KINDS, LONGEST_TEXT, DDLEvent, ddl_kind, removes_rows_of
from ticdc_source.schema.mysql_ddl.statements import steps
from ticdc_source.schema.table_name import TableName

SCENARIOS = ("open-protocol.default.ops", "canal-json.tidb-extension.ops", "debezium.tidb-extension.ops")
T = TableName("test", "t")
ROW = canal("INSERT", [{"id": "1"}], None, {"id": "int"})


def event(query: str, type_: str = "ALTER", table: TableName = T, code: int | None = None) -> DDLEvent:
    """Make a DDL event."""
    return DDLEvent(position=0, index=0, commit_ts=TSO, table=table, query=query, type=type_, type_code=code)


def test_a_ddl_has_one_kind_whatever_wrote_it() -> None:
    """Every DDL of the corpus has one kind in all protocols, and its text alone says the same as TiDB's code."""
    kinds: dict[str, set[str]] = {}
    for scenario in SCENARIOS:
        for row in load(scenario).read(outputFormat="event").to_pylist():
            if row["_event_type"] == "ddl":
                by_text = ddl_kind(event(row["ddl_query"], ""))
                kinds.setdefault(row["ddl_query"], set()).update((row["ddl_kind"], by_text))

    assert len(kinds) > 45
    assert {query: several for query, several in kinds.items() if len(several) > 1} == {}
    assert {"other"} not in kinds.values()


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("CREATE /* a */ SCHEMA IF NOT EXISTS db", "create_database"),
        ("alter database `db` collate utf8mb4_bin", "alter_database"),
        ("CREATE GLOBAL TEMPORARY TABLE t (a int) ON COMMIT DELETE ROWS", "create_table"),
        ("ALTER TABLE t RENAME AS `u`", "rename_table"),
        ("ALTER TABLE t RENAME COLUMN a TO b", "alter_table"),
        ("DROP TABLES a, b", "drop_table"),
        ("rename tables a to b", "rename_table"),
        ("ALTER TABLE `t`DROP PARTITION`p`", "drop_partition"),
        ("ALTER TABLE`db`.`t`ADD COLUMN`c` int", "alter_table"),
        ("ALTER ONLINE IGNORE TABLE t DROP PARTITION p", "drop_partition"),
        ("ALTER TABLE t FIRST PARTITION LESS THAN (10)", "drop_partition"),
        ("ALTER TABLE t MERGE FIRST PARTITION LESS THAN (10)", "alter_table"),
        ("ALTER TABLE t LAST PARTITION LESS THAN (10)", "alter_table"),
        ("ALTER TABLE t RENAME KEY a TO b", "alter_table"),
        ("ALTER TABLE test.t RENAME `index`", "rename_table"),
        ("CREATE UNIQUE INDEX i ON t (a)", "alter_table"),
        ("DROP INDEX i ON t", "alter_table"),
        ("CREATE OR REPLACE ALGORITHM = MERGE DEFINER = `a`@`%` VIEW v AS SELECT 1", "create_view"),
        ("CREATE TABLE t (a int) COMMENT 'view'", "create_table"),
        ("FLASHBACK TABLE t TO BEFORE DROP", "recover_table"),
        ("RECOVER TABLE t", "recover_table"),
        ("CREATE PLACEMENT POLICY p FOLLOWERS=2", "other"),
        ("", "other"),
    ],
)
def test_a_text_has_its_kind(query: str, kind: str) -> None:
    """Without a code, the first words of the statement say the kind."""
    assert ddl_kind(event(query, "QUERY")) == kind
    assert kind in KINDS


def test_a_code_decides_and_an_unknown_code_leaves_it_to_the_text() -> None:
    """TiDB's code of the statement counts; a code that is not known yet does not hide what the text says."""
    assert ddl_kind(event("", code=60)) == "create_table"
    assert ddl_kind(event("", code=71)) == "alter_table"
    assert ddl_kind(event("DROP TABLE t", code=250)) == "drop_table"
    assert ddl_kind(event("", "TRUNCATE")) == "truncate_table"


@pytest.mark.parametrize(
    "message",
    [
        open_message(({"ts": TSO, "scm": "db", "tbl": "", "t": 2}, {"q": "DROP DATABASE db", "t": 2})),
        canal("QUERY", None, isDdl=True, database="db", table="", sql="DROP DATABASE db"),
        debezium_ddl(TSO, "DROP DATABASE db", [], source={"db": "db", "table": ""}, tableChanges=[]),
    ],
    ids=["open-protocol", "canal-json", "debezium"],
)
def test_a_ddl_of_a_database_names_the_database(message: Message) -> None:
    """Its `_table` is NULL, and an error speaks of the database, not of a table without a name."""
    captured = Captured.of(message)

    (row,) = captured.read(outputFormat="event").to_pylist()

    assert (row["_database"], row["_table"], row["ddl_kind"]) == ("db", None, "drop_database")
    with pytest.raises(DataLossError, match=r"rows of database db upstream.*offset=0 database=db, commit-ts"):
        captured.read(outputFormat="event", onDestructiveDDL="fail")


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE `test`.`t`",
        "drop table if exists t",
        "TRUNCATE TABLE `t`",
        "truncate t",
        "ALTER TABLE `t` DROP PARTITION `p0`",
        "/* why */ ALTER TABLE test.t TRUNCATE PARTITION p0, p1",
        "# why\nDROP TABLE t",
        "--\nDROP TABLE t",
        "ALTER TABLE `other` EXCHANGE PARTITION `p0` WITH TABLE `t`",
        "ALTER TABLE `test`.`t` EXCHANGE PARTITION p0 WITH TABLE other.x WITHOUT VALIDATION",
    ],
)
def test_ddl_that_removes_rows_is_found_by_its_text(query: str) -> None:
    """The statement decides, whatever the protocol calls it."""
    table = TableName("test", "other") if "`other` EXCHANGE" in query else T

    assert removes_rows_of(event(query, "QUERY", table), T)


@pytest.mark.parametrize(
    "query",
    [
        "ALTER TABLE t ADD COLUMN `drop partition` INT",
        "ALTER TABLE t DROP COLUMN c",
        "ALTER TABLE t ADD PARTITION (PARTITION p1 VALUES LESS THAN (5))",
        "ALTER TABLE t REORGANIZE PARTITION p0 INTO (PARTITION p1 VALUES LESS THAN (5))",
        "DROP INDEX i ON t",
        "CREATE TABLE t (id INT) COMMENT 'drop table t'",
        "DROP VIEW v",
        "ALTER " + "/**/" * 1000 + "DATABASE test COLLATE utf8mb4_bin",
    ],
)
def test_other_ddl_removes_nothing(query: str) -> None:
    """DDL that keeps the rows is not reported."""
    assert not removes_rows_of(event(query), T)


def test_the_drop_of_a_database_concerns_only_its_tables() -> None:
    """DROP DATABASE removes the rows of every table in it, and of no other."""
    drop = event("DROP DATABASE test", "QUERY", TableName("test", ""))

    assert removes_rows_of(drop, T)
    assert not removes_rows_of(drop, TableName("other", "t"))
    assert not removes_rows_of(event("DROP TABLE x", "ERASE", TableName("test", "x")), T)


def test_a_destructive_ddl_warns_by_default(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the statement, the table and the offset."""
    truncate = canal("TRUNCATE", None, isDdl=True, sql="TRUNCATE TABLE t")

    with caplog.at_level(logging.WARNING):
        Captured.of(ROW, truncate).read()

    assert "TRUNCATE TABLE t removed rows of test.t upstream" in caplog.text
    assert "offset=1" in caplog.text


@pytest.mark.parametrize("copies", [(0, 1), (1,)])
def test_a_copy_in_any_partition_warns_once(copies: tuple[int, ...], caplog: pytest.LogCaptureFixture) -> None:
    """A read of rows reports a DDL event from any partition, and each task reports and counts it once."""
    row = open_message(open_row({"u": {"id": {"t": 3, "h": True, "f": 11, "v": 1}}}))
    ddl = open_message(({"ts": TSO, "scm": "test", "tbl": "t", "t": 2}, {"q": "DROP TABLE t", "t": 4}))
    partitions = {each: [Record(*row), *([Record(*ddl)] if each in copies else [])] for each in (0, 1)}
    captured = Captured({}, partitions)
    schema, options = captured.schema(), make_options()
    spec = captured.spec(schema, options, captured.context(schema, options), captured.ranges()[0])
    state = ReadState.of(spec)

    with caplog.at_level(logging.WARNING):
        rows = [
            row for each in captured.ranges() for batch in read(captured.fetch(each), spec, state) for row in batch[0]
        ]

    assert len(rows) == 2
    assert caplog.text.count("DROP TABLE t removed rows of test.t") == 1
    assert state.counters.destructive_ddl == 1


def test_a_destructive_ddl_can_fail_the_read_or_be_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """`onDestructiveDDL=fail` raises an error that says what to do; `ignore` logs nothing."""
    messages = Captured.of(
        open_message(open_row({"u": {"id": {"t": 3, "h": True, "f": 11, "v": 1}}})),
        open_message(({"ts": TSO, "scm": "test", "tbl": "t", "t": 2}, {"q": "DROP TABLE t", "t": 4})),
    )

    with pytest.raises(DataLossError, match=r"DROP TABLE t removed rows of test\.t.*onDestructiveDDL"):
        messages.read(onDestructiveDDL="fail")
    with caplog.at_level(logging.WARNING):
        assert messages.read(onDestructiveDDL="ignore").num_rows == 1
    assert not caplog.text


def test_a_truncate_event_of_debezium_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Native Debezium's op `t` has no statement, and is reported all the same."""
    messages = Captured.of(debezium("c", after={"id": 1}), debezium("t"))

    with caplog.at_level(logging.WARNING):
        messages.read(schemaHints="id int")

    assert "TRUNCATE removed rows of test.t" in caplog.text


@pytest.mark.parametrize(
    "part",
    [
        "RENAME ", "'", "/* DROP ", "# DROP ", "EXCHANGE PARTITION `",
        *(
            pytest.param(part, marks=pytest.mark.slow("half a megabyte of statements"))
            for part in (";", "\\'", "`", '"', "/*", "DROP /*", "DROP PARTITION (")
        ),
    ],
)  # fmt: skip
def test_a_long_ddl_text_is_read_in_one_pass(part: str) -> None:
    """Half a megabyte of what once took minutes: the time must not grow with the square of the length."""
    for begin in ("", "RENAME TABLE ", "ALTER TABLE t "):
        text = (begin + part * LONGEST_TEXT)[:LONGEST_TEXT]

        assert ddl_kind(event(text, "")) in KINDS
        removes_rows_of(event(text, "", code=42), T)
        with contextlib.suppress(ValueError):
            steps(text[: LONGEST_TEXT // 8], "test")


def test_a_ddl_text_that_is_too_long_is_not_looked_into(caplog: pytest.LogCaptureFixture) -> None:
    """A warning says so, with the address, at load() and in the read; `onDestructiveDDL=fail` fails."""
    text = "ALTER TABLE test.t ADD COLUMN a int COMMENT 'x', " + "DROP PARTITION p" + ";" * LONGEST_TEXT
    captured = Captured.of(ROW, canal("ALTER", None, None, None, isDdl=True, sql=text), ROW)

    with caplog.at_level(logging.WARNING):
        rows = captured.read()

    assert len(rows) == 2
    assert re.search(r"too long to parse for types \(topic=captured partition=0 offset=1 .*table=test\.t", caplog.text)
    assert re.search(r"may have removed rows \(topic=captured partition=0 offset=1", caplog.text)
    with pytest.raises(DataLossError, match=r"may have removed rows .*offset=1"):
        captured.read(onDestructiveDDL="fail")
    other = Captured.of(ROW, canal("CREATE", None, None, None, isDdl=True, sql=text, table="other"), ROW)
    assert len(other.read(onDestructiveDDL="fail", tables="test.t")) == 2


def test_a_long_statement_is_shown_in_part() -> None:
    """The error for a DDL that removes rows has some hundred characters of it, and its commit-ts."""
    text = f"DROP TABLE t /* {'x ' * LONGEST_TEXT} */"
    captured = Captured.of(ROW, canal("ERASE", None, None, None, isDdl=True, sql=text, _tidb={"commitTs": TSO}))

    with pytest.raises(DataLossError, match=rf"DROP TABLE t .*commit-ts {TSO}") as caught:
        captured.read(onDestructiveDDL="fail")
    assert len(str(caught.value)) < 1000
