"""Streams continue from the checkpoints of every release so far."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.checkpoints import CASES, FOLDER, PARTITIONS, ROWS, TOPIC
from tests.spark.conftest import MakeStream, MakeTopic
from tests.spark.streams import Stream, write_rows
from ticdc_source import __version__


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow("a stream for each moment")) if number else case
        for number, case in enumerate(CASES)
    ],
)
@pytest.mark.parametrize("written_by", sorted(path.name for path in FOLDER.iterdir()))
def test_a_stream_continues_from_a_checkpoint_of_a_release(
    spark: SparkSession, stream: MakeStream, servers: str, topic: MakeTopic, tmp_path: Path, written_by: str, case: str
) -> None:
    """A stream that continues from a checkpoint repeats the planned batch and reads everything after it."""
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


def test_this_release_has_checkpoints() -> None:
    """The next release has its checkpoints in the repository, for the tests of later releases."""
    assert (FOLDER / __version__).is_dir()
