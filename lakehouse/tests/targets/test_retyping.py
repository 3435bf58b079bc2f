"""merge_into and append_log over tables in memory: columns and keys follow the DDL of the table."""

from copy import deepcopy
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import DataType, StructField, StructType

from lakehouse.tests.targets.changes import TARGET, Change, Writer, ddl, frame_of
from lakehouse.tests.targets.memory import CrashError, Lake
from ticdc_lakehouse import append_log, is_merged
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets.target_names import deleted_keys_of
from ticdc_source.errors import SchemaError

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


@pytest.mark.slow("some merges")
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


@pytest.mark.slow("some merges")
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


@pytest.mark.slow("some merges")
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


@pytest.mark.slow("some merges")
def test_numbers_stand_for_labels_and_bits(lake: Lake) -> None:
    """A target that began without the DDL of an ENUM and a SET keeps their numbers when labels become known."""
    writer = Writer(lake, keys=None)
    writer.merge(0, [("insert", 10, 1, 2, 5)], columns(e="int;enum", s="bigint;set"))
    labelled = columns(e="string;enum('a','b','c')", s="string;set('x','y','z')")

    writer.merge(1, [("insert", 21, 2, "c", "x,z"), ("insert", 21, 3, None, "")], labelled)

    assert lake.rows(TARGET, "id", "e", "s") == [(1, 2, 5), (2, 3, 5), (3, None, 0)]


@pytest.mark.slow("some merges")
@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=MORE)])
def test_numbers_follow_labels_that_are_reordered(lake: Lake, *, alone: bool) -> None:
    """A target that keeps numbers gets those of the new order, once; a number whose label is gone is refused."""
    writer = Writer(lake, keys=None)
    rows: list[Change] = [("insert", 10, 1, 2, 3), ("insert", 10, 2, 1, 4), ("insert", 10, 3, None, 0)]
    writer.merge(0, [*rows, ("insert", 10, 4, 0, None)], columns(e="int;enum", s="bigint;set"))
    writer.merge(1, [], ddl=[ddl("ALTER TABLE t MODIFY e enum('a','b'), MODIFY s set('x','y','z')", 20)])
    assert lake.rows(TARGET, "id", "e", "s") == [(1, 2, 3), (2, 1, 4), (3, None, 0), (4, 0, None)]
    event = ddl("ALTER TABLE t MODIFY e enum('b','a'), MODIFY s set('z','x','y')", 30)
    new = columns(e="string;enum('b','a')", s="string;set('z','x','y')")
    late: list[Change] = [("insert", 25, 5, "a", "z,y")]
    if alone:
        for _ in range(2):
            writer.merge(2, [], ddl=[event])
    for _ in range(2):
        writer.merge(3, late, new, ddl=[event])
        assert lake.rows(TARGET, "id", "e", "s") == [(1, 1, 6), (2, 2, 1), (3, None, 0), (4, 0, None), (5, 2, 5)]

    before = list(lake.writes)
    with pytest.raises(TargetError, match=r"rows of lake.shop.t have the number 2 of enum\('b','a'\), whose label"):
        writer.merge(4, [], ddl=[ddl("ALTER TABLE t MODIFY e enum('b')", 40)])
    assert lake.writes == before


@MORE
def test_a_renamed_column_of_another_type(lake: Lake) -> None:
    """CHANGE v w int: w has the values as numbers, unless only TiDB knows one; then nothing is written."""
    events = [ddl("ALTER TABLE t CHANGE v w int", 20)]
    shape = columns(w=INT)
    for bad in ("1.5", "12"):
        lake.tables.clear()
        writer = Writer(lake, keys=None)
        rows: list[Change] = [
            ("insert", 10, 1, bad),
            ("insert", 10, 2, "x"),
            ("delete", 11, 2, "x"),
            ("insert", 10, 3, "y"),
        ]
        writer.merge(0, rows, columns(v=VARCHAR))
        before, change = list(lake.writes), [("insert", 21, 4, 5), ("update_postimage", 22, 3, 6)]
        if bad == "1.5":
            with pytest.raises(TargetError, match=r"gave column v the name w and another type.*such as '1\.5' in it"):
                writer.merge(1, change, shape, ddl=events)
            assert lake.writes == before
            writer.merge(1, [*change, ("update_postimage", 22, 1, 7)], shape, ddl=events)
        else:
            writer.merge(1, change, shape, ddl=events)
        assert lake.rows(TARGET, "id", "w") == [(1, 7 if bad == "1.5" else 12), (3, 6), (4, 5)]

        both = columns(v=VARCHAR, w=INT)
        writer.merge(2, [("insert", 12, 5, "z", None), ("update_postimage", 23, 5, None, 8)], both)
        before = list(lake.writes)
        with pytest.raises(TargetError, match="changes from before have values such as 'z'"):
            writer.merge(3, [("insert", 13, 6, "z", None)], both)
        assert lake.writes == before
        assert lake.rows(TARGET, "id", "w")[-1] == (5, 8)


@pytest.mark.slow("some merges")
def test_a_renamed_time_is_no_number(lake: Lake) -> None:
    """CHANGE of a TIME to text is refused: the target has its microseconds, and not its text."""
    writer = Writer(lake, keys=None)
    writer.merge(0, [("insert", 10, 1, 10**6)], columns(v="bigint;time"))
    with pytest.raises(TargetError, match="only TiDB knows what they are as string"):
        writer.merge(1, [("insert", 21, 2, "x")], columns(w=VARCHAR), ddl=[ddl("ALTER TABLE t CHANGE v w text", 20)])


@pytest.mark.slow("a merge for each moment of a crash")
def test_deleted_keys_of_another_type(lake: Lake) -> None:
    """DROP and CREATE with a key of another type: deletes of both tables are told apart, also after a crash."""
    writer = Writer(lake, keys=None, deletes="hard")
    writer.merge(0, [("insert", 10, 1, 1), ("insert", 10, 2, 2), ("delete", 11, 2, 2)], columns(v=INT))
    again = [ddl("DROP TABLE t", 20), ddl("CREATE TABLE t (id varchar(10) NOT NULL PRIMARY KEY, v int)", 21)]
    shape = columns(id=VARCHAR, v=INT)
    changes: list[Change] = [("insert", 22, "a", 5), ("insert", 22, "b", 6), ("delete", 23, "b", 6)]
    before, done = lake.copy().tables, len(lake.writes)
    writer.merge(1, changes, shape, ddl=again)
    for number in range(len(lake.writes) - done):
        lake.tables, lake.writes, lake.crash_at = deepcopy(before), [], number
        with pytest.raises(CrashError):
            writer.merge(1, changes, shape, ddl=again)
        lake.crash_at = None
        writer.merge(1, changes, shape, ddl=again)
        assert lake.rows(TARGET, "id", "v") == [("a", 5)]

    writer.merge(2, [("insert", 22, "b", 6), ("delete", 24, "a", 5), ("insert", 24, "c", 7)], shape)
    assert lake.rows(TARGET, "id", "v") == [("c", 7)]
    deleted = lake.tables[deleted_keys_of(TARGET)]
    assert {row["id"] for row in deleted.rows} == {"a", "b"}


@pytest.mark.slow("some merges")
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


@pytest.mark.slow("some merges")
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

    add = [ddl("ALTER TABLE t ADD PRIMARY KEY (id)", 22)]
    with pytest.warns(UserWarning, match="may have sent no changes while it had none"):
        writer.merge(2, [("insert", 23, 2, "y")], columns(v=VARCHAR), ddl=add)
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
