"""A sync of messages that lack a commit-ts: what happens within one ms, or one second, ends as in TiDB."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakehouse.tests.syncs.memory_sync import MemorySync, target
from lakehouse.tests.targets.memory import Lake
from tests.support.messages import Message, canal, debezium
from ticdc_lakehouse import scd2_view
from ticdc_lakehouse.syncs.config import TableConfig

pytestmark = [pytest.mark.slow("30 micro-batches"), pytest.mark.filterwarnings("ignore")]

SECOND = 1_697_788_899_000
FIELDS = [{"type": "int32", "optional": False, "field": "id"}, {"type": "string", "optional": True, "field": "v"}]


NO_KEY: dict[str, Any] = {"pkNames": None}


def by_canal(kind: str, number: int = 1, value: str = "a", **more: Any) -> Message:
    """Return a change of a row, or DDL, as TiCDC writes it without the extension, and official Canal too."""
    if kind == "truncate":
        return canal("TRUNCATE", None, None, None, database="shop", table="a", isDdl=True, es=SECOND,
                     sql="TRUNCATE TABLE a")  # fmt: skip
    return canal(kind.upper(), [{"id": str(number), "v": value}], None, {"id": "int", "v": "varchar(10)"},
                 database="shop", table="a", es=SECOND, **more)  # fmt: skip


def by_debezium(kind: str, number: int = 1, value: str = "a") -> Message:
    """Return a change of a row, or TRUNCATE, as Debezium's MySQL connector writes it."""
    source = {"connector": "mysql", "commit_ts": None, "ts_ms": SECOND, "db": "shop", "table": "a"}
    if kind == "truncate":
        return debezium("t", None, None, source=source)
    row = {"id": number, "v": value}
    before, after = (row, None) if kind == "delete" else (None, row)
    return debezium("d" if after is None else "c", before, after, FIELDS, source, {"id": number})


WIRES = {"canal-json": by_canal, "debezium": by_debezium}
SCENARIOS: dict[str, tuple[list[tuple[Any, ...]], list[int]]] = {
    "INSERT, DELETE": ([("insert", 1), ("insert", 2), ("delete", 1)], [2]),
    "DELETE, INSERT, DELETE": ([("insert", 1), ("insert", 2), ("delete", 1), ("insert", 1), ("delete", 1)], [2]),
    "DELETE, INSERT": ([("insert", 1), ("delete", 1), ("insert", 1)], [1]),
    "TRUNCATE, INSERT": ([("insert", 1), ("truncate",), ("insert", 2)], [2]),
    "TRUNCATE twice": ([("insert", 1), ("truncate",), ("insert", 2), ("truncate",), ("insert", 3)], [3]),
    "INSERT, TRUNCATE": ([("truncate",), ("insert", 1), ("truncate",)], []),
}


@pytest.fixture
def synced(quick: None, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., MemorySync]:  # noqa: ARG001
    """Return what starts a sync in memory."""
    lake.serve(monkeypatch)

    def start(protocol: str, **config: Any) -> MemorySync:
        sync = MemorySync(lake, tmp_path / "checkpoint", source={"protocol": protocol}, **config)
        sync.start()
        return sync

    return start


def alive(sync: MemorySync) -> list[int]:
    """Return the ids of the rows that are not deleted."""
    return sorted(row["id"] for row in sync.lake.tables[target("a")].rows if not row.asDict().get("_is_deleted"))


@pytest.mark.parametrize(("wire", "scenario", "together"), [
    ("canal-json", "INSERT, DELETE", True), ("canal-json", "DELETE, INSERT, DELETE", False),
    ("canal-json", "DELETE, INSERT", True), ("canal-json", "TRUNCATE, INSERT", True),
    ("canal-json", "TRUNCATE twice", False), ("canal-json", "INSERT, TRUNCATE", True),
    ("debezium", "TRUNCATE twice", True), ("debezium", "DELETE, INSERT, DELETE", False),
])  # fmt: skip
def test_changes_of_one_time_end_as_they_were_written(
    synced: Callable[..., MemorySync], wire: str, scenario: str, *, together: bool
) -> None:
    """The target ends with the rows that TiDB has, in one micro-batch or many, and after all came again."""
    changes, expected = SCENARIOS[scenario]
    messages = [WIRES[wire](*change) for change in changes]
    sync = synced(wire)
    batches = [messages] if together else [[message] for message in messages]
    for number, batch in enumerate(batches):
        sync.batch(number, *batch)

    assert alive(sync) == expected
    sync.batch(len(batches), *messages)
    assert alive(sync) == expected


@pytest.mark.parametrize("partitions", [(0, 1, 1, 0, 1), (1, 0, 0, 1, 0)])
def test_of_one_time_the_partition_orders_first(synced: Callable[..., MemorySync], partitions: tuple[int, ...]) -> None:
    """Rows of two partitions keep the order of their own; the changes of a row lie in one."""
    changes = [("insert", 1), ("insert", 2), ("delete", 2), ("delete", 1), ("insert", 2)]
    sync = synced("canal-json")
    sync.batch(0, *(by_canal(*change) for change in changes), partitions=partitions)

    assert alive(sync) == [2]


@pytest.mark.parametrize(("wire", "scenario", "kind", "together"), [
    ("canal-json", "DELETE, INSERT, DELETE", "log", True), ("canal-json", "TRUNCATE twice", "history", False),
    ("debezium", "TRUNCATE twice", "log", False), ("debezium", "DELETE, INSERT, DELETE", "history", True),
])  # fmt: skip
def test_logs_and_histories_of_one_time_have_the_order_of_the_topic(
    synced: Callable[..., MemorySync], wire: str, scenario: str, kind: str, *, together: bool
) -> None:
    """A log has each change once, in order, and its versions end with the rows that TiDB has, also after a repeat."""
    changes, expected = SCENARIOS[scenario]
    messages = [WIRES[wire](*change) for change in changes]
    sync = synced(wire, table_configs={"shop.a": TableConfig(log=kind == "log", history=kind == "history")})
    batches = [messages] if together else [[message] for message in messages]
    for number, batch in enumerate(batches):
        sync.batch(number, *batch)

    log = target("a__log")
    in_order = sorted(sync.lake.tables[log].rows, key=lambda row: tuple(row["_sequence"]))
    assert [(row["_change"], row["id"]) for row in in_order] == [
        (change[0], change[1] if len(change) > 1 else None) for change in changes
    ]
    assert len({tuple(row["_sequence"]) for row in in_order}) == len(changes)
    versions = scd2_view(sync.spark, log, keys=["id"])
    assert sorted(row["id"] for row in versions.where("_is_current").collect()) == expected
    sync.batch(len(batches), *messages)
    versions = scd2_view(sync.spark, log, keys=["id"])
    assert sorted(row["id"] for row in versions.where("_is_current").collect()) == expected


def test_a_log_of_a_table_without_a_key_has_the_order_of_the_topic(synced: Callable[..., MemorySync]) -> None:
    """Rows of a table without a key go to a log by themselves; of one time, each has the place that it had."""
    changes: list[tuple[Any, ...]] = [("insert", 1), ("delete", 1), ("insert", 1), ("truncate",), ("insert", 1)]
    sync = synced("canal-json")
    sync.batch(0, *(by_canal(*change, **NO_KEY) for change in changes))

    in_order = sorted(sync.lake.tables[target("a__log")].rows, key=lambda row: tuple(row["_sequence"]))

    assert [row["_change"] for row in in_order] == [change[0] for change in changes]
