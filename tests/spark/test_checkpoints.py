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
    seen: dict[int, list[int]] = {}
    one.finish(each=lambda rows, batch: seen.update({batch: [row["id"] for row in rows.collect()]}), availableNow=True)

    done = PARTITIONS * (start + 2 * failed_batch)
    assert min(seen) == failed_batch
    assert len(seen[failed_batch]) == 4
    assert sorted(number for batch in seen.values() for number in batch) == list(range(done, ROWS))


def test_this_release_has_left_checkpoints() -> None:
    """The release in work has its checkpoints there, so that the next one can be held to them."""
    assert (FOLDER / release()).is_dir()
