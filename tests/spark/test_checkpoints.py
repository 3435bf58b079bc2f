"""Streams continue from the checkpoints of every release so far, also from those that it wrote with older PySpark."""

import base64
import json
import shutil
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient
from pyspark.sql import SparkSession

from tests.spark.checkpoints import CASES, FOLDER, OLDER, PARTITIONS, ROWS, TOPIC, name_of
from tests.spark.conftest import MakeStream, MakeTopic
from tests.spark.streams import Stream, write_rows
from ticdc_source.spark.readers import HAS_ADMISSION_CONTROL


def put_topic(checkpoint: Path, servers: str, name: str) -> None:
    """Write name and id of a topic into the offsets of a checkpoint, as though the stream had read this topic."""
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        (described,) = admin.describe_topics([name])
    topic_id = base64.urlsafe_b64encode(uuid.UUID(str(described["topic_id"])).bytes).decode().rstrip("=")
    for path in (checkpoint / "offsets").iterdir():
        *head, end = path.read_text().replace(TOPIC, name).splitlines()
        offset = json.loads(end)
        path.write_text("\n".join([*head, json.dumps({**offset, "$ids": {name: topic_id}})]))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow("a stream for each moment")) if number else case
        for number, case in enumerate(CASES)
    ],
)
@pytest.mark.parametrize(
    "written_by",
    [
        name if name == "0.1.0" else pytest.param(name, marks=pytest.mark.slow("written by another PySpark"))
        for name in sorted(path.name for path in FOLDER.iterdir())
    ],
)
def test_a_stream_continues_from_a_checkpoint_of_a_release(
    spark: SparkSession, stream: MakeStream, servers: str, topic: MakeTopic, tmp_path: Path, written_by: str, case: str
) -> None:
    """A stream that continues from a checkpoint repeats the planned batch, and then reads each later row once."""
    name = topic(PARTITIONS)
    write_rows(servers, name, *range(ROWS), partitions=PARTITIONS)
    shutil.copytree(FOLDER / written_by / case, tmp_path / "checkpoint")
    put_topic(tmp_path / "checkpoint", servers, name)
    start, failed_batch = CASES[case]

    one = Stream(spark, stream(name, startingOffsets="latest").frame, tmp_path)
    seen: dict[int, list[int]] = {}
    for _ in range(1 if HAS_ADMISSION_CONTROL else 2):  # before PySpark 4.2, the first run ends with the planned batch
        one.finish(
            each=lambda rows, batch: seen.update({batch: [row["id"] for row in rows.collect()]}), availableNow=True
        )

    done = PARTITIONS * (start + 2 * failed_batch)
    assert min(seen) == failed_batch
    assert len(seen[failed_batch]) == 4
    assert sorted(number for batch in seen.values() for number in batch) == list(range(done, ROWS))


def test_this_release_has_checkpoints() -> None:
    """The next release has its checkpoints in the repository, of each PySpark, for the tests of later releases."""
    for pyspark in (None, *OLDER):
        assert (FOLDER / name_of(pyspark)).is_dir()
