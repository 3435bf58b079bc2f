"""The order of changes whose messages lack a commit-ts: one ms, or one second, holds several transactions."""

import json
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tests.pipeline.test_equivalence import outcome
from tests.support.captured import Captured, make_options, single, whole
from tests.support.messages import TSO, Message, canal, debezium, debezium_ddl, declared
from ticdc_source.protocols import decoder_of
from ticdc_source.sources.chunk import Chunk

pytestmark = pytest.mark.filterwarnings("ignore:The messages of .* do not fully say")

TYPES = {"id": "int", "v": "varchar"}
SQL_TYPES = {"id": 4, "v": 12}
FIELDS = [{"type": "int32", "optional": False, "field": "id"}, {"type": "string", "optional": True, "field": "v"}]
NATIVE = {"connector": "mysql", "commit_ts": None, "ts_ms": TSO >> 18}
CHANGES = ["insert", "update", "delete", "insert", "delete", "insert"]
IN_ORDER = ["insert", "update_preimage", "update_postimage", "delete", "insert", "delete", "insert"]


def by_canal(kind: str, **more: Any) -> Message:
    old = [{"id": "1", "v": "a"}] if kind == "update" else None
    return canal(kind.upper(), [{"id": "1", "v": "b"}], old, TYPES, SQL_TYPES, **more)


def by_official_canal(kind: str) -> Message:
    """Return a change of row 1 as official Canal writes it: `es` in whole seconds, members of its own."""
    return by_canal(kind, es=1_697_788_899_000, gtid="", id=7)


def by_debezium(kind: str, *, schema: bool) -> Message:
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


def canal_ddl(text: str, **more: Any) -> Message:
    return canal("ALTER", isDdl=True, sql=text, pkNames=None, **more)


def with_enum(number: int, **more: Any) -> Message:
    """Return an insert as TiCDC writes it without the extension, with the number of a label."""
    return canal("INSERT", [{"id": "1", "e": str(number)}], None, {"id": "int", "e": "enum"}, {"id": 4, "e": 4}, **more)


def with_time(value: int) -> Message:
    return debezium("c", None, {"id": 1, "w": value}, None, NATIVE, {"id": 1})


def debezium_of_time(fraction: int) -> Message:
    """Return native Debezium's DDL event that declares the DATETIME with so many digits behind the second."""
    columns = [declared("id", "INT"), declared("w", "DATETIME", length=fraction)]
    return debezium_ddl(TSO, f"ALTER TABLE t MODIFY w DATETIME({fraction})", columns, "ALTER", NATIVE)


SECOND = {"es": 1_697_788_899_000}
# Two versions of a column at one time, and a value of each, which the other reads as something else.
VERSIONS: dict[str, tuple[Message, Message, Message, Message, list[Any]]] = {
    "canal-json": (
        canal_ddl("create table t (id int primary key, e enum('a','b'))"), with_enum(1),
        canal_ddl("alter table t modify e enum('z','a','b')"), with_enum(1), ["a", "z"],
    ),
    "canal-json of one second": (
        canal_ddl("create table t (id int primary key, e enum('a','b'))", **SECOND), with_enum(1, **SECOND),
        canal_ddl("alter table t modify e enum('z','a','b')", **SECOND), with_enum(1, **SECOND), ["a", "z"],
    ),
    "debezium without schema": (
        debezium_of_time(0), with_time(1_697_788_899_000), debezium_of_time(6), with_time(1_697_788_899_000_000),
        [datetime(2023, 10, 20, 8, 1, 39)] * 2,  # noqa: DTZ001 (a DATETIME has no zone)
    ),
}  # fmt: skip


@pytest.mark.parametrize("output", ["changelog", "event"])
@pytest.mark.parametrize("native", [True, False], ids=["native", "general"])
@pytest.mark.parametrize("sizes", [whole, single])
@pytest.mark.parametrize("wire", VERSIONS)
def test_a_row_has_the_definition_of_its_place(
    wire: str, sizes: Callable[[], int], output: str, *, native: bool
) -> None:
    """Of rows with the time of an ALTER, those before it have the old definition, and those after it the new one."""
    create, old, alter, new, expected = VERSIONS[wire]
    captured = Captured.of(create, old, old, alter, new, new)

    table = captured.read(sizes=sizes, outputFormat=output, nativeCode="auto" if native else "off")

    if output == "changelog":
        found = table.column(table.num_columns - 1).to_pylist()
    else:
        after = [json.loads(text) for text in table.column("after").to_pylist() if text]
        found = [row[list(row)[-1]] for row in after]
        found = [text.removesuffix(".000000") for text in found]
        expected = [str(each) for each in expected]
    assert found == [expected[0]] * 2 + [expected[1]] * 2


def test_definitions_that_come_again_at_one_time_are_all_kept() -> None:
    """A definition that is changed, and changed back, within one second counts at each place."""
    first, other = "alter table t modify e enum('a','b')", "alter table t modify e enum('b','a')"
    messages = [canal_ddl("create table t (id int primary key, e enum('a','b'))")]
    for text in (other, first, other):
        messages += [canal_ddl(text), canal_ddl(text), with_enum(1)]  # each is sent again

    assert Captured.of(*messages).read().column("e").to_pylist() == ["b", "a", "b"]


def test_a_definition_in_another_partition_has_the_place_of_its_partition() -> None:
    """Across partitions the partition orders first, as in `_sequence`."""
    create, old, alter, new, _ = VERSIONS["canal-json"]
    first, second = Captured.of(create, old, alter), Captured.of(new, new)
    captured = Captured({}, {0: first.partitions[0], 1: second.partitions[0]})

    assert captured.read().column("e").to_pylist() == ["a", "z", "z"]


NOTICE = "changes with the same event time are ordered by partition, then offset"


@pytest.mark.parametrize(("wire", "remedy"), [
    ("canal-json", "enable-tidb-extension=true"), ("official Canal", "enable-tidb-extension=true"),
    ("debezium", "Debezium's own connectors do not"), ("debezium without schema", "Debezium's own connectors do not"),
])  # fmt: skip
def test_a_load_says_once_that_the_order_rests_on_places(
    wire: str, remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The schema of a table without commit-ts comes with one notice, which names the setting that mends it."""
    with caplog.at_level(logging.WARNING):
        Captured.of(*(WIRES[wire](kind) for kind in CHANGES)).schema()

    (notice,) = [each.getMessage() for each in caplog.records if NOTICE in each.getMessage()]
    assert "test.t" in notice
    assert remedy in notice
