"""Looking in a topic for the version of a table that a row names."""

from collections.abc import Iterator, Sequence
from itertools import count

import pyarrow as pa
import pytest

from tests.support.captured import make_options
from tests.support.messages import TSO, Message, simple, simple_definition
from ticdc_source.errors import DataLossError, OptionError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.planning.fetchers import Search
from ticdc_source.planning.load import schema_of_ranges
from ticdc_source.planning.partitions import _Found
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import Chunk

INT = {"mysqlType": "int", "charset": "binary", "length": 11}
TABLE, VERSION = TableName("test", "t"), TSO - 9
DEFINITION, ROW = simple_definition("BOOTSTRAP", {"id": INT}), simple(data={"id": "1"})


class Topic:
    """A topic in memory, and a search in it."""

    def __init__(self, *partitions: Sequence[Message], limit: int = 100_000, wait_s: float = 0) -> None:
        self.partitions = [list(each) for each in partitions]
        self.fetched: list[OffsetRange] = []
        self.pauses: list[float] = []
        clock = count()
        self.search = Search(
            PROTOCOLS["simple"], self._fetch, self._bounds, limit=limit, timeout_s=1000, wait_s=wait_s,
            clock=lambda: float(next(clock)), sleep=self._sleep,
        )  # fmt: skip

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def _bounds(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return {place: (0, len(self.partitions[place.partition])) for place in places}

    def _fetch(self, wanted: OffsetRange) -> Iterator[Chunk]:
        self.fetched.append(wanted)
        records = self.partitions[wanted.partition][wanted.start : wanted.end]
        offsets = list(range(wanted.start, wanted.end))
        keys, values = [key for key, _ in records], [value for _, value in records]
        yield Chunk("t", wanted.partition, offsets, [-1] * len(offsets), list(keys), list(values))

    def finds(self, partition: int, start: int, end: int) -> bool:
        self.search.around = OffsetRange("t", partition, start, end)
        return (TABLE, VERSION) in self.search(TABLE, VERSION)


def test_a_version_is_found_under_a_name_in_other_letters() -> None:
    topic = Topic([DEFINITION, ROW])
    topic.search.around = OffsetRange("t", 0, 1, 2)

    assert (TABLE, VERSION) in topic.search(TableName("Test", "T"), VERSION)


@pytest.mark.parametrize("definition_at", [0, 499, 510, 999])
def test_a_version_is_found_before_the_range_and_behind_it(definition_at: int) -> None:
    records = [ROW] * 1000
    records[definition_at] = DEFINITION

    assert Topic(records).finds(0, 500, 505)


def test_what_is_near_is_found_first() -> None:
    topic = Topic([*[ROW] * 5000, DEFINITION, *[ROW] * 10])

    assert topic.finds(0, 5005, 5011)
    assert sum(each.size for each in topic.fetched) < 100


def test_the_first_partition_is_searched_too() -> None:
    """With send-bootstrap-to-all-partition=false only the first partition has it."""
    topic = Topic([DEFINITION, ROW], [ROW] * 10)

    assert topic.finds(1, 0, 10)
    assert not Topic([ROW], [DEFINITION], [ROW]).finds(2, 0, 1)


def test_the_search_is_bounded_and_asks_once() -> None:
    """It ends at the limit; a version that was not found is not looked for again in the same read."""
    topic = Topic([DEFINITION, *[ROW] * 50_000], limit=1000)

    assert not topic.finds(0, 50_000, 50_001)
    assert sum(each.size for each in topic.fetched) < 10_000
    before = len(topic.fetched)
    assert not topic.finds(0, 50_000, 50_001)
    assert len(topic.fetched) == before


def test_each_part_has_its_own_limit() -> None:
    """A long topic before the range leaves time for the record behind it, and for partition 0."""
    many = [ROW] * 5000

    assert Topic([*many, ROW, DEFINITION], limit=1000).finds(0, 5000, 5001)
    assert Topic([DEFINITION], [*many, ROW], limit=1000).finds(1, 5000, 5001)


def test_the_range_itself_is_searched() -> None:
    records = [ROW] * 1000
    records[900] = DEFINITION

    assert Topic(records).finds(0, 0, 1000)


def test_many_missing_versions_wait_together() -> None:
    """The time to wait is that of a task, and not of each version."""
    topic = Topic([ROW] * 10, wait_s=20)
    topic.search.around = OffsetRange("t", 0, 0, 10)

    for version in range(20):
        topic.search(TABLE, version + 1)

    assert len(topic.pauses) == 20


def test_load_searches_too() -> None:
    topic = Topic([DEFINITION, ROW, ROW])

    schema = schema_of_ranges(
        [OffsetRange("t", 0, 1, 3)], topic._fetch, make_options(protocol="simple"), lambda _: topic.search
    )

    assert schema.field("id").type == pa.int32()


def test_load_of_several_tables_searches_for_none() -> None:
    """Without DDL, nothing but a choice of one table helps, and each search of a large topic takes ten seconds."""
    topic = Topic([simple(data={"id": "1"}, table=name) for name in ("a", "b", "c")])

    with pytest.raises(OptionError, match="3 tables"):
        schema_of_ranges(
            [OffsetRange("t", 0, 0, 3)], topic._fetch, make_options(protocol="simple"), lambda _: topic.search
        )
    assert topic.fetched == [OffsetRange("t", 0, 0, 3)]


def test_a_stream_waits_for_a_bootstrap() -> None:
    """While it waits, it looks only at what is new."""
    topic = Topic([ROW] * 10, wait_s=1000)

    def write(seconds: float) -> None:
        topic.pauses.append(seconds)
        topic.partitions[0].append(DEFINITION if len(topic.pauses) == 3 else ROW)

    topic.search.sleep = write

    assert topic.finds(0, 0, 10)
    assert len(topic.pauses) == 3
    assert [(each.start, each.end) for each in topic.fetched[1:]] == [(10, 11), (11, 12), (12, 13)]


def test_records_that_are_gone_end_that_part_of_the_search() -> None:
    topic = Topic([*[ROW] * 10, DEFINITION])
    fetch = topic._fetch

    def lossy(wanted: OffsetRange) -> Iterator[Chunk]:
        if wanted.start < 5:
            raise DataLossError("gone")
        yield from fetch(wanted)

    topic.search.fetch = lossy

    assert topic.finds(0, 5, 6)


def test_a_worker_keeps_the_newest_definitions_of_a_topic() -> None:
    found = _Found()
    for version in range(12_000):
        found.keep("a", {(TABLE, version): ()})

    assert list(found) == ["a"]
    assert len(found["a"]) == 10_000
    assert (TABLE, 0) not in found["a"]
