"""Statements and frames. SQL is taken as it is written: Spark puts `${env:HOME}` and settings into all that it parses.

Names, comments and labels come from the topic, so whoever may ALTER a table in TiDB could have secrets of the process
written into the lake. Spark does it in statements, in `expr`, `selectExpr`, `where` and in names of tables; not in the
text of a stored view that it reads (org.apache.spark.sql.internal.VariableSubstitution).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pyspark.sql import DataFrame, SparkSession

SUBSTITUTE = "spark.sql.variable.substitute"

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_lock = threading.Lock()


class _Held:
    """The sessions that are verbatim now: by how many callers, and what the setting was before."""

    def __init__(self) -> None:
        self.sessions: dict[str, tuple[int, str | None]] = {}


_held = _Held()


@contextmanager
def verbatim(spark: SparkSession) -> Iterator[None]:
    """Let a session take SQL as it is written, until the last of those that run side by side in it has ended.

    A session of Spark Connect stays so: its server parses a frame again whenever it is used.
    """
    jsession: Any = getattr(spark, "_jsparkSession", None)
    if jsession is None:
        if spark.conf.get(SUBSTITUTE, None) != "false":
            spark.conf.set(SUBSTITUTE, "false")
        yield
        return
    name = str(jsession.sessionUUID())
    with _lock:
        count, before = _held.sessions.get(name) or (0, spark.conf.get(SUBSTITUTE, None))
        if not count:
            spark.conf.set(SUBSTITUTE, "false")
        _held.sessions[name] = count + 1, before
    try:
        yield
    finally:
        with _lock:
            count, before = _held.sessions.pop(name)
            if count > 1:
                _held.sessions[name] = count - 1, before
            elif before is None:
                spark.conf.unset(SUBSTITUTE)
            else:
                spark.conf.set(SUBSTITUTE, before)


def with_verbatim_sql(run: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Let the sessions of a function's arguments, and of frames among them, take SQL as it is written while it runs."""

    @wraps(run)
    def wrapped(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        with ExitStack() as held:
            for argument in (*args, *kwargs.values()):
                spark: Any = getattr(argument, "sparkSession", argument)
                if type(spark).__name__ == "SparkSession":  # Spark Connect has other classes
                    held.enter_context(verbatim(spark))
            return run(*args, **kwargs)

    return wrapped


def run_sql(spark: SparkSession, text: str, **frames: Any) -> DataFrame:
    with verbatim(spark):
        return spark.sql(text, **frames)


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
