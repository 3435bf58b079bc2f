"""`SyncState`: what `tables` must remember from one micro-batch to the next, in a folder beside the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from ticdc_source.errors import CheckpointError
from ticdc_source.pipeline.record_frames import RECORD
from ticdc_source.planning.watermarks import Progress
from ticdc_source.spark.frames import to_records
from ticdc_source.spark.schema import to_spark

# A micro-batch reads what the one before it has left. Spark repeats at most the last one, so three folders are enough.
_FOLDERS = 3
_PROGRESS, _DDL, _HELD = "progress", "ddl", "held"
_RECORD = to_spark(RECORD)
_SCHEMA = st.StructType([st.StructField("kind", st.StringType()), st.StructField("text", st.StringType()), *_RECORD])


class Leftover(NamedTuple):
    """What a micro-batch leaves for the next.

    Attributes:
        progress: how far the stream has come.
        ddl: the records with DDL events so far, of the schema `RECORD`; they hold types that row messages lack.
        held: the records with rows or DDL after the resolved ts; None if none are held back.
    """

    progress: Progress
    ddl: pa.RecordBatch
    held: DataFrame | None


class SyncState:
    """A folder for what `tables` keeps between micro-batches: watermarks, DDL, types, held-back records.

    Use one for each stream, beside its checkpoint, and remove both together. Spark reads and writes the folder as
    Parquet, so any file system that Spark knows will do. A micro-batch that Spark repeats finds what it found before.

    Args:
        path: the folder. It needs space for records with DDL, and for those that `consistency="resolved"` holds back.
        partitions: how many topic partitions the stream reads. Records of `outputFormat=record` say it themselves;
            those of Spark's Kafka source do not.
    """

    def __init__(self, path: str, *, partitions: int | None = None) -> None:
        self.path = path.rstrip("/")
        self.partitions = partitions
        self._release: Callable[[], object] = lambda: None
        self._saved: Leftover | None = None

    def keep(self, release: Callable[[], object]) -> None:
        """Release what the micro-batch before this one has persisted; this one is released with the next."""
        self._release()
        self._release = release

    def before(self, spark: SparkSession, batch_id: int) -> Leftover:
        """Return what the micro-batch before this one has left.

        Raises:
            CheckpointError: the folder does not hold it.
        """
        if batch_id == 0:
            return Leftover(Progress(), to_records([]), None)
        folder = self._folder(batch_id - 1)
        saved_here = self._saved
        if saved_here is not None and saved_here.progress.batch_id == batch_id - 1 and saved_here.held is None:
            return saved_here  # what this object has written need not be read back; held-back records must be there
        saved = _read(spark, folder)
        rows = [] if saved is None else saved.where(sf.col("kind") == _PROGRESS).select("text").collect()
        if saved is None or len(rows) != 1:
            raise self._lost(batch_id, "It does not")
        try:
            progress = Progress.of_json(rows[0][0])
        except CheckpointError as error:
            raise self._lost(batch_id, str(error)) from None
        if progress.batch_id != batch_id - 1:
            raise self._lost(batch_id, f"It holds what micro-batch {progress.batch_id} left")
        ddl, held = _of_kind(saved, _DDL), _of_kind(saved, _HELD)
        # A frame without rows would cost each table of this micro-batch tasks of its own.
        is_any_held = bool(held.limit(1).count())
        return Leftover(progress, to_records(ddl.drop("timestamp", "headers").collect()), held if is_any_held else None)

    def save(self, spark: SparkSession, leftover: Leftover) -> None:
        """Write what the next micro-batch must know. A repeated micro-batch writes the same again."""
        progress, held = leftover.progress, leftover.held
        rows = spark.createDataFrame([(progress.as_json(),)], "text string").coalesce(1)
        saved = rows.withColumn("kind", sf.lit(_PROGRESS))
        parts = {} if held is None else {_HELD: held}
        if leftover.ddl.num_rows:
            parts[_DDL] = spark.createDataFrame([tuple(row.values()) for row in leftover.ddl.to_pylist()], _RECORD)
        for kind, records in parts.items():
            saved = saved.unionByName(records.withColumn("kind", sf.lit(kind)), allowMissingColumns=True)
        if held is None:
            saved = saved.coalesce(1)  # one task, and one file
        columns = [
            sf.col(one.name) if one.name in saved.columns else sf.lit(None).cast(one.dataType).alias(one.name)
            for one in _SCHEMA
        ]
        check_permission()
        saved.select(columns).write.mode("overwrite").parquet(self._folder(progress.batch_id))
        self._saved = leftover

    def _folder(self, batch_id: int) -> str:
        return f"{self.path}/{batch_id % _FOLDERS}"

    def _lost(self, batch_id: int, reason: str) -> CheckpointError:
        msg = (
            f"The folder {self.path} of SyncState should hold what micro-batch {batch_id - 1} of this stream left. "
            f"{reason}. A checkpoint and its SyncState belong together: restore both, or start again with a new "
            "checkpoint, a new SyncState and new tables"
        )
        return CheckpointError(msg)


def _of_kind(saved: DataFrame, kind: str) -> DataFrame:
    return saved.where(sf.col("kind") == kind).select(RECORD.names)


def _read(spark: SparkSession, folder: str) -> DataFrame | None:
    """Return what a folder holds; None if there is none. Spark alone knows the file system."""
    try:
        return spark.read.schema(_SCHEMA).parquet(folder)
    except AnalysisException:
        return None


# Asked right before each commit: whether this process may still write. A process that was stopped for a while, with its
# machine or by a signal, goes on in the middle of what it did; another one may have taken over.
_question: ContextVar[Callable[[], object]] = ContextVar("permission", default=lambda: None)


@contextmanager
def asking(question: Callable[[], object]) -> Iterator[None]:
    """Ask before each commit of this thread, and of those that `in_thread` lets run for it.

    The question raises an error if this process may not write any more.
    """
    token = _question.set(question)
    try:
        yield
    finally:
        _question.reset(token)


def check_permission() -> None:
    _question.get()()
