"""`SyncState`: what `tables` remembers between micro-batches, in a folder beside the checkpoint."""

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

# A micro-batch reads the state of the previous one. Spark repeats at most the last one, so three folders are enough.
_FOLDERS = 3
_PROGRESS, _DDL, _HELD = "progress", "ddl", "held"
_RECORD = to_spark(RECORD)
_SCHEMA = st.StructType([st.StructField("kind", st.StringType()), st.StructField("text", st.StringType()), *_RECORD])


class Leftover(NamedTuple):
    """The state that a micro-batch leaves for the next.

    Attributes:
        ddl: the records with DDL events so far, with the schema `RECORD`; they have types that row messages lack.
        held: the records with rows or DDL after the resolved ts; None if none are held back.
    """

    progress: Progress
    ddl: pa.RecordBatch
    held: DataFrame | None


class SyncState:
    """A folder for what `tables` keeps between micro-batches: watermarks, DDL, types, held-back records.

    Use one for each stream, beside its checkpoint, and remove both together. The folder is Parquet on any file system
    that Spark knows. A micro-batch that Spark repeats finds the same state.

    Args:
        path: the folder. It needs space for records with DDL, and for those that `consistency="resolved"` holds back.
        partitions: how many topic partitions the stream reads; needed only for records of Spark's Kafka source.
    """

    def __init__(self, path: str, *, partitions: int | None = None) -> None:
        self.path = path.rstrip("/")
        self.partitions = partitions
        self._release: Callable[[], object] = lambda: None
        self._saved: Leftover | None = None

    def keep(self, release: Callable[[], object]) -> None:
        """Release what the previous micro-batch persisted; this one is released with the next."""
        self._release()
        self._release = release

    def before(self, spark: SparkSession, batch_id: int) -> Leftover:
        """Return the state that the previous micro-batch left.

        Raises:
            CheckpointError: the folder does not have it.
        """
        if batch_id == 0:
            return Leftover(Progress(), to_records([]), None)
        folder = self._folder(batch_id - 1)
        saved_here = self._saved
        if saved_here is not None and saved_here.progress.batch_id == batch_id - 1 and saved_here.held is None:
            return saved_here  # written by this object; only held-back records must be read
        saved = _read(spark, folder)
        rows = [] if saved is None else saved.where(sf.col("kind") == _PROGRESS).select("text").collect()
        if saved is None or len(rows) != 1:
            raise self._lost(batch_id, "It does not")
        try:
            progress = Progress.of_json(rows[0][0])
        except CheckpointError as error:
            raise self._lost(batch_id, str(error)) from None
        if progress.batch_id != batch_id - 1:
            raise self._lost(batch_id, f"It holds that of micro-batch {progress.batch_id}")
        ddl, held = _of_kind(saved, _DDL), _of_kind(saved, _HELD)
        # An empty frame would cost each table of this micro-batch tasks.
        is_any_held = bool(held.limit(1).count())
        return Leftover(progress, to_records(ddl.drop("timestamp", "headers").collect()), held if is_any_held else None)

    def save(self, spark: SparkSession, leftover: Leftover) -> None:
        """Write the state for the next micro-batch; a repeated micro-batch writes the same again."""
        progress, held = leftover.progress, leftover.held
        nothing = [None] * len(_RECORD)
        saved = spark.createDataFrame([(_PROGRESS, progress.as_json(), *nothing)], _SCHEMA).coalesce(1)
        parts = {} if held is None else {_HELD: held}
        if leftover.ddl.num_rows:
            parts[_DDL] = spark.createDataFrame([tuple(row.values()) for row in leftover.ddl.to_pylist()], _RECORD)
        for kind, records in parts.items():
            saved = saved.unionByName(records.withColumn("kind", sf.lit(kind)), allowMissingColumns=True)
        if held is None:
            saved = saved.coalesce(1)  # one task, and one file
        check_permission()
        saved.write.mode("overwrite").parquet(self._folder(progress.batch_id))
        self._saved = leftover

    def _folder(self, batch_id: int) -> str:
        return f"{self.path}/{batch_id % _FOLDERS}"

    def _lost(self, batch_id: int, reason: str) -> CheckpointError:
        msg = (
            f"The folder {self.path} of SyncState should hold the state of micro-batch {batch_id - 1} of this stream. "
            f"{reason}. A checkpoint and its SyncState belong together: restore both, or start again with a new "
            "checkpoint, a new SyncState and new tables"
        )
        return CheckpointError(msg)


def _of_kind(saved: DataFrame, kind: str) -> DataFrame:
    return saved.where(sf.col("kind") == kind).select(RECORD.names)


def _read(spark: SparkSession, folder: str) -> DataFrame | None:
    """Read a folder; None if it does not exist. Only Spark knows the file system."""
    try:
        return spark.read.schema(_SCHEMA).parquet(folder)
    except AnalysisException:
        return None


# Called right before each commit: whether this process may still write. A process that was suspended, with its machine
# or by a signal, continues where it was, although another one may have taken over.
_question: ContextVar[Callable[[], object]] = ContextVar("permission", default=lambda: None)


@contextmanager
def asking(question: Callable[[], object]) -> Iterator[None]:
    """Call `question` before each commit of this thread, and of threads that `in_thread` starts for it.

    It raises an error if this process may no longer write.
    """
    token = _question.set(question)
    try:
        yield
    finally:
        _question.reset(token)


def check_permission() -> None:
    _question.get()()
