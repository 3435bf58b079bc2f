"""Ranges of keys: each row is in exactly one; tests/tidb/ has the same on a real TiDB, for keys of every type."""

import itertools
import random
import re
import sqlite3

import pytest

from lakehouse.tests.snapshots.test_queries import Row, column, table
from ticdc_lakehouse.snapshots.key_ranges import KeyColumn, RowKey, key_of, key_question, spread
from ticdc_source.errors import OptionError
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import parse_type

LITERALS = {  # MySQL type: how a bound is read, what TiDB answers, and its literal
    "bigint unsigned": ("CAST(k0 AS CHAR)", "18446744073709551615", "18446744073709551615"),
    "decimal(65,30)": ("CAST(k0 AS CHAR)", "-1.50", "-1.50"),
    "double": ("CAST(k0 + 0e0 AS CHAR)", "-1.5e-10", "-1.5e-10"),
    "varchar(9)": ("HEX(CONVERT(k0 USING utf8mb4))", "27C3A9", "_utf8mb4 x'27C3A9'"),
    "char(9)": ("HEX(CONVERT(k0 USING utf8mb4))", "", "_utf8mb4 x''"),
    "varbinary(9)": ("HEX(k0)", "00FF27", "x'00FF27'"),
    "enum('a','b')": ("CAST(CAST(k0 AS UNSIGNED) AS CHAR)", "2", "2"),
    "set('a','b')": ("CAST(CAST(k0 AS UNSIGNED) AS CHAR)", "3", "3"),
    "bit(64)": ("CAST(CAST(k0 AS UNSIGNED) AS CHAR)", "9223372036854775808", "9223372036854775808"),
    "date": ("CAST(k0 AS CHAR)", "2024-02-29", "'2024-02-29'"),
    "datetime(6)": ("CAST(k0 AS CHAR)", "2024-02-29 23:59:59.999999", "'2024-02-29 23:59:59.999999'"),
    "timestamp": ("CAST(k0 AS CHAR)", "2024-02-29 23:59:59", "'2024-02-29 23:59:59'"),
    "time(3)": ("CAST(k0 AS CHAR)", "-838:59:59.000", "'-838:59:59.000'"),
    "year": ("CAST(k0 AS CHAR)", "2024", "2024"),
}
UNSAFE = {  # MySQL type: what is no bound
    "date": ("0000-00-00", "2024-02-31", "2024-00-01"),
    "datetime": ("0000-00-00 00:00:00", "2024-02-30 00:00:00"),
    "varchar(9)": ("'", "4"),
    "varbinary(9)": ("x' OR 1",),
    "int": ("1 OR 1", "", "NULL"),
    "time": ("now()",),
}


def key(*types: str, rows: int = 0) -> RowKey:
    """Return a key of columns `a`, `b`, … of these types."""
    columns = tuple(KeyColumn(f"`{name}`", parse_type(type_)) for name, type_ in zip("abcd", types, strict=False))
    return RowKey("`shop`.`t`", columns, rows)


@pytest.mark.parametrize("mysql", LITERALS)
def test_a_bound_is_a_literal_of_the_same_value(mysql: str) -> None:
    """A text is a bound by its bytes, an ENUM by its number, and a number or a time as TiDB writes it."""
    one = KeyColumn("`a`", parse_type(mysql))
    asked, answer, literal = LITERALS[mysql]

    assert one.as_text("k0") == asked
    assert one.literal(answer) == literal


@pytest.mark.parametrize("mysql", UNSAFE)
def test_what_has_no_safe_literal_is_no_bound(mysql: str) -> None:
    """A zero or invalid date, which TiDB may take as NULL, and whatever is not of the type's form, bounds no range."""
    for text in UNSAFE[mysql]:
        assert KeyColumn("`a`", parse_type(mysql)).literal(text) is None
    assert key(mysql).bounds([[text] for text in (*UNSAFE[mysql], None)]) == []


def test_the_clauses_of_a_key() -> None:
    """The columns of a key are compared one after the other; what two bounds share is one value of that column."""
    clauses = key("int", "varchar(9)").clauses([("1", "_utf8mb4 x'61'"), ("1", "_utf8mb4 x'62'"), ("7", "x''")])

    assert clauses == [
        "k0 <= 1 AND (k0 < 1 OR (k0 = 1 AND k1 < _utf8mb4 x'61'))",
        "k0 = 1 AND k1 >= _utf8mb4 x'61' AND k1 < _utf8mb4 x'62'",
        "k0 >= 1 AND k0 <= 7 AND (k0 > 1 OR (k0 = 1 AND k1 >= _utf8mb4 x'62')) AND (k0 < 7 OR (k0 = 7 AND k1 < x''))",
        "k0 >= 7 AND (k0 > 7 OR (k0 = 7 AND k1 >= x''))",
    ]
    assert key("int").clauses([("5",)]) == ["k0 < 5", "k0 >= 5"]
    assert key("int").clauses([]) == ["TRUE"]


@pytest.mark.parametrize("types", [("int",), ("int", "int"), ("varbinary(9)", "int"), ("int", "varbinary(9)", "int")])
def test_each_row_is_in_one_range(types: tuple[str, ...]) -> None:
    """Whatever the bounds are, in order, each row meets the clause of exactly one range: SQLite says so too."""
    seed = 24
    chance = random.Random(seed)
    values: dict[str, list[int] | list[bytes]] = {
        "int": [-3, 0, 1, 2, 7],
        "varbinary(9)": [b"", b"\x00", b"'", b"a", b"a\x00", b"\xff"],
    }
    rows = list(itertools.product(*(values[one] for one in types)))
    database = sqlite3.connect(":memory:")
    names = [f"k{number}" for number in range(len(types))]
    database.execute(f"CREATE TABLE t ({', '.join(names)})")
    database.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(names))})", rows)  # noqa: S608 (a test's own)

    for count in (0, 1, 2, 5, len(rows)):
        chosen = sorted(chance.sample(rows, min(count, len(rows))))
        answer = [[one.hex() if isinstance(one, bytes) else str(one) for one in row] for row in chosen]
        clauses = key(*types).clauses(key(*types).bounds(answer))
        found = [row for one in clauses for row in database.execute(f"SELECT * FROM t WHERE {one}")]  # noqa: S608
        assert sorted(found) == sorted(rows), (seed, count)
        assert len(clauses) == len(chosen) + 1


def test_bounds_are_spread_evenly() -> None:
    """Of the first rows of ten regions, four ranges get three bounds; the first row begins the first range."""
    first_rows = [(str(number),) for number in range(10)]

    assert spread(first_rows, 4) == [("2",), ("5",), ("7",)]
    assert spread(first_rows, 100) == first_rows[1:]
    assert spread([], 4) == []


def test_the_key_is_the_clustered_primary_key_or_the_row_id() -> None:
    """TiDB stores rows by the primary key if it is clustered, in the key's order, and by _tidb_rowid otherwise."""
    orders = table(column("id", "int", "PRIMARY"), column("no`", "varchar(9)", "PRIMARY"))
    kind: Row = {"table_type": "BASE TABLE", "table_rows": 7}
    clustered = [{**kind, "column_name": name, "place": place} for name, place in (("ID", 2), ("no`", 1))]
    other: Row = {**kind, "column_name": None, "place": None}

    assert key_of(orders, clustered).selected() == "`no``` AS k0, `id` AS k1"
    assert key_of(orders, [other]).selected() == "_tidb_rowid AS k0"
    assert key_of(orders, [other]).rows == 7
    assert "t.table_name = 'it''s'" in key_question(TableName("shop", "it's"))
    with pytest.raises(OptionError, match=r"shop\.Orders is a view"):
        key_of(orders, [{**other, "table_type": "VIEW"}])


def test_the_questions_that_find_bounds() -> None:
    """Bounds are the first row of each region, or every n-th row, in the order of the key and not of its text."""
    two = key("int", "varchar(9)")
    texts = r"SELECT CAST\(k0 AS CHAR\) AS t0, HEX\(CONVERT\(k1 USING utf8mb4\)\) AS t1 FROM "
    sampled = r"\(SELECT `a` AS k0, `b` AS k1 FROM `shop`\.`t` TABLESAMPLE REGIONS"

    assert re.match(rf"\({texts}{sampled}", two.sample_sql())
    assert two.sample_sql().endswith("ORDER BY k0, k1) AS bounds")
    assert re.match(rf"\({texts}\(SELECT k0, k1, ROW_NUMBER\(\) OVER \(ORDER BY k0, k1\)", two.every_sql(100))
    assert "WHERE place > 1 AND MOD(place - 1, 100) = 0 ORDER BY k0, k1" in two.every_sql(100)
