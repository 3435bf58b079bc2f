"""Frames that are computed once and kept; rows lost with an executor are computed again."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

__all__ = ["computed"]


def computed(frame: DataFrame) -> DataFrame:
    """Compute a frame now, and return its rows as a frame.

    This is `localCheckpoint` that keeps the lineage. `persist` is not enough: Spark 4.1 cannot plan a MERGE from a view
    that reads an Iceberg table, even through a cache. Spark Connect exposes no RDD, so there a lost executor fails
    whatever reads the frame.
    """
    jframe: Any = getattr(frame, "_jdf", None)
    if jframe is None:
        return frame.localCheckpoint()
    kept = jframe.localCheckpoint(False)  # noqa: FBT003 (Spark's own: not now)
    rows = kept.queryExecution().logical().rdd()
    nothing = frame.sparkSession.sparkContext._jvm.scala.Option.empty()  # type: ignore[union-attr]  # noqa: SLF001
    getattr(rows, "checkpointData_$eq")(nothing)  # it would cut the lineage off once the rows are computed
    kept.write().format("noop").mode("overwrite").save()
    return DataFrame(kept, frame.sparkSession)
