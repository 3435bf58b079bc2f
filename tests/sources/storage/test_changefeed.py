"""Which files of a changefeed are whole, and which of them a micro-batch reads."""

import json
import os
import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from ticdc_source.errors import DataLossError, OptionError, StorageUnavailableError, TiCDCSourceError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.planning.load import batch_options, load_schema, plan_batch, stream_options
from ticdc_source.protocols import FORMATS
from ticdc_source.sources.chunk import FetchSettings
from ticdc_source.sources.storage.changefeed import CHECKPOINT, Changefeed
from ticdc_source.sources.storage.file_format import FileSettings, LineCutter
from ticdc_source.sources.storage.file_planner import FilePlanner, packed_files, sampled
from ticdc_source.sources.storage.files import Folder
from ticdc_source.sources.storage.paths import DataFile, IndexFile, data_file_name, directory_of, parse_path
from ticdc_source.sources.storage.source import FileFetcher
from ticdc_source.sources.stream_offsets import StreamLimits

# Most folders of these tests need no `metadata`.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no checkpoint-ts in the file metadata")
OLD, NEW = 447_984_074_911_121_426, 447_984_084_414_103_554
SECRET = "s3cr3t-in-a-url"


class Sink:
    """A folder to which tests write files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def data(self, directory: str, *numbers: int, whole: int | None = None, stem: str = "CDC") -> None:
        for number in numbers:
            self.put(f"{directory}/{stem}{number:06d}.json", '{"x": 1}\r\n')
        last = max(numbers) if whole is None else whole
        if last:
            index = "CDC" if stem == "CDC" else stem.rstrip("_")
            self.put(f"{directory}/meta/{index}.index", f"{stem}{last:06d}.json\n")

    def schema(self, table: str, version: int) -> None:
        self.put(f"{table}/meta/schema_{version}_0000000001.json", "{}")

    def checkpoint(self, ts: int) -> None:
        self.put("metadata", json.dumps({"checkpoint-ts": ts}))

    def put(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path)


def planner(sink: Sink, *, fail: bool = True) -> FilePlanner:
    def report(reason: str) -> None:
        if fail:
            raise DataLossError(reason)

    return FilePlanner(Changefeed(str(sink.folder)), StreamLimits(min_interval=0), report, clock=lambda: 0.0)


def files_of(one: FilePlanner, start: dict[str, object], end: dict[str, object]) -> list[str]:
    return [
        data_file_name(each.topic, number + 1) if "%" in each.topic else each.topic
        for each in one.ranges(start, end)
        for number in range(each.start, each.end)
    ]


@pytest.mark.parametrize(
    ("path", "found", "owner", "table", "date"),
    [
        (f"shop/orders/{OLD}/CDC000012.json", 12, "shop/orders", ("shop", "orders"), ""),
        (f"shop/orders/{OLD}/2026-08-18/CDC000001.csv", 1, "shop/orders", ("shop", "orders"), "2026-08-18"),
        (f"shop/orders/{OLD}/2026/CDC000001.csv", 1, "shop/orders/2026", ("shop", "orders"), ""),  # or a partition
        (f"shop/202301010000000/{OLD}/CDC000001.csv", 1, "shop/202301010000000", ("shop", "202301010000000"), ""),
        (f"shop/a\nb/{OLD}/CDC000001.csv", 1, "shop/a\nb", ("shop", "a\nb"), ""),
        (f"shop/orders/{OLD}/104/2026-08/CDC1000001.csv", 1_000_001, "shop/orders/104", ("shop", "orders"), "2026-08"),
        (f"104/{OLD}/CDC_a-b_c_000003.json", 3, "104", None, ""),
        (f"shop/a/b/{OLD}/CDC000003.json", 3, "shop/a/b", ("shop", "a/b"), ""),
        (f"orders/{OLD}/CDC000003.json", 3, "orders", None, ""),  # of a table `../orders`, by Go's path.Join
    ],
)
def test_paths_of_data_files(path: str, found: int, owner: str, table: tuple[str, str] | None, date: str) -> None:
    """The table, the partition, the version, the date and the number are in the path of a file."""
    parsed = parse_path(path)

    assert isinstance(parsed, DataFile)
    assert parsed.number == found
    assert data_file_name(parsed.pattern, parsed.number) == path
    assert directory_of(parsed.pattern) == (owner, table, OLD, date)


@pytest.mark.parametrize(
    "path", ["metadata", f"shop/orders/{OLD}/CDC000001.json.tmp.1", "x/CDC000001.json", "CDC.json"]
)
def test_other_files_are_left_alone(path: str) -> None:
    """Temporary files, and files of others, are no data files."""
    assert parse_path(path) is None


def test_index_files_of_both_places() -> None:
    """An index file is in `meta`, or beside the data files."""
    assert parse_path(f"s/t/{OLD}/meta/CDC.index") == parse_path(f"s/t/{OLD}/CDC.index")
    assert parse_path(f"s/t/{OLD}/meta/CDC_a_b.index") == IndexFile(f"s/t/{OLD}", "CDC_a_b_")


@pytest.mark.parametrize("terminator", [None, b";\n"])
def test_lines_of_blocks_of_any_size(terminator: bytes | None) -> None:
    """Messages come back from blocks of any size, with or without carriage returns and a last terminator."""
    lines = [b"", b"a", b"\r", b"bcd", b"", b"\xff" * 9]
    end = terminator or b"\n"
    for between in (end, b"\r\n" if terminator is None else end):
        data = between.join(lines)
        expected = [line.removesuffix(b"\r") for line in lines[:-1]] if between == b"\n" else lines[:-1]
        for size in range(1, len(data) + 1):
            cutter = LineCutter(terminator)
            found = [each for at in range(0, len(data), size) for each in cutter.cut(data[at : at + size])]
            assert [*found, *cutter.rest()] == [*expected, lines[-1]], (between, size)


def test_files_that_no_index_counts_are_not_read(sink: Sink) -> None:
    """TiCDC may still write a file that its index does not count; a batch warns of it, and without `metadata`."""
    sink.data(f"s/t/{OLD}", 1, 2, 3, whole=2)
    sink.data(f"s/u/{OLD}", 1, whole=0)
    feed = Changefeed(str(sink.folder))

    look = feed.look()

    assert look.ends == {TopicPartition(f"s/t/{OLD}/CDC%d.json", 0): 2}
    with (
        pytest.warns(UserWarning, match=rf"index file .* of s/u/{OLD}/CDC%d\.json .* They are not read"),
        pytest.warns(UserWarning, match="has no checkpoint-ts in the file metadata"),
    ):
        feed.warn_of_gaps(look)


def test_an_older_directory_is_looked_at_after_a_newer_one(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of an old version that come while a look goes on are found with those of the new version, or before."""
    sink.data(f"s/t/{OLD}", 1)
    feed = Changefeed(str(sink.folder))
    feed.look()
    sink.data(f"s/t/{NEW}", 1)
    read: Callable[..., bytes | None] = feed._folder.text

    def late(path: str) -> bytes | None:
        if str(NEW) in path:  # meanwhile TiCDC has written the last file of the old version, after the listing
            sink.data(f"s/t/{OLD}", 2)
        return read(path)

    monkeypatch.setattr(feed._folder, "text", late)

    assert feed.look().ends[TopicPartition(f"s/t/{OLD}/CDC%d.json", 0)] == 2


def test_micro_batches_read_old_versions_first(sink: Sink) -> None:
    """With a limit, files come in the order of versions, DDL before its rows; the checkpoint-ts comes last, once."""
    sink.data(f"s/t/{OLD}", 1, 2, 3)
    sink.schema("s/t", NEW)
    sink.data(f"s/t/{NEW}", 1)
    sink.data(f"a/u/{NEW}", 1)
    sink.checkpoint(NEW + 5)
    one, batches = planner(sink), []

    start = one.initial()
    while (end := one.next(start, max_offsets=2)) != start:
        batches.append(files_of(one, start, end))
        start = json.loads(json.dumps(end))

    assert batches == [
        [f"s/t/{OLD}/CDC000001.json", f"s/t/{OLD}/CDC000002.json"],
        [f"s/t/{OLD}/CDC000003.json", f"s/t/meta/schema_{NEW}_0000000001.json"],
        [f"a/u/{NEW}/CDC000001.json", f"s/t/{NEW}/CDC000001.json", CHECKPOINT.topic],
    ]


def test_an_expired_directory_that_was_read(sink: Sink) -> None:
    """A directory may go if a later one of its table was begun, as a restarted query knows it; else it is data loss."""
    sink.data(f"s/t/{OLD}/2026-08-18", 1)
    sink.data(f"s/t/{OLD}/2026-08-19", 1)
    sink.data(f"s/u/{OLD}/2026-08-18", 1)
    first = planner(sink)
    end = first.next(first.initial())
    empty(sink, f"s/t/{OLD}/2026-08-18")

    second = planner(sink)
    for _ in range(3):
        end = second.next(end)
    assert not any("s/t" in topic and "08-18" in topic for topic in end)

    empty(sink, "s/u")
    with pytest.raises(DataLossError, match=r"s/u/.* are gone. The stream had read 1 of them, and cannot tell"):
        planner(sink).next(end)
    assert not any("s/u" in topic for topic in planner(sink, fail=False).next(end))


def empty(sink: Sink, folder: str) -> None:
    for file in (sink.folder / folder).rglob("*.*"):
        file.unlink()


def test_files_that_were_read_may_go_and_others_come(sink: Sink) -> None:
    """A directory whose files a rule of the bucket has removed goes on where it was, with or without its index."""
    sink.data(f"s/t/{OLD}", 1, 2)
    one = planner(sink)
    end = one.next(one.initial())
    for number in (1, 2):
        (sink.folder / f"s/t/{OLD}/CDC{number:06d}.json").unlink()
    assert planner(sink).next(end) == end  # a restarted query: the index tells that all were read
    empty(sink, "s")
    for _ in range(5):
        end = one.next(end)

    sink.data(f"s/t/{OLD}", 3)

    assert files_of(one, end, one.next(end)) == [f"s/t/{OLD}/CDC000003.json"]


def test_a_directory_that_is_emptied_twice_is_no_loss(sink: Sink) -> None:
    """An index file that stays without data files names another file after more have come and gone."""
    sink.data(f"s/t/{OLD}", 1, 2)
    one = planner(sink)
    end = one.next(one.initial())
    for numbers in ((1, 2), (3,)):
        sink.data(f"s/t/{OLD}", *numbers)
        end = one.next(end)
        for number in numbers:
            (sink.folder / f"s/t/{OLD}/CDC{number:06d}.json").unlink()
        end = one.next(end)

    assert end == {f"s/t/{OLD}/CDC%d.json": {"0": 3}}


def test_ddl_is_not_read_again_when_all_data_has_expired(sink: Sink) -> None:
    """Schema files that were read stay read while there is no data file."""
    sink.schema("s/t", OLD)
    sink.data(f"s/t/{OLD}/2026-08-18", 1)
    one = planner(sink)
    one.waits_for_data_file = True
    end = one.next(one.initial())
    empty(sink, f"s/t/{OLD}")
    for _ in range(4):
        end = one.next(end)
    sink.data(f"s/t/{OLD}/2026-08-20", 1)

    assert files_of(one, end, one.next(end)) == [f"s/t/{OLD}/2026-08-20/CDC000001.json"]


def test_a_stream_waits_for_the_file_that_tells_its_protocol(sink: Sink) -> None:
    """DDL alone starts no micro-batch, because its message depends on the protocol."""
    sink.schema("s/t", OLD)
    one = planner(sink)
    one.waits_for_data_file = True
    start = one.next(one.initial())
    assert not one.ranges(one.initial(), start)
    assert one.next(start) == start

    sink.data(f"s/t/{OLD}", 1)

    assert len(files_of(one, start, one.next(start))) == 2


def test_a_new_checkpoint_ends_a_wait_for_files(sink: Sink) -> None:
    """With `minOffsetsPerTrigger`, a watermark comes after `maxTriggerDelay` at the latest."""
    sink.data(f"s/t/{OLD}", 1)
    one = planner(sink)
    one.limits, one.clock = StreamLimits(max_delay=20, min_interval=0), count().__next__
    end = one.next(one.initial())
    sink.checkpoint(OLD + 9)

    ends = [one.next(end, min_offsets=10) for _ in range(20)]

    assert ends[0] == end
    assert [each for each in ends if each != end]


def test_a_busy_table_starves_no_other(sink: Sink) -> None:
    """With a limit, all files of one look come before those of the next."""
    sink.data(f"s/busy/{OLD}", 1, 2)
    sink.data(f"s/calm/{NEW}", 1)
    one = planner(sink)
    start = one.initial()
    for number in range(3, 9, 2):
        end = json.loads(json.dumps(one.next(start, max_offsets=2)))
        sink.data(f"s/busy/{OLD}", number, number + 1)
        start = end

    assert start[f"s/calm/{NEW}/CDC%d.json"] == {"0": 1}


def test_a_folder_that_cannot_be_listed_is_an_error(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing that fails below the folder is not taken for a folder without files."""
    sink.data(f"s/t/{OLD}", 1)
    listing = LocalFileSystem.ls

    def ls(self: LocalFileSystem, path: str, **how: object) -> object:
        if path.endswith("/s/t"):
            raise OSError(5, "Input/output error")
        return listing(self, path, **how)

    monkeypatch.setattr(LocalFileSystem, "ls", ls)

    with pytest.raises(StorageUnavailableError, match="Input/output error"):
        Changefeed(str(sink.folder)).look()


def test_numbers_may_get_wider(sink: Sink) -> None:
    """Files are found whatever `file-index-width` is, also if it changes."""
    for number, width in ((999_999, 6), (1_000_000, 6), (1_000_001, 9)):
        sink.put(f"s/t/{OLD}/CDC{number:0{width}d}.json", f'{{"number": {number}}}')
    sink.put(f"s/t/{OLD}/meta/CDC.index", "CDC001000001.json\n")
    settings = FetchSettings(max_records=9, max_bytes=99)
    fetcher = FileFetcher(str(sink.folder), FileSettings(), settings, formats=FORMATS.in_files, protocol="canal-json")

    chunks = list(fetcher.fetch(OffsetRange(f"s/t/{OLD}/CDC%d.json", 0, 999_998, 1_000_001)))

    assert [chunk.values for chunk in chunks] == [
        [f'{{"number": {n}}}'.encode()] for n in (999_999, 1_000_000, 1_000_001)
    ]


def test_a_message_larger_than_a_batch_is_read_in_few_blocks(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block is looked through together with what is left of those before: tiny ones would take hours."""
    sizes = []

    def blocks(folder: Folder, path: str, size: int) -> Iterator[bytes]:
        sizes.append(size)
        return read(folder, path, size)

    read = Folder.blocks
    monkeypatch.setattr(Folder, "blocks", blocks)
    rows = [json.dumps({"text": "x" * length}) for length in (3_000_000, 1, 2)]
    sink.put(f"s/t/{OLD}/CDC000001.json", "\r\n".join(rows))
    settings = FetchSettings(max_records=9, max_bytes=1)
    fetcher = FileFetcher(str(sink.folder), FileSettings(), settings, formats=FORMATS.in_files, protocol="canal-json")

    chunks = list(fetcher.fetch(OffsetRange(f"s/t/{OLD}/CDC%d.json", 0, 0, 1)))

    assert [value for chunk in chunks for value in chunk.values] == [row.encode() for row in rows]
    assert sizes == [1 << 20]


def test_files_that_are_gone_are_data_loss(sink: Sink) -> None:
    """Files that were removed before they were read are an error with their numbers."""
    sink.data(f"s/t/{OLD}", 1)
    one = planner(sink)
    start = one.next(one.initial())
    sink.data(f"s/t/{OLD}", 2, 3)
    for number in (1, 2):
        (sink.folder / f"s/t/{OLD}/CDC{number:06d}.json").unlink()

    with pytest.raises(DataLossError, match=rf"The files 2 to 2 of s/t/{OLD}/CDC%d\.json .* were removed before"):
        one.next(start)


def test_another_changefeed_in_the_folder_is_data_loss(sink: Sink) -> None:
    """Numbers that went back are those of another changefeed."""
    sink.data(f"s/t/{OLD}", 1, 2)
    start = planner(sink).next(planner(sink).initial())
    (sink.folder / f"s/t/{OLD}/CDC000002.json").unlink()
    sink.data(f"s/t/{OLD}", 1)

    with pytest.raises(
        DataLossError, match="the last finished file is number 1, and the stream had read up to number 2"
    ):
        planner(sink).next(start)


def test_small_files_share_a_task() -> None:
    """Files are packed up to 32 MiB, in order; `minPartitions` makes more tasks."""
    ranges = [OffsetRange("s/t/447984074911121426/CDC%d.json", 0, 0, 5)]
    sizes = {ranges[0].topic: dict.fromkeys(range(1, 6), 10 << 20)}

    assert [[(one.start, one.end) for one in piece] for piece in packed_files(ranges, sizes)] == [[(0, 3)], [(3, 5)]]
    assert len(packed_files(ranges, sizes, 5)) == 5


def test_a_sample_opens_few_files() -> None:
    """Of each directory the first and the last file are sampled."""
    ranges = [OffsetRange("s/t/447984074911121426/CDC%d.json", 0, 0, 1000), OffsetRange(*CHECKPOINT, 1, 2)]

    assert [(one.start, one.end) for one in sampled(ranges)] == [(0, 1), (999, 1000)]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"subscribe": "t"}, "Option 'subscribe' is for Kafka topics, but 'path' is a folder"),
        ({"kafka.bootstrap.servers": "b:9"}, "Option 'kafka.bootstrap.servers' is for Kafka topics"),
        ({"startingTimestamp": "1700000000000"}, "Option 'startingTimestamp' is for Kafka topics"),
        ({"startingOffsets": '{"t":{"0":1}}'}, "Option 'startingOffsets' is for Kafka topics"),
        ({"protocol": "avro"}, "protocol=avro has no files: a storage sink writes canal-json, csv"),
        ({"protocol": "csv"}, "'path' has files of canal-json, but protocol is csv"),
    ],
)
def test_options_of_topics_are_refused(sink: Sink, given: dict[str, str], reason: str) -> None:
    """An option without a meaning for files is an error that names it."""
    sink.data(f"s/t/{OLD}", 1)

    with pytest.raises(OptionError) as caught:
        load_schema({"path": str(sink.folder), **given})

    assert reason in str(caught.value)


def test_a_protocol_of_files_is_refused_for_topics() -> None:
    """The error says which option is meant."""
    topic = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "protocol": "csv"}

    for check in (batch_options, stream_options, load_schema):
        with pytest.raises(OptionError, match="protocol=csv is only in storage sink files: set 'path'"):
            check(topic)


def test_a_storage_that_cannot_be_read_is_an_error_without_secrets() -> None:
    """The error names the storage, and not what is secret in its URL."""
    location = f"ftp://user:{SECRET}@127.0.0.1:1/feed"

    with pytest.raises(StorageUnavailableError) as caught:
        Changefeed(location).look()

    assert "'path' ftp://127.0.0.1:1/feed: metadata cannot be read: ConnectionRefusedError" in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "location", [f"{SECRET}:{SECRET}/{SECRET}@bucket/feed", f"bucket/feed?key={SECRET}&endpoint=http://127.0.0.1"]
)
def test_a_url_without_its_scheme_shows_no_secret(location: str) -> None:
    """Fsspec takes what is before the first `://` for a scheme, and says it."""
    with pytest.raises(TiCDCSourceError, match="bucket/feed") as caught:
        load_schema({"path": location})

    assert SECRET not in str(caught.value)


def test_a_folder_with_changefeeds_in_it_is_an_error(sink: Sink) -> None:
    """Rows of two changefeeds are never mixed, in a batch or a stream."""
    for feed in ("one", "two"):
        sink.data(f"{feed}/s/t/{OLD}", 1)
        sink.put(f"{feed}/metadata", "{}")
    reason = r"has the file (one|two)/metadata, so changefeeds' folders are inside it"

    with pytest.raises(OptionError, match=reason):
        load_schema({"path": str(sink.folder)})
    with pytest.raises(OptionError, match=reason):
        planner(sink).initial()


@pytest.mark.parametrize(
    ("index", "tables", "reason"),
    [
        (1, "s.u", r"No row of s\.u among the files of 'path' .*; tables found: s\.t\."),
        (0, None, r"the index file .* of s/t/.* is missing or empty.*So the schema cannot be inferred"),
        (None, None, r"'path' .* has no file with rows, or none left. So the schema cannot be inferred"),
    ],
)
def test_files_without_wanted_rows_have_no_schema(
    sink: Sink, index: int | None, tables: str | None, reason: str
) -> None:
    """The error says why: a wrong name, files that TiCDC has not finished, or no data file at all."""
    sink.schema("s/t", OLD)
    if index is not None:
        sink.data(f"s/t/{OLD}", 1, whole=index)
    else:  # one that has expired
        sink.data(f"s/t/{OLD}", 1)
        (sink.folder / f"s/t/{OLD}/CDC000001.json").unlink()

    with pytest.raises(TiCDCSourceError, match=reason):
        load_schema({"path": str(sink.folder), **({} if tables is None else {"tables": tables})})


def test_a_changefeed_that_has_just_begun_is_no_wrong_folder(sink: Sink) -> None:
    """Its checkpoint-ts is 0 at first: a batch of events is empty then, and warns of nothing."""
    sink.put("metadata", '{"checkpoint-ts": 0}')
    given = {"path": str(sink.folder), "outputFormat": "event"}

    (nothing,) = plan_batch(load_schema(given), batch_options(given))
    assert not nothing.ranges
    planner(sink).initial()


@pytest.mark.parametrize(("below", "there"), [("nothing", ""), ("s/t", r"It has other files, such as .*\. ")])
def test_a_folder_of_no_changefeed_is_an_error(sink: Sink, below: str, there: str) -> None:
    """A batch of a wrong folder fails, in every output, and a stream warns; the reason names the folder."""
    sink.data(f"s/t/{OLD}", 1)
    sink.schema("s/t", OLD)
    given = {"path": str(sink.folder / below), "outputFormat": "event"}
    reason = rf"'path' {re.escape(given['path'])} has no file of a changefeed\. {there}Use the folder"

    with pytest.raises(OptionError, match=reason):
        plan_batch(load_schema(given), batch_options(given))
    with pytest.raises(OptionError, match=reason):
        load_schema({"path": given["path"]})
    with pytest.warns(UserWarning, match=reason):
        planner(Sink(sink.folder / below)).initial()


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        *(
            (f"s/t/{OLD}/meta/CDC.index", f"CDC{number}.json\n", rf"CDC\.index names file number {number}")
            for number in (99_999_999_999_999_999_999, 2_000_000_000)  # and not a search for each number
        ),
        ("metadata", '{"checkpoint-ts":' + "[" * 100_000, "the file metadata has no checkpoint-ts, but"),
    ],
    ids=["a number of 20 digits", "a number far beyond the files", "nested too deep for a parser"],
)
def test_a_damaged_file_of_ticdcs_own_is_an_error(sink: Sink, path: str, text: str, message: str) -> None:
    """An index file with a number that no file near it has, and metadata that are no JSON, are refused."""
    sink.data(f"s/t/{OLD}", 1)
    sink.put(path, text)

    with pytest.raises(TiCDCSourceError, match=message):
        Changefeed(str(sink.folder)).look()


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_file_with_a_number_that_no_partition_has_is_another_file(sink: Sink, *, is_indexed: bool) -> None:
    """The number of a file is the partition of its rows; a name with a larger one is not TiCDC's."""
    name = f"CDC{'9' * 20}.json"
    sink.put(f"s/t/{OLD}/{name}", "")
    if is_indexed:
        sink.put(f"s/t/{OLD}/meta/CDC.index", f"{name}\n")

    look = Changefeed(str(sink.folder)).look()

    assert look.other == f"s/t/{OLD}/{name}"
    assert not look.sizes


@pytest.mark.parametrize("path", ["metadata", f"s/t/{OLD}/meta/CDC.index", f"s/t/{OLD}/CDC000001.json"])
@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.timeout(20)
def test_what_is_no_file_is_not_opened(sink: Sink, path: str, *, is_linked: bool) -> None:
    """A FIFO in the place of a file is an error that names it: to open it would wait for a writer."""
    sink.data(f"s/t/{OLD}", 1)
    sink.checkpoint(NEW)
    fifo = sink.folder / path
    fifo.unlink()
    if is_linked:
        os.mkfifo(sink.folder / "fifo")
        fifo.symlink_to(sink.folder / "fifo")
    else:
        os.mkfifo(fifo)
    fetcher = FileFetcher(
        str(sink.folder), FileSettings(), FetchSettings(max_records=10, max_bytes=1000), formats=FORMATS.in_files
    )
    whole = OffsetRange(f"s/t/{OLD}/CDC%d.json", 0, 0, 1)

    with pytest.raises(StorageUnavailableError, match=rf"{path} cannot be read: OSError \(it is not a regular file\)"):
        _ = Changefeed(str(sink.folder)).look(), list(fetcher.fetch(whole))
