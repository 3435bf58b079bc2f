"""A sync of messages that lack a commit-ts: what happens within one ms, or one second, ends as in TiDB."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.tests.syncs.memory_sync import MemorySync, target
from lakehouse.tests.targets.memory import Lake
from tests.support.messages import Message, canal, debezium
from ticdc_lakehouse import scd2_view
from ticdc_lakehouse.syncs.config import TableConfig

pytestmark = [pytest.mark.slow("some micro-batches"), pytest.mark.filterwarnings("ignore")]

SECOND = 1_697_788_899_000
FIELDS = [{"type": "int32", "optional": False, "field": "id"}, {"type": "string", "optional": True, "field": "v"}]


NO_KEY: dict[str, Any] = {"pkNames": None}


def by_canal(table: str, kind: str, number: int = 1, **more: Any) -> Message:
    """Return a change of a row, or DDL, as TiCDC writes it without the extension, and official Canal too."""
    if kind == "truncate":
        return canal("TRUNCATE", None, None, None, database="shop", table=table, isDdl=True, es=SECOND,
                     sql=f"TRUNCATE TABLE {table}")  # fmt: skip
    return canal(kind.upper(), [{"id": str(number), "v": "a"}], None, {"id": "int", "v": "varchar(10)"},
                 database="shop", table=table, es=SECOND, **more)  # fmt: skip


def by_debezium(table: str, kind: str, number: int = 1) -> Message:
    """Return a change of a row, or TRUNCATE, as Debezium's MySQL connector writes it."""
    source = {"connector": "mysql", "commit_ts": None, "ts_ms": SECOND, "db": "shop", "table": table}
    if kind == "truncate":
        return debezium("t", None, None, source=source)
    row = {"id": number, "v": "a"}
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


# Of each wire, tables that are copied side by side: the scenario, the kind of target, whether in one micro-batch.
TABLES: dict[str, list[tuple[str, str, bool]]] = {
    "canal-json": [
        ("INSERT, DELETE", "table", True), ("DELETE, INSERT, DELETE", "table", False),
        ("DELETE, INSERT", "table", True), ("TRUNCATE, INSERT", "table", True),
        ("TRUNCATE twice", "table", False), ("INSERT, TRUNCATE", "table", True),
        ("DELETE, INSERT, DELETE", "log", True), ("TRUNCATE twice", "history", False),
    ],
    "debezium": [
        ("TRUNCATE twice", "table", True), ("DELETE, INSERT, DELETE", "table", False),
        ("TRUNCATE twice", "log", False), ("DELETE, INSERT, DELETE", "history", True),
    ],
}  # fmt: skip


@pytest.fixture(scope="module", params=TABLES)
def copied(
    request: pytest.FixtureRequest, quick: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, list[Lake]]:
    """A wire, and the lake after a sync of its tables `a0`, `a1` and so on, and after all messages came again."""
    wire, lake = str(request.param), Lake(quick)
    messages: list[list[Message]] = []
    configs: dict[str, TableConfig] = {}
    for number, (scenario, kind, _) in enumerate(TABLES[wire]):
        messages.append([WIRES[wire](f"a{number}", *change) for change in SCENARIOS[scenario][0]])
        configs[f"shop.a{number}"] = TableConfig(log=kind == "log", history=kind == "history")
    batches: list[list[Message]] = [[] for _ in range(max(map(len, messages)))]
    for (_, _, together), own in zip(TABLES[wire], messages, strict=True):
        for number, message in enumerate(own):
            batches[0 if together else number].append(message)
    with pytest.MonkeyPatch.context() as patch:
        lake.serve(patch)
        folder = tmp_path_factory.mktemp("checkpoint")
        sync = MemorySync(lake, folder, source={"protocol": wire}, table_configs=configs)
        sync.start()
        for number, batch in enumerate(batches):
            sync.batch(number, *batch)
        once = lake.copy()
        sync.batch(len(batches), *(message for own in messages for message in own))
        sync.end()
    return wire, [once, lake]


def test_changes_of_one_time_end_as_they_were_written(copied: tuple[str, list[Lake]]) -> None:
    """The target ends with the rows that TiDB has, in one micro-batch or many, and after all came again."""
    wire, lakes = copied
    for lake in lakes:
        for number, (scenario, kind, together) in enumerate(TABLES[wire]):
            if kind == "table":
                found = lake.rows(target(f"a{number}"), "id")
                assert [row[0] for row in found] == SCENARIOS[scenario][1], (scenario, together)


def test_logs_and_histories_of_one_time_have_the_order_of_the_topic(
    copied: tuple[str, list[Lake]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log has each change once, in order, and its versions end with the rows that TiDB has, also after a repeat."""
    wire, lakes = copied
    logs = {f"a{number}__log": one[0] for number, one in enumerate(TABLES[wire]) if one[1] != "table"}
    for name, scenario in logs.items():
        changes, expected = SCENARIOS[scenario]
        in_order = sorted(lakes[0].tables[target(name)].rows, key=lambda row: tuple(row["_sequence"]))
        assert [(row["_change"], row["id"]) for row in in_order] == [
            (change[0], change[1] if len(change) > 1 else None) for change in changes
        ]
        assert len({tuple(row["_sequence"]) for row in in_order}) == len(changes)
        for lake in lakes:
            lake.serve(monkeypatch)
            versions = scd2_view(lake.spark, target(name), keys=["id"])
            assert sorted(row["id"] for row in versions.where("_is_current").collect()) == expected


def test_of_one_time_the_partition_orders_first(lake: Lake, tmp_path: Path) -> None:
    """Rows of two partitions keep the order of their own; the changes of a row lie in one."""
    changes = [("insert", 1), ("insert", 2), ("delete", 2), ("delete", 1), ("insert", 2)]
    sync = MemorySync(lake, tmp_path / "checkpoint")
    sync.start()
    messages = [by_canal(table, *change) for table in ("a", "b") for change in changes]
    sync.batch(0, *messages, partitions=(0, 1, 1, 0, 1, 1, 0, 0, 1, 0))

    assert lake.rows(target("a"), "id") == lake.rows(target("b"), "id") == [(2,)]


def test_a_log_of_a_table_without_a_key_has_the_order_of_the_topic(lake: Lake, tmp_path: Path) -> None:
    """Rows of a table without a key go to a log by themselves; of one time, each has the place that it had."""
    changes: list[tuple[Any, ...]] = [("insert", 1), ("delete", 1), ("insert", 1), ("truncate",), ("insert", 1)]
    sync = MemorySync(lake, tmp_path / "checkpoint")
    sync.start()
    sync.batch(0, *(by_canal("a", *change, **NO_KEY) for change in changes))

    in_order = sorted(lake.tables[target("a__log")].rows, key=lambda row: tuple(row["_sequence"]))

    assert [row["_change"] for row in in_order] == [change[0] for change in changes]
