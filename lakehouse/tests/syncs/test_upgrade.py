"""A sync continues from the checkpoint and the tables of an earlier release.

lakehouse/tests/data/upgrades has one archive for each release. When a release is made, this writes its archive:

    TICDC_WRITE_UPGRADE=1 pytest lakehouse/tests/syncs/test_upgrade.py
"""

import json
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from examples.local_kafka import create_topic, delete_topic, produce
from lakehouse.tests.syncs.delta_sync import delta_rows
from lakehouse.tests.syncs.test_sync_database import SECONDS, Sync, differences
from lakehouse.tests.targets.feed import DATABASE, KEYED, KEYLESS, DatabaseFeed
from tests.fixtures import Kafka
from tests.spark.restarts import State, offset_of
from tests.support.paths import ROOT
from ticdc_lakehouse.syncs.names import Layout, Suffix
from ticdc_source import __version__
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.stream_offsets import EPOCHS, IDS

UPGRADES = ROOT / "lakehouse/tests/data/upgrades"
SEED, TRANSACTIONS, SHARE = 9, 40, 0.6
LIMIT = ("--conf=maxOffsetsPerTrigger=30", "--trigger=1 second")  # some micro-batches, also before PySpark 4.2
KILL_BATCH = 3  # the micro-batch in which the older release was killed
KEPT = ("checkpoint", "lake")
NOTES = str(TableName(DATABASE, KEYLESS))  # has only inserts: its log gets one row for each message that is read

Ends: TypeAlias = dict[int, int]  # by topic partition

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.slow("a JVM for the command"),
    pytest.mark.xdist_group("engines"),
    pytest.mark.timeout(SECONDS * 2),
]


@pytest.fixture
def feed() -> DatabaseFeed:
    """Return a small database and its changefeed: the fixed seed makes the same messages each time."""
    made = DatabaseFeed(SEED, "canal-json")
    made.run(TRANSACTIONS)
    return made


@pytest.fixture
def named(broker: Kafka) -> Iterator[Callable[[str, int], str]]:
    """A function that creates a topic with a name, which is deleted afterwards."""
    made = []

    def make(name: str, partitions: int) -> str:
        create_topic(broker.bootstrap_servers, name, partitions)
        made.append(name)
        return name

    yield make
    for name in made:
        delete_topic(broker.bootstrap_servers, name)


@pytest.fixture
def started(broker: Kafka, feed: DatabaseFeed, tmp_path: Path) -> Iterator[Callable[[str], Sync]]:
    """A function that returns the command on a topic; its processes end with the test."""
    made: list[Sync] = []

    def make(topic: str) -> Sync:
        made.append(Sync(broker, topic, feed, "canal-json", tmp_path, "delta", "latest"))
        return made[-1]

    yield make
    for one in made:
        one.kill_all()


def forget_broker(checkpoint: Path) -> None:
    """Remove topic ids and leader epochs from the offsets: a topic of the same name on another broker has others."""
    for file in (checkpoint / "stream" / "offsets").glob("[0-9]*"):
        *head, offset = file.read_text().splitlines()
        kept = {name: value for name, value in json.loads(offset).items() if name not in {IDS, EPOCHS}}
        file.write_text("\n".join([*head, json.dumps(kept)]))
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def is_in_the_log(sync: Sync) -> bool:
    """Return whether the log has micro-batch `KILL_BATCH`, and Spark has not committed it."""
    if State.of(sync.checkpoint) != State(KILL_BATCH, KILL_BATCH - 1):
        return False
    commits = (sync.folder / "lake" / DATABASE / f"{KEYLESS}__log" / "_delta_log").glob("[0-9]*.json")
    actions = [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]
    return any(action.get("txn", {}).get("version") == KILL_BATCH for action in actions)


@pytest.mark.skipif("TICDC_WRITE_UPGRADE" not in os.environ, reason="writes data: only with TICDC_WRITE_UPGRADE=1")
def test_what_this_release_writes_is_kept(
    feed: DatabaseFeed, named: Callable[[str, int], str], started: Callable[[str], Sync], tmp_path: Path
) -> None:
    """The archive has the checkpoint and the tables after a SIGKILL between the log's commit and Spark's."""
    topic = named(f"upgrade-{__version__}", len(feed.records))
    sync = started(topic)
    sync.write([SHARE] * len(feed.records))
    life = sync.start(*LIMIT)
    life.wait_for(partial(is_in_the_log, sync), stop=True, seconds=SECONDS)
    life.kill()
    forget_broker(tmp_path / "checkpoint")

    messages = [
        [[None if part is None else part.decode() for part in message] for message in records]
        for records in feed.records
    ]
    (tmp_path / "messages.json").write_text(json.dumps({"topic": topic, "messages": messages}))
    UPGRADES.mkdir(exist_ok=True)
    with tarfile.open(UPGRADES / f"{__version__}.tar.xz", "w:xz") as kept:
        for name in (*KEPT, "messages.json"):
            kept.add(tmp_path / name, name)


def ends_of(checkpoint: Path, batch: int, topic: str) -> Ends:
    """Return the end of each topic partition in a planned micro-batch."""
    return {int(partition): end for partition, end in offset_of(checkpoint, batch)[topic].items()}


def stored(folder: Path, table: str, suffix: Suffix = "") -> list[dict[str, Any]]:
    _, path, _ = Layout("delta", root=str(folder / "lake")).target(TableName(DATABASE, table), suffix).split("`")
    return delta_rows(Path(path))


def places_of_notes(partitions: Sequence[Sequence[tuple[str | None, str]]]) -> list[tuple[int, int]]:
    """Return partition and offset of each message with a row of the table without a key."""
    return [
        (partition, offset)
        for partition, messages in enumerate(partitions)
        for offset, (_, value) in enumerate(messages)
        if (event := json.loads(value)).get("table") == KEYLESS and not event["isDdl"]
    ]


@pytest.mark.parametrize("kept", sorted(UPGRADES.glob("*.tar.xz")), ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_a_sync_goes_on_after_an_upgrade(
    broker: Kafka,
    feed: DatabaseFeed,
    named: Callable[[str, int], str],
    started: Callable[[str], Sync],
    tmp_path: Path,
    kept: Path,
) -> None:
    """It repeats the micro-batch in which the older release was killed, then reads each later message exactly once.

    The kept tables equal TiDB's in the end, and the log of the table without a key has each message once.
    """
    with tarfile.open(kept) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.3 has none
        packed.extractall(tmp_path)  # noqa: S202 (an archive of this repository)
    earlier = [file for file in (tmp_path / "lake" / DATABASE).rglob("*") if file.is_file()]
    assert {file.name for file in earlier} >= {f"{version:020}.json" for version in (0, 1, 2)}
    written: dict[str, Any] = json.loads((tmp_path / "messages.json").read_text())
    partitions = written["messages"]
    topic = named(written["topic"], len(partitions))
    for partition, messages in enumerate(partitions):
        encoded = [[None if part is None else part.encode() for part in message] for message in messages]
        assert encoded == list(map(list, feed.records[partition])), "the truth of the feed is not that of the archive"
        produce(broker.bootstrap_servers, topic, [(partition, key, value, [], None) for key, value in encoded])
    sync = started(topic)
    before = State.of(sync.checkpoint)
    assert before.in_a_batch  # the older release was killed in it
    planned = [offset_of(sync.checkpoint, batch) for batch in range(before.planned + 1)]
    committed_ends = ends_of(sync.checkpoint, before.committed, topic)

    sync._written = list(map(len, partitions))
    life = sync.start("--json", "--trigger=1 second")  # before PySpark 4.2, a finite run only repeats the micro-batch
    life.wait_for(lambda: sync.has_read_all() and not State.of(sync.checkpoint).in_a_batch, seconds=SECONDS)
    life.kill()
    reports = [json.loads(line) for line in life.log.splitlines() if line.startswith('{"batch_id"')]

    after = State.of(sync.checkpoint)
    assert [offset_of(sync.checkpoint, batch) for batch in range(before.planned + 1)] == planned
    assert after.committed == after.planned > before.planned
    assert [report["batch_id"] for report in reports] == [*range(before.committed + 1, after.committed + 1)]
    assert ends_of(sync.checkpoint, after.committed, topic) == dict(enumerate(map(len, partitions)))

    # Each message of the table without a key gives one row of its log.
    rows = [row["_sequence"] for row in stored(tmp_path, KEYLESS, "__log")]
    places = places_of_notes(partitions)
    left_of_notes = [(partition, offset) for partition, offset in places if offset >= committed_ends[partition]]
    assert 0 < len(left_of_notes) < len(places)
    assert sum(report["changed"].get(NOTES, 0) for report in reports) == len(left_of_notes)
    assert sorted((row["partition"], row["offset"]) for row in rows) == places
    for name in KEYED:
        there = [row for row in stored(tmp_path, name) if not row["_is_deleted"]]
        wrong = list(differences(feed, str(TableName(DATABASE, name)), there, feed.truth.at()))
        assert not wrong, f"{name}: {len(wrong)} differences, {wrong[:5]}"
    assert all(file.exists() for file in earlier), "versions of the release before are gone"
