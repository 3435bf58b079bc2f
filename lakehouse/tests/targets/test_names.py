"""Places of tables in the lakehouse: every MySQL name has one of its own."""

import random
import re
import unicodedata

import pytest

from ticdc_lakehouse.syncs.names import SUFFIXES, Layout, Suffix
from ticdc_lakehouse.targets.target_names import deleted_keys_of
from ticdc_source.schema.table_name import TableName

SEED = 24
DELTA, ICEBERG = Layout("delta", root="/data/lake"), Layout("iceberg", catalog="lake")
LAYOUTS = [
    DELTA,
    ICEBERG,
    Layout("delta", root="s3a://bucket/"),
    Layout("delta", root="/da`ta"),
    Layout("delta", catalog="spark_catalog"),
    Layout("iceberg", root="/data/lake"),
    Layout("iceberg", catalog="rest.raw"),
]
HOSTILE = [
    "a-b", "a b", " a", "a ", "a.b", ".a", ".", "..", "../../esc", "/", "a/b", "a\\b", "a:b", "a%2fb", "%", "a`b", "``",
    "a'b", 'a"b', "a=b", "a;b", "a,b", "a*?b", "[x]{y}", "a#b", "a\nb", "a\tb", "_a", "__a", "_", "2024", "1e5", "é",
    "e\u0301", "É", "你好", "😀", "a😀b", "\u212a", "\u0131", "\ud800", "select",
    "${env:PATH}", "${system:java.home}", "${spark.app.id}", "global_temp", "orders__log", "orders__deleted",
    "__log", "a-_log", "a-__log", "a__log\n", "_ticdc_sync", "_ticdc", "a_x2d_b", "a_x2d-b", "a_X2D_b", "a_x2d",
    "x2d_b", "X2d_", "x2d-", "_x2d_", "_x5f_x5f_", "xx_1", "XX_", "xxx_", "x_x_x", "_x5f\u212a", "x78_5f_", "你" * 64,
    "😀" * 64, "-a" * 32, "\U0003fffd" * 64, "\U0010ffff" * 64, "a" * 250, "A" * 250,
]  # fmt: skip
PIECES = [*"ax2_X5fFdeg-. 你é😀\u212a", "_x", "x2d_", "_x2d_", "__log", "_log", "xx_", "__deleted", "\u0301", "/", "`"]


def names() -> list[str]:
    """Return hostile names, and random ones of pieces that the encoding itself uses."""
    chosen = random.Random(SEED)
    return [*HOSTILE, *("".join(chosen.choices(PIECES, k=chosen.randint(1, 12))) for _ in range(400))]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_no_two_tables_share_a_place(layout: Layout) -> None:
    """A target is of one table and one suffix, whatever the names."""
    tables = {TableName("shop", name) for name in names()} | {TableName(name, "orders") for name in names()}
    kinds: list[Suffix] = ["", *SUFFIXES]

    targets = {layout.target(table, suffix) for table in tables for suffix in kinds}

    assert len(targets) == len(tables) * len(kinds), f"two tables share a target, seed {SEED}"


@pytest.mark.parametrize("layout", [DELTA, ICEBERG], ids=str)
def test_a_place_is_safe_everywhere(layout: Layout) -> None:
    """It has ASCII letters, digits and `_` alone, begins with no `_`, and with a suffix is short enough for a file."""
    for name in names():
        parts = re.split("[./]", layout.target(TableName(name, name)).removeprefix("delta.").replace("`", ""))[-2:]
        for part in parts:
            assert re.fullmatch("[A-Za-z0-9][A-Za-z0-9_]*", part), (name, part)
            assert len(part) + max(map(len, SUFFIXES)) <= 255
            assert not part.lower().endswith(SUFFIXES), (name, part)
            assert part.lower() != "global_temp"


def test_no_two_names_share_a_place_that_ignores_case() -> None:
    """Places in lower case are different unless the names differ in the case of ASCII letters alone."""
    lower: dict[str, str] = {}
    for name in names():
        letters = re.sub("[A-Z]+", lambda match: match[0].lower(), name)

        assert lower.setdefault(ICEBERG.target(TableName("shop", name)).lower(), letters) == letters


@pytest.mark.parametrize("name", ["orders", "Orders", "order_items", "a__b", "a_", "x1", "x", "tax_xml", "T_x12"])
def test_usual_names_stay_as_they_are(name: str) -> None:
    """A place is the name itself if the name is harmless."""
    assert DELTA.target(TableName("shop", name)) == f"delta.`/data/lake/shop/{name}`"
    assert ICEBERG.target(TableName("shop", name), "__log") == f"lake.shop.{name}__log"


def test_a_name_can_be_read_in_its_place() -> None:
    """Characters that are not safe are bytes of UTF-8 in hex; identifiers that SQL would not read are in backticks."""
    shown = {
        "my-table": "lake.shop.my_x2d_table",
        "../../esc": "lake.shop.x2e2e2f2e2e2f_esc",
        "2024": "lake.shop.`2024`",
        "_hidden": "lake.shop.x5f_hidden",
        "naïve": "lake.shop.na_xc3af_ve",
        "orders__log": "lake.shop.orders__x5f_log",
    }
    for name, target in shown.items():
        assert ICEBERG.target(TableName("shop", name)) == target
    assert DELTA.target(TableName("../..", "a:b")) == "delta.`/data/lake/x2e2e2f2e2e_/a_x3a_b`"
    assert Layout("iceberg", root="/data/lake").target(TableName("shop", "a")) == "lake.shop.a"


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_deleted_keys_of_a_table_are_beside_it(layout: Layout) -> None:
    """What merge_into calls the table of deleted keys is the place with the suffix, and no other table's."""
    for name in names():
        table = TableName("shop", name)

        assert deleted_keys_of(layout.target(table)) == layout.target(table, "__deleted")


def test_the_syncs_own_tables_are_apart() -> None:
    """They are in the folder, or in a namespace of their own."""
    assert DELTA.own("_ticdc_sync") == "delta.`/data/lake/_ticdc_sync`"
    assert ICEBERG.own("_ticdc_sync") == "lake._ticdc._ticdc_sync"


def test_two_names_that_become_one_are_refused() -> None:
    """The later of two names that differ in case only has no target; forms of Unicode have places of their own."""
    composed, apart = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    tables = [TableName("shop", name) for name in ("orders", "Orders", "items", composed, apart, "É", "é", "orders")]
    tables += [TableName("Shop", "items"), TableName("shop", "")]

    refused = ICEBERG.refused(tables)

    assert [str(table) for table in refused] == ["shop.Orders", "shop.é", "Shop.items", "database shop"]
    assert "shop.Orders has the same target as shop.orders, lake.shop.orders" in str(refused[tables[1]])
    assert "needs a name" in str(refused[tables[-1]])
    assert ICEBERG.refused(reversed(tables[:2])).keys() == {tables[0]}
