"""Fuzzing finds nothing, and would find something (`tests/fuzz.py`)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pytest

from tests import fuzz as fuzzing
from tests.fuzz import OUTPUTS, ROUND, SCENARIOS, choices_of, fuzz
from ticdc_source.events import Chunk
from ticdc_source.pipeline.read import ReadSpec, read

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SEED = 20261122
MUTANTS = 20_000


@pytest.mark.parametrize(
    ("mutants", "around"), [(20, 200), pytest.param(MUTANTS // len(SCENARIOS), 5000, marks=pytest.mark.slow("minutes"))]
)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_must_hold_of_damaged_messages_holds(scenario: str, mutants: int, around: int) -> None:
    """Damaged messages give rows or bad records, the same in all modes, alone or among good ones that stay the same."""
    reports = list(fuzz(scenario, mutants, SEED, around=around))

    assert [fault for report in reports for fault in report.faults] == []
    assert sum(report.outcomes.total() for report in reports) == mutants


def test_all_outputs_have_the_same_fuzz() -> None:
    """The long run reads every scenario in every output format, the short one has every output format somewhere."""
    rounds = MUTANTS // len(SCENARIOS) // ROUND

    long = {(name, output) for name in SCENARIOS for _, output, _ in choices_of(name, SEED)[:rounds]}
    short = {choices_of(name, SEED)[0][1] for name in SCENARIOS}

    assert long == {(name, output) for name in SCENARIOS for output in OUTPUTS}
    assert short == set(OUTPUTS)


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
