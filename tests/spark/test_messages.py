"""What a user of Spark sees when something is wrong: the first lines, and how many there are."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ticdc_source.spark import source

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


def printed(action: Callable[[], Any]) -> list[str]:
    """Return what Python prints of the error of an action, below the frames of pyspark and py4j."""
    with pytest.raises(AnalysisException) as caught:
        action()
    lines = "".join(traceback.format_exception(caught.value)).splitlines()
    return lines[next(number for number, line in enumerate(lines) if "raise converted" in line) + 1 :]


@pytest.mark.parametrize("planned", [False, True], ids=["load", "action"])
def test_the_cause_is_within_ten_lines(spark: SparkSession, *, planned: bool) -> None:
    """At load() and in planning, Spark prints one frame of ours twice, then the cause: no other line of ours."""
    reader = spark.read.format("ticdc").options(**GIVEN, startingOffset="earliest")

    if planned:
        reader = reader.schema("id int")
        lines = printed(lambda: reader.load().collect())
    else:
        lines = printed(reader.load)

    assert len(lines) <= 10
    assert "OptionError: Unknown option 'startingoffset'; did you mean 'startingOffsets'?" in "\n".join(lines)
    assert sum("ticdc_source" in line and line.lstrip().startswith("File ") for line in lines) == 2


@pytest.mark.slow("some failing Spark queries")
def test_writing_says_that_the_source_only_reads(spark: SparkSession) -> None:
    """`.write.format("ticdc")` is refused with what to use instead."""
    writer = spark.range(1).write.format("ticdc").mode("append")

    assert f"TiCDCSourceError: {source.ONLY_READS}" in "\n".join(printed(writer.save))
    assert source.ONLY_READS.startswith("This source only reads")
