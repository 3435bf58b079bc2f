"""The native path has the rows of the general path where templates, casts and kernels meet their limits."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, random_sizes, whole
from tests.support.messages import TSO, canal, debezium, simple, simple_definition
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.protocols.base import Learned, LearnedTable
from ticdc_source.protocols.canal_json import CanalJSON
from ticdc_source.protocols.events import TableEvents
from ticdc_source.protocols.images import Parsed
from ticdc_source.protocols.plan import Plan
from ticdc_source.protocols.simple import Simple
from ticdc_source.protocols.templates import KeepTemplate

pytestmark = pytest.mark.usefixtures("native_path")

SEED = 20261122


def outcomes(captured: Captured, **given: str) -> list[pa.Table | str]:
    """Read with the native path and without, whole and in random chunks; return the rows or the error of each."""
    results: list[pa.Table | str] = []
    for native_code in ("off", "require"):
        for sizes in (whole, random_sizes(SEED)):
            try:
                results.append(captured.read(sizes=sizes, nativeCode=native_code, **given))
            except TiCDCSourceError as error:
                results.append(f"{type(error).__name__}: {error}")
    return results


def canal_rows(types: dict[str, str], codes: dict[str, int], *rows: Mapping[str, str | None]) -> Captured:
    return Captured.of(
        *(canal("INSERT", [dict(row)], None, types, codes, _tidb={"commitTs": TSO + at}) for at, row in enumerate(rows))
    )


def test_a_set_of_more_than_64_labels() -> None:
    """The bits of a mask belong to the first 64 labels."""
    labels = ",".join(f"'l{number}'" for number in range(70))
    captured = canal_rows(
        {"id": "bigint", "s": f"set({labels})"}, {"id": -5, "s": -7}, *({"id": "1", "s": mask} for mask in "1234")
    )

    first, *others = outcomes(captured)

    assert isinstance(first, pa.Table)
    assert first["s"].to_pylist() == ["l0", "l1", "l0,l1", "l2"]
    assert all(other == first for other in others)


def test_a_decimal_of_negative_scale() -> None:
    """A scale that no column of TiDB has gives the general path's rows or error."""
    captured = canal_rows(
        {"id": "bigint", "v": "decimal(3,-1)"}, {"id": -5, "v": 3}, *({"id": str(row), "v": "1"} for row in range(3))
    )

    first, *others = outcomes(captured)

    assert all(other == first for other in others)


def test_zoned_timestamps_are_read_one_by_one() -> None:
    """A TIMESTAMP of debezium means the same, whichever other values are read with it."""
    fields = [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "name": "io.debezium.time.ZonedTimestamp", "field": "t"},
    ]
    texts = ["2020-01-01T00:00:00+08:00", "0000-01-01T00:00:00Z", "0000-00-00T00:00:00Z", "2020-01-01T00:00:00Z"]
    captured = Captured.of(*(debezium("c", None, {"id": 1, "t": text}, fields) for text in texts * 2))

    first, *others = outcomes(captured)

    assert isinstance(first, pa.Table)
    assert first["t"].null_count == 4
    assert all(other == first for other in others)


def test_messages_that_teach_nothing_cost_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """If each message has a form of its own, the general path is asked for larger and larger samples."""
    messages = [canal("INSERT", [{"id": "1"}], None, {"id": "int"}, {"id": 4}, id=number) for number in range(2000)]
    captured = Captured.of(*messages)
    (chunk,) = captured.fetch(captured.ranges()[0])
    decoder = PROTOCOLS["canal-json"]
    (events,) = decoder.split(chunk).tables.values()
    calls, parse = [], CanalJSON._parse

    def counted(self: CanalJSON, some: TableEvents, learned: LearnedTable, learn: KeepTemplate | None = None) -> Parsed:
        calls.append(some)
        return parse(self, some, learned, learn)

    monkeypatch.setattr(CanalJSON, "_parse", counted)

    assert decoder.decode(events, Plan(()), Learned()).parsed == len(messages)
    assert len(calls) < 10


_TIMESTAMP = {"mysqlType": "timestamp", "charset": "binary", "length": 19}


def simple_rows(*cells: object) -> Captured:
    """Return messages of rows with an id and a column `at`."""
    define = simple_definition(
        "BOOTSTRAP", {"id": {"mysqlType": "int", "charset": "binary", "length": 11}, "at": _TIMESTAMP}
    )
    rows = (simple(data={"id": str(row), "at": cell}) for row, cell in enumerate(cells))
    return Captured.of(define, *rows)


@pytest.mark.parametrize("zone", ["UTC", "Local", "Asia/Shanghai", "Nowhere/City", "Europe/Berlin"])
@pytest.mark.parametrize("zero_date", ["null", "fail"])
def test_instants_in_a_zone(zone: str, zero_date: str) -> None:
    """Instants in UTC are read in native code; those in other zones, and in odd objects, have the same rows."""
    texts = ["2026-01-02 00:00:00", "2026-10-25 02:30:00.5", "1969-12-31 23:59:59", "0001-01-01 00:00:00"]
    usual: list[object] = [None, *({"location": zone, "value": text} for text in texts * 2)]
    odd: list[object] = [
        {"location": zone, "value": "0000-00-00 00:00:00"},
        {"value": "2026-01-02 00:00:00", "location": zone},
        {"location": zone, "value": "2026-01-02 00:00:00", "more": "x"},
        {"location": "UTC", "value": "2026-01-02T00:00:00"},
        {"location": zone, "value": "2026-01-02"},
        {"location": zone, "value": None},
        "2026-01-02 00:00:00",
    ]
    for cells in (usual, *([*usual, other, *usual] for other in odd)):
        first, *others = outcomes(simple_rows(*cells), zeroDate=zero_date, timeZone="Asia/Tokyo")

        assert all(other == first for other in others), cells


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai"])
def test_instants_in_any_zone_take_the_native_path(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message teaches the template of all others."""
    parsed: list[int] = []
    parse = Simple._parse

    def counted(self: Simple, events: TableEvents, *given: Any, **named: Any) -> Parsed:
        parsed.append(len(events))
        return parse(self, events, *given, **named)

    captured = simple_rows(*({"location": zone, "value": f"2026-01-02 00:00:{second}"} for second in range(10, 60)))
    captured.schema()
    monkeypatch.setattr(Simple, "_parse", counted)

    rows = captured.read(sizes=whole, nativeCode="require")

    assert rows.num_rows == 50
    assert parsed[-1] == 1


@pytest.mark.parametrize("target", ["int", "bigint", "tinyint", "decimal(20,0)", "decimal(3,1)"])
@pytest.mark.parametrize("odd", ["0", "-1", "007", "300", "9223372036854775808", "1.5", "-0", "x", None])
def test_numbers_of_labels(target: str, odd: str | None) -> None:
    """An ENUM read as a number is one in native code too."""
    captured = canal_rows(
        {"id": "bigint", "e": "enum"}, {"id": -5, "e": 4}, *({"id": "1", "e": cell} for cell in ("1", "2", odd, "2"))
    )

    first, *others = outcomes(captured, schemaHints=f"e {target}")

    assert all(other == first for other in others)
