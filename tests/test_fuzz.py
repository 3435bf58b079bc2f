"""Fuzzing finds nothing, and would find something (`tests/fuzz`)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pytest

from tests.fuzz import damaged as fuzzing
from tests.fuzz import native as native_fuzzing
from tests.fuzz.damaged import SCENARIOS, fuzz
from ticdc_source.kernels.contract import DateCast, DatetimeCast
from ticdc_source.kernels.wire import Reading, Settings, Wire, reading
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadSpec
from ticdc_source.protocols import plan as plans
from ticdc_source.protocols.canal_json import template
from ticdc_source.schema.types import ColumnType
from ticdc_source.sources.chunk import Chunk

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SEED = 20261122
MUTANTS = 20_000


@pytest.mark.parametrize(
    ("mutants", "around"),
    [
        (8, 60),
        pytest.param(200, 1000, marks=pytest.mark.slow("1,600 mutants")),
        pytest.param(MUTANTS // len(SCENARIOS), 5000, marks=pytest.mark.long("ten minutes")),
    ],
)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_must_hold_of_damaged_messages_holds(scenario: str, mutants: int, around: int) -> None:
    """Damaged messages give rows or bad records, the same in all modes, alone or among good ones that stay the same."""
    reports = list(fuzz(scenario, mutants, SEED, around=around))

    assert [fault for report in reports for fault in report.faults] == []
    assert sum(report.outcomes.total() for report in reports) == mutants


def _forgets_a_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(1) if batch.num_rows > 100 else batch


def _fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield next(batches)["no such column"]


def _is_always_permissive(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


@pytest.mark.parametrize(
    ("broken", "fault"),
    [(_is_always_permissive, "FAILFAST gives"), (_fails, "KeyError"), (_forgets_a_row, "rows of good messages change")],
)
def test_faults_are_found(
    broken: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that forgets the mode, raises a foreign error, or loses a row beside damaged messages is found out."""
    calls = count()

    def broken_read(chunks: Iterable[Chunk], spec: ReadSpec) -> Iterator[pa.RecordBatch]:
        batches = read(chunks, replace(spec, mode="PERMISSIVE"))
        return broken(batches) if next(calls) else batches  # the first call reads the good messages alone

    monkeypatch.setattr(fuzzing, "read", broken_read)

    (report,) = fuzz("canal-json.plain", 10, SEED, around=200)

    assert any(fault in found for found in report.faults), report.faults


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize(
    ("mutants", "size"),
    [
        (100, 100),
        pytest.param(4_000, 500, marks=pytest.mark.slow("4,000 mutants a protocol")),
        pytest.param(20_000, 1000, marks=pytest.mark.long("20,000 mutants a protocol")),
    ],
)
@pytest.mark.parametrize("protocol", native_fuzzing.SCENARIOS)
def test_the_general_path_reads_all_that_native_code_accepts(protocol: str, mutants: int, size: int) -> None:
    """Native code accepts a tenth of the mutants or more, and the general path has the same cells for each."""
    reports = list(native_fuzzing.fuzz(protocol, mutants, SEED, size=size))

    assert [fault for report in reports for fault in report.faults] == []
    assert sum(report.mutants for report in reports) == mutants
    assert sum(report.accepted for report in reports) * 10 >= mutants


def _lax_reading(wire: Wire | None, type_: ColumnType, target: pa.DataType, settings: Settings) -> Reading:
    chosen = reading(wire, type_, target, settings)
    if not isinstance(chosen.cast, (DateCast, DatetimeCast)):
        return chosen
    return chosen._replace(cast=replace(chosen.cast, zero_is_null=True))


def _takes_any_code(_codes: Sequence[bytes]) -> list[bytes]:
    return [b"2004", b"2005", b"12", b"91", b"92", b"93", b"-5", b"-6", b"-7", b"1", b"3", b"4", b"5", b"7", b"8"]


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize("lax", ["casts", "template"])
def test_what_native_code_should_not_accept_is_found(lax: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cast that reads zero dates where they are errors, and a template that takes any `sqlType`, are found out."""
    if lax == "casts":
        monkeypatch.setattr(plans, "reading", _lax_reading)
    else:
        monkeypatch.setattr(template, "_unambiguous", _takes_any_code)

    reports = native_fuzzing.fuzz("canal-json", 20_000, SEED, size=500)

    assert any(report.faults for report in reports)
