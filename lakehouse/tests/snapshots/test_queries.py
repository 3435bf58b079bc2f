"""What `snapshot` asks TiDB, and what it makes of the answer; tests/tidb/ has the same on a real TiDB."""

import datetime
from decimal import Decimal

import pytest

from ticdc_lakehouse.snapshots.queries import (
    SnapshotTable,
    can_be_literal,
    check_tso,
    check_url,
    connection_properties,
    described,
    explained,
    table_of,
)
from ticdc_source.errors import OptionError, SchemaError, UnsupportedTypeError
from ticdc_source.schema.table_name import TableName

AT = 470_640_657_837_850_624
Row = dict[str, str | int | None]


def column(name: str, type_: str, key: str | None = None, **more: str | int | None) -> Row:
    """Return a row of TiDB's answer."""
    return {
        "table_schema": "shop", "table_name": "Orders", "column_name": name, "ordinal_position": 1,
        "column_type": type_, "is_nullable": "NO", "column_default": None, "extra": "", "column_comment": "",
        "index_id": 1 if key else None, "key_name": key, "non_unique": 0 if key else None, **more,
    }  # fmt: skip


def table(*rows: Row) -> SnapshotTable:
    """Describe a table of these columns, in their order."""
    places: dict[object, int] = {}
    placed = [{**row, "ordinal_position": places.setdefault(row["column_name"], len(places) + 1)} for row in rows]
    return described(TableName("shop", "orders"), placed, AT)


def keys(*rows: Row) -> list[str]:
    """Return the columns of the handle key."""
    return [one.name for one in table(*rows).columns if one.metadata(TableName("shop", "orders")).get("ticdc.key")]


TYPES = {  # MySQL type: what is selected, what JDBC reads it as, what it becomes
    "int": ("`c`", "int32", "int32"),
    "mediumint unsigned": ("`c`", "int64", "int64"),
    "float unsigned": ("`c` * 1e0", "float", "float"),
    "bigint unsigned": ("`c`", "decimal128(20, 0)", "decimal128(20, 0)"),
    "decimal(20,4) unsigned": ("`c`", "decimal128(20, 4)", "decimal128(20, 4)"),
    "decimal(65,30)": ("CAST(`c` AS CHAR)", "string", "string"),
    "char(9)": ("CAST(`c` AS CHAR)", "string", "string"),
    "varchar(9)": ("`c`", "string", "string"),
    "enum('a','b''c')": ("CAST(`c` AS CHAR)", "string", "string"),
    "set('a')": ("CAST(`c` AS CHAR)", "string", "string"),
    "bit(1)": ("CAST(`c` AS SIGNED)", "int64", "bool"),
    "bit(64)": ("CAST(`c` AS SIGNED)", "int64", "int64"),
    "date": ("CAST(`c` AS CHAR)", "string", "date32[day]"),
    "datetime(6)": ("CAST(`c` AS CHAR)", "string", "timestamp[us]"),
    "timestamp": ("CAST(`c` AS CHAR)", "string", "timestamp[us, tz=UTC]"),
    "time(3)": ("CAST(`c` AS CHAR)", "string", "duration[us]"),
    "year(4)": ("`c`", "int32", "int32"),
    "vector(3)": ("CAST(`c` AS CHAR)", "string", "list<element: float>"),
    "json": ("`c`", "string", "string"),
    "binary(4)": ("`c`", "binary", "binary"),
}


@pytest.mark.parametrize("mysql", TYPES)
def test_each_type_is_read_in_a_form_that_the_driver_does_not_change(mysql: str) -> None:
    """Dates, times, vectors and padded texts are read as text, bits as numbers, and all others as they are."""
    (only,) = table(column("c", mysql)).columns

    assert (only.sql, str(only.arrow_read), str(only.type.arrow)) == TYPES[mysql]


def test_names_are_quoted() -> None:
    """Odd names cannot leave their quotes, neither as names nor as texts."""
    found = table(column("a`b c", "int", table_schema="s`x", table_name="t.y"))
    name, question = table_of("`it's\\`.`t`")

    assert found.select_sql() == "(SELECT `a``b c` AS c0 FROM `s``x`.`t.y`) AS snapshot"
    assert name == TableName("it's\\", "t")
    assert r"c.table_schema = 'it''s\\' AND" in question


def test_the_handle_key_is_the_primary_key_or_the_shortest_unique_key() -> None:
    """Without a primary key it is the unique key with the fewest columns, the older of two, none of them nullable."""
    long = [column(name, "int", "long", index_id=1) for name in ("a", "b")]

    assert keys(column("a", "int", "PRIMARY"), column("b", "int", "u", index_id=2)) == ["a"]
    assert keys(*long, column("c", "int", "short", index_id=2), column("d", "int", "new", index_id=3)) == ["c"]
    assert keys(*long, column("c", "int", "short", index_id=2, is_nullable="YES")) == ["a", "b"]
    assert keys(column("a", "int", "plain", non_unique=1), column("b", "int")) == []


def test_a_virtual_column_is_left_out() -> None:
    """TiCDC sends stored generated columns and no virtual ones; a key of a virtual one identifies no row."""
    found = table(
        column("id", "int"),
        column("v", "int", "u", extra="VIRTUAL GENERATED"),
        column("s", "int", extra="STORED GENERATED"),
        column("at", "timestamp", extra="DEFAULT_GENERATED on update CURRENT_TIMESTAMP"),
    )

    assert [(one.name, one.alias) for one in found.columns] == [("id", "c0"), ("s", "c1"), ("at", "c2")]
    assert [one.facts.generated for one in found.columns] == [False, True, False]
    assert not any(one.facts.handle_key for one in found.columns)


def test_every_connection_is_at_one_moment() -> None:
    """The moment is a session variable of each connection; the user's own session variables stay."""
    given = connection_properties({"sessionVariables": "x=1", "useSSL": "true", "fetchsize": "7"}, AT)

    assert given["sessionVariables"] == f"x=1,tidb_snapshot='{AT}',time_zone='+00:00'"
    assert (given["useSSL"], given["fetchsize"], given["driver"]) == ("true", "7", "com.mysql.cj.jdbc.Driver")
    assert connection_properties({})["sessionVariables"] == "time_zone='+00:00'"


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


@pytest.mark.parametrize(
    ("url", "properties", "message"),
    [
        ("jdbc:postgresql://h/?password=secret", {}, "must begin with jdbc:mysql:"),
        ("jdbc:mysql://h/?user=u&TinyInt1isBit=true&password=secret", {}, "tinyint1isbit cannot be given"),
        ("jdbc:mysql://h/?sessionVariables=a=1", {}, "sessionvariables cannot be given"),
        ("jdbc:mysql://h/", {"YearIsDateType": "true"}, "YearIsDateType cannot be given"),
        ("jdbc:mysql://h/", {"customSchema": "c INT"}, "customSchema cannot be given"),
    ],
)
def test_an_address_that_would_change_values_is_refused(url: str, properties: dict[str, str], message: str) -> None:
    """Settings that snapshot() owns, and other databases, are refused without showing the address."""
    with pytest.raises(OptionError, match=message) as caught:
        check_url(url, properties)

    assert "secret" not in str(caught.value)
    check_url("jdbc:mysql://h:4000/db?useSSL=true", {"sessionVariables": "a=1"})


@pytest.mark.parametrize(
    ("name", "message"),
    [("nothing", "has no such column; .* and it has id, n"), ("c", r"has it as char\(3\)"), ("d", "has it as date")],
)
def test_ranges_need_an_integer_column(name: str, message: str) -> None:
    """A partition column that is missing or no integer is refused, with those that will do; case does not matter."""
    found = table(
        column("id", "bigint unsigned", "PRIMARY"), column("n", "int"), column("c", "char(3)"), column("d", "date")
    )

    assert found.column_to_split("ID").alias == "c0"
    with pytest.raises(OptionError, match=message):
        found.column_to_split(name)


def test_a_table_that_is_not_there_or_not_readable_is_an_error() -> None:
    """No columns, an unknown type, and a name without a database say what was expected."""
    with pytest.raises(SchemaError, match=r"TiDB had no table shop\.orders at TSO 470640657837850624"):
        table()
    with pytest.raises(UnsupportedTypeError, match=r"Column g of shop\.Orders: type geometry is not supported"):
        table(column("g", "geometry"))
    with pytest.raises(OptionError, match="table='orders' is not database"):
        table_of("orders")


def test_an_error_of_the_driver_shows_no_secret() -> None:
    """The last cause is quoted without passwords; a malformed address is not quoted at all."""
    error = "o1.load.\nCaused by: java.sql.SQLException: pw-1 is bad\nCaused by: java.net.X: pw-1 at h"
    malformed = "o1.load.\nCaused by: java.lang.NumberFormatException: For input string: pw-2@h"

    assert explained(error, AT, ["pw-1", ""]) == f"TiDB cannot be read as of TSO {AT}: … at h"
    assert explained(malformed, None, []) == "TiDB cannot be read: the JDBC URL is not jdbc:mysql://host:port/"


def test_a_key_is_compared_with_exact_literals() -> None:
    """Numbers keep every digit, and nothing in a text or in bytes can end a literal."""
    columns = {"i": "int", "d": "decimal(50,2)", "u": "bigint unsigned", "s": "varchar(9)", "b": "blob", "t": "date"}
    described_table = table(*(column(name, type_, "PRIMARY") for name, type_ in columns.items()))
    assert all(map(can_be_literal, described_table.columns))
    key = (-1, "12345678901234567890123456789012345678901234567890.25", Decimal(2**64 - 1), "\\' é", b"'\x00",
           datetime.date(9, 1, 2))  # fmt: skip
    assert described_table.keys_condition([*columns], [key]) == (
        "(`i`, `d`, `u`, `s`, `b`, `t`) IN ((-1, 12345678901234567890123456789012345678901234567890.25, "
        "18446744073709551615, _utf8mb4 x'5c2720c3a9', x'2700', '0009-01-02'))"
    )
    assert described_table.keys_condition(["I"], [(1,), (2,)]) == "(`I`) IN ((1), (2))"
    others = table(*(column(name, name) for name in ("double", "datetime(6)", "timestamp", "time", "bit(9)", "json")))
    assert not any(map(can_be_literal, others.columns))
