"""Checkpoints written by every release so far are gone on from."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.checkpoints import CASES, FOLDER, PARTITIONS, ROWS, TOPIC, release
from tests.spark.conftest import MakeStream, MakeTopic
from tests.spark.streams import Stream, write_rows


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("written_by", sorted(path.name for path in FOLDER.iterdir()))
def test_a_checkpoint_of_a_release_is_gone_on_from(
    spark: SparkSession, stream: MakeStream, servers: str, topic: MakeTopic, tmp_path: Path, written_by: str, case: str
) -> None:
    """A stream goes on from an older release's checkpoint where that stood: the planned batch, then all after it."""
    name = topic(PARTITIONS)
    write_rows(servers, name, *range(ROWS), partitions=PARTITIONS)
    shutil.copytree(FOLDER / written_by / case, tmp_path / "checkpoint")
    for path in (tmp_path / "checkpoint" / "offsets").iterdir():
        path.write_text(path.read_text().replace(TOPIC, name))
    start, failed_batch = CASES[case]

    one = Stream(spark, stream(name, startingOffsets="latest").frame, tmp_path)
    query = one.finish()

    done = PARTITIONS * (start + 2 * failed_batch)
    assert one.ids() == list(range(done, ROWS))
    assert query.recentProgress[0]["batchId"] == failed_batch


def test_this_release_has_left_checkpoints() -> None:
    """The release in work has its checkpoints there, so that the next one can be held to them."""
    assert (FOLDER / release()).is_dir()
