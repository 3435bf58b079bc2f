"""Input partitions as Spark has them: what the driver sends to the workers, and how a worker reads one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from ticdc_source.errors import each_from_one_frame
from ticdc_source.options.options import Options
from ticdc_source.pipeline.metrics import TaskFacts
from ticdc_source.pipeline.read import leave_out_modules
from ticdc_source.planning import partitions
from ticdc_source.planning.partitions import Partition


class TiCDCPartition(InputPartition):
    """An input partition of Spark."""

    def __init__(self, content: Partition) -> None:
        super().__init__(tuple(content.ranges))
        self.content = content


@each_from_one_frame
def read_partition(partition: InputPartition, schema: pa.Schema, options: Options) -> Iterator[pa.RecordBatch]:
    """Read one input partition on a worker."""
    if not isinstance(partition, TiCDCPartition):
        return
    task = TaskContext.get()
    if task is not None:
        leave_out_modules()
    fresh = task is not None and task.attemptNumber() > 0
    yield from partitions.read_partition(
        partition.content, schema, options, facts=partial(_task_facts, task), fresh=fresh
    )


def _task_facts(task: TaskContext | None) -> TaskFacts:
    """Return which task of which micro-batch this is; a batch read has no query and no micro-batch."""
    if task is None:
        return {}
    batch = task.getLocalProperty("streaming.sql.batchId")
    return {
        "query": task.getLocalProperty("sql.streaming.queryId"),
        "batch": int(batch) if batch else None,
        "stage": task.stageId(),
        "task": task.partitionId(),
        "attempt": task.attemptNumber(),
        "time": time.time(),
    }
