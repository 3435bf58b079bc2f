"""merge_into and append_log over tables in memory: columns and keys follow the DDL of the table."""

from copy import deepcopy
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import DataType, StructField, StructType

from tests.lakehouse.changes import TARGET, Change, Writer, ddl, frame_of
from tests.lakehouse.memory import CrashError, Lake
from ticdc_source.errors import SchemaError, TargetError
from ticdc_source.lakehouse import append_log, is_merged
from ticdc_source.lakehouse.sql_targets import deleted_keys_of

LOG = "lake.shop.t__log"
MORE = pytest.mark.slow("Spark merges several times for each of them")


def columns(*keys: str, **types: str) -> StructType:
    """Return the columns of changes: each with its Spark type, and its MySQL type behind a semicolon."""
    fields = []
    for name, text in (types if "code" in types else {"id": "int;int", **types}).items():
        spark_type, _, mysql_type = text.partition(";")
        metadata = {"ticdc.table": "shop.t", **({"ticdc.mysql_type": mysql_type} if mysql_type else {})}
        metadata |= {"ticdc.key": "true"} if name in (keys or ("id",)) else {}
        fields.append(StructField(name, DataType.fromDDL(spark_type), metadata=metadata))
    return StructType(fields)


def types(lake: Lake, target: str = TARGET) -> dict[str, str]:
    """Return the types of the columns of a target, without its own."""
    return {
        field.name: field.dataType.simpleString()
        for field in lake.tables[target].schema
        if not field.name.startswith("_")
    }


@pytest.mark.parametrize(("old", "value", "query", "new", "later", "converted"), [
    ("string;varchar(10)", "12", "MODIFY v int", "int;int", 5, 12),
    ("int;int", 12, "MODIFY v varchar(10)", "string;varchar(10)", "x", "12"),
    *(pytest.param(*each, marks=MORE) for each in (
        ("string;text", "é", "MODIFY v blob", "binary;blob", b"\xff", "é".encode()),
        ("binary;blob", "é".encode(), "MODIFY v text", "string;text", "x", "é"),
        ("boolean;bit(1)", True, "MODIFY v bit(8)", "bigint;bit(8)", 200, 1),
        ("string;varchar(20)", "2026-01-02", "MODIFY v date", "date;date", date(2026, 1, 3), date(2026, 1, 2)),
        ("decimal(10,2);decimal(10,2)", Decimal("1.50"), "MODIFY v varchar(20)", "string;varchar(20)", "x", "1.50"),
        ("string;enum('1','0')", "0", "MODIFY v int", "int;int", 5, 2),
    )),
])  # fmt: skip
def test_a_column_follows_modify(
    lake: Lake, old: str, value: Any, query: str, new: str, later: Any, converted: Any
) -> None:
    """Values become what TiDB has, the old column stays aside, and a repeated micro-batch changes nothing more."""
    writer = Writer(lake, keys=None)
    writer.merge(0, [("insert", 10, 1, value), ("insert", 11, 2, None)], columns(v=old))
    event = ddl(f"ALTER TABLE t {query}", 20)

    for _ in range(2):
        writer.merge(1, [("insert", 21, 3, later)], columns(v=new), ddl=[event])
        assert lake.rows(TARGET, "id", "v") == [(1, converted), (2, None), (3, later)]

    assert types(lake)["v"] == new.partition(";")[0]
    assert (value,) in {(row["v__until_20"],) for row in lake.tables[TARGET].rows}


VARCHAR, INT = "string;varchar(10)", "int;int"
TO_INT = ddl("ALTER TABLE t MODIFY v int", 20)


def test_a_column_that_is_added_again_begins_anew(lake: Lake) -> None:
    """DROP and ADD with another type: older rows have the default, and the values of before stay aside."""
    writer = Writer(lake, keys=None)
    writer.merge(0, [("insert", 10, 1, "abc")], columns(v=VARCHAR))
    again = [ddl("ALTER TABLE t DROP COLUMN v", 20), ddl("ALTER TABLE t ADD COLUMN v int DEFAULT 7", 21)]
    writer.merge(1, [], ddl=again)
    assert lake.rows(TARGET, "v") == [("abc",)]

    for _ in range(2):
        writer.merge(2, [("insert", 22, 2, 5), ("insert", 15, 3, 1)], columns(v=INT), ddl=again)
        assert lake.rows(TARGET, "id", "v", "v__until_21") == [(1, 7, "abc"), (2, 5, None), (3, 7, None)]


@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=MORE)])
def test_a_name_that_another_column_had(lake: Lake, *, alone: bool) -> None:
    """RENAME v TO w, then ADD v: w has the values, also if the DDL comes alone and v has the same type."""
    for new, later, default in ((INT, 5, 7), (VARCHAR, "x", "7")):
        lake.tables.clear()
        writer = Writer(lake, keys=None)
        writer.merge(0, [("insert", 10, 1, "abc")], columns(v=VARCHAR))
        name = new.partition(";")[2]
        events = [ddl("ALTER TABLE t RENAME COLUMN v TO w", 20), ddl(f"ALTER TABLE t ADD v {name} DEFAULT '7'", 21)]
        if alone:
            writer.merge(1, [], ddl=events)
        writer.merge(2, [("insert", 22, 2, "w", later)], columns(w=VARCHAR, v=new), ddl=() if alone else events)

        assert lake.rows(TARGET, "id", "w", "v") == [(1, "abc", default), (2, "w", later)]


def test_changes_from_both_sides_of_an_event(lake: Lake) -> None:
    """Changes of both types come as text; the target gets the new type with the first changes that show it."""
    writer = Writer(lake, keys=None)
    writer.merge(0, [("insert", 10, 1, "12"), ("insert", 10, 4, "abc")], columns(v=VARCHAR))
    both: list[Change] = [("update_postimage", 15, 4, "14"), ("insert", 16, 2, "13"), ("insert", 21, 3, "5")]
    writer.merge(1, both, columns(v="string;text"), ddl=[TO_INT])
    writer.merge(2, [("insert", 22, 5, 6)], columns(v=INT))
    writer.merge(3, [("insert", 17, 6, "15")], columns(v=VARCHAR))  # late

    assert types(lake)["v"] == "int"
    assert lake.rows(TARGET, "id", "v") == [(1, 12), (2, 13), (3, 5), (4, 14), (5, 6), (6, 15)]
    before = list(lake.writes)
    with pytest.raises(TargetError, match="changes from before have values such as 'abc'"):
        writer.merge(4, [("insert", 18, 7, "abc")], columns(v=VARCHAR))
    assert lake.writes == before


@pytest.mark.parametrize(("old", "value", "new", "later"), [
    (VARCHAR, "12a", INT, 5),
    *(pytest.param(*each, marks=MORE) for each in (
        (VARCHAR, "1.5", INT, 5),
        ("double;double", 1e20, VARCHAR, "x"),
        ("binary;blob", b"\xff", "string;text", "x"),
        ("bigint;time", 10**6, VARCHAR, "x"),
    )),
])  # fmt: skip
def test_values_that_only_tidb_converts_are_refused(lake: Lake, old: str, value: Any, new: str, later: Any) -> None:
    """Such a value stops the table before anything is written, unless its row is deleted or changed since."""
    writer = Writer(lake, keys=None)
    writer.merge(0, [("insert", 10, 1, value)], columns(v=old))
    name = new.partition(";")[2]
    modify = [ddl(f"ALTER TABLE t MODIFY v {name}", 20)]
    before = list(lake.writes)

    with pytest.raises(TargetError, match=rf"DDL made column v {name.split('(')[0]}.*of which only TiDB knows"):
        writer.merge(1, [("insert", 21, 2, later)], columns(v=new), ddl=modify)

    assert lake.writes == before
    writer.merge(1, [("insert", 21, 2, later), ("update_postimage", 22, 1, later)], columns(v=new), ddl=modify)
    assert lake.rows(TARGET, "id", "v") == [(1, later), (2, later)]


def test_numbers_stand_for_labels_and_bits(lake: Lake) -> None:
    """A target that began without the DDL of an ENUM and a SET keeps their numbers when labels become known."""
    writer = Writer(lake, keys=None)
    writer.merge(0, [("insert", 10, 1, 2, 5)], columns(e="int;enum", s="bigint;set"))
    labelled = columns(e="string;enum('a','b','c')", s="string;set('x','y','z')")

    writer.merge(1, [("insert", 21, 2, "c", "x,z"), ("insert", 21, 3, None, "")], labelled)

    assert lake.rows(TARGET, "id", "e", "s") == [(1, 2, 5), (2, 3, 5), (3, None, 0)]


@pytest.mark.parametrize("deletes", ["soft", "hard"])
@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=MORE)])
def test_a_table_that_is_created_again_has_a_new_key(lake: Lake, deletes: str, *, alone: bool) -> None:
    """After DROP TABLE the target takes the key and types of the next CREATE TABLE; a live row refuses a new key."""
    writer = Writer(lake, keys=None, deletes=deletes)
    writer.merge(0, [("insert", 10, 1, "abc"), ("insert", 10, 2, "x"), ("delete", 11, 2, "x")], columns(v=VARCHAR))
    create = ddl("CREATE TABLE t (code int NOT NULL PRIMARY KEY, v int)", 21)
    again = [ddl("DROP TABLE t", 20), create]
    new: list[Change] = [("insert", 22, 7, 5), ("insert", 22, 8, 6), ("delete", 23, 8, 6)]
    shape = columns("code", code=INT, v=INT)
    if alone:
        writer.merge(1, [], ddl=again)
    for _ in range(2):
        writer.merge(2, new, shape, ddl=() if alone else again)
        assert lake.rows(TARGET, "code", "v") == [(7, 5)]

    assert lake.tables[TARGET].properties["ticdc.keys"] == '["code"]'
    if deletes == "hard":
        assert 8 in {row["code"] for row in lake.tables[deleted_keys_of(TARGET)].rows}
    with pytest.raises(TargetError, match="its keys are code, and those of the changes are v"):
        writer.merge(3, [("insert", 30, 9, 9)], columns("v", code=INT, v=INT))


def test_a_primary_key_that_is_dropped(lake: Lake) -> None:
    """Without its key a table is refused with the remedy, in the micro-batch of the DDL and later, until it has one."""
    writer = Writer(lake, keys=None)
    writer.merge(0, [("insert", 10, 1, "abc")], columns(v=VARCHAR))
    drop = [ddl("ALTER TABLE t DROP PRIMARY KEY", 20)]
    keyless = columns("-", v=VARCHAR)
    with pytest.raises(SchemaError, match=r"dropped the primary key at commit-ts 20.*append_log"):
        writer.merge(1, [("insert", 21, 1, "x")], keyless, ddl=drop)
    writer.merge(1, [], ddl=drop)
    with pytest.raises(SchemaError, match="dropped the primary key at commit-ts 20"):
        writer.merge(2, [("insert", 21, 1, "x")], keyless)

    writer.merge(2, [("insert", 23, 2, "y")], columns(v=VARCHAR), ddl=[ddl("ALTER TABLE t ADD PRIMARY KEY (id)", 22)])
    writer.merge(3, [("insert", 24, 3, "z")], keyless)
    assert lake.rows(TARGET) == [(1, "abc"), (2, "y"), (3, "z")]


def test_a_table_is_merged_or_logged(lake: Lake) -> None:
    """A table without a key goes to a log; one that loses or gets a key is refused, for its rows are in the other."""
    keyed, keyless = (frame_of(lake.spark, [("insert", 10, 1, "a")], columns(key, v=VARCHAR)) for key in ("id", "-"))
    assert is_merged(keyed, TARGET, LOG)
    assert not is_merged(keyless, TARGET, LOG)
    assert is_merged(frame_of(lake.spark, [], ""), TARGET, LOG)

    Writer(lake, keys=None).merge(0, [("insert", 10, 1, "a")], columns(v=VARCHAR))
    with pytest.raises(TargetError, match=r"shop\.t has no key any more"):
        is_merged(keyless, TARGET, LOG)
    lake.tables.clear()
    append_log(keyless, LOG, format="delta")
    with pytest.raises(TargetError, match=r"shop\.t has a key now, and its rows until now are in lake\.shop\.t__log"):
        is_merged(keyed, TARGET, LOG)
    assert not is_merged(frame_of(lake.spark, [], ""), TARGET, LOG)


def test_a_log_keeps_the_values_of_another_type_aside(lake: Lake) -> None:
    """A column of a log that changes its type begins anew, and what it had stays under another name."""
    for number, (value, shape) in enumerate([("abc", VARCHAR), (5, INT), ("12", VARCHAR)]):
        frame = frame_of(lake.spark, [("insert", 10 + 6 * number, number, value)], columns(v=shape))
        append_log(frame, LOG, format="delta", app_id="me", batch_id=number, ddl=[TO_INT] if number == 1 else ())

    assert lake.rows(LOG, "id", "v", "v__until_20") == [(0, None, "abc"), (1, 5, None), (2, 12, None)]


@pytest.mark.slow("a merge for each moment of a crash")
def test_a_move_that_was_interrupted_is_finished(lake: Lake) -> None:
    """The driver may die before any write of a micro-batch that changes types and adds names again."""
    writer = Writer(lake, keys=None)
    writer.merge(0, [("insert", 10, 1, "12", "a")], columns(v=VARCHAR, w=VARCHAR))
    events = [TO_INT, ddl("ALTER TABLE t DROP w", 21), ddl("ALTER TABLE t ADD w int DEFAULT 7", 22)]
    before, done = lake.copy().tables, len(lake.writes)
    change: list[Change] = [("insert", 23, 2, 5, 6)]
    writer.merge(1, change, columns(v=INT, w=INT), ddl=events)
    count = len(lake.writes) - done
    for number in range(count):
        lake.tables, lake.writes, lake.crash_at = deepcopy(before), [], number
        with pytest.raises(CrashError):
            writer.merge(1, change, columns(v=INT, w=INT), ddl=events)
        lake.crash_at = None
        writer.merge(1, change, columns(v=INT, w=INT), ddl=events)
        assert lake.rows(TARGET, "id", "v", "w", "v__until_20", "w__until_22") == [
            (1, 12, 7, "12", "a"), (2, 5, 6, None, None),
        ]  # fmt: skip
