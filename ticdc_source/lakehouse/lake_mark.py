"""What a checkpoint remembers of the lake that it belongs to, so that a start sees whether one of the two was put back.

It is a small file beside the stream's own, written after each commit of the status table. The lake may be newer: the
process may have died in between, or somebody has put back the checkpoint, and the stream reads again what the lake has.
A lake that is older lacks changes that the stream does not read again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from ticdc_source.errors import CheckpointError
from ticdc_source.lakehouse.checkpoint import text_of_file
from ticdc_source.lakehouse.status import TableStatus

__all__ = ["LakeMark", "LakeMarkFile"]


@dataclass(frozen=True, slots=True)
class LakeMark:
    """A state of the lake.

    Attributes:
        written: how often the statuses had been written.
        targets: by table, the last micro-batch that a commit of its target records.
        shift: what the sync adds to Spark's number of a micro-batch: a checkpoint that was put back lets Spark give
            numbers again that the lake has for other changes.
    """

    written: int = 0
    targets: Mapping[str, int] = field(default_factory=dict)
    shift: int = 0

    @staticmethod
    def of(written: int, statuses: Mapping[str, TableStatus], shift: int) -> LakeMark:
        """Return the mark of a lake with these statuses."""
        targets = {name: each.target_batch for name, each in statuses.items() if each.target_batch is not None}
        return LakeMark(written, targets, shift)


class LakeMarkFile:
    """The file of the mark in a checkpoint.

    Args:
        spark: the session.
        folder: the checkpoint.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._path = f"{folder}/lake.json"

    def read(self) -> LakeMark | None:
        """Return the mark; None if there is none, because an older release has written the checkpoint.

        Raises:
            CheckpointError: the file was changed.
        """
        text = text_of_file(self._spark, self._path)
        if not text:
            return None
        try:
            return LakeMark(**json.loads(text))
        except (TypeError, ValueError):
            msg = (
                f"{self._path} is not what the sync has written. Put back the checkpoint, or start again with a new one"
            )
            raise CheckpointError(msg) from None

    def write(self, mark: LakeMark) -> None:
        """Write the mark, without a job of Spark: each commit of the status table writes it."""
        jvm: Any = self._spark._jvm  # noqa: SLF001 (Spark alone knows the file system)
        hadoop = jvm.org.apache.hadoop.fs
        conf: Any = self._spark._jsparkSession  # noqa: SLF001 (as above)
        path = hadoop.Path(self._path)
        new = hadoop.Path(f"{self._path}.new")
        files = path.getFileSystem(conf.sessionState().newHadoopConf())
        stream = files.create(new, True)  # noqa: FBT003 (Java has no names of arguments)
        stream.write(json.dumps(asdict(mark)).encode())
        stream.close()
        files.delete(path, False)  # noqa: FBT003 (as above)
        files.rename(new, path)
