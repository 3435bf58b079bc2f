"""DDL that removes rows upstream without delete events: it is found, and logged or refused."""

import logging

import pytest

from tests.support.captured import Captured
from tests.support.messages import TSO, canal, debezium, open_message, open_row
from ticdc_source.errors import DataLossError
from ticdc_source.events import DDLEvent, TableName
from ticdc_source.schema.destructive_ddl import removes_rows_of

T = TableName("test", "t")
ROW = canal("INSERT", [{"id": "1"}], None, {"id": "int"})


def event(query: str, type_: str = "ALTER", table: TableName = T, code: int | None = None) -> DDLEvent:
    """Make a DDL event."""
    return DDLEvent(position=0, index=0, commit_ts=TSO, table=table, query=query, type=type_, type_code=code)


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

    assert "TRUNCATE TABLE t has removed rows of test.t upstream" in caplog.text
    assert "offset=1" in caplog.text


def test_a_destructive_ddl_can_fail_the_read_or_be_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """`onDestructiveDDL=fail` raises an error that says what to do; `ignore` logs nothing."""
    messages = Captured.of(
        open_message(open_row({"u": {"id": {"t": 3, "h": True, "f": 11, "v": 1}}})),
        open_message(({"ts": TSO, "scm": "test", "tbl": "t", "t": 2}, {"q": "DROP TABLE t", "t": 4})),
    )

    with pytest.raises(DataLossError, match=r"DROP TABLE t has removed rows of test\.t.*onDestructiveDDL"):
        messages.read(onDestructiveDDL="fail")
    with caplog.at_level(logging.WARNING):
        assert messages.read(onDestructiveDDL="ignore").num_rows == 1
    assert not caplog.text


def test_a_truncate_event_of_debezium_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Native Debezium's op `t` has no statement, and is reported all the same."""
    messages = Captured.of(debezium("c", after={"id": 1}), debezium("t"))

    with caplog.at_level(logging.WARNING):
        messages.read(schemaHints="id int")

    assert "TRUNCATE has removed rows of test.t" in caplog.text
