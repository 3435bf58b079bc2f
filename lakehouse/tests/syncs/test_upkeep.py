"""`[maintain]`: when tables are due, how many a micro-batch waits for, and what a failure does; without Spark."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any
from unittest import mock

import pytest

from lakehouse.tests.syncs import context
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs import upkeep
from ticdc_lakehouse.syncs.config import MaintainConfig, SyncConfig
from ticdc_lakehouse.syncs.status import SetAside, TableStatus
from ticdc_lakehouse.syncs.upkeep import Upkeep, due

HOUR = 3_600_000  # milliseconds
NOW = 1000 * HOUR


def status(
    name: str, hours_ago: float | None, *, batch: int = 5, maintained_batch: int = 4, **more: Any
) -> TableStatus:
    """Return the status of a table whose last round was some hours ago."""
    maintained_ms = None if hours_ago is None else NOW - int(hours_ago * HOUR)
    given = {"kind": "table", "batch_id": batch, "maintained_batch": maintained_batch, **more}
    return TableStatus(table_name=name, target=f"lake.{name}", maintained_ms=maintained_ms, **given)


def config(**maintain: Any) -> SyncConfig:
    given = MaintainConfig(**maintain) if maintain else None
    return context.config(format="iceberg", parallel=2, maintain=given)


@pytest.fixture
def rounds() -> Iterator[mock.Mock]:
    """What is called to maintain a table; the clock stands still, and the sync has no tables of its own."""
    with (
        mock.patch.object(upkeep, "maintain") as done,
        mock.patch.object(upkeep, "_now_ms", return_value=NOW),
        mock.patch.object(upkeep, "open_target") as opened,
        mock.patch.object(upkeep, "in_thread", lambda _spark, run: run),
    ):
        opened.return_value.exists.return_value = False
        yield done


def names(rounds: mock.Mock) -> list[str]:
    return sorted(call.args[1] for call in rounds.call_args_list)


@pytest.mark.parametrize(("table", "is_due"), [
    (status("s.t", 7), True),
    (status("s.t", 5), False),
    (status("s.t", None), False),
    (status("s.t", 7, phase=SetAside(reason="no", since="now")), False),
    (status("s.t", 7, kind=None), False),
    (status("s.t", 7, batch=4), False),
    (status("s.t", 7 * 24, batch=4), True),
])  # fmt: skip
def test_when_a_table_is_due(table: TableStatus, is_due: bool) -> None:
    """A changed table is due after `every`, an idle one once its old versions are too old, one that stands never."""
    assert bool(due([table], MaintainConfig(every="6h", keep="7d"), NOW)) == is_due


def test_few_tables_in_each_micro_batch(rounds: mock.Mock) -> None:
    """A micro-batch waits for as many tables as are written at once, the longest due first; the last one for all."""
    statuses = {each.table_name: each for each in (status(f"s.t{hours}", hours) for hours in (7, 9, 8, 1))}
    one = Upkeep(mock.Mock(), config(every="6h"))

    changed = one.after_batch(statuses)
    assert names(rounds) == ["lake.s.t8", "lake.s.t9"]
    assert {name: (each.maintained_ms, each.maintained_batch) for name, each in changed.items()} == {
        "s.t9": (NOW, 5),
        "s.t8": (NOW, 5),
    }
    rounds.reset_mock()
    assert list(one.after_batch(statuses | changed)) == ["s.t7"]
    rounds.reset_mock()
    one.after_batch(statuses, is_last=True)
    assert names(rounds) == ["lake.s.t7", "lake.s.t8", "lake.s.t9"]


def test_a_new_table_waits(rounds: mock.Mock) -> None:
    """The time of a new table starts with its first micro-batch, as its status says; without `[maintain]` none does."""
    statuses = {"s.t": status("s.t", None)}

    changed = Upkeep(mock.Mock(), config(every="6h")).after_batch(statuses)
    assert [(each.maintained_ms, each.maintained_batch) for each in changed.values()] == [(NOW, -1)]
    assert not Upkeep(mock.Mock(), config()).after_batch(statuses)
    assert not rounds.called


def test_what_a_round_does(rounds: mock.Mock) -> None:
    """A round keeps versions and deleted rows for as long as the configuration says."""
    Upkeep(mock.Mock(), config(keep="3d", compact=False, purge_deleted="30d")).after_batch({"s.t": status("s.t", 7)})

    given = rounds.call_args.kwargs
    assert (given["keep"], given["compact"]) == (timedelta(days=3), False)
    age = datetime.now(timezone.utc) - given["purge_before"]
    assert timedelta(days=30) <= age < timedelta(days=30, minutes=5)


def test_a_failure_harms_no_copy(rounds: mock.Mock) -> None:
    """A table whose round fails goes on, with a warning, and is due again after `every`."""
    rounds.side_effect = TargetError("no permission")
    with pytest.warns(UserWarning, match="Cannot maintain lake.s.t: no permission"):
        changed = Upkeep(mock.Mock(), config(every="6h")).after_batch({"s.t": status("s.t", 7)})
    assert (changed["s.t"].state, changed["s.t"].maintained_ms) == ("following", NOW)


def test_the_sync_s_own_tables(rounds: mock.Mock) -> None:
    """The status and quarantine tables are maintained too, once in a round of the others."""
    upkeep.open_target.return_value.exists.return_value = True  # type: ignore[attr-defined]
    one = Upkeep(mock.Mock(), config(every="6h"))
    for _ in range(2):
        one.after_batch({"s.t": status("s.t", 7)})
    assert names(rounds) == ["lake._ticdc._ticdc_quarantine", "lake._ticdc._ticdc_sync", "lake.s.t", "lake.s.t"]
