"""The lines of `metricsPath` as Spark's tasks write them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.test_metrics import assert_documented
from tests.spark.conftest import MakeStream, MakeTopic
from tests.spark.streams import write_rows


def lines_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


@pytest.mark.slow("runs a stream")
def test_lines_have_the_documented_members(
    spark: SparkSession, stream: MakeStream, servers: str, topic: MakeTopic, tmp_path: Path
) -> None:
    """Each line of a batch read and of a stream has exactly the documented members, and the table if there is one."""
    name = topic(2)
    write_rows(servers, name, *range(6), partitions=2)
    given = {"kafka.bootstrap.servers": servers, "subscribe": name, "metricsPath": f"file://{tmp_path}/batch"}

    spark.read.format("ticdc").options(**given).load().collect()
    one = stream(name, startingOffsets="earliest", maxOffsetsPerTrigger=4, metricsPath=tmp_path / "stream")
    query = one.finish()

    batch, streamed = (lines_in(tmp_path / folder) for folder in ("batch", "stream"))
    for line in (*batch, *streamed):
        assert_documented(line)
    assert [(line["query"], line["batch"], line["table"]) for line in batch] == [(None, None, "test.t")] * 2
    assert sorted((line["batch"], line["end"], line["lag"]) for line in streamed) == [(0, 2, 1)] * 2 + [(1, 3, 0)] * 2
    assert {line["query"] for line in streamed} == {query.id}
    assert sum(line["rows"] for line in streamed) == 6
    for path in (tmp_path / "stream").iterdir():
        assert re.fullmatch(rf"{query.id}-00000000[01]-[0-9a-f]{{32}}\.jsonl", path.name)
