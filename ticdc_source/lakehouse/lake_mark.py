"""`lake.json`: what a checkpoint remembers of its lake, so that a start notices if one of the two was restored.

The file lies in the checkpoint, and is written at the end of each micro-batch that has changed a table. A lake that is
newer than it is no harm: the process has died in between, or the checkpoint was restored, and the stream reads those
changes again. A lake that is older lacks changes that the stream will not read again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from ticdc_source.errors import CheckpointError
from ticdc_source.lakehouse.checkpoint import StreamCheckpoint, text_of_file
from ticdc_source.lakehouse.completeness import newest_ts
from ticdc_source.lakehouse.config import SyncConfig
from ticdc_source.lakehouse.status import StatusTable, TableStatus
from ticdc_source.options.table_filter import parse_table
from ticdc_source.schema.json_text import loads
from ticdc_source.spark.permission import check_permission
from ticdc_source.targets.sessions import in_thread
from ticdc_source.targets.sql_targets import existing_target

__all__ = ["LakeMark", "LakeMarks"]

_NEW = ".new"  # ends the name of the file while it is written


@dataclass(frozen=True, slots=True)
class LakeMark:
    """A state of the lake.

    Attributes:
        written: how often the statuses had been written.
        targets: by table, the last micro-batch that a commit of its target records.
        shift: what the sync adds to Spark's number of a micro-batch: after a checkpoint was restored, Spark uses
            numbers again that the lake has for other changes.
    """

    written: int = 0
    targets: Mapping[str, int] = field(default_factory=dict)
    shift: int = 0


class LakeMarks:
    """The mark of a checkpoint, and what a start finds by it.

    Args:
        spark: the session.
        config: what is copied, and where to.
        checkpoint: the checkpoint of the stream.
        status: the status table.
    """

    def __init__(
        self, spark: SparkSession, config: SyncConfig, checkpoint: StreamCheckpoint, status: StatusTable
    ) -> None:
        self._spark, self._config, self._checkpoint, self._status = spark, config, checkpoint, status
        self._path = f"{config.checkpoint}/lake.json"
        self._last = LakeMark()
        self.shift = 0  # what is added to the numbers of Spark's micro-batches

    def committed(self) -> int:
        """Return the number of the last micro-batch that has ended, as the tables have it."""
        return self._checkpoint.committed() + self.shift

    def compared(self, statuses: Mapping[str, TableStatus]) -> dict[str, TableStatus]:
        """Compare the checkpoint with the lake: one of them, or a part of the lake, may have been restored.

        Args:
            statuses: what the status table says now.

        Returns:
            The statuses; a table whose target is an older version is set aside.

        Raises:
            CheckpointError: the status table is older than the checkpoint.
        """
        mark = self._read()
        if mark.written > self._status.written:
            msg = (
                f"The checkpoint is newer than {self._status.name}: this table, and perhaps the others, is an older "
                "version, and the stream does not read again what is missing. Restore the newest version of the "
                "tables. Or restore the whole checkpoint as it was when that version was written, or before. Or start "
                "again with new tables and a new checkpoint"
            )
            raise CheckpointError(msg)
        statuses = {
            name: replace(each, target_batch=_larger(each.target_batch, mark.targets.get(name)))
            for name, each in statuses.items()
        }
        self.shift = mark.shift
        committed, last = self._checkpoint.committed(), self.committed()
        numbers = [each for one in statuses.values() for each in (one.batch_id, one.target_batch, one.set_aside_batch)]
        newest = max((each for each in numbers if each is not None), default=-1)
        if newest > last + 1:  # Spark gives numbers again that the tables have for other changes
            self.shift = newest - committed
            self._status.repeat(newest_ts())
            self.write(statuses)
        return {**statuses, **self._compared_targets(statuses, last)}

    def _compared_targets(self, statuses: Mapping[str, TableStatus], last: int) -> dict[str, TableStatus]:
        """Return the statuses of tables with their targets compared.

        A table whose target is an older version is set aside before anything is written, even if no change of it comes;
        unless the checkpoint is as old, so that the stream reads again what the target lacks.

        Args:
            statuses: the statuses of the tables.
            last: the last micro-batch that has ended, by the checkpoint, as the tables number it.
        """
        writer = self._checkpoint.query_id() or ""

        def of_target(status: TableStatus) -> TableStatus:
            target = existing_target(self._spark, status.target)
            held = None if target is None else target.last_batch(writer)
            if held is None or status.target_batch is None or held.number >= status.target_batch:
                return status  # a missing target is an error when the next change comes
            if held.number >= last:
                return replace(status, target_batch=held.number, columns=())  # it may have had more of them
            is_loaded_again = self._config.tidb is not None and status.complete_since is None and status.kind != "log"
            if status.state == "set aside" or is_loaded_again:
                return status
            reason = (
                f"{status.target} has had micro-batch {status.target_batch}, and ends with micro-batch {held.number} "
                "now: it is an older version, without the changes in between. Restore its newest version, and resume "
                f"{status.table_name}. Or restore the whole checkpoint as it was at that version or before, and resume "
                "the table. Or load the table again with [tidb]: stop the sync, drop the target, and delete the row of "
                "the table from the status table"
            )
            return replace(status.set_aside(0, reason), set_aside_batch=None)  # nothing is kept yet

        written = [
            each
            for name, each in statuses.items()
            if each.state in ("following", "set aside")
            and each.target_batch is not None
            and self._config.selects(parse_table(name))
        ]
        with ThreadPoolExecutor(self._config.parallel, thread_name_prefix="ticdc-sync compare") as pool:
            return {each.table_name: each for each in pool.map(in_thread(self._spark, of_target), written)}

    def write(self, statuses: Mapping[str, TableStatus]) -> None:
        """Write the mark if it says anything new, without a job of Spark: before each end of a micro-batch."""
        targets = {name: each.target_batch for name, each in statuses.items() if each.target_batch is not None}
        mark = LakeMark(self._status.written, targets, self.shift)
        if mark == self._last:
            return
        jvm: Any = self._spark._jvm  # noqa: SLF001 (Spark alone knows the file system)
        hadoop = jvm.org.apache.hadoop.fs
        conf: Any = self._spark._jsparkSession  # noqa: SLF001 (as above)
        path, new = hadoop.Path(self._path), hadoop.Path(f"{self._path}{_NEW}")
        files = path.getFileSystem(conf.sessionState().newHadoopConf())
        check_permission()
        stream = files.create(new, True)  # noqa: FBT003 (Java has no names of arguments)
        stream.write(json.dumps(asdict(mark)).encode())
        stream.close()
        files.delete(path, False)  # noqa: FBT003 (as above)
        files.rename(new, path)
        self._last = mark

    def _read(self) -> LakeMark:
        """Return the mark; an empty one if an older release has written the checkpoint.

        Raises:
            CheckpointError: the file was changed.
        """
        whole = text_of_file(self._spark, self._path)
        text = whole or text_of_file(self._spark, f"{self._path}{_NEW}")  # killed before it was renamed
        if not text:
            return self._last
        try:
            self._last = LakeMark(**loads(text))
        except (TypeError, ValueError):
            if not whole:  # the first one, and it is not whole: nothing has ended yet
                return self._last
            msg = (
                f"{self._path} is not what the sync has written. Restore the checkpoint, or start again with a new one"
            )
            raise CheckpointError(msg) from None
        return self._last


def _larger(one: int | None, other: int | None) -> int | None:
    """Return the larger one of two numbers, of those that are known."""
    return max((each for each in (one, other) if each is not None), default=None)
