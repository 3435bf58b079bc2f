"""The order of changes whose messages lack a commit-ts: one ms, or one second, holds several transactions."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.pipeline.test_equivalence import outcome
from tests.support.captured import Captured, make_options, single, whole
from tests.support.messages import TSO, Message, canal, debezium
from ticdc_source.events import Chunk
from ticdc_source.protocols import decoder_of

pytestmark = pytest.mark.filterwarnings("ignore:The messages of .* do not fully say")

TYPES = {"id": "int", "v": "varchar"}
SQL_TYPES = {"id": 4, "v": 12}
FIELDS = [{"type": "int32", "optional": False, "field": "id"}, {"type": "string", "optional": True, "field": "v"}]
NATIVE = {"connector": "mysql", "commit_ts": None, "ts_ms": TSO >> 18}
CHANGES = ["insert", "update", "delete", "insert", "delete", "insert"]
IN_ORDER = ["insert", "update_preimage", "update_postimage", "delete", "insert", "delete", "insert"]


def by_canal(kind: str, **more: Any) -> Message:
    """Return a change of row 1 as TiCDC writes it without the extension."""
    old = [{"id": "1", "v": "a"}] if kind == "update" else None
    return canal(kind.upper(), [{"id": "1", "v": "b"}], old, TYPES, SQL_TYPES, **more)


def by_official_canal(kind: str) -> Message:
    """Return a change of row 1 as official Canal writes it: `es` in whole seconds, members of its own."""
    return by_canal(kind, es=1_697_788_899_000, gtid="", id=7)


def by_debezium(kind: str, *, schema: bool) -> Message:
    """Return a change of row 1 as Debezium's MySQL connector writes it."""
    row, key = {"id": 1, "v": "b"}, {"id": 1}
    before = {"id": 1, "v": "a"} if kind == "update" else row if kind == "delete" else None
    after = None if kind == "delete" else row
    return debezium(kind[0].replace("i", "c"), before, after, FIELDS if schema else None, source=NATIVE, key=key)


WIRES: dict[str, Callable[[str], Message]] = {
    "canal-json": by_canal,
    "official Canal": by_official_canal,
    "debezium": lambda kind: by_debezium(kind, schema=True),
    "debezium without schema": lambda kind: by_debezium(kind, schema=False),
}


def sequences(captured: Captured) -> list[tuple[tuple[int, ...], str]]:
    """Return each row's `_sequence` and change type, in the order of the first."""
    rows = captured.read().to_pylist()
    return sorted((tuple(row["_sequence"].values()), row["_change_type"]) for row in rows)


@pytest.mark.parametrize("wire", WIRES)
def test_at_one_time_the_place_in_the_topic_partition_decides(wire: str) -> None:
    """Changes of one time have the order in which they were written, each with a `_sequence` of its own."""
    captured = Captured.of(*(WIRES[wire](kind) for kind in CHANGES))

    found = sequences(captured)

    assert [kind for _, kind in found] == IN_ORDER
    assert len({place for place, _ in found}) == len(found)
    assert {place[1] for place, _ in found} == {1}


@pytest.mark.parametrize("wire", WIRES)
def test_the_native_path_has_the_order_of_the_general_path(wire: str) -> None:
    """However chunks are cut, both paths give the same rows, in a topic that mixes messages with and without a TSO."""
    with_ts = by_canal("insert", _tidb={"commitTs": TSO + 1})
    if "debezium" in wire:
        with_ts = debezium("c", None, {"id": 1, "v": "c"}, FIELDS if wire == "debezium" else None, key={"id": 1})
    messages = [WIRES[wire](kind) if number % 3 else with_ts for number, kind in enumerate(6 * CHANGES)]
    captured = Captured.of(*messages)
    schema = captured.schema()

    general = outcome(captured, schema, whole, native_path=False)

    assert not isinstance(general, str)
    assert general["_sequence"].to_pylist()[0]["commit_ts"] % (1 << 18) == (TSO + ("canal" in wire.lower())) % (1 << 18)
    for sizes in (whole, single):
        assert outcome(captured, schema, sizes, native_path=True) == general


def test_rows_of_one_message_of_official_canal_have_an_order_too() -> None:
    """Of several updates in a message, the old rows lie before the new ones; inserts are in order."""
    both = [{"id": "1", "v": "b"}, {"id": "2", "v": "b"}]
    olds = [{"id": "2"}, {"id": "3"}]  # UPDATE t SET id = id - 1: row 2 leaves, and comes
    captured = Captured.of(
        canal("INSERT", [{"id": "2", "v": "b"}, {"id": "3", "v": "b"}], None, TYPES, SQL_TYPES),
        canal("UPDATE", both, olds, TYPES, SQL_TYPES),
    )

    rows = sorted(captured.read().to_pylist(), key=lambda row: tuple(row["_sequence"].values()))

    assert [(row["_change_type"], row["id"]) for row in rows] == [
        ("insert", 2), ("insert", 3),
        ("update_preimage", 2), ("update_preimage", 3), ("update_postimage", 1), ("update_postimage", 2),
    ]  # fmt: skip
    assert len({tuple(row["_sequence"].values()) for row in rows}) == len(rows)


def test_with_a_commit_ts_deletes_come_first() -> None:
    """The delete and the insert of a split key update may lie in different partitions, in either order."""
    captured = Captured.of(by_canal("insert", _tidb={"commitTs": TSO}), by_canal("delete", _tidb={"commitTs": TSO}))

    assert [kind for _, kind in sequences(captured)] == ["delete", "insert"]


@pytest.mark.parametrize("wire", ["canal-json", "debezium"])
def test_ddl_of_one_time_has_its_place_between_the_rows(wire: str) -> None:
    """An insert, TRUNCATE and an insert of one time stay in this order, in `outputFormat=event`."""
    truncate = canal("TRUNCATE", None, None, isDdl=True, sql="TRUNCATE TABLE t")
    if wire == "debezium":
        truncate = debezium("t", None, None, None, source=NATIVE)
    insert = WIRES[wire]("insert")
    captured = Captured.of(insert, truncate, insert)

    rows = captured.read(outputFormat="event").to_pylist()
    found = sorted(rows, key=lambda row: tuple(row["_sequence"].values()))

    assert [row["_event_type"] for row in found] == ["row", "ddl", "row"]


def test_two_equal_ddl_events_of_one_time_are_two() -> None:
    """Each of two TRUNCATE of one second is an event of its own; copies with a commit-ts are one."""
    options = make_options(protocol="canal-json")

    def truncates(**more: Any) -> set[str]:
        message = canal("TRUNCATE", None, None, isDdl=True, sql="TRUNCATE TABLE t", **more)
        split = decoder_of("canal-json", options).split(
            Chunk("t", 0, [3, 4], [0, 0], [b"", b""], [message[1], message[1]])
        )
        return {event.identity for event in split.ddl}

    assert len(truncates()) == 2
    assert len(truncates(_tidb={"commitTs": TSO})) == 1
