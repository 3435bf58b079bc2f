"""merge_into and append_log over tables in memory: columns and keys follow the DDL of the table, or it is refused."""

import re
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import DataType, IntegerType, StructField, StructType

from lakehouse.tests.targets.changes import TARGET, Change, Writer, ddl, frame_of
from lakehouse.tests.targets.memory import CrashError, Lake
from ticdc_lakehouse import append_log, is_merged
from ticdc_lakehouse.errors import LogTypeError, TargetError, UnexplainedChangeError
from ticdc_lakehouse.targets.target import CommitFacts, NewColumn
from ticdc_lakehouse.targets.target_names import deleted_keys_of
from ticdc_source.errors import SchemaError
from ticdc_source.schema.ddl_event import DDLEvent

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


VARCHAR, INT = "string;varchar(10)", "int;int"
DONE = "'ticdc.handled_ddl_ts' = '20'"


@pytest.mark.parametrize(("old", "value", "query", "there"), [
    (VARCHAR, "12", "MODIFY v int", "string"),
    (INT, 12, "MODIFY v varchar(10)", "int"),
    (VARCHAR, "12", "CHANGE v w int", "string"),
    (VARCHAR, "12", "RENAME COLUMN v TO w, MODIFY w int", "string"),
    *(pytest.param(*each, marks=MORE) for each in (
        ("string;text", "a", "MODIFY v blob", "string"),
        ("boolean;bit(1)", True, "MODIFY v bit(8)", "boolean"),
        ("int;enum", 2, "MODIFY v enum('a','b')", "int"),
        ("bigint;time", 10**6, "MODIFY v bigint", "bigint"),
    )),
])  # fmt: skip
def test_ddl_that_only_tidb_can_apply_is_refused(lake: Lake, old: str, value: Any, query: str, there: str) -> None:
    """The error has the table, the column, the DDL, both types and the remedy, also if the DDL comes alone."""
    writer = Writer(lake, keys=None)
    writer.merge(0, [("insert", 10, 1, value)], columns(v=old))
    event = ddl(f"ALTER TABLE t {query}", 20)
    before, mysql_type = list(lake.writes), re.escape(old.partition(";")[2])
    told = (
        rf"{re.escape(query)} of shop\.t changes column . from {mysql_type} to .*, and column v of {TARGET} is {there}"
    )

    for changes in ([], [("insert", 21, 2, value)]):
        with pytest.raises(TargetError, match=rf"{told}.*heal = true.*{DONE}"):
            writer.merge(1, changes, columns(v=old), ddl=[event])
    assert lake.writes == before


def test_somebody_gives_a_column_its_type_by_hand(lake: Lake) -> None:
    """A property of the target says it, and the changes go on."""
    writer = Writer(lake, keys=None)
    writer.merge(0, [("insert", 10, 1, "12")], columns(v=VARCHAR))
    target = lake.open(lake.spark, TARGET)
    target.drop_columns(["v"])
    target.add_columns([NewColumn("v", IntegerType())])
    target.update_rows({"v": "12"}, "true", CommitFacts())
    target.set_properties({"ticdc.handled_ddl_ts": "20"})

    writer.merge(1, [("insert", 21, 2, 5)], columns(v=INT), ddl=[ddl("ALTER TABLE t MODIFY v int", 20)])

    assert lake.rows(TARGET, "id", "v") == [(1, 12), (2, 5)]


ADDED = ddl("ALTER TABLE t ADD COLUMN c varchar(10) DEFAULT 'abcdef'", 15)
RENAMED = ddl("ALTER TABLE t RENAME COLUMN v TO w", 15)
DATETIME = "timestamp_ntz;datetime"


@pytest.mark.parametrize(("before", "events", "told"), [
    ([ADDED], [ddl("ALTER TABLE t MODIFY c varchar(3)", 20)], r"c from varchar\(10\) to varchar\(3\)"),
    ([], [ADDED, ddl("ALTER TABLE t MODIFY c varchar(3)", 20)], r"c from varchar\(10\) to varchar\(3\)"),
    ([], [ddl("ALTER TABLE t MODIFY v bigint", 20), ddl("ALTER TABLE t MODIFY v int", 21)], "v from bigint to int"),
    ([ddl("ALTER TABLE t MODIFY v bigint", 20)], [ddl("ALTER TABLE t MODIFY v int", 21)], "v from bigint to int"),
    ([RENAMED], [ddl("ALTER TABLE t MODIFY w smallint", 20)], "w from int to smallint"),
    ([], [RENAMED, ddl("ALTER TABLE t MODIFY w smallint", 20)], "w from int to smallint"),
    ([RENAMED], [ddl("ALTER TABLE t CHANGE w x smallint", 20)], "x from int to smallint"),
])  # fmt: skip
def test_a_narrower_type_is_doubtful_whenever_it_comes(
    lake: Lake, before: list[DDLEvent], events: list[DDLEvent], told: str
) -> None:
    """Also if the column is not there yet, or another has its name: only TiDB knows what it has made of the values."""
    writer = Writer(lake, keys=None, on_doubtful_ddl="fail")
    writer.merge(0, [("insert", 10, 1, 100_000, 7)], columns(v=INT, w="int;tinyint"))
    if before:
        writer.merge(1, [], ddl=before)
    with pytest.raises(SchemaError, match=f"changes column {told}"):
        writer.merge(2, [], ddl=events)


@pytest.mark.parametrize("created", [True, False])
def test_a_new_target_may_have_values_from_before_a_modify(lake: Lake, *, created: bool) -> None:
    """CREATE, rows and MODIFY in one micro-batch: rows of before were converted, unless the new type holds them."""
    create = [ddl("CREATE TABLE t (id int PRIMARY KEY, at datetime(6), n int)", 5)] if created else []
    shape = columns(at=DATETIME, n="bigint;bigint")
    writer = Writer(lake, keys=None, on_doubtful_ddl="fail")
    narrow, wide = ddl("ALTER TABLE t MODIFY at datetime", 20), ddl("ALTER TABLE t MODIFY n bigint", 20)
    with pytest.raises(SchemaError, match="changes column at from"):
        writer.merge(0, [("insert", 10, 1, None, 1)], shape, ddl=[*create, narrow])
    if not created:
        with pytest.raises(SchemaError, match="changes column n from an unknown type to bigint"):
            writer.merge(0, [("insert", 10, 1, None, 1)], shape, ddl=[wide])
        return
    writer.merge(0, [("insert", 10, 1, None, 1)], shape, ddl=[*create, wide])
    lake.tables.clear()
    writer.merge(0, [("insert", 21, 1, None, 1)], shape, ddl=[*create, narrow])
    assert lake.rows(TARGET) == [(1, None, 1)]


def test_only_ddl_narrows_a_type(lake: Lake) -> None:
    """A change with the narrower type may come before its DDL, which is doubtful all the same; a wider one counts."""
    writer = Writer(lake, keys=None, on_doubtful_ddl="fail")
    writer.merge(0, [("insert", 10, 1, "abcdef")], columns(v=VARCHAR))
    writer.merge(1, [("insert", 21, 2, "abc")], columns(v="string;varchar(3)"))
    with pytest.raises(SchemaError, match=r"v from varchar\(10\) to varchar\(3\)"):
        writer.merge(2, [], ddl=[ddl("ALTER TABLE t MODIFY v varchar(3)", 20)])

    writer.merge(2, [("insert", 22, 3, "abc")], columns(v="string;varchar(20)"))
    with pytest.raises(SchemaError, match=r"v from varchar\(20\) to varchar\(12\)"):
        writer.merge(3, [], ddl=[ddl("ALTER TABLE t MODIFY v varchar(12)", 23)])
    with pytest.warns(UserWarning, match="may have converted"):
        writer.merge(3, [], ddl=[ddl("ALTER TABLE t MODIFY v varchar(3)", 23)], on_doubtful_ddl="warn")
    writer.merge(4, [], ddl=[ddl("ALTER TABLE t MODIFY v varchar(5)", 24)])
    # A load reads the table as it is created then; a CREATE that comes again says nothing of it.
    writer.merge(5, [], ddl=[replace(ddl("CREATE TABLE t (id int PRIMARY KEY, v varchar(2))", 25), commit_ts=None)])
    writer.merge(6, [], ddl=[ddl("ALTER TABLE t MODIFY v varchar(4)", 26)])
    writer.merge(7, [], ddl=[ddl("CREATE TABLE t (id int PRIMARY KEY, v varchar(2))", 5)])
    with pytest.raises(SchemaError, match=r"v from varchar\(4\) to varchar\(3\)"):
        writer.merge(8, [], ddl=[ddl("ALTER TABLE t MODIFY v varchar(3)", 27)])


@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_a_column_of_the_layout_cannot_begin_anew(lake: Lake, deletes: str) -> None:
    """It is refused while the rows are there: the target could not drop the column afterwards."""
    writer = Writer(lake, keys=None, partition_by=["v"], deletes=deletes)
    writer.merge(0, [("insert", 10, 1, "12")], columns(v=VARCHAR))
    again = [ddl("DROP TABLE t", 20), ddl("CREATE TABLE t (id int PRIMARY KEY, v int)", 21)]
    with pytest.raises(TargetError, match=r"Column v of .* has another type now, but is in the layout of the target"):
        writer.merge(1, [("insert", 22, 2, 5)], columns(v=INT), ddl=again)

    assert lake.rows(TARGET) == [(1, "12")]


@pytest.mark.slow("some merges")
def test_a_wider_type_is_followed(lake: Lake) -> None:
    """Older rows have their values in the wider column, however changes and DDL are mixed."""
    event, wide = ddl("ALTER TABLE t CHANGE v w bigint", 20), columns(w="bigint;bigint")
    for with_ddl in (1, 2, 3):
        lake.tables.clear()
        writer = Writer(lake, keys=None)
        writer.merge(0, [("insert", 10, 1, 1)], columns(v=INT))
        for number, (change, shape) in enumerate([
            (("insert", 21, 2, 2**40), wide), (("insert", 15, 3, 3), columns(v=INT)), (("insert", 22, 4, 4), wide),
        ], 1):  # fmt: skip
            writer.merge(number, [change], shape, ddl=[event] if number == with_ddl else ())
        assert lake.rows(TARGET, "id", "w") == [(1, 1), (2, 2**40), (3, 3), (4, 4)]
        assert types(lake)["w"] == "bigint"


@pytest.mark.slow("some merges")
def test_a_renamed_column_holds_what_it_held(lake: Lake) -> None:
    """CHANGE to a narrower type of the same kind: the new column is as wide as the old one, with a warning."""
    writer = Writer(lake, keys=None)
    writer.merge(0, [("insert", 10, 1, 2**40)], columns(v="bigint;bigint"))
    with pytest.warns(UserWarning, match="changes column w from bigint to int"):
        writer.merge(1, [("insert", 21, 2, 5)], columns(w=INT), ddl=[ddl("ALTER TABLE t CHANGE v w int", 20)])
    writer.merge(2, [("insert", 15, 3, 2**41, None)], columns(v="bigint;bigint", w=INT))

    assert lake.rows(TARGET, "id", "w") == [(1, 2**40), (2, 5), (3, 2**41)]


@pytest.mark.slow("some merges")
@pytest.mark.parametrize("name", ["int", "varchar(10)"])
def test_a_column_that_is_added_again(lake: Lake, name: str) -> None:
    """DROP and ADD: older rows have the default; with a type that the target does not hold it is refused."""
    writer = Writer(lake, keys=None)
    writer.merge(0, [("insert", 10, 1, "abc")], columns(v=VARCHAR))
    again = [ddl("ALTER TABLE t DROP COLUMN v", 20), ddl(f"ALTER TABLE t ADD COLUMN v {name} DEFAULT '7'", 21)]
    if name == "int":
        before = list(lake.writes)
        with pytest.raises(TargetError, match=rf"adds column v int, and column v of {TARGET} is string.*= '21'"):
            writer.merge(1, [], ddl=again)
        assert lake.writes == before
        return
    writer.merge(1, [], ddl=again)
    for _ in range(2):
        writer.merge(2, [("insert", 22, 2, "5"), ("insert", 15, 3, "1")], columns(v=VARCHAR), ddl=again)
        assert lake.rows(TARGET, "id", "v") == [(1, "7"), (2, "5"), (3, "7")]


def test_a_type_that_no_ddl_explains(lake: Lake) -> None:
    """The DDL may come later: the error says so by its class, and nothing is written."""
    writer = Writer(lake, keys=None)
    writer.merge(0, [("insert", 10, 1, "12")], columns(v=VARCHAR))
    before = list(lake.writes)
    with pytest.raises(UnexplainedChangeError, match=rf"into {TARGET}: column v is string in the target and int in"):
        writer.merge(1, [("insert", 21, 2, 5)], columns(v=INT))
    assert lake.writes == before


@pytest.mark.slow("some merges")
def test_old_changes_of_a_renamed_column(lake: Lake) -> None:
    """A late value that the new column does not hold is refused, unless a later change of the row has come."""
    writer = Writer(lake, keys=None)
    writer.merge(0, [("insert", 21, 4, 5)], columns(w=INT))
    writer.merge(1, [], ddl=[ddl("ALTER TABLE t CHANGE v w int", 20)])
    both = columns(v=VARCHAR, w=INT)
    writer.merge(2, [("insert", 12, 5, "z", None), ("update_postimage", 23, 5, None, 8)], both)
    before = list(lake.writes)
    with pytest.raises(TargetError, match=r"type int does not hold the string values of v in changes of shop"):
        writer.merge(3, [("insert", 13, 6, "z", None)], both)
    assert lake.writes == before
    assert lake.rows(TARGET, "id", "w") == [(4, 5), (5, 8)]


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
    with pytest.raises(TargetError, match="the key of the target is code, and that of the changes is v"):
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
    with pytest.warns(UserWarning, match="while the table had none, TiCDC may have sent no changes"):
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
    with pytest.raises(TargetError, match=r"shop\.t no longer has a key"):
        is_merged(keyless, TARGET, LOG)
    lake.tables.clear()
    append_log(keyless, LOG, format="delta")
    with pytest.raises(TargetError, match=r"shop\.t has a key now, and its earlier rows are in lake\.shop\.t__log"):
        is_merged(keyed, TARGET, LOG)
    assert not is_merged(frame_of(lake.spark, [], ""), TARGET, LOG)


def test_a_log_has_one_type_for_each_column(lake: Lake) -> None:
    """DDL that gives a column another kind of type is refused, and its changes, until somebody renames the column."""

    def append(number: int, value: Any, shape: str, *events: DDLEvent) -> None:
        frame = frame_of(
            lake.spark, [] if value is None else [("insert", 10 + number, number, value)], columns(v=shape)
        )
        append_log(frame, LOG, format="delta", app_id="me", batch_id=number, ddl=events)

    append(0, "abc", VARCHAR)
    before = list(lake.writes)
    with pytest.raises(LogTypeError, match=rf"v int of shop\.t .* from varchar\(10\) to int, and column v of {LOG}"):
        append(1, 5, INT, ddl("ALTER TABLE t MODIFY v int", 11))
    with pytest.raises(LogTypeError, match=rf"append shop\.t to {LOG}: column v is string .* int in .*rename"):
        append(1, 5, INT)
    assert lake.writes == before

    schema = lake.tables[LOG].schema
    lake.tables[LOG].schema = StructType([replaced(one, v="v_old") for one in schema])
    lake.open(lake.spark, LOG)._fill([{**row.asDict(), "v_old": row["v"]} for row in lake.tables[LOG].rows])
    append(1, 5, INT, ddl("ALTER TABLE t MODIFY v int", 11))
    assert lake.rows(LOG, "id", "v", "v_old") == [(0, None, "abc"), (1, 5, None)]


def replaced(field: StructField, **names: str) -> StructField:
    return StructField(names.get(field.name, field.name), field.dataType, metadata=field.metadata)


@pytest.mark.slow("a merge for each moment of a crash")
def test_a_table_of_other_types_takes_the_place_of_another(lake: Lake) -> None:
    """DROP and CREATE: columns, the key and its deletes begin anew, also if the driver dies before any write."""
    writer = Writer(lake, keys=None, deletes="hard")
    first: list[Change] = [("insert", 10, 1, "12", 1), ("insert", 10, 2, "x", 2), ("delete", 11, 2, "x", 2)]
    writer.merge(0, first, columns(v=VARCHAR, w=INT))
    events = [
        ddl("DROP TABLE t", 20),
        ddl("CREATE TABLE t (id varchar(10) NOT NULL PRIMARY KEY, v int, w int)", 21),
        ddl("ALTER TABLE t MODIFY w varchar(10)", 22),
    ]
    shape = columns(id=VARCHAR, v=INT, w=VARCHAR)
    changes: list[Change] = [
        ("insert", 23, "a", 5, "a"), ("insert", 23, "b", 6, "b"), ("delete", 24, "b", 6, "b"),
        ("insert", 15, "c", None, None),
    ]  # fmt: skip
    before, done = lake.copy().tables, len(lake.writes)
    writer.merge(1, changes, shape, ddl=events)
    for number in range(len(lake.writes) - done):
        lake.tables, lake.writes, lake.crash_at = deepcopy(before), [], number
        with pytest.raises(CrashError):
            writer.merge(1, changes, shape, ddl=events)
        lake.crash_at = None
        writer.merge(1, changes, shape, ddl=events)
        assert lake.rows(TARGET, "id", "v", "w") == [("a", 5, "a")]

    late: list[Change] = [("insert", 23, "b", 6, "b"), ("delete", 25, "a", 5, "a"), ("insert", 25, "d", 7, "d")]
    writer.merge(2, late, shape)
    assert lake.rows(TARGET, "id", "v", "w") == [("d", 7, "d")]
    assert {row["id"] for row in lake.tables[deleted_keys_of(TARGET)].rows} == {"a", "b"}
