"""avro cannot spell all names; `tableDDL` knows them."""

import pytest

from tests.support.captured import load, sanitized
from tests.support.corpus import scenario
from ticdc_source.protocols.avro.row_schema import original_columns, original_table
from ticdc_source.schema.table_name import TableName

pytestmark = pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")

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


def test_names_that_avro_spells_alike_stay_as_they_are() -> None:
    """Of two tables, or two columns, with one spelling nobody knows which one messages mean."""
    ddl = (
        "CREATE TABLE `a-b` (`z z` int); CREATE TABLE `A.b` (id int); CREATE TABLE c (`x y` int, `x-y` int, `z z` int)"
    )

    assert original_table(TableName("d", "a_b"), ddl) == TableName("d", "a_b")
    assert original_columns(TableName("d", "a_b"), ["z_z"], ddl) == {}
    assert original_columns(TableName("d", "c"), ["id", "x_y", "Z_z"], ddl) == {"Z_z": "Z z"}


def test_a_name_has_the_case_of_the_messages() -> None:
    """Characters that Avro can spell are as in the messages: SQL has names of columns in any case."""
    ddl = "CREATE TABLE `My-Shop`.`1 order` (id int, `sub total` int, `9é` int)"
    table = original_table(TableName("My_Shop", "_1_Order"), ddl)

    assert table == TableName("My-Shop", "1 Order")
    assert original_columns(table, ["Sub_Total", "_9_"], ddl) == {"Sub_Total": "Sub Total", "_9_": "9é"}
