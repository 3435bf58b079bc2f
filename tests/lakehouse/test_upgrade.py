"""A sync goes on with the checkpoint and the tables that an earlier release wrote, which are kept as data.

    TICDC_WRITE_UPGRADE=1 pytest tests/lakehouse/test_upgrade.py

writes those of this release into tests/data/upgrades: once for each release, when it is made.
"""

import json
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.local_kafka import create_topic, delete_topic, produce
from tests.conftest import ROOT, Kafka
from tests.lakehouse.test_sync_database import SECONDS, TABLES, Sync, differences, rows_in
from tests.targets.feed import DatabaseFeed
from ticdc_source import __version__

UPGRADES = ROOT / "tests" / "data" / "upgrades"
SEED, TRANSACTIONS, SHARE = 7, 40, 0.6
KEPT = ("checkpoint", "lake")

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.slow("a JVM for the command"),
    pytest.mark.xdist_group("versions"),
    pytest.mark.timeout(SECONDS * 2),
]


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[DatabaseFeed]:
    """Return a small database and its changefeed; both are the same in each run."""
    with_changes = DatabaseFeed(SEED, "canal-json", tmp_path)
    with_changes.run(TRANSACTIONS)
    yield with_changes
    with_changes.close()


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


def without_topic_ids(checkpoint: Path) -> None:
    """Take the ids of topics out of the offsets: a topic of the same name on another broker has another id."""
    for file in (checkpoint / "stream" / "offsets").glob("[0-9]*"):
        *head, offset = file.read_text().splitlines()
        kept = {name: value for name, value in json.loads(offset).items() if name not in ("$ids", "$epochs")}
        file.write_text("\n".join([*head, json.dumps(kept)]))
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


@pytest.mark.skipif("TICDC_WRITE_UPGRADE" not in os.environ, reason="writes data: only with TICDC_WRITE_UPGRADE=1")
def test_what_this_release_writes_is_kept(
    broker: Kafka, feed: DatabaseFeed, named: Callable[[str, int], str], tmp_path: Path
) -> None:
    """The checkpoint and the tables after a part of the messages, and all messages."""
    topic = named(f"upgrade-{__version__}", len(feed.records))
    sync = Sync(broker, topic, feed, "canal-json", tmp_path, "delta", "latest")
    sync.write([SHARE] * len(feed.records))
    life = sync.start()
    assert life.end(SECONDS) == 0, life.log
    without_topic_ids(tmp_path / "checkpoint")

    messages = [
        [[None if part is None else part.decode() for part in message] for message in records]
        for records in feed.records
    ]
    (tmp_path / "messages.json").write_text(json.dumps({"topic": topic, "messages": messages}))
    UPGRADES.mkdir(exist_ok=True)
    with tarfile.open(UPGRADES / f"{__version__}.tar.xz", "w:xz") as kept:
        for name in (*KEPT, "messages.json"):
            kept.add(tmp_path / name, name)


@pytest.mark.parametrize("kept", sorted(UPGRADES.glob("*.tar.xz")), ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_a_sync_goes_on_after_an_upgrade(
    broker: Kafka, feed: DatabaseFeed, named: Callable[[str, int], str], tmp_path: Path, kept: Path
) -> None:
    """It plans new micro-batches of the kept checkpoint, and the kept tables equal TiDB's in the end."""
    with tarfile.open(kept) as packed:
        packed.extractall(tmp_path, filter="data")
    written: dict[str, Any] = json.loads((tmp_path / "messages.json").read_text())
    partitions = written["messages"]
    topic = named(written["topic"], len(partitions))
    for partition, messages in enumerate(partitions):
        encoded = [[None if part is None else part.encode() for part in message] for message in messages]
        produce(broker.bootstrap_servers, topic, [(partition, key, value, [], None) for key, value in encoded])
    sync = Sync(broker, topic, feed, "canal-json", tmp_path, "delta", "latest")
    planned = len(list((sync.checkpoint / "offsets").glob("[0-9]*")))

    life = sync.start("--json")

    assert life.end(SECONDS) == 0, life.log
    assert len(list((sync.checkpoint / "offsets").glob("[0-9]*"))) > planned
    for table, its in sync.versions(TABLES, all_versions=True).items():
        wrong = list(differences(feed, table, rows_in(its[-1]["file"]), feed.truth.at()))
        assert not wrong, f"{table}: {len(wrong)} differences, {wrong[:5]}"
        assert len(its) > 1  # versions of the release before are still there
