"""An audit compared with a real TiDB: equal values of every type have equal texts, and every damage is found."""

import datetime
import itertools
import json
import math
import os
import random
import struct
import subprocess
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse.tests.engines.engines import ENGINES
from tests.fixtures import QUICK_JAVA
from tests.support.paths import PACKAGES
from tests.tidb.matrix import Matrix, quoted
from tests.tidb.random_rows import KINDS, literal
from tests.tidb.server import TiDB
from tests.tidb.sql import Session
from tests.versions.environments import extras, interpreter
from ticdc_source.options.topics import parse_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ticdc_lakehouse.audits.sides import Differences

pytestmark = [pytest.mark.slow("starts a TiDB")]
SEED = 20261125
OURS = ("_change_type", "_commit_version", "_commit_timestamp", "_sequence")


@dataclass
class Audited:
    """A table of TiDB as of a TSO, and a frame that is compared with it."""

    spark: "SparkSession"  # the session
    tidb: TiDB  # TiDB
    table: str  # the table
    at: int  # the TSO

    def frame(self) -> "DataFrame":
        from ticdc_lakehouse.targets.changelog import read_changelog, stored_column

        changes = read_changelog(self._rows().where(self.spark, "", {}, rank=1))
        stored = (stored_column(changes, field).alias(field.name) for field in changes.columns)
        return changes.frame.select(*stored)

    def found(self, frame: "DataFrame", buckets: int = 4096) -> "tuple[int, Differences | None]":
        from ticdc_lakehouse.audits.canonical import columns_of
        from ticdc_lakehouse.audits.sides import KEY, Comparison, SparkSide, TiDBSide, differing_buckets, differing_rows
        from ticdc_lakehouse.audits.table_audit import SETTINGS
        from ticdc_lakehouse.targets.sessions import configured

        rows = self._rows()
        types = {one.name: one.dataType for one in frame.schema}
        columns, missing = columns_of(rows.columns, types, [rows.columns[0].name])
        assert missing == ()
        comparison = Comparison(columns, columns[:1], buckets)
        with configured(self.spark, SETTINGS):
            ours, theirs = SparkSide(frame, comparison), TiDBSide(rows, comparison)
            its, mine = theirs.buckets(), ours.buckets()
            assert sum(bucket.rows for bucket in its.values()) > 0
            differing = differing_buckets(its, mine)
            if not differing:
                return 0, None
            return len(differing), differing_rows(
                comparison,
                theirs.rows(self.spark, differing),
                ours.rows(differing),
                self.spark.createDataFrame([], f"{KEY} string"),
            )

    def _rows(self) -> Any:
        from ticdc_lakehouse.tidb import TiDBConfig

        return TiDBConfig(url=self.tidb.url, user="root").table(parse_table(self.table), self.at)


def test_equal_values_have_equal_texts(matrix: Matrix, spark: "SparkSession", tidb: TiDB) -> None:
    """TiDB and Spark compute the same checksums of every table of the type matrix, and of later values of all types."""
    for at, state in matrix.states[:2]:
        for name in state:
            if at == matrix.states[0][0] and name[1] != "t_all":  # it has all types: for the others, once is enough
                continue
            audited = Audited(spark, tidb, quoted(*name), at)
            count, rows = audited.found(audited.frame())
            shown = rows.frame.limit(3).collect() if rows is not None else ""
            assert count == 0, (name, rows and rows.columns, shown)


def made(
    sql: Session, database: str, kinds: list[str], rows: int, rng: random.Random, names: list[str] | None = None
) -> None:
    """Create a table `t` of random rows: `id`, and columns of the kinds."""
    names = names or [f"c{number}" for number in range(len(kinds))]
    columns = ", ".join(f"`{name}` {kind}" for name, kind in zip(names, kinds, strict=True))
    sql.run(f"CREATE DATABASE IF NOT EXISTS {database}", f"USE {database}", "DROP TABLE IF EXISTS t")
    sql.run(f"CREATE TABLE t (id BIGINT PRIMARY KEY, {columns})")
    for start in range(0, rows, 200):
        values = (
            f"({number}, {', '.join(literal(kind, rng) for kind in kinds)})"
            for number in range(start, min(rows, start + 200))
        )
        sql.run(f"INSERT INTO t VALUES {', '.join(values)}")  # noqa: S608 (a test's own)


def test_random_values_have_equal_texts(sql: Session, spark: "SparkSession", tidb: TiDB) -> None:
    """TiDB and Spark compute the same checksums of random values of all types."""
    print("seed", SEED)  # noqa: T201
    made(sql, "randomized", list(KINDS), 1500, random.Random(SEED))
    audited = Audited(spark, tidb, "randomized.t", sql.tso())

    count, rows = audited.found(audited.frame())

    assert count == 0, rows and (rows.counts, rows.columns)


def test_a_text_that_differs_is_no_difference_of_its_own(sql: Session, spark: "SparkSession", tidb: TiDB) -> None:
    """30 February, which TiDB hashes and a target cannot have, is read, and equal to NULL; a key is NULL at once."""
    sql.run("CREATE DATABASE february", "USE february", "CREATE TABLE t (id INT PRIMARY KEY, d DATE, at DATETIME(3))")
    sql.run("INSERT INTO t VALUES (1, '2024-02-30', NULL), (2, NULL, '2023-02-29 01:02:03.5'), (3, '2024-02-29', NULL)")
    audited = Audited(spark, tidb, "february.t", sql.tso())

    count, found = audited.found(audited.frame())

    assert found is not None
    assert (count, found.rows_read, found.counts) == (2, 2, {})
    sql.run(
        "CREATE TABLE february.keyed (d DATE PRIMARY KEY, v INT)", "INSERT INTO february.keyed VALUES ('2024-02-30', 1)"
    )
    keyed = Audited(spark, tidb, "february.keyed", sql.tso())
    assert keyed.found(keyed.frame()) == (0, None)


def test_a_double_that_mysql_cannot_have_is_found(sql: Session, spark: "SparkSession", tidb: TiDB) -> None:
    """NaN and Infinity in a target are differences; NaN is not even equal to itself."""
    from pyspark.sql import functions as F  # noqa: N812

    sql.run("CREATE DATABASE doubles", "USE doubles", "CREATE TABLE t (id INT PRIMARY KEY, d DOUBLE, f FLOAT)")
    sql.run("INSERT INTO t VALUES (1, 1.5, 2.5), (2, 1.5, 2.5)")
    audited = Audited(spark, tidb, "doubles.t", sql.tso())
    frame = audited.frame()
    damaged = frame.withColumns({
        "d": F.when(F.col("id") == 1, float("nan")).otherwise(F.col("d")),
        "f": F.when(F.col("id") == 2, F.lit(float("-inf")).cast("float")).otherwise(F.col("f")),
    })  # fmt: skip

    _, found = audited.found(damaged)

    assert found is not None
    assert (found.counts, found.columns) == ({"changed": 2}, {"d": 1, "f": 1})


@dataclass(frozen=True)
class Damage:
    """A way in which a value of a target may be wrong."""

    column: str  # the column
    of: Callable[[Any], Any]  # returns the wrong value; None if the value cannot be damaged so


# The columns of the table that is damaged, with the kinds of `random_rows` that they have.
COLUMNS = {
    "k": "BIGINT", "large": "BIGINT UNSIGNED", "money": "DECIMAL(10,2)", "long_decimal": "DECIMAL(65,30)",
    "ratio": "FLOAT", "number": "DOUBLE", "born": "DATE", "at": "DATETIME(6)", "seen": "TIMESTAMP(3) NULL",
    "took": "TIME(3)", "code": "CHAR(20)", "name": "VARCHAR(40) COLLATE utf8mb4_general_ci", "raw": "VARBINARY(20)",
    "kind": "ENUM('a','B','é','x,y')", "flags": "SET('p','q','r')", "doc": "JSON", "flag": "BIT(1)", "v": "VECTOR(3)",
}  # fmt: skip
DAMAGES = {
    "one more": Damage("k", lambda value: value + 1 if value is not None and value < 2**63 - 1 else None),
    "a float's precision": Damage("large", lambda value: _other(value, Decimal(int(float(value))))),
    "a rounded decimal": Damage("money", lambda value: _other(value, value.quantize(Decimal("0.1"), ROUND_DOWN))),
    "a digit of a long decimal": Damage("long_decimal", lambda value: _other(value, value[:-1] + "7")),
    "the last bit of a float": Damage("ratio", lambda value: _next_float(value) if value else None),
    "the last bit of a double": Damage("number", lambda value: math.nextafter(value, 0) if value else None),
    "minus zero": Damage("number", lambda value: -value if value == 0 else None),
    "a day": Damage("born", lambda value: value - datetime.timedelta(days=1) if value and value.year > 1 else None),
    "a microsecond": Damage("at", lambda value: value.replace(microsecond=value.microsecond ^ 1)),
    "an hour of daylight saving": Damage("seen", lambda value: value + datetime.timedelta(hours=1)),
    "a sign of a time": Damage("took", lambda value: -value if value else None),
    "a blank at the end": Damage("code", lambda value: value + " "),
    "another case": Damage("name", lambda value: _other(value, value.swapcase())),
    "another form of a character": Damage("name", lambda value: _other(value, unicodedata.normalize("NFC", value))),
    "a truncated text": Damage("name", lambda value: value[:-1] if value else None),
    "NULL for empty": Damage("name", lambda value: "\0NULL" if value == "" else None),
    "one byte": Damage("raw", lambda value: bytes([value[0] ^ 1]) + value[1:] if value else None),
    "zero bytes at the end": Damage("raw", lambda value: bytes(value) + b"\0"),
    "another label": Damage("kind", lambda value: "a" if value != "a" else "B"),
    "no labels": Damage("flags", lambda value: "" if value else None),
    "a number in JSON": Damage("doc", lambda value: _other(value, value.replace("1", "2"))),
    "a bit": Damage("flag", lambda value: not value),
    "a number of a vector": Damage("v", lambda value: [value[0] + 1, *value[1:]]),
}


def _next_float(value: float) -> float:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    found: float = struct.unpack("<f", struct.pack("<I", bits - 1))[0]
    return found


def _other(old: Any, new: Any) -> Any:
    return None if old == new else new


def plant(
    kind: str, rows: dict[int, dict[str, Any]], free: list[int], expected: dict[str, tuple[str, set[str]]],
    kinds: Counter[str],
) -> None:  # fmt: skip
    """Damage the next row that can be damaged so, and note what is to be found."""
    if kind == "a lost row":
        number = free.pop()
        del rows[number]
        expected[str(number)] = ("missing", set())
    elif kind == "an extra row":
        number = 10**6 + len(rows)
        rows[number] = {**rows[free[-1]], "id": number}
        expected[str(number)] = ("extra", set())
    elif kind == "a swapped pair":
        one, other = next(
            (one, other) for one, other in itertools.pairwise(free) if rows[one]["name"] != rows[other]["name"]
        )
        rows[one]["name"], rows[other]["name"] = rows[other]["name"], rows[one]["name"]
        for number in (one, other):
            free.remove(number)
            expected[str(number)] = ("changed", {"name"})
    else:
        damage = DAMAGES[kind]
        for number in free:
            old = rows[number][damage.column]
            new = None if old is None else damage.of(old)
            if new is not None:
                rows[number][damage.column] = None if new == "\0NULL" else new
                free.remove(number)
                expected[str(number)] = ("changed", {damage.column})
                break
        else:
            return
    kinds[kind] += 1


def test_every_damage_is_found(sql: Session, spark: "SparkSession", tidb: TiDB) -> None:
    """Of 1,000 damages of every kind, at random places of a table, each is found, and nothing else is."""
    from ticdc_lakehouse.audits.sides import KEY

    print("seed", SEED)  # noqa: T201
    rng = random.Random(SEED)
    made(sql, "damaged", list(COLUMNS.values()), 4000, rng, list(COLUMNS))
    audited = Audited(spark, tidb, "damaged.t", sql.tso())
    frame = audited.frame()
    rows = {row["id"]: row.asDict() for row in frame.collect()}
    expected: dict[str, tuple[str, set[str]]] = {}
    free = sorted(rows)
    rng.shuffle(free)
    kinds = Counter[str]()

    for kind in itertools.cycle((*DAMAGES, "a lost row", "an extra row", "a swapped pair")):
        if sum(kinds.values()) >= 1000:
            break
        plant(kind, rows, free, expected, kinds)
    damaged = spark.createDataFrame([tuple(row.values()) for row in rows.values()], frame.schema)

    count, found = audited.found(damaged, buckets=1 << 20)

    assert found is not None
    assert len(kinds) == len(DAMAGES) + 3
    print(count, "buckets differ;", dict(kinds))  # noqa: T201
    got = {}
    for row in found.frame.collect():
        cells = {name for number, name in enumerate(("id", *COLUMNS)) if row[f"t{number}"] != row[f"s{number}"]}
        got[row[KEY]] = (row["kind"], cells if row["kind"] == "changed" else set())
    assert got == expected


@pytest.mark.parametrize("buckets", [1, 4096])
def test_damages_do_not_cancel(sql: Session, spark: "SparkSession", tidb: TiDB, buckets: int) -> None:
    """Swapped values, a doubled row beside a lost one, and the same damage in two rows are found, in one bucket too."""
    from pyspark.sql import functions as F  # noqa: N812

    sql.run("CREATE DATABASE IF NOT EXISTS cancelled", "USE cancelled", "DROP TABLE IF EXISTS t")
    sql.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO t VALUES (1, 5, 6), (2, 6, 5), (3, 1, 1)")
    audited = Audited(spark, tidb, "cancelled.t", sql.tso())
    frame = audited.frame()
    damages = {
        "columns of a row": ("IF(id = 1, b, a)", "IF(id = 1, a, b)", {"changed": 1}),
        "columns of two rows": ("IF(id < 3, b, a)", "IF(id < 3, a, b)", {"changed": 2}),
        "the same": ("IF(id < 3, a + 1, a)", "b", {"changed": 2}),
    }

    for a, b, counts in damages.values():
        _, found = audited.found(
            frame.select("id", F.expr(a).cast("int").alias("a"), F.expr(b).cast("int").alias("b")), buckets
        )
        assert found is not None
        assert found.counts == counts
    _, found = audited.found(frame.where("id <> 3").union(frame.where("id = 1")), buckets)
    assert found is not None
    assert found.counts == {"missing": 1, "extra": 1}


@pytest.mark.long("a hundred tables")
def test_a_hundred_tables_raise_nothing(sql: Session, spark: "SparkSession", tidb: TiDB) -> None:
    """Of a hundred tables of random columns and rows, no bucket differs."""
    for number in range(100):
        rng = random.Random(SEED + number)
        kinds = rng.choices(list(KINDS), k=rng.randrange(1, 12))
        made(sql, "hundred", kinds, rng.choice((1, 7, 150, 400)), rng)
        audited = Audited(spark, tidb, "hundred.t", sql.tso())
        count, found = audited.found(audited.frame())
        assert count == 0, (number, kinds, found and found.columns)


def in_an_engine(engine: str, folder: Path, *arguments: object) -> Any:
    """Run the steps of `lakehouse.tests.tidb.audit` with an engine; return the JSON of its last line."""
    python = interpreter(ENGINES[engine].pyspark, *extras()["tidb"])
    done = subprocess.run(
        [str(python), "-m", "lakehouse.tests.tidb.audit", engine, *map(str, arguments)],
        cwd=folder, env={**os.environ, "PYTHONPATH": PACKAGES, "JDK_JAVA_OPTIONS": QUICK_JAVA},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long("a session of its own with an engine")
@pytest.mark.versions
@pytest.mark.parametrize("engine", ["delta-4.4", "iceberg-1.12"])
def test_a_table_is_audited_and_repaired(sql: Session, tidb: TiDB, tmp_path: Path, engine: str) -> None:
    """An audit of a table in Delta or Iceberg finds what differs; a repair mends that alone, in a commit of its own."""
    made(sql, "repaired", list(COLUMNS.values()), 300, random.Random(SEED), list(COLUMNS))
    sql.run("UPDATE t SET name = 'seven' WHERE id = 7", "UPDATE t SET name = 'eight' WHERE id = 8")
    at = sql.tso()
    sql.run("UPDATE t SET name = 'later' WHERE id IN (7, 20)", "DELETE FROM t WHERE id = 21")
    later = sql.tso()
    known = (tidb.url, tmp_path, "repaired.t", at, later)

    report = in_an_engine(engine, tmp_path, *known)

    for deletes, found in report.items():
        assert (found["unresolved"]["state"], found["unresolved"]["exit_code"]) == ("unknown", 2)
        assert (found["equal"]["state"], found["equal"]["rows"], found["equal"]["rows_read"]) == ("equal", 300, 0)
        assert found["equal"]["cells"] == 300 * (len(COLUMNS) + 1)
        assert found["verified"] == str(at)
        assert "is later" in found["later"]["reason"]
        assert [found["damaged"][kind] for kind in ("missing", "extra", "changed")] == [1, 2, 2]
        assert found["damaged"]["columns"] == {"name": 2}
        cells = {one["key"]["id"]: one["cells"] for one in found["damaged"]["differences"]}
        assert cells == {
            "7": {"name": ["seven", "seven "]},
            "8": {"name": ["eight", "eight "]},
            "11": {},
            "100012": {},
            "100013": {},
        }
        assert (found["repaired"]["state"], found["repaired"]["repaired"]) == ("equal", 5)
        assert (found["again"]["state"], found["again"]["at"]) == ("equal", at)
        again = found["repaired again"]
        assert (again["state"], again["changed"], again["extra"], again["repaired"]) == ("different", 1, 1, 1)
        assert found["commits"] == [f"repair-{at}"] * 2
        assert "is later" in found.get("restored", found["later"])["reason"]
        assert [found["newer"][name] for name in ("state", "newer", "missing")] == [
            "equal", 3 if deletes == "soft" else 2, 0,
        ]  # fmt: skip
        assert (found["at"]["state"], found["at"]["newer"]) == ("equal", 0)  # an older version
        assert found["complete"]["state"] == "different"
        assert "is a log" in found["log"]["reason"]
        assert "does not exist" in found["nothing"]["reason"]
