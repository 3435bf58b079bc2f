"""What the checkpoint of a stream says: which query it is of, which micro-batches have ended, and where it started.

Spark alone knows the file system, so Spark reads the files.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ticdc_source.developer_api import loads

__all__ = ["StreamCheckpoint", "starts_of", "text_of_file"]


def text_of_file(spark: SparkSession, path: str) -> str | None:
    """Return the text of a file, or of a folder with one; None if there is none. Spark alone knows the file system."""
    try:  # given twice: for a single path that is missing, Spark logs a traceback
        rows = spark.read.text([path, path], wholetext=True).collect()
    except AnalysisException:
        return None
    return str(rows[0][0]) if rows else None


class StreamCheckpoint:
    """The checkpoint of a streaming query.

    Args:
        spark: the session.
        folder: its folder.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self.folder = folder
        self._query_id: str | None = None

    def query_id(self) -> str | None:
        """Return the id of the query, which is as old as the checkpoint; None if there is no checkpoint."""
        if self._query_id is None:  # it never changes
            try:
                self._query_id = str(loads(self._text("metadata") or "")["id"])
            except (KeyError, TypeError, ValueError):  # Spark creates the file, and then writes it
                return None
        return self._query_id

    def committed(self) -> int:
        """Return the number of the last micro-batch that has ended; -1 if none has."""
        commits = f"{self.folder}/commits"
        try:  # given twice, as above
            files = self._spark.read.format("binaryFile").load([commits, commits]).select("path").collect()
        except AnalysisException:
            return -1
        names = (row["path"].rpartition("/")[2] for row in files)
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def starts(self) -> Mapping[str, Mapping[str, int]] | None:
        """Return the offset at which the stream started, by topic and partition; None if that is not known any more."""
        return starts_of(self._text("offsets/0") or "")

    def _text(self, name: str) -> str | None:
        return text_of_file(self._spark, f"{self.folder}/{name}")


def starts_of(text: str) -> Mapping[str, Mapping[str, int]] | None:
    """Return where a stream started, by the file of its first offset in the checkpoint: its last line is the end."""
    try:
        started = loads(text.splitlines()[-1])["$init"]
    except (IndexError, KeyError, TypeError, ValueError):
        return None
    return {topic: dict(offsets) for topic, offsets in started.items() if not topic.startswith("$")}
