"""The lake in memory of `lakehouse/tests/targets`, and a TiDB that tables are loaded from."""

import pytest

from lakehouse.tests.syncs.stand_in import ORDERS, TiDB
from lakehouse.tests.targets.conftest import lake, quick
from lakehouse.tests.targets.memory import Lake
from ticdc_lakehouse.syncs import loading

__all__ = ["lake", "quick"]


@pytest.fixture
def tidb(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> TiDB:
    """A TiDB that has shop.orders as of a TSO."""
    monkeypatch.setattr(loading, "existing_target", lake.existing)
    tidb = TiDB()
    tidb.serve(monkeypatch.setattr)
    tidb.rows = {ORDERS: tidb.rows[ORDERS]}
    return tidb
