"""Fuzzing finds nothing (`tests/fuzz`)."""

import pytest

from tests.fuzz import native as native_fuzzing
from tests.fuzz.damaged import SCENARIOS, fuzz

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SEED = 20261122
MUTANTS = 20_000


@pytest.mark.parametrize(
    ("mutants", "around"),
    [
        (8, 60),
        pytest.param(60, 400, marks=pytest.mark.slow("480 mutants")),
        pytest.param(MUTANTS // len(SCENARIOS), 5000, marks=pytest.mark.long("ten minutes")),
    ],
)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_must_hold_of_damaged_messages_holds(scenario: str, mutants: int, around: int) -> None:
    """Damaged messages give rows or bad records, the same in all modes, alone or among good ones that stay the same."""
    reports = list(fuzz(scenario, mutants, SEED, around=around))

    assert [fault for report in reports for fault in report.faults] == []
    assert sum(report.outcomes.total() for report in reports) == mutants


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
