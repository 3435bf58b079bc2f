"""Where a read starts and ends: Spark's precedence, defaults, refusals and error messages."""

import json
import warnings
from typing import Any

import pytest

from ticdc_source.errors import OptionError
from ticdc_source.options.options import Options
from ticdc_source.options.ranges import (
    EARLIEST,
    LATEST,
    Moment,
    by_partition,
    end_spec,
    start_spec,
    validate,
    warn_of_implausible_times,
)
from ticdc_source.options.topics import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BASE = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}


def options(**given: Any) -> Options:
    """Return options with a broker and a topic; values that are not text become JSON."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    base = {name: value for name, value in BASE.items() if name != "subscribe" or "assign" not in texts}
    return Options.of({**base, **texts})


def test_the_precedence_is_sparks() -> None:
    """A timestamp has precedence over timestamps by partition, and these over offsets; the same at the end."""
    given: dict[str, Any] = {"startingOffsets": {"t": {"0": 5}}, "endingOffsets": {"t": {"0": 9}}}
    assert start_spec(options(**given), streaming=False) == {T0: 5}
    assert end_spec(options(**given)) == {T0: 9}
    given |= {"startingOffsetsByTimestamp": {"t": {"0": 77}}, "endingOffsetsByTimestamp": {"t": {"0": 99}}}
    assert start_spec(options(**given), streaming=False) == {T0: Moment(77)}
    assert end_spec(options(**given)) == {T0: Moment(99)}
    given |= {"startingTimestamp": "7", "endingTimestamp": "9"}
    assert start_spec(options(**given), streaming=False) == Moment(7)
    assert end_spec(options(**given)) == Moment(9)


@pytest.mark.parametrize(("streaming", "start"), [(False, EARLIEST), (True, LATEST)])
def test_defaults_differ_between_batch_and_streaming(streaming: bool, start: int) -> None:
    """A batch read starts at the earliest and ends at the latest; a stream starts at the latest."""
    assert start_spec(options(), streaming=streaming) == start
    assert end_spec(options()) == LATEST


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"startingOffsets": {"t": {"0": 3, "1": -1}}}, "startingOffsets for t-1 can't be latest for batch"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        ({"endingOffsets": {"t": {"0": -2}}}, "ending offset for t-0 can't be earliest for batch queries"),
        ({"startingOffsets": {"t": {"0": -3}}}, "-3 for t-0 is below"),
        ({"endingOffsets": {"t": {"0": -3}}}, "-3 for t-0 is below"),
        ({"startingOffsetsByTimestamp": {"t": {"0": -1}}}, "-1 for t-0 is below"),
        # Every given option is checked, even if another one has precedence.
        (
            {"startingOffsets": {"t": 3}, "startingTimestamp": "7"},
            r"'startingOffsets': Expected e\.g\. .*\{\"t\": 3\}'",
        ),
        (
            {"startingOffsets": {"t": {"0": 5}}, "endingOffsets": {"t": {"0": 4}}},
            "specified start offset 5 is greater than the end offset 4 for topic t",
        ),
        (
            {"startingOffsets": {"t": {"0": 5}}, "endingOffsets": {"t": {"1": 9}}},
            r"should have the same topic-partitions.*\[t-0\].*\[t-1\]",
        ),
        ({"assign": {"t": [0, 1]}, "startingOffsets": {"t": {"0": 5}}}, r"Specified: \[t-0\] Assigned: \[t-0, t-1\]"),
    ],
)
def test_batch_reads_refuse_what_spark_refuses(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        validate(options(**given), streaming=False)


@pytest.mark.parametrize(("start", "end"), [(-2, 4), (5, -1)])
def test_only_offsets_are_compared(start: int, end: int) -> None:
    """-2 and -1 stand for the earliest and the latest offset."""
    given = {"startingOffsets": {"t": {"0": start}}, "endingOffsets": {"t": {"0": end}}}

    validate(options(**given), streaming=False)


@pytest.mark.parametrize("given", [{"startingOffsets": "latest"}, {"startingOffsets": {"t": {"0": -1}}}, {}])
def test_streams_may_start_at_the_latest(given: dict[str, Any]) -> None:
    validate(options(**given), streaming=True)


@pytest.mark.parametrize(
    "value",
    [{"t": [0]}, {"t": 3}, {"t": {"0": 3.0}}, {"t": {"0": True}}, {"t": {"-1": 3}}, {"t": {"00": 3}}, {"t": {"٣": 3}}],
)
@pytest.mark.parametrize(
    "option", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"]
)
def test_json_of_another_form_is_refused(option: str, value: object) -> None:
    with pytest.raises(OptionError, match=rf"'{option}': Expected e\.g\. \{{\"topicA\""):
        validate(options(**{option: value}), streaming=False)


def test_json_must_name_exactly_the_partitions_there_are() -> None:
    for offsets in ({T0: 5}, {T0: 5, T1: 6, TopicPartition("u", 0): 7}):
        with pytest.raises(OptionError, match=r"for Kafka start offsets don't match.*Assigned: \[t-0, t-1\]"):
            by_partition(offsets, [T1, T0], "start")
        with pytest.raises(OptionError, match=r"timestamp based end offsets don't match.*Assigned: \[t-0, t-1\]"):
            by_partition({key: Moment(time) for key, time in offsets.items()}, [T1, T0], "end")


def test_each_spec_by_partition() -> None:
    assert by_partition(LATEST, [T1, T0], "start") == {T0: LATEST, T1: LATEST}
    assert by_partition(Moment(7), [T0], "start") == {T0: Moment(7)}
    assert by_partition({T0: -2, T1: 4}, [T0, T1], "start") == {T0: EARLIEST, T1: 4}
    assert by_partition({T0: Moment(8)}, [T0], "start") == {T0: Moment(8)}


SECONDS = 1_790_000_040  # 2026-09-21 14:14 UTC
MS = SECONDS * 1000


@pytest.mark.parametrize(
    ("name", "given", "right", "unit"),
    [
        ("startingTimestamp", SECONDS, MS, "seconds"),
        ("startingTimestamp", MS * 1000, MS, "microseconds"),
        ("startingTimestamp", MS * 1_000_000, MS, "nanoseconds"),
        ("startingTimestamp", MS << 18, MS, "a commit-ts"),
        ("endingTimestamp", SECONDS, MS, "seconds"),
        ("startingOffsetsByTimestamp", {"t": {"0": SECONDS, "1": SECONDS}}, MS, "seconds"),
        ("endingOffsetsByTimestamp", {"t": {"0": SECONDS}}, MS, "seconds"),
        ("startingCommitTs", MS, MS << 18, "milliseconds"),
        ("startingCommitTs", SECONDS, MS << 18, "seconds"),
        ("endingCommitTs", MS, MS << 18, "milliseconds"),
    ],
)
def test_a_time_in_another_unit_is_a_warning(name: str, given: object, right: int, unit: str) -> None:
    """It names the option, the time that the number stands for, the unit that it probably has, and the right number."""
    with pytest.warns(UserWarning, match="did you mean") as caught:
        validate(options(**{name: given}), streaming=False)

    (message,) = (str(each.message) for each in caught)
    assert message.startswith(f"Option '{name}' takes ")
    assert f". As {unit}" in message
    assert message.endswith(f", it is 2026-09-21 14:14 UTC: did you mean {right}?")


def test_a_time_before_tidb_in_any_unit_is_a_warning() -> None:
    """A date in digits is no time; the warning says which one it stands for."""
    with pytest.warns(UserWarning, match=r"takes milliseconds since the epoch, and 20260921 is 1970-01-01 05:37 UTC"):
        validate(options(startingTimestamp="20260921"), streaming=True)


@pytest.mark.parametrize(
    "given",
    [
        {"startingTimestamp": MS, "endingTimestamp": MS + 1, "startingCommitTs": MS << 18},
        {"startingTimestamp": 0, "startingCommitTs": 0, "endingCommitTs": "resolved"},
        {"endingTimestamp": 253_402_300_799_000, "endingCommitTs": (1 << 63) - 1},
        {"endingTimestamp": 2**63 - 1, "endingCommitTs": 2**63 - 1},
    ],
)
def test_a_plausible_time_is_silent(given: dict[str, Any]) -> None:
    """So is 0, which means the first, and a number above all times, which means the last."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_implausible_times(options(**given))
