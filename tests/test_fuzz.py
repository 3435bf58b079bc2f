"""Fuzzing finds nothing (`tests/fuzz`)."""

import pytest

from tests.fuzz.damaged import OUTPUTS, ROUND, SCENARIOS, fuzz
from ticdc_source.kernels.native import native

SEED = 20261122
MUTANTS = 20_000


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("mutants", "around", "size"),
    [
        (8, 60, 8),
        pytest.param(100, 400, 42, marks=pytest.mark.slow("1,000 mutants")),
        pytest.param(MUTANTS // len(SCENARIOS), 5000, ROUND, marks=pytest.mark.long("ten minutes")),
    ],
)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_must_hold_of_damaged_messages_holds(scenario: str, mutants: int, around: int, size: int) -> None:
    """Damaged messages give rows or bad records, the same in all modes, alone or among good ones that stay the same.

    With the native path they give the same; it takes part unless an output has rows as JSON.
    """
    reports = list(fuzz(scenario, mutants, SEED, around=around, size=size))

    assert [fault for report in reports for fault in report.faults] == []
    assert sum(report.outcomes.total() for report in reports) == mutants
    if native is not None and len(reports) >= len(OUTPUTS):
        assert sum(report.native for report in reports) > around
