"""TiCDC sends a DDL event to every partition; a read that has some of the copies returns one of them."""

import json
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.captured import make_options
from tests.support.messages import TSO, Message, cell, debezium, debezium_ddl, open_message
from ticdc_source.errors import CheckpointError, DataLossError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.pipeline.context import BatchScope, DDLCopies, DDLCoverage, ReadContext
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import read_spec
from ticdc_source.planning.ddl_copies import DDLEdges, StreamCoverage, by_topic, coverage_of, lower_partitions
from ticdc_source.planning.read_schema import format_schema
from ticdc_source.protocols import decoder_of
from ticdc_source.schema.tso import of_ms, physical_ms
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.stream_offsets import INITIAL, Offsets

SEED = 20261123
BEGIN = physical_ms(TSO)  # ms since 1970
T = "t"
Log = Mapping[int, list[tuple[int, Message]]]  # by partition: the records with their timestamps


@dataclass(frozen=True)
class Wire:
    """How a protocol writes events."""

    protocol: str
    has_watermarks: bool = True

    def row(self, ts: int) -> Message:
        if self.protocol == "debezium":
            return debezium("c", after={"id": 1}, source={"commit_ts": ts})
        return open_message(({"ts": ts, "scm": "db", "tbl": "t", "t": 1}, {"u": {"id": cell(3, 1, 11, h=True)}}))

    def ddl(self, ts: int, query: str) -> Message:
        if self.protocol == "debezium":
            return debezium_ddl(ts, query, [])
        return open_message(({"ts": ts, "scm": "db", "tbl": "t", "t": 2}, {"q": query, "t": 11}))

    def watermark(self, ts: int) -> Message:
        if self.protocol == "debezium":
            return debezium("m", source={"commit_ts": ts, "db": "", "table": ""})
        return open_message(({"ts": ts, "t": 3}, b""))


WIRES = [Wire("open-protocol"), Wire("debezium"), Wire("debezium", has_watermarks=False)]
# With watermarks, what differs is how messages are written.
EACH_WIRE = [WIRES[0], pytest.param(WIRES[1], marks=pytest.mark.slow("as open-protocol, once more")), WIRES[2]]


def fetch_of(log: Log, first: Mapping[int, int] | None = None) -> Any:
    """Return what yields the records of an offset range; those before the first offsets are deleted."""

    def fetch(offset_range: OffsetRange) -> Iterator[Chunk]:
        if offset_range.start < (first or {}).get(offset_range.partition, 0):
            raise DataLossError(str(offset_range))
        offsets = list(range(offset_range.start, offset_range.end))
        records = [log[offset_range.partition][offset] for offset in offsets]
        keys, values = [message[0] for _, message in records], [message[1] for _, message in records]
        yield Chunk(offset_range.topic, offset_range.partition, offsets, [time for time, _ in records], keys, values)

    return fetch


def ddl_rows(log: Log, ranges: Iterable[OffsetRange], copies: DDLCopies, wire: Wire) -> list[tuple[int, str]]:
    """Return the partition and the text of each DDL event that the workers return; each reads one range alone."""
    options = make_options(outputFormat="event", protocol=wire.protocol)
    context = ReadContext(protocol=wire.protocol)
    spec = read_spec(format_schema(options), options, context, BatchScope(ddl_copies=copies))
    batches = [batch for each in ranges if each.size for batch in read(fetch_of(log)(each), spec)]
    rows = [row for batch in batches for row in batch.to_pylist() if row["_event_type"] == "ddl"]
    return [(row["_sequence"]["partition"], row["ddl_query"]) for row in rows]


def edges_of(log: Log, wire: Wire, first: Mapping[int, int] | None = None) -> DDLEdges:
    parsed = make_options(outputFormat="event", protocol=wire.protocol)
    logs = [OffsetRange(T, partition, (first or {}).get(partition, 0), len(log[partition])) for partition in log]
    return DDLEdges(fetch_of(log, first), decoder_of(wire.protocol, parsed), parsed, logs)


class Stream(StreamCoverage):
    """What a stream keeps in its offsets, if it looks at the edges of a log."""

    def __init__(self, edges: DDLEdges) -> None:
        super().__init__(None, make_options(outputFormat="event"))  # type: ignore[arg-type]
        self._edges = edges

    def around(self, starts: Offsets, latest: Offsets) -> dict[TopicPartition, DDLCoverage]:  # noqa: ARG002
        return {each: self._edges.of_start(each, start) for each, start in starts.items()}

    def first_offset(self, starts: Offsets) -> Any:
        return json.loads(json.dumps(self({INITIAL: True}, starts, starts, ())))


def batch_of(log: Log, ranges: Iterable[OffsetRange], wire: Wire, first: Mapping[int, int] | None = None) -> DDLCopies:
    """Return the copies that a batch has."""
    by_partition = {each.topic_partition: each for each in ranges if each.size}
    edges = edges_of(log, wire, first)
    coverage = {tp: edges.of_range(by_partition[tp]) for tp in lower_partitions(by_partition)}
    return by_topic(by_partition, coverage)


def changefeed(wire: Wire, seed: int, partitions: int = 3, seconds: int = 400) -> dict[int, list[tuple[int, Message]]]:
    """Return a topic: rows in any partition, and every few seconds a DDL event and a watermark in each.

    The partitions get them at different moments, as they are different brokers'. The clock of the records may be slow,
    or TiCDC may lag: watermarks show it.
    """
    random_ = random.Random(seed)
    slow = random_.choice((0, 600_000, -60_000)) if wire.has_watermarks else 0
    log: dict[int, list[tuple[int, Message]]] = {partition: [] for partition in range(partitions)}
    committed = 0
    for second in range(seconds):
        now = BEGIN + second * 1000
        committed = max(committed + 1, of_ms(now + slow - random_.randrange(200, 3000)))
        broadcast = [wire.ddl(committed, f"truncate table t /* {second} */")] if random_.random() < 0.05 else []
        if wire.has_watermarks:
            broadcast.append(wire.watermark(committed))
        for records in log.values():
            time = now
            for message in broadcast:
                for _ in range(random_.randrange(3)):
                    records.append((time, wire.row(committed + 1)))
                    time += random_.randrange(100)
                records.append((time, message))
            if random_.random() < 0.5:
                records.append((time, wire.row(committed + 2)))
    return log


def ddl_inside(log: Log, ranges: Iterable[OffsetRange], wire: Wire) -> Counter[str]:
    """Return the texts of the DDL events that have a copy in the ranges, each once."""
    return Counter({query for _, query in ddl_rows(log, ranges, {T: {}}, wire)})


TRUNCATE, DROP = "truncate table t", "drop table t"
# Texts of DDL events, None for a row; the ranges of partitions 0 and 1, which both have these records; and which
# partition returns which text.
EDGES: dict[str, tuple[list[str | None], tuple[int, int], tuple[int, int], list[tuple[int, str]]]] = {
    "before a lower range": ([None, TRUNCATE, None, DROP], (2, 4), (0, 4), [(0, DROP), (1, TRUNCATE)]),
    "behind a lower range": ([TRUNCATE, None, DROP], (0, 2), (0, 3), [(0, TRUNCATE), (1, DROP)]),
    "one text, two events": ([TRUNCATE, None, TRUNCATE], (1, 3), (0, 3), [(0, TRUNCATE), (1, TRUNCATE)]),
}


@pytest.mark.parametrize("case", EDGES)
@pytest.mark.parametrize("wire", EACH_WIRE, ids=str)
def test_a_ddl_whose_copy_a_lower_range_lacks_comes_from_the_next(wire: Wire, case: str) -> None:
    """A DDL event comes from the lowest partition that has it in its range, and once."""
    texts, *bounds, expected = EDGES[case]
    messages = [wire.row(TSO + at) if text is None else wire.ddl(TSO + at, text) for at, text in enumerate(texts)]
    log = {partition: [(BEGIN + 1, message) for message in messages] for partition in (0, 1)}
    ranges = [OffsetRange(T, partition, *bound) for partition, bound in enumerate(bounds)]

    assert ddl_rows(log, ranges, batch_of(log, ranges, wire), wire) == expected


@pytest.mark.parametrize("wire", EACH_WIRE, ids=str)
def test_a_batch_of_any_offsets_has_each_ddl_once(wire: Wire) -> None:
    """Whatever offsets a batch reads, each DDL event that has a copy there is one row, though limits are small."""
    for seed in range(SEED, SEED + 5):
        log, random_ = changefeed(wire, seed), random.Random(seed)
        first = {partition: random_.choice((0, random_.randrange(100))) for partition in log}  # the rest is deleted
        ranges = []
        for partition, records in log.items():
            start = random_.choice((first[partition], random_.randrange(first[partition], len(records))))
            end = random_.choice((len(records), random_.randrange(start, len(records) + 1)))
            ranges.append(OffsetRange(T, partition, start, end))

        rows = ddl_rows(log, ranges, batch_of(log, ranges, wire, first), wire)

        assert Counter(query for _, query in rows) == ddl_inside(log, ranges, wire), f"seed {seed}: {ranges}"


@dataclass(frozen=True)
class Started:
    """What a stream knows when it starts at a random second, from random offsets, behind a random log start."""

    log: Log
    ranges: list[OffsetRange]
    copies: DDLCopies

    @classmethod
    def at_random(cls, wire: Wire, seed: int, oldest_s: int) -> "Started":
        """Start it; what is left of the log is at least so many seconds old, or whole."""
        log, random_ = changefeed(wire, seed), random.Random(seed)
        second = random_.randrange(1, 400)
        ends, old = ({tp: offset_at(log, tp, at) for tp in partitions_of(log)} for at in (second, second - oldest_s))
        earliest = {tp: random_.choice((0, random_.randrange(old[tp] + 1))) for tp in ends}
        starts = {tp: random_.choice((end, random_.randrange(earliest[tp], end + 1))) for tp, end in ends.items()}
        now = {tp.partition: log[tp.partition][:end] for tp, end in ends.items()}
        offset = Stream(edges_of(now, wire, {tp.partition: at for tp, at in earliest.items()})).first_offset(starts)
        return cls(
            log,
            [OffsetRange(*tp, start, len(log[tp.partition])) for tp, start in starts.items()],
            by_topic(starts, coverage_of(offset)),
        )


@pytest.mark.parametrize("wire", EACH_WIRE, ids=str)
def test_a_stream_from_any_offsets_has_each_ddl_once(wire: Wire) -> None:
    for seed in range(SEED, SEED + 5):
        stream = Started.at_random(wire, seed, oldest_s=150)

        rows = ddl_rows(stream.log, stream.ranges, stream.copies, wire)

        assert Counter(query for _, query in rows) == ddl_inside(stream.log, stream.ranges, wire), f"seed {seed}"


@pytest.mark.parametrize("wire", EACH_WIRE, ids=str)
def test_no_ddl_is_lost_where_too_little_is_left_to_tell(wire: Wire) -> None:
    """A DDL event comes twice rather than never, where the records before the start are deleted or out of limits."""
    for seed in range(SEED, SEED + 5):
        stream = Started.at_random(wire, seed, oldest_s=0)

        rows = ddl_rows(stream.log, stream.ranges, stream.copies, wire)

        assert {query for _, query in rows} == set(ddl_inside(stream.log, stream.ranges, wire)), f"seed {seed}"


@pytest.mark.parametrize("named", [200, 201])
def test_an_offset_names_no_more_ddl_than_a_checkpoint_should_hold(named: int) -> None:
    """Of very many DDL events around a start the offset names none, and they may come twice."""
    wire = WIRES[0]
    messages = [wire.ddl(TSO + number, f"drop table t{number}") for number in range(named)]
    log = {partition: [(BEGIN, wire.row(TSO)), *((BEGIN, each) for each in messages)] for partition in (0, 1)}
    starts = {TopicPartition(T, partition): 1 for partition in log}
    offset = Stream(edges_of(log, wire, {0: 1, 1: 1})).first_offset(starts)
    ranges = [OffsetRange(T, partition, 1, 1 + named) for partition in log]

    rows = ddl_rows(log, ranges, by_topic(starts, coverage_of(offset)), wire)

    assert len(json.dumps(offset)) < 10_000
    assert len(rows) == (named if named == 200 else 2 * named)


@pytest.mark.parametrize(
    "member",
    [
        [],
        {"t": 1},
        {"t": {"x": {}}},
        {"t": {"0": {"after": "1"}}},
        {"t": {"0": {"exceptions": [1]}}},
        {"t": {"0": {"after": 1, "before": 2}}},
    ],
)
def test_what_this_release_has_not_written_is_an_error(member: Any) -> None:
    """Whoever has edited the checkpoint, or another release with more members, may mean other DDL events."""
    with pytest.raises(CheckpointError, match="checkpoint of the query"):
        coverage_of({"$ddl": member})


def test_a_copy_that_a_producer_sent_late_is_looked_for() -> None:
    """A record that waited for minutes in its producer does not hide a DDL event that lies before it."""
    wire, minute = Wire("open-protocol"), 60_000
    ddl = (BEGIN + 3 * minute, wire.ddl(of_ms(BEGIN + 3 * minute), "truncate table t"))
    late = (BEGIN, wire.row(TSO))
    times = range(BEGIN + 3 * minute, BEGIN + 3 * minute + 600)
    after = [(time, wire.watermark(of_ms(time))) for time in times]
    log = {0: [ddl, late, *after], 1: [ddl, *after]}
    ranges = [OffsetRange(T, 0, 1, 602), OffsetRange(T, 1, 0, 601)]

    rows = ddl_rows(log, ranges, batch_of(log, ranges, wire, first={0: 1}), wire)

    assert rows == [(1, "truncate table t")]


@pytest.mark.parametrize("years", [-1, 0, 1])
def test_the_clock_of_the_driver_decides_nothing(years: int) -> None:
    """Partition 0 has no record left: it had the DDL event in partition 1, and gets the later ones, whoever is fast."""
    wire, begin = Wire("open-protocol"), int(time.time() * 1000) + years * 365 * 86_400_000
    times = range(begin, begin + 1_000_000, 1000)
    log = {partition: [(time, wire.watermark(of_ms(time))) for time in times] for partition in (0, 1)}
    log[1][495] = (times[495], wire.ddl(of_ms(times[495]), "truncate table t"))
    for records in log.values():
        records[900] = (times[900], wire.ddl(of_ms(times[900]), "drop table t"))
    starts = dict(zip(partitions_of(log), (500, 490), strict=True))
    now = {partition: records[:500] for partition, records in log.items()}
    offset = Stream(edges_of(now, wire, {0: 500, 1: 490})).first_offset(starts)

    ranges = [OffsetRange(*each, start, 1000) for each, start in starts.items()]
    rows = ddl_rows(log, ranges, by_topic(starts, coverage_of(offset)), wire)

    assert rows == [(0, "drop table t"), (1, "truncate table t")]


def test_no_ddl_is_lost_where_records_have_no_time() -> None:
    """Nothing tells how new what partition 0 had is: DDL events come from both partitions."""
    wire = Wire("open-protocol")
    log = {partition: [(-1, wire.row(TSO)), (-1, wire.ddl(TSO + 1, "drop table t"))] for partition in (0, 1)}
    starts = dict(zip(partitions_of(log), (2, 1), strict=True))
    offset = Stream(edges_of(log, wire, {0: 2, 1: 1})).first_offset(starts)

    rows = ddl_rows(log, [OffsetRange(T, 1, 1, 2)], by_topic(starts, coverage_of(offset)), wire)

    assert rows == [(1, "drop table t")]


def partitions_of(log: Log) -> list[TopicPartition]:
    return [TopicPartition(T, partition) for partition in log]


def offset_at(log: Log, topic_partition: TopicPartition, second: int) -> int:
    return sum(written < BEGIN + second * 1000 for written, _ in log[topic_partition.partition])
