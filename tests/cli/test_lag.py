"""`ticdc-source lag`: how late topics are, and how far behind a stream or a consumer group is."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from examples.local_kafka import produce
from tests.cli.conftest import Command
from tests.fixtures import Kafka
from tests.support.messages import TSO, Message, canal
from tests.support.paths import ROOT
from tests.support.s3 import s3_server
from ticdc_source.errors import CheckpointError
from ticdc_source.inspection.topic_lag import LagReport, LagWatch, committed_in_checkpoint
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.kafka import KafkaCluster
from ticdc_source.sources.stream_offsets import offsets_of

pytestmark = pytest.mark.broker

SECOND = 1000 << 18
NOW = (TSO >> 18) / 1000


def row(seconds: float) -> Message:
    commit_ts = TSO + int(seconds * SECOND)
    return canal("INSERT", [{"id": "1"}], None, {"id": "int"}, es=commit_ts >> 18, _tidb={"commitTs": commit_ts})


def mark(seconds: float) -> Message:
    return canal("TIDB_WATERMARK", _tidb={"watermarkTs": TSO + int(seconds * SECOND)})


def look(servers: str, topic: str, now: float, **reader: str) -> LagReport:
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    with LagWatch(given, **reader, now=lambda: NOW + now) as watch:
        return watch.look()


def write(servers: str, topic: str, *messages: Message, partition: int = 0) -> None:
    produce(servers, topic, [(partition, *message, [], None) for message in messages])


def checkpoint(folder: Path, topic: str, *batches: int, committed: int) -> Path:
    """Write the checkpoint of a stream after some micro-batches, of which the first so many are committed."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number, offset in enumerate(batches):
        offsets = json.dumps({"$ids": {topic: "x"}, topic: {"0": offset}})
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"other": 1}}\n{offsets}')
        if number < committed:
            (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def test_lags_of_a_topic(broker: Kafka, topic: Callable[..., str]) -> None:
    """Commit lag and watermark lag are those of the newest commit and watermark of each topic partition."""
    name = topic(2)
    write(broker.bootstrap_servers, name, row(0), mark(5), row(9), mark(8))
    write(broker.bootstrap_servers, name, row(2), partition=1)

    first, second = look(broker.bootstrap_servers, name, 20).partitions

    assert (first.end, first.age_s, first.watermark_lag_s) == (4, 11.0, 12.0)
    assert (second.end, second.age_s, second.watermark_lag_s, second.late_s) == (1, 18.0, None, 18.0)


def test_a_chunk_of_several_forms(broker: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
    """The last commit, and the first unread one, are so also among messages of which only parsing finds the commit."""
    name = topic()
    without_extension = canal("INSERT", [{"id": "1"}], None, {"id": "int"}, es=(TSO + 9 * SECOND) >> 18)
    write(broker.bootstrap_servers, name, row(0), without_extension, row(2))
    stalled = topic()
    write(broker.bootstrap_servers, stalled, row(12), without_extension)
    reader = str(checkpoint(tmp_path, stalled, 0, committed=1))

    (newest,) = look(broker.bootstrap_servers, name, 20).partitions
    (behind,) = look(broker.bootstrap_servers, stalled, 20, checkpoint=reader).partitions

    assert newest.age_s == pytest.approx(11.0, abs=0.002)
    assert behind.commit_lag_s == pytest.approx(11.0, abs=0.002)


def test_it_reads_back_as_far_as_needed(broker: Kafka, topic: Callable[..., str]) -> None:
    """A row that lies thousands of watermarks before the end is found, and the end is not all that counts."""
    name = topic()
    write(broker.bootstrap_servers, name, row(1), *[mark(second / 100) for second in range(6000)])

    (found,) = look(broker.bootstrap_servers, name, 100).partitions

    assert (found.age_s, found.watermark_lag_s) == (99.0, 40.01)


def test_later_looks_read_new_records_only(
    broker: Kafka, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    write(broker.bootstrap_servers, name, row(0), mark(1))
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name}
    fetched: list[tuple[int, int]] = []

    with LagWatch(given, now=lambda: NOW + 10) as watch:
        before = watch.look().partitions[0]
        fetch = watch._fetcher.fetch

        def counted(offset_range: OffsetRange) -> Iterator[Chunk]:
            fetched.append((offset_range.start, offset_range.end))
            return fetch(offset_range)

        monkeypatch.setattr(watch._fetcher, "fetch", counted)
        write(broker.bootstrap_servers, name, mark(7))
        after = watch.look().partitions[0]

    assert (before.watermark_lag_s, after.watermark_lag_s) == (9.0, 3.0)
    assert (before.age_s, after.age_s) == (10.0, 10.0)
    assert fetched == [(2, 3)]


def test_an_empty_topic_has_no_lag(broker: Kafka, topic: Callable[..., str], ticdc_source: Command) -> None:
    done = ticdc_source("lag", "--bootstrap-servers", broker.bootstrap_servers, "--subscribe", topic(), "--max-lag", 0)

    assert (done.code, done.err) == (1, "")
    assert "no messages, lag unknown" in done.out


def test_a_checkpoint_in_a_store(tmp_path: Path) -> None:
    """It is read under Spark's name of the store, and no error shows a secret of its URI."""
    folder = checkpoint(tmp_path, "shop", 3, committed=1)
    with s3_server("streams") as query:
        system, _ = fs.FileSystem.from_uri(f"s3://key:secret@streams?{query}")
        fs.copy_files(str(folder), "streams/of/shop", destination_filesystem=system)
        uri = f"s3a://AKIAXYZ:S3CRET@streams/of?{query}"
        of_shop = uri.replace("/of?", "/of/shop?")

        assert offsets_of(committed_in_checkpoint(of_shop, {"shop"})) == {TopicPartition("shop", 0): 3}
        with pytest.raises(CheckpointError, match=r"s3a://streams/of cannot be.*s3a://streams/of/shop has one") as one:
            committed_in_checkpoint(uri, {"shop"})
        with pytest.raises(CheckpointError, match="No source of the checkpoint s3a://streams/of/shop reads") as other:
            committed_in_checkpoint(of_shop, {"others"})

    assert not any(secret in f"{one.value} {other.value}" for secret in ("AKIAXYZ", "S3CRET"))


class TestCheckpoint:
    def test_a_stream_that_is_behind(self, broker: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
        """The newest micro-batch that is committed counts; the commit lag is the age of the first unread commit."""
        name = topic()
        write(broker.bootstrap_servers, name, row(0), mark(1), row(4), row(6), mark(7))
        folder = checkpoint(tmp_path, name, 1, 2, 4, committed=2)

        (found,) = look(broker.bootstrap_servers, name, 10, checkpoint=str(folder)).partitions

        assert (found.position, found.behind, found.lost, found.commit_lag_s) == (2, 3, 0, 6.0)
        assert found.read_commit_ts == TSO + SECOND

    def test_a_stalled_stream_falls_behind_and_an_idle_topic_does_not(
        self, broker: Kafka, topic: Callable[..., str], tmp_path: Path
    ) -> None:
        """Time passes: the lag of a stream with unread events rises, that of one that has read all stays 0."""
        name = topic()
        write(broker.bootstrap_servers, name, row(0), mark(1), row(4))
        stalled = str(checkpoint(tmp_path / "stalled", name, 2, committed=1))
        finished = str(checkpoint(tmp_path / "finished", name, 3, committed=1))

        lags = [
            [
                look(broker.bootstrap_servers, name, now, checkpoint=reader).partitions[0].commit_lag_s
                for now in (10, 100)
            ]
            for reader in (stalled, finished)
        ]

        assert lags == [[6.0, 96.0], [0.0, 0.0]]

    def test_a_stream_before_its_first_batch(self, broker: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
        name = topic()
        write(broker.bootstrap_servers, name, row(0))
        folder = checkpoint(tmp_path, name, 1, committed=0)

        report = look(broker.bootstrap_servers, name, 10, checkpoint=folder.as_uri())

        (found,) = report.partitions
        assert (found.position, found.behind, found.commit_lag_s) == (None, None, None)
        unfinished = f"The stream of the checkpoint {folder.as_uri()} has not finished a micro-batch yet"
        assert report.no_position == unfinished

    def test_a_stream_that_reads_its_snapshot(
        self, broker: Kafka, topic: Callable[..., str], tmp_path: Path, ticdc_source: Command
    ) -> None:
        name = topic()
        write(broker.bootstrap_servers, name, row(0), row(4))
        tables = {"shop.orders": {"ranges": 3, "rows": 600, "about": 1100}}
        snapshot = {"tso": TSO, "size": 200, "tables": tables}
        folder = checkpoint(tmp_path, name, 1, committed=1)
        (folder / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps({name: {'0': 1}, '$snapshot': snapshot})}")
        given = ("lag", "--bootstrap-servers", broker.bootstrap_servers, "--subscribe", name, "--checkpoint", folder)

        shown, as_json = ticdc_source(*given), ticdc_source(*given, "--json")

        assert f"Snapshot as of {TSO}: 3 of about 6 ranges, 600 rows\n" in shown.out
        report = json.loads(as_json.out)
        told = {"tso": TSO, "ranges": 3, "expected_ranges": 6, "rows": 600, "left_s": None}
        assert (report["snapshot"], report["partitions"][0]["behind"]) == (told, 1)

    def test_checkpoints_of_spark(self, broker: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
        name = topic(2)
        written = ROOT / "tests/data/checkpoints/0.1.0/in-the-third-batch"
        folder = tmp_path / "checkpoint"
        shutil.copytree(written, folder)
        for path in (folder / "offsets").iterdir():
            path.write_text(path.read_text().replace("the-topic", name))
        for partition in range(2):
            write(broker.bootstrap_servers, name, *[row(each) for each in range(6)], partition=partition)

        found = look(broker.bootstrap_servers, name, 10, checkpoint=str(folder)).partitions

        assert [(each.position, each.behind, each.commit_lag_s) for each in found] == [(4, 2, 6.0)] * 2

    def test_what_is_no_checkpoint(self, broker: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
        """A folder of something else, and the checkpoint of another topic, are errors that say so."""
        name = topic()
        other = checkpoint(tmp_path / "other", "other", 1, committed=1)

        for folder, message in ((tmp_path, "has no folder 'offsets'"), (other, f"reads {name}")):
            with pytest.raises(CheckpointError, match=message):
                look(broker.bootstrap_servers, name, 0, checkpoint=str(folder))


def test_a_consumer_group(broker: Kafka, topic: Callable[..., str]) -> None:
    """The committed offsets of a group are its position; a partition without one has none."""
    name = topic(2)
    for partition in range(2):
        write(broker.bootstrap_servers, name, row(0), row(3), partition=partition)
    options = Options.of({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name})
    with KafkaCluster(options) as cluster:
        cluster.partitions()
        cluster.commit_group(f"group-of-{name}", {TopicPartition(name, 1): 1})

    report = look(broker.bootstrap_servers, name, 10, group=f"group-of-{name}")

    found = [(each.position, each.behind, each.commit_lag_s) for each in report.partitions]
    assert found == [(None, None, None), (1, 1, 7.0)]
    assert report.no_position is None


def test_a_group_without_offsets(broker: Kafka, topic: Callable[..., str], ticdc_source: Command) -> None:
    """A group that has committed nothing is said, with exit code 1, however small the lag of the topic is."""
    name = topic()
    write(broker.bootstrap_servers, name, row(0), mark(1))
    command = ("lag", "--bootstrap-servers", broker.bootstrap_servers, "--subscribe", name, "--group", "nogroup")
    message = f"The consumer group 'nogroup' has committed no offset of {name}: check its name. A stream commits"

    shown = ticdc_source(*command)
    script = ticdc_source(*command, "--json", "--max-lag", 10**9)

    assert (shown.code, script.code) == (1, 1)
    assert message in " ".join(shown.out.split())
    assert script.json["no_position"].startswith(message)


def test_json_and_the_exit_code(broker: Kafka, topic: Callable[..., str], ticdc_source: Command) -> None:
    """--json prints one line per look, and --max-lag turns a larger lag into exit code 1."""
    name = topic()
    write(broker.bootstrap_servers, name, row(0), mark(1))
    command = ("lag", "--bootstrap-servers", broker.bootstrap_servers, "--subscribe", name, "--json")

    once = ticdc_source(*command, "--max-lag", 1)
    twice = ticdc_source(*command, "--max-lag", 10**9, "--watch", "--count", 2, "--interval", 0)

    assert (once.code, twice.code) == (1, 0)
    assert once.json["partitions"][0]["watermark"] == TSO + SECOND
    assert [line["partitions"][0]["end"] for line in twice.lines] == [2, 2]


def test_the_table(broker: Kafka, topic: Callable[..., str], ticdc_source: Command, tmp_path: Path) -> None:
    name = topic()
    write(broker.bootstrap_servers, name, row(0), mark(1))
    folder = checkpoint(tmp_path, name, 1, committed=1)

    done = ticdc_source(
        "lag", "--bootstrap-servers", broker.bootstrap_servers, "--subscribe", name, "--checkpoint", folder,
        "--watch", "--count", 2, "--interval", 0,
    )  # fmt: skip

    assert done.code == 0
    lines = [line for line in done.out.splitlines() if line.startswith(name)]
    assert len(lines) == 2
    assert lines[0].count("2026-11-21 07:54") == 3  # last commit, watermark, read up to
    assert "commit lag" in done.out


def test_messages_of_another_protocol(broker: Kafka, topic: Callable[..., str], ticdc_source: Command) -> None:
    """A topic that is not of the protocol that was given says which one it seems to be, with exit code 1."""
    name = topic()
    write(broker.bootstrap_servers, name, row(0), mark(1))
    command = ("lag", "--bootstrap-servers", broker.bootstrap_servers, "--subscribe", name)
    message = "It looks like canal-json: if all messages do, set protocol=canal-json, or leave 'protocol' out"

    shown = [ticdc_source(*command, "--conf", f"protocol={each}") for each in ("open-protocol", "debezium")]
    right = ticdc_source(*command, "--conf", "protocol=canal-json", "--json")

    assert [each.code for each in shown] == [1, 1]
    for each in shown:
        assert f"{message} (topic={name} partition=0 offset=0)" in " ".join(each.out.split())
    assert (right.code, right.json["other_protocol"]) == (0, None)


@pytest.mark.parametrize("location", [str, Path.as_uri], ids=["path", "URI"])
@pytest.mark.parametrize(
    ("streams", "hint"),
    [
        ([], ""),
        (["shop/stream"], "; {0}/stream has one: use the stream's"),
        (["shop/a", "shop/b"], "; {0}/a, {0}/b have one: use the stream's"),
    ],
)
def test_a_folder_around_a_checkpoint_names_it(
    tmp_path: Path, location: type[str], streams: list[str], hint: str
) -> None:
    """`ticdc-lakehouse sync` keeps the stream's checkpoint in a folder of its own, beside what else it remembers."""
    (tmp_path / "shop" / "state" / "0").mkdir(parents=True)
    for stream in streams:
        (tmp_path / stream / "offsets").mkdir(parents=True)
    given = location(tmp_path / "shop")

    with pytest.raises(CheckpointError) as caught:
        committed_in_checkpoint(given, {"tidb-shop"})

    reason = "it has no folder 'offsets', so it is not a stream's checkpointLocation"
    assert str(caught.value) == f"The checkpoint {given} cannot be read: {reason}{hint.format(given)}"
