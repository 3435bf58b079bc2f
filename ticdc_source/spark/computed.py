"""A frame that is computed once and kept, and of which an executor that dies takes nothing away."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

__all__ = ["computed"]


def computed(frame: DataFrame) -> DataFrame:
    """Compute a frame now, and return its rows as a frame; rows that die with their executor are computed again.

    It is `localCheckpoint` without forgetting where the rows come from. `persist` does not do: Spark 4.1 cannot plan a
    MERGE from a view if an Iceberg table is among what its rows come from, also behind a cache. Spark Connect shows no
    RDD, so a dead executor fails what reads the frame there.
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
