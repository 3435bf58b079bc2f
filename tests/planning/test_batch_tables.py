"""The tables, columns and DDL that a micro-batch of records has."""

import logging
import warnings
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, Record, rows_of
from tests.support.messages import TSO, Message, canal, debezium_ddl, open_message
from ticdc_source.pipeline.record_frames import RECORD, survey
from ticdc_source.planning.frame_sample import FoundTables, find_tables, frame_options
from ticdc_source.schema.table_name import TableName

NOTHING = pa.RecordBatch.from_pylist([], schema=RECORD)


def found(
    *messages: Message,
    before: pa.RecordBatch = NOTHING,
    known: tuple[str, ...] = (),
    types: Mapping[str, Mapping[str, str]] = {},
    **given: str,
) -> FoundTables:
    options = frame_options(given)
    kept = pa.Table.from_batches(survey([rows_of(Captured.of(*messages))], options), RECORD).combine_chunks()
    (records,) = kept.to_batches() or [NOTHING]
    return find_tables(records, before, options, [TableName("shop", name) for name in known], types)


def row(table: str, **cells: str) -> Message:
    return canal("INSERT", [cells], None, dict.fromkeys(cells, "int"), database="shop", table=table,
                 _tidb={"commitTs": TSO})  # fmt: skip


def ddl(table: str, query: str, kind: str = "ALTER", commit_ts: int = TSO) -> Message:
    return canal(kind, None, None, None, database="shop", table=table, isDdl=True, sql=query,
                 _tidb={"commitTs": commit_ts})  # fmt: skip


def texts(there: FoundTables) -> dict[str, list[str]]:
    return {str(name): [event.query for event in events] for name, events in there.ddl.items()}


def test_each_column_is_found() -> None:
    messages: list[Any] = [row("a", id="1") for _ in range(500)]
    messages[250] = row("a", id="1", c="2")

    assert found(*messages).schemas[TableName("shop", "a")].names[-2:] == ["id", "c"]


def test_table_ddl_of_one_table_leaves_the_others_as_they_are() -> None:
    """`tableDDL` types its own tables, and is no error for the others."""
    there = found(row("a", id="1"), row("b", id="1"), tableDDL="CREATE TABLE shop.a (id BIGINT PRIMARY KEY)")

    assert not there.errors
    assert [there.schemas[TableName("shop", name)].field("id").type for name in "ab"] == [pa.int64(), pa.int32()]


def test_a_sync_says_once_that_the_order_of_a_table_rests_on_places(caplog: pytest.LogCaptureFixture) -> None:
    """A table whose messages have no commit-ts comes with a notice, and not again in the next micro-batch."""
    plain = canal("INSERT", [{"id": "1"}], None, {"id": "int"}, database="shop", table="a")
    with caplog.at_level(logging.WARNING):
        first = found(plain, row("b", id="1"))
        found(plain, row("b", id="1"), known=("a", "b"), types=first.column_types)

    (notice,) = [each.getMessage() for each in caplog.records if "have no commit-ts" in each.getMessage()]
    assert "shop.a" in notice
    assert "enable-tidb-extension=true" in notice


def test_ddl_comes_once_and_in_order() -> None:
    """Copies of a DDL event count once, also over micro-batches, and DDL of one commit-ts stays in its order."""
    queries = ["ALTER TABLE a ADD c INT", "ALTER TABLE a DROP c", "ALTER TABLE a ADD c BIGINT"]
    first = found(*(ddl("a", query) for query in (*queries, *queries)))
    second = found(*(ddl("a", query) for query in queries), row("a", id="1"), before=first.ddl_records)

    assert texts(first) == {"shop.a": queries}
    assert texts(second) == {}


@pytest.mark.parametrize("protocol", ["open-protocol", "debezium"])
def test_ddl_comes_from_any_partition(protocol: str) -> None:
    """A DDL event whose only copy of a micro-batch is in partition 1 comes with it, and a later copy does not."""
    copy = debezium_ddl(TSO, "truncate table t", [])
    if protocol == "open-protocol":
        copy = open_message(({"ts": TSO, "scm": "test", "tbl": "t", "t": 2}, {"q": "truncate table t", "t": 11}))
    options, kept = frame_options({"protocol": protocol}), NOTHING
    per_batch = []
    for partition in (1, 0, 2):
        (records,) = survey([rows_of(Captured({}, {partition: [Record(*copy)]}))], options)
        there = find_tables(records, kept, options)
        per_batch.append(texts(there))
        kept = there.ddl_records

    assert per_batch == [{"test.t": ["truncate table t"]}, {}, {}]


def test_ddl_reaches_every_table_that_it_concerns() -> None:
    dropped = found(ddl("", "DROP DATABASE shop", "DDATABASE"), known=("a", "b"))
    exchanged = found(ddl("a", "ALTER TABLE a EXCHANGE PARTITION p0 WITH TABLE b"), known=("a", "b", "c"))

    assert set(texts(dropped)) == {"database shop", "shop.a", "shop.b"}
    assert set(texts(exchanged)) == {"shop.a", "shop.b"}


def test_a_table_has_one_name() -> None:
    there = found(ddl("A", "ALTER TABLE A ADD c INT"), row("a", id="1"))

    assert list(map(str, there.schemas)) == list(texts(there)) == ["shop.a"]
    assert list(map(str, found(row("A", id="1"), known=("a",)).schemas)) == ["shop.a"]


def test_ddl_without_rows_has_one_name_too() -> None:
    """DDL events that spell a table differently are under the first name, and the types of a table under any."""
    there = found(ddl("A", "ALTER TABLE A ADD c INT"), ddl("a", "ALTER TABLE a ADD d INT", commit_ts=TSO + 1))
    nulls = found(price(None), types={"shop.A": {"price": "decimal(9,2)"}})

    assert {name: len(statements) for name, statements in texts(there).items()} == {"shop.A": 2}
    assert type_of_price(nulls) == ("decimal128(9, 2)", False)


def price(value: str | None, mysql: str = "decimal", table: str = "a") -> Message:
    return canal("INSERT", [{"id": "1", "price": value}], None, {"id": "int", "price": mysql}, database="shop",
                 table=table, _tidb={"commitTs": TSO})  # fmt: skip


def type_of_price(batch: FoundTables) -> tuple[str, bool]:
    field = batch.schemas[TableName("shop", "a")].field("price")
    return str(field.type), b"ticdc.undecided" in field.metadata


def test_an_earlier_micro_batch_decides_for_one_with_nulls_only() -> None:
    """A column with only NULLs has the type that values had in the last micro-batch with any, however long ago."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        first = found(price("1.50"))
        between = found(row("a", id="1"), row("b", id="1"), types=first.column_types)
        last = found(price(None), types=between.column_types)
        nothing = found(types=last.column_types)

    assert type_of_price(first) == type_of_price(last) == ("decimal128(38, 2)", False)
    assert nothing.column_types == {"shop.a": {"id": "int", "price": "decimal(38,2)"}, "shop.b": {"id": "int"}}


def test_who_knows_a_type_better_than_an_earlier_micro_batch_decides() -> None:
    """Messages, DDL and options decide before an earlier micro-batch, and a default is no type to remember."""
    types = {"shop.a": {"price": "decimal(38,2)"}}
    alter = ddl("a", "ALTER TABLE a MODIFY price decimal(12,3)", commit_ts=TSO - 1)

    assert type_of_price(found(price(None, "decimal(10,4)"), types=types)) == ("decimal128(10, 4)", False)
    assert type_of_price(found(alter, price(None), types=types)) == ("decimal128(12, 3)", False)
    assert type_of_price(found(price(None), types=types, unspecifiedDecimal="string")) == ("string", False)
    with pytest.warns(UserWarning, match="only NULLs"):
        of_another_kind = found(price(None), types={"shop.a": {"price": "date"}})
    assert type_of_price(of_another_kind) == ("decimal128(38, 18)", True)
    with pytest.warns(UserWarning, match="only NULLs"):
        assert "price" not in found(price(None)).column_types["shop.a"]
