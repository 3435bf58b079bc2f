"""What avro's messages lack: the commit-ts of deletes without a value, and names that Avro cannot spell."""

from collections.abc import Mapping

import pytest

from tests.encoders.avro import Avro
from tests.encoders.tables import Column, Table
from tests.support.captured import Captured, load, sanitized, single, whole
from tests.support.corpus import scenario
from tests.support.messages import TSO, Message
from ticdc_source.protocols.avro.row_schema import original_columns, original_table
from ticdc_source.schema.table_name import TableName

ORDERS = Table("shop", "orders", (Column("id", "bigint", nullable=False), Column("v", "int")), ("id",), ("id",))


def change(encoder: Avro, op: str, commit: int, row: Mapping[str, str]) -> Message:
    side = "before" if op == "delete" else "after"
    columns = [{"name": one.name, "mysql_type": one.mysql_type, side: row.get(one.name)} for one in ORDERS.columns]
    event = {"op": op, "schema": "shop", "table": "orders", "commit_ts": TSO + commit, "columns": columns}
    message: Message = encoder.message([event], [ORDERS])
    return message


@pytest.mark.parametrize("before", [False, True])
def test_the_rank_of_a_delete_is_that_of_other_protocols_if_it_has_a_commit_ts(*, before: bool) -> None:
    """A delete with its own commit-ts has rank 0, as a primary key's update is split; one without has rank 1."""
    encoder = Avro(extension=True, before=before)
    row = {"id": "1", "v": "2"}
    captured = Captured.of(*(change(encoder, op, commit, row) for op, commit in (("insert", 1), ("delete", 5))))

    insert, delete = captured.read()["_sequence"].to_pylist()

    assert (insert["commit_ts"], insert["rank"]) == (TSO + 1, 1)
    assert (delete["commit_ts"], delete["rank"]) == ((TSO + 5, 0) if before else (TSO + 1, 1))


def test_a_delete_has_the_commit_ts_of_the_row_before_it() -> None:
    """However chunks are cut, deletes without a value lie between the rows that the topic partition has beside them."""
    encoder = Avro(extension=True)
    ops = [("insert", 1), ("insert", 2), ("delete", 3), ("delete", 4), ("insert", 5), ("delete", 6), ("insert", 6)]
    captured = Captured.of(*(change(encoder, op, commit, {"id": "1", "v": str(commit)}) for op, commit in ops))

    for sizes in (whole, single):
        found = captured.read(sizes=sizes)["_sequence"].to_pylist()
        assert [each["commit_ts"] - TSO for each in found] == [1, 2, 2, 2, 5, 5, 6]
        assert sorted(found, key=lambda each: tuple(each.values())) == found


def test_a_delete_before_all_rows_has_the_commit_ts_of_the_next() -> None:
    """Nothing is before the first row: the delete lies before it."""
    encoder = Avro(extension=True)
    changes = [change(encoder, op, commit, {"id": "1", "v": "1"}) for op, commit in (("delete", 3), ("insert", 5))]

    found = Captured.of(*changes).read()["_sequence"].to_pylist()

    assert [(each["commit_ts"] - TSO, each["rank"]) for each in found] == [(5, 1), (5, 1)]


undescribed = pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")

SCENARIO = "avro.tidb-extension"
# TiCDC refuses rows of the first; the second is altered to types that do not fit its first ones.
LEFT_OUT = {("avro_a", "collide"), ("ops", "ddl_t")}


def tables() -> dict[tuple[str, str], tuple[str, list[str]]]:
    """Return the tables with names that Avro cannot spell: their DDL and columns, as they were first."""
    found: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for table in scenario(SCENARIO).header["tables"]:
        names = [column["name"] for column in table["columns"]]
        place = table["schema"], table["table"]
        if place not in {*found, *LEFT_OUT} and any(name != sanitized(name) for name in (*place, *names)):
            found[place] = table["ddl"].replace("TABLE `", f"TABLE `{table['schema']}`.`", 1), names
    return found


ODD = tables()


def spelt(place: tuple[str, str]) -> str:
    """Return the option `tables` for the table as Avro spells it."""
    return "`{}`.`{}`".format(*map(sanitized, place))


@undescribed
@pytest.mark.parametrize("place", ODD, ids=str)
def test_table_ddl_gives_names_back(place: tuple[str, str]) -> None:
    """With `tableDDL`, tables and columns have their own names, and the rows are the same."""
    captured, (ddl, names) = load(SCENARIO), ODD[place]
    plain = captured.read(tables=spelt(place), mode="DROPMALFORMED")

    found = captured.read(tables="`{}`.`{}`".format(*place), tableDDL=ddl, mode="DROPMALFORMED")

    assert found.num_rows == plain.num_rows > 0
    columns = [name for name in found.column_names if not name.startswith("_") or name in names]
    assert set(columns) <= set(names)
    for name in columns:
        assert found[name].to_pylist() == plain[sanitized(name)].to_pylist()


@undescribed
def test_names_that_avro_spells_alike_stay_as_they_are() -> None:
    """Of two tables, or two columns, with one spelling nobody knows which one messages mean."""
    ddl = (
        "CREATE TABLE `a-b` (`z z` int); CREATE TABLE `A.b` (id int); CREATE TABLE c (`x y` int, `x-y` int, `z z` int)"
    )

    assert original_table(TableName("d", "a_b"), ddl) == TableName("d", "a_b")
    assert original_columns(TableName("d", "a_b"), ["z_z"], ddl) == {}
    assert original_columns(TableName("d", "c"), ["id", "x_y", "Z_z"], ddl) == {"Z_z": "Z z"}


@undescribed
def test_a_name_has_the_case_of_the_messages() -> None:
    """Characters that Avro can spell are as in the messages: SQL has names of columns in any case."""
    ddl = "CREATE TABLE `My-Shop`.`1 order` (id int, `sub total` int, `9é` int)"
    table = original_table(TableName("My_Shop", "_1_Order"), ddl)

    assert table == TableName("My-Shop", "1 Order")
    assert original_columns(table, ["Sub_Total", "_9_"], ddl) == {"Sub_Total": "Sub Total", "_9_": "9é"}
