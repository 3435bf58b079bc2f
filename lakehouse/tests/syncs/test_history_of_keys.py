"""`__history` after a key column was renamed: nothing tells which versions are of one row."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakehouse.tests.syncs.memory_sync import MemorySync, ddl, insert, target
from lakehouse.tests.targets.memory import Lake
from tests.support.messages import canal
from ticdc_lakehouse import scd2_view
from ticdc_lakehouse.syncs import views
from ticdc_lakehouse.syncs.config import TableConfig
from ticdc_source.errors import SchemaError

pytestmark = [pytest.mark.spark, pytest.mark.slow("some micro-batches")]

CREATE = "CREATE TABLE `a` (`id` int PRIMARY KEY)"
RENAME = "ALTER TABLE `a` RENAME COLUMN `id` TO `nid`"


def test_a_history_ends_with_its_key(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table and its log go on, and the view is dropped with a warning, once: it would show one row as two."""
    lake.serve(monkeypatch)
    statements: list[str] = []
    monkeypatch.setattr(views, "run_sql", lambda _spark, text, **_: statements.append(text))
    sync = MemorySync(lake, tmp_path / "c", table_configs={"shop.a": TableConfig(history=True)})
    sync.start()
    sync.batch(0, ddl("a", CREATE, 5, "CREATE"), insert("a", 1, 10), insert("a", 2, 11))
    log = target("a__log")
    own = views.Views(replace(sync.config))
    given: Any = (sync.spark, "the_view", lake.open(sync.spark, log), None)
    own._replace_history(*given)
    changed = canal("DELETE", [{"nid": "1"}], None, {"nid": "int"}, database="shop", table="a", pkNames=["nid"],
                    _tidb={"commitTs": 30})  # fmt: skip

    report = sync.batch(1, ddl("a", RENAME, 20, "ALTER"), changed)

    assert report.set_aside == {}
    alive = [row["nid"] for row in lake.tables[target("a")].rows if not row["_is_deleted"]]
    assert (alive, sync.status("a").state) == ([2], "following")
    with pytest.warns(UserWarning, match=r"the_view is dropped\. The key of .* has changed from id to nid"):
        own._replace_history(*given)
    own._replace_history(*given)
    assert [text.partition(" AS ")[0] for text in statements] == [
        "CREATE OR REPLACE VIEW the_view", "DROP VIEW IF EXISTS the_view",
    ]  # fmt: skip
    with pytest.raises(SchemaError, match="begin another log"):
        scd2_view(sync.spark, log)
