"""A soak run would find what it looks for (`tests/soak`)."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.soak.changes import DATABASE, PARTITIONS, READ, Feed, Message, feeds
from tests.soak.checks import Row, completed, flat_faults, row_faults, table_faults, types_of
from tests.soak.sampler import DRIVER, WORKER, Process, Sample
from tests.support.captured import Captured, Record, whole

pytestmark = pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")

SEED = 20261122
TABLE = f"{DATABASE}.{READ}"


def captured_of(feed: Feed, messages: list[Message]) -> Captured:
    """Return a topic with these messages."""
    records: dict[int, list[Record]] = {number: [] for number in range(PARTITIONS)}
    for message in messages:
        truth = feed.truths.of(message.key, message.value)
        assert truth is not None
        records[message.partition].append(Record(message.key, message.value, truth))
    return Captured(feed.header, records)


def made(feed: Feed) -> tuple[list[Message], list[Message]]:
    """Return the messages of a changefeed before and after its table is altered; some of them are repeated."""
    chance, table = random.Random(SEED), feed.tables[0]
    before = feed.created(15)
    after = feed.ddl(table, table.column_added()) + feed.ddl(table, table.widened())
    for _ in range(20):
        after += feed.changes(chance)
    after += feed.watermarks()
    return before, after + after[5:25]


@pytest.fixture
def all_feeds(tmp_path: Path) -> Iterator[list[Feed]]:
    """A changefeed of each protocol."""
    made = feeds(SEED, tmp_path)
    yield made
    for feed in made:
        feed.truths.close()


@pytest.fixture(params=[0, 1, 2], ids=["open-protocol", "canal-json", "debezium"])
def feed(request: pytest.FixtureRequest, all_feeds: list[Feed]) -> Feed:
    """The changefeed of one protocol, then of the next."""
    number: int = request.param
    return all_feeds[number]


def read(feed: Feed, captured: Captured, **options: Any) -> list[Row]:
    """Read the table as a stream would have written it."""
    rows = captured.read(sizes=whole, tables=TABLE, **options).to_pylist()
    return [completed(row, types_of(feed.header)) for row in rows]


def test_what_was_written_passes(feed: Feed) -> None:
    """Rows that equal their topic, and a table that equals the producer's, have no faults."""
    before, after = made(feed)
    captured = captured_of(feed, before + after)

    rows = read(feed, captured)

    assert len(rows) > 100
    assert list(row_faults(captured, rows)) == []
    assert list(table_faults(feed.header, rows, feed.tables[0].current)) == []


def _drops(rows: list[Row]) -> list[Row]:
    return rows[:20] + rows[21:]


def _doubles(rows: list[Row]) -> list[Row]:
    return [*rows, rows[20]]


def _invents(rows: list[Row]) -> list[Row]:
    return [*rows, {**rows[20], "_sequence": {**rows[20]["_sequence"], "offset": 10**6}}]


def _changes_a_value(rows: list[Row]) -> list[Row]:
    return [*rows[:20], {**rows[20], "id": rows[20]["id"] + 1}, *rows[21:]]


def _fills_a_column(rows: list[Row]) -> list[Row]:
    return [{**rows[0], "added_1": "more"}, *rows[1:]]


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        (_drops, "was not written"),
        (_doubles, "was written twice"),
        (_invents, "is not in the topic"),
        (_changes_a_value, "id bigint"),
        (_fills_a_column, "added_1 is 'more'"),
    ],
)
def test_wrong_rows_are_found(harm: Callable[[list[Row]], list[Row]], fault: str, all_feeds: list[Feed]) -> None:
    """A row that is dropped, doubled, invented or changed is found."""
    feed = all_feeds[0]
    before, after = made(feed)
    captured = captured_of(feed, before + after)

    faults = list(row_faults(captured, harm(read(feed, captured))))

    assert any(fault in found for found in faults), faults


def test_a_wrong_table_is_found(all_feeds: list[Feed]) -> None:
    """The newest image of a key that is missing, and a delete that is missing, make the table wrong."""
    feed = all_feeds[1]
    before, after = made(feed)
    rows = read(feed, captured_of(feed, before + after))
    current = feed.tables[0].current
    key, other = list(current)[:2]

    missing = list(table_faults(feed.header, [row for row in rows if str(row["id"]) != key], current))
    kept = list(table_faults(feed.header, [row for row in rows if row["_change_type"] != "delete"], current))
    stale = list(table_faults(feed.header, rows, {**current, other: {**current[other], "quantity": "12345"}}))

    assert missing == [f"the table lacks the row {key}"]
    assert kept
    assert all("which was deleted" in fault for fault in kept)
    assert [fault.partition(" of")[0] for fault in stale] == [f"row {other}"]


def samples(memory: Callable[[int], float], seconds: int = 180) -> list[Sample]:
    """Return samples of a life with one driver and one worker."""
    return [
        Sample(
            float(second),
            1,
            (Process(1, DRIVER, 0, 10**8, 20, 5), Process(2, WORKER, 1, int(memory(second)), 10, 2)),
            10**7,
            {"t": second},
            {"t": 5},
        )
        for second in range(seconds)
    ]


@pytest.mark.parametrize(
    ("memory", "flat"),
    [
        (lambda _: 2e8, True),
        (lambda second: 2e8 + 1e8 * (second < 60), True),
        (lambda second: min(3e8, 1e8 + 5e6 * second), True),
        (lambda second: 2e8 + 2e6 * second, False),
        (lambda second: 2e8 * (1 + (second > 125)), False),
    ],
    ids=["constant", "falls", "warms up", "rises", "steps up"],
)
def test_what_rises_is_found(memory: Callable[[int], float], flat: bool) -> None:
    """Memory that rises after the start is found; a process that warms up is flat."""
    judged, faults = flat_faults(samples(memory))

    assert judged == 2 * 3 + 2
    assert [fault.partition(" is not flat")[0] for fault in faults] == (
        [] if flat else ["memory of the Python worker 2 in life 1"]
    )
