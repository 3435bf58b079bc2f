"""What inference reads of topics with very many partitions."""

import pytest

from tests.support.captured import Captured, Record, make_options
from tests.support.messages import canal
from ticdc_source.errors import OptionError, SchemaError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.planning.inference import find_protocol, spread, take_sample
from ticdc_source.sources.chunk import Chunk

MANY = 200


def many_partitions(records: int, table_of: dict[int, str]) -> Captured:
    """Return a topic whose partitions hold rows of table `t`, or of the tables that are given by partition."""

    def row(partition: int, number: int) -> Record:
        key, value = canal(
            data=[{"id": str(partition * records + number)}],
            mysql_type={"id": "int"},
            sql_type={"id": 4},
            table=table_of.get(partition, "t"),
        )
        return Record(key, value)

    return Captured({}, {part: [row(part, number) for number in range(records)] for part in range(MANY)})


def test_a_topic_of_many_partitions_is_sampled_in_part() -> None:
    captured = many_partitions(40, {})
    fetched: list[OffsetRange] = []

    def fetch(offset_range: OffsetRange) -> list[Chunk]:
        fetched.append(offset_range)
        return list(captured.fetch(offset_range))

    sample = take_sample(captured.ranges(), fetch, make_options())

    assert sample is not None
    assert 1000 <= sample.scanned <= 1100
    assert len({offset_range.partition for offset_range in fetched}) < MANY // 4
    assert 0 in {offset_range.partition for offset_range in fetched}


def test_a_table_in_one_of_many_partitions_is_found() -> None:
    captured = many_partitions(20, {151: "rare"})

    rows = captured.read(tables="test.rare").to_pylist()

    assert [row["id"] for row in rows] == list(range(151 * 20, 152 * 20))


def test_the_order_of_a_sample_takes_topics_in_turn() -> None:
    """Each partition is there once, the lowest of each topic first, and neighbours are far apart."""
    ranges = [OffsetRange(topic, partition, 0, 5) for topic in "ba" for partition in reversed(range(100))]

    order = [(each.topic, each.partition) for each in spread(ranges)]

    assert sorted(order) == sorted((each.topic, each.partition) for each in ranges)
    assert order[:6] == [("a", 0), ("b", 0), ("a", 3), ("b", 3), ("a", 6), ("b", 6)]


def test_several_tables_say_how_to_read_one_or_all() -> None:
    """The error lists the tables, and names the option for one of them and the two ways to read all."""
    captured = many_partitions(1, {0: "other"})

    with pytest.raises(OptionError) as caught:
        captured.read()

    assert str(caught.value) == (
        "The read selects 2 tables, but outputFormat=changelog and envelope return only one: test.other, test.t. "
        "Choose one, e.g. .option('tables', 'test.other'). To read all, set outputFormat=event, which has rows as "
        "JSON, or call ticdc_source.tables(), which returns a typed DataFrame for each (see 'All tables of a "
        "micro-batch' in the documentation)"
    )


def test_the_error_for_an_empty_range_says_that_its_time_is_in_seconds() -> None:
    """A time in another unit may be why there is no record: the error repeats the warning's hint."""
    empty = Captured({}, {0: []})

    with pytest.raises(SchemaError, match=r"TiCDC has written something$"):
        empty.schema(endingTimestamp="1790000040000")
    with pytest.raises(SchemaError, match=r"something\. Option 'endingTimestamp' .* did you mean 1790000040000\?$"):
        empty.schema(endingTimestamp="1790000040")


@pytest.mark.parametrize("output", ["changelog", "envelope"])
def test_each_name_without_rows_is_in_one_warning(output: str) -> None:
    """If one of the names in `tables` has rows, a warning names the others, and what they may mean."""
    captured = many_partitions(1, {0: "orders"})

    with pytest.warns(UserWarning, match="No row of") as caught:
        captured.schema(tables="test.orders,test.ordrs,shop.*", outputFormat=output)

    (text,) = (str(each.message) for each in caught)
    assert text.startswith("No row of test.ordrs, shop.* among ")
    assert "; tables found: test.orders, test.t. Did you mean test.orders? (inferSchema." in text


GARBAGE = Record(None, b'{"database": "shop", "table')


@pytest.mark.parametrize("bad", [1, 3, 2000])
def test_bad_records_do_not_hide_the_protocol_of_records(bad: int) -> None:
    """Where bad records are rows too, the first good one tells the protocol, however many bad ones surround it."""
    good = Record(*canal(data=[{"id": "1"}], mysql_type={"id": "int"}, sql_type={"id": 4}))
    captured = Captured({}, {0: [*[GARBAGE] * bad, good, *[GARBAGE] * bad]})
    records = make_options(outputFormat="record")

    assert find_protocol(captured.ranges(), captured.fetch, records) == "canal-json"


def test_a_topic_of_bad_records_alone_has_no_protocol_yet() -> None:
    """A later record may tell it; where a bad record is an error, it is an error."""
    captured = Captured({}, {0: [GARBAGE] * 3})
    records = make_options(outputFormat="record")

    assert find_protocol(captured.ranges(), captured.fetch, records) is None
    with pytest.raises(OptionError, match="protocol of the messages is unknown"):
        find_protocol(captured.ranges(), captured.fetch, make_options(outputFormat="event"))
