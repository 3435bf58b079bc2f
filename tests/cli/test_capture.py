"""`ticdc-source capture` and `replay`: exact bytes to a file, and back to a topic."""

import gzip
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from examples.local_kafka import produce
from examples.local_kafka.topics import Record
from tests.cli.conftest import Command
from tests.fixtures import Kafka
from tests.support.messages import canal
from ticdc_source.errors import OptionError
from ticdc_source.inspection.capture import CapturedRecord, Selection, capture, read_capture, write_capture

pytestmark = pytest.mark.broker

RECORDS: list[Record] = [
    (0, b"key", b'{"a": "\xff\x00"}', [("h", b"\xfe"), ("h", b"")], 1_000),
    (1, None, None, [], 2_000),
    (0, b"", b"", [], 3_000),
    (1, None, bytes(range(256)) * 40, [("name", b"v")], 2_500),
    (0, b"last", b"x", [], 3_500),
]


def contents(record: CapturedRecord) -> tuple[object, ...]:
    """Return what a copy of a record has too."""
    return record.partition, record.offset, record.timestamp, record.key, record.value, record.headers


@pytest.fixture
def filled(broker: Kafka, topic: Callable[..., str]) -> str:
    """A topic with some records."""
    name = topic(2)
    produce(broker.bootstrap_servers, name, RECORDS)
    return name


def captured(broker: Kafka, topic: str, **selected: object) -> list[CapturedRecord]:
    """Capture without a file."""
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    return list(capture(given, Selection(**selected)))  # type: ignore[arg-type]


def test_a_copy_is_the_same(broker: Kafka, filled: str, ticdc_source: Command, tmp_path: Path) -> None:
    """Captured and replayed, records have the same bytes, nulls, headers, timestamps, partitions and order."""
    file, copy = tmp_path / "records.jsonl.gz", f"{filled}-copy"
    connection = ("--bootstrap-servers", broker.bootstrap_servers, "--topic")

    first = ticdc_source("capture", file, *connection, filled)
    second = ticdc_source("replay", file, *connection, copy, "--create")

    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "5 records" in first.err
    before, after = captured(broker, filled), captured(broker, copy)
    assert [contents(each) for each in after] == [contents(each) for each in before]
    assert [contents(each) for each in read_capture(file)] == [contents(each) for each in before]
    expected = sorted(((part, key, value, tuple(some), stamp) for part, key, value, some, stamp in RECORDS), key=str)
    assert sorted(((r.partition, r.key, r.value, r.headers, r.timestamp) for r in before), key=str) == expected


def test_what_is_selected(broker: Kafka, filled: str, ticdc_source: Command, tmp_path: Path) -> None:
    """Partitions, offsets, and a number of records at most."""
    file = tmp_path / "some.gz"
    command = ("capture", file, "--bootstrap-servers", broker.bootstrap_servers, "--topic", filled)

    def places(*arguments: object) -> list[tuple[int, int]]:
        assert ticdc_source(*command, *arguments).code == 0
        return [(record.partition, record.offset) for record in read_capture(file)]

    assert places("--partition", "1") == [(1, 0), (1, 1)]
    assert places("--offsets", "1:2") == [(0, 1), (1, 1)]
    assert places("--offsets", "2:") == [(0, 2)]
    assert places("--max-records", 4) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_partitions_share_what_is_captured(
    broker: Kafka, topic: Callable[..., str], ticdc_source: Command, tmp_path: Path
) -> None:
    """--max-records takes the first records of each partition; what a small one leaves is for the others."""
    name, file = topic(4), tmp_path / "some.gz"
    produce(
        broker.bootstrap_servers,
        name,
        [(part, b"k", b"v", [], None) for part in (0, 1, 3) for _ in range(1 + 9 * part)],
    )
    command = ("capture", file, "--bootstrap-servers", broker.bootstrap_servers, "--topic", name, "--max-records")

    found = {}
    for most in (1, 3, 12):
        done = ticdc_source(*command, most)
        places = [record.partition for record in read_capture(file)]
        found[most] = ([places.count(part) for part in range(4)], done.err.partition("; ")[2].strip())

    assert found == {
        1: ([0, 0, 0, 1], f"later offsets that are left out: 38 (--max-records), among them all of {name}-0, {name}-1"),
        3: ([1, 1, 0, 1], "later offsets that are left out: 36 (--max-records)"),
        12: ([1, 5, 0, 6], "later offsets that are left out: 27 (--max-records)"),
    }
    assert ticdc_source(*command, 1).err.startswith(f"1 record in {file}; ")


def test_what_is_left_out_is_said(broker: Kafka, filled: str, ticdc_source: Command, tmp_path: Path) -> None:
    """A capture that --max-records has ended says how many offsets are behind it; one of all records does not."""
    command = ("capture", tmp_path / "some.gz", "--bootstrap-servers", broker.bootstrap_servers, "--topic", filled)

    lines = [ticdc_source(*command, "--max-records", most).err for most in (2, 4, 5)]

    assert [line.partition(" records in ")[0] for line in lines] == ["2", "4", "5"]
    assert [line.partition("; ")[2].strip() for line in lines] == [
        "later offsets that are left out: 3 (--max-records)",
        "later offsets that are left out: 1 (--max-records)",
        "",
    ]


def test_a_selection_of_nothing_is_an_error(broker: Kafka, filled: str, ticdc_source: Command, tmp_path: Path) -> None:
    """A partition that does not exist, and offsets that no partition has, are exit code 2 and leave no file."""
    command = ("capture", tmp_path / "f.gz", "--bootstrap-servers", broker.bootstrap_servers, "--topic", filled)

    for arguments, message in (
        (("--partition", "1,99"), "has no partition 99: there are 0 to 1"),
        (
            ("--offsets", "3:"),
            f"No partition has one of the offsets 3:; there are {filled}-0 [0, 3), {filled}-1 [0, 2)",
        ),
        (("--offsets", "2:9", "--partition", "1"), f"offsets 2:9; there are {filled}-1 [0, 2)"),
    ):
        done = ticdc_source(*command, *arguments)
        assert (done.code, message in done.err) == (2, True), done.err
    assert list(tmp_path.iterdir()) == []


def test_replay_is_careful(
    broker: Kafka, filled: str, topic: Callable[..., str], ticdc_source: Command, tmp_path: Path
) -> None:
    """It creates no topic, writes to none with records, and none with too few partitions, unless it is told to."""
    file = tmp_path / "records.gz"
    connection = ("--bootstrap-servers", broker.bootstrap_servers, "--topic")
    assert ticdc_source("capture", file, *connection, filled).code == 0

    for name, word in ((f"{filled}-not-there", "--create"), (filled, "--append"), (topic(1), "2")):
        done = ticdc_source("replay", file, *connection, name)
        assert (done.code, word in done.err) == (2, True), done.err
    assert len(captured(broker, filled)) == 5
    large = tmp_path / "large.gz"
    write_capture(large, [CapturedRecord(topic="a", partition=10_000, offset=0, timestamp=1, key=None, value=None)])
    done = ticdc_source("replay", large, *connection, f"{filled}-large", "--create")
    assert (done.code, "a topic with 10,001 partitions" in done.err) == (2, True), done.err

    assert ticdc_source("replay", file, *connection, filled, "--append").code == 0
    assert len(captured(broker, filled)) == 10


def test_files_that_are_no_capture(broker: Kafka, filled: str, ticdc_source: Command, tmp_path: Path) -> None:
    """A missing file, another one, one that is cut, and one of several topics are errors before anything is written."""
    good = tmp_path / "good.gz"
    record = CapturedRecord(topic="a", partition=0, offset=0, timestamp=1, key=None, value=bytes(range(256)) * 99)
    write_capture(good, [record])
    cut, other, both, broken = (tmp_path / name for name in ("cut.gz", "other", "both.gz", "broken.gz"))
    cut.write_bytes(good.read_bytes()[:-20])
    other.write_text("{}")
    write_capture(both, [record, CapturedRecord(topic="b", partition=0, offset=0, timestamp=1, key=None, value=None)])
    broken.write_bytes(gzip.compress(gzip.decompress(good.read_bytes()) + json.dumps({"topic": "a"}).encode()))
    command = ("--bootstrap-servers", broker.bootstrap_servers, "--topic", filled, "--append")

    for file, message in (
        (tmp_path / "missing", "No such file"),
        (cut, "not whole"),
        (other, "cannot be read"),
        (both, "several topics (a, b)"),
        (broken, "line 3"),
    ):
        done = ticdc_source("replay", file, *command)
        assert (done.code, message in done.err.replace("\n", " ")) == (2, True), done.err
    assert len(captured(broker, filled)) == 5


def test_records_that_retention_deletes(
    broker: Kafka, topic: Callable[..., str], ticdc_source: Command, tmp_path: Path
) -> None:
    """Replay warns of records that are older than the topic's retention.ms, and of none that Kafka keeps."""
    file, now = tmp_path / "records.gz", round(time.time() * 1000)
    stamps = (-1, now, now - 3_000_000, now - 4_000_000)
    records = [
        CapturedRecord(topic="a", partition=0, offset=0, timestamp=each, key=b"k", value=b"v") for each in stamps
    ]
    write_capture(file, records)

    warned = {}
    for config in (
        {"retention.ms": 3_600_000},
        {"retention.ms": 3_600_000, "message.timestamp.type": "LogAppendTime"},
        {"retention.ms": 3_600_000, "cleanup.policy": "compact"},
        {"retention.ms": 5_000_000},
        {"retention.ms": -1},
    ):
        name = topic(1, config)
        done = ticdc_source("replay", file, "--bootstrap-servers", broker.bootstrap_servers, "--topic", name)
        assert (done.code, f"4 records written to {name}" in done.err) == (0, True), done.err
        warned[tuple(config.values())] = done.err.replace(name, "TOPIC").splitlines()[:-1]

    assert warned.pop((3_600_000,)) == [
        (
            "warning: 1 record of the file will soon be deleted: older than 1 h 0 min, which is retention.ms of the "
            "topic 'TOPIC'. To keep them: kafka-configs --alter --topic TOPIC --add-config retention.ms=-1"
        )
    ]
    assert [*warned.values()] == [[], [], [], []]


RECORD = {"topic": "a", "partition": 0, "offset": 0, "timestamp": 1, "key": None, "value": None, "headers": []}
NO_VALUES: dict[str, tuple[object, ...]] = {
    "timestamp": (1 << 70, 1 << 63, -2, "1", 1.0, None, True),
    "partition": (-1, 1 << 31, "0", 0.5, False, []),
    "offset": (-1, 1 << 63, "x"),
    "key": ("é", "a", 1, {}),
    "headers": ("ab", {"ab": "AA=="}, [["h"]], [["h", 1]], [[1, "AA=="]], [["\ud800", None]], 3),
    "topic": (1, None, "\udcff"),
}


@pytest.mark.parametrize("member", NO_VALUES)
def test_a_record_that_kafka_cannot_have_is_refused(member: str, tmp_path: Path) -> None:
    """A number out of range, or a value of another type, is an error with its line, before anything is written."""
    file = tmp_path / "f.gz"
    head = {"format": "ticdc-source capture", "version": 1}
    for value in NO_VALUES[member]:
        lines = map(json.dumps, (head, RECORD, {**RECORD, member: value}))
        file.write_bytes(gzip.compress("\n".join(lines).encode()))

        with pytest.raises(OptionError, match="line 3: it is no record of a capture"):
            list(read_capture(file))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"topic":', "9" * 5000, "1e400", "[]", "null"])
def test_a_line_that_is_no_record_is_refused(text: str, tmp_path: Path) -> None:
    """What is no JSON object of a record is an error with its line."""
    file = tmp_path / "f.gz"
    head = json.dumps({"format": "ticdc-source capture", "version": 1})
    file.write_bytes(gzip.compress(f"{head}\n{text}\n".encode()))

    with pytest.raises(OptionError, match="line 2: it is no record of a capture"):
        list(read_capture(file))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """Whatever byte of a file is another one, reading it gives records or our error."""
    file = tmp_path / "f.gz"
    write_capture(file, [CapturedRecord(topic="a", partition=0, offset=0, timestamp=1, key=b"k", value=b"v")])
    good = file.read_bytes()
    for position in range(len(good)):
        file.write_bytes(good[:position] + bytes([good[position] ^ 0x55]) + good[position + 1 :])
        with suppress(OptionError):
            list(read_capture(file))


def test_a_capture_is_for_its_owner_alone(tmp_path: Path) -> None:
    """A capture has the data of tables: nobody else can read it, whatever the umask and an older file's mode are."""
    file = tmp_path / "f.gz"
    file.touch(0o666)
    before = os.umask(0)
    modes: list[int] = []

    def records() -> Iterator[CapturedRecord]:
        modes.extend(path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if path != file)
        yield CapturedRecord(topic="a", partition=0, offset=0, timestamp=1, key=None, value=None)

    try:
        write_capture(file, records())
    finally:
        os.umask(before)

    assert modes == [0o600]  # also while it is written
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_same_records_give_the_same_file(tmp_path: Path) -> None:
    """A file does not depend on the time when it is written."""
    record = CapturedRecord(topic="a", partition=0, offset=0, timestamp=1, key=b"k", value=None)

    files = [tmp_path / name for name in ("a.gz", "b.gz")]
    for file in files:
        write_capture(file, [record])

    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_redacted_capture(broker: Kafka, topic: Callable[..., str], ticdc_source: Command, tmp_path: Path) -> None:
    """--redact leaves names and kinds, and no value; `inspect` finds the same tables in the replayed topic."""
    name, file = topic(), tmp_path / "redacted.gz"
    message = canal("INSERT", [{"id": "77", "v": "Jane Doe"}], None, {"id": "int", "v": "varchar(20)"})
    produce(broker.bootstrap_servers, name, [(0, *message, [("h", b"Jane")], None)])
    connection = ("--bootstrap-servers", broker.bootstrap_servers, "--topic")

    assert ticdc_source("capture", file, *connection, name, "--redact").code == 0
    assert ticdc_source("replay", file, *connection, f"{name}-copy", "--create").code == 0

    (record,) = read_capture(file)
    assert b"Jane" not in b"".join((record.value or b"", record.headers[0][1] or b""))
    tables = [
        [(table["table"], table["insert"], table["schema"]) for table in topics["protocols"][0]["tables"]]
        for each in (name, f"{name}-copy")
        for topics in ticdc_source("inspect", *connection, each, "--json").json["topics"]
    ]
    assert tables[0] == tables[1] != []


def test_a_capture_that_fails_leaves_the_file(ticdc_source: Command, tmp_path: Path) -> None:
    """An older capture of the same name stays as it is, and there is no half of a new one."""
    file = tmp_path / "records.jsonl.gz"
    file.write_bytes(b"older")
    arguments = ("--bootstrap-servers", "127.0.0.1:1", "--topic", "t", "--conf", "kafka.default.api.timeout.ms=300")

    assert ticdc_source("capture", file, *arguments).code == 3
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {file.name: b"older"}
