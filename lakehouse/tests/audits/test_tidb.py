"""What the copy asks of TiDB, without one; lakehouse/tests/tidb has the same on a real TiDB."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakehouse.tests.targets.conftest import quick
from ticdc_lakehouse.tidb import SnapshotTable, TiDBConfig, check_tso
from ticdc_source.errors import AccessRefusedError, OptionError, TiCDCSourceError
from ticdc_source.options.options import Options
from ticdc_source.schema.model import Column, ColumnFacts
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import parse_type
from ticdc_source.sources.tidb import client

__all__ = ["quick"]

AT = 470_640_657_837_850_624


PRIMARY = ColumnFacts(primary_key=True, handle_key=True)


def table(types: dict[str, str], first: ColumnFacts = PRIMARY) -> SnapshotTable:
    """Return a table; the first column has some facts, and the others may be NULL."""
    columns = tuple(
        Column(name, parse_type(type_), key=not number, facts=ColumnFacts(nullable=True) if number else first)
        for number, (name, type_) in enumerate(types.items())
    )
    options = Options.of({"snapshot": "only", "metadataColumnPrefix": "__ticdc_", "tidb.url": "h", "tidb.user": "u"})
    return SnapshotTable(options=options, name=TableName("s`x", "t.y"), tso=AT, columns=columns, key=columns[:1])


def test_a_table_is_told_as_ddl_would() -> None:
    """Odd names cannot leave their quotes; without a primary key the handle key is a unique key."""
    types = {"a`b c": "bigint unsigned", "e": "enum('a','b''c')"}
    begin = "CREATE TABLE `s``x`.`t.y` (`a``b c` bigint unsigned NOT NULL, `e` enum('a','b''c')"

    assert table(types).create_sql() == f"{begin}, PRIMARY KEY (`a``b c`))"
    assert table(types, ColumnFacts(handle_key=True)).create_sql() == f"{begin}, UNIQUE KEY handle_key (`a``b c`))"
    assert table(types, ColumnFacts(unique_key=True)).create_sql() == f"{begin})"


@pytest.mark.slow("a job of Spark")
def test_a_delete_has_the_key_and_no_more(quick: SparkSession) -> None:
    """Deletes of rows of a target have the columns and types of changes; a TIME is its text there."""
    rows = table({"id": "time(2)", "n": "int", "d": "decimal(9,2)"})
    kept = quick.createDataFrame([("-838:59:58.25",), ("00:00:01",)], "k string")

    deletes = rows.deletes(kept, {"id": F.col("k")}, rank=3, index=7)

    assert deletes.schema.names == rows.frame(quick, []).schema.names
    assert [field.dataType for field in deletes.schema] == [one.dataType for one in rows.frame(quick, []).schema]
    assert deletes.schema["id"].metadata["ticdc.key"] == "true"
    found = deletes.select("__ticdc_change_type", "__ticdc_sequence.*", F.col("id").cast("string"), "n", "d").collect()
    assert tuple(found[0]) == ("delete", AT, 3, -1, -1, 7, "INTERVAL '-34 22:59:58.25' DAY TO SECOND", None, None)
    assert found[1]["id"] == "INTERVAL '0 00:00:01' DAY TO SECOND"


def test_a_login_that_is_refused_is_no_error_of_all_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync goes on with tables that need no TiDB."""

    def refuse(*_: object, **__: object) -> None:
        raise AccessRefusedError("TiDB h:4000 refuses the login of user 'u'")

    config = TiDBConfig(url="h", user="u")
    monkeypatch.setattr(client.Session, "__init__", refuse)
    for ask in (config.now, lambda: config.life_time(AT), lambda: config.table(TableName("a", "b"), AT)):
        with pytest.raises(TiCDCSourceError, match="refuses the login") as caught:
            ask()
        assert not isinstance(caught.value, AccessRefusedError)


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (1_700_000_000_000, r"it is the TSO 445644800000000000 \(1700000000000 << 18\)"),
        (1_700_000_000, "a TSO is milliseconds since the epoch << 18"),
        (0, "is not a TSO"),
        (2**63, "is not a TSO"),
        (True, "a TSO is an int"),
        ("470640657837850624", "a TSO is an int"),
    ],
)
def test_what_is_not_a_tso_is_refused(at: int, message: str) -> None:
    """A time in milliseconds or seconds, a text, and numbers that no TSO is, are refused before TiDB is asked."""
    with pytest.raises(OptionError, match=message):
        check_tso(at)
