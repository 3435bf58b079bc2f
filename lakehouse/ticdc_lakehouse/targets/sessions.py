"""Spark sessions: SQL taken as it is written, frames computed once, and a session of its own for each merge.

**As written.** Spark replaces `${env:HOME}`, and `${…}` of its settings, in all that it parses. Names, comments and
labels come from the topic, so anyone who may ALTER a table in TiDB could get secrets of the process into the lake.
Spark does it in statements, in `expr`, `selectExpr`, `where` and names of tables, but not in the text of a stored view
(org.apache.spark.sql.internal.VariableSubstitution).

**A session of its own.** What a commit records is a setting of the session, which Spark reads while it commits, so
merges that run in parallel need a session each. It also has settings that only merges need. Sessions are clones of the
user's, and kept for the next merge, because a new one would load its catalogs again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

SUBSTITUTE = "spark.sql.variable.substitute"
_SNAPSHOT_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
_MATERIALIZE_SOURCE = "spark.databricks.delta.merge.materializeSource"
_ADAPTIVE, _COST_BASED = "spark.sql.adaptive.enabled", "spark.sql.cbo.enabled"
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_ROWS_OF_A_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
_DEFAULT_ROWS, _FEW_ROWS = "10000", "1000"
_FILES_OF_A_PARTITION = 8
_MOST_SNAPSHOT_PARTITIONS = 50  # Delta's default
_MOST_PARENTS = 4  # sessions whose clones are kept

_Run = TypeVar("_Run", bound=Callable[..., object])
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_lock = threading.Lock()
_one_at_a_time = threading.RLock()
_free: OrderedDict[tuple[object, ...], list[SparkSession]] = OrderedDict()
_origins: WeakKeyDictionary[SparkSession, str] = WeakKeyDictionary()

# By session: how many callers need it verbatim now, and the setting before.
_held: OrderedDict[str, tuple[int, str | None]] = OrderedDict()


@contextmanager
def verbatim(spark: SparkSession) -> Iterator[None]:
    """Let a session take SQL as it is written, until the last block that runs in it has ended.

    A session of Spark Connect stays so, as its server parses a frame again whenever it is used.
    """
    jsession: Any = getattr(spark, "_jsparkSession", None)
    if jsession is None:
        if spark.conf.get(SUBSTITUTE, None) != "false":
            spark.conf.set(SUBSTITUTE, "false")
        yield
        return
    name = str(jsession.sessionUUID())
    with _lock:
        count, before = _held.get(name) or (0, spark.conf.get(SUBSTITUTE, None))
        if not count:
            spark.conf.set(SUBSTITUTE, "false")
        _held[name] = count + 1, before
    try:
        yield
    finally:
        with _lock:
            count, before = _held.pop(name)
            if count > 1:
                _held[name] = count - 1, before
            else:
                _restore(spark, SUBSTITUTE, before)


def with_verbatim_sql(run: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorate a function: while it runs, sessions and frames among its arguments take SQL as it is written."""

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

    This is a `localCheckpoint` that keeps the lineage. `persist` is not enough: Spark 4.1 cannot plan a MERGE from a
    view that reads an Iceberg table, even through a cache. Spark Connect exposes no RDD, so there the frame cannot be
    read any more once an executor is lost.
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


@contextmanager
def own_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield a session that nobody else uses, with the settings and the current catalog of the given one.

    Not all releases can clone a session of Spark Connect, so it is yielded itself, to one merge at a time.
    """
    jsession = getattr(spark, "_jsparkSession", None)
    if jsession is None:
        with _one_at_a_time:
            yield spark
        return
    place = (spark.catalog.currentCatalog(), spark.catalog.currentDatabase())
    state = (jsession.sessionUUID(), spark.conf._jconf.getAllAsJava().hashCode(), *place)  # noqa: SLF001 (no other)
    with _lock:
        clones = _free.setdefault(state, [])
        _free.move_to_end(state)
        while len(_free) > _MOST_PARENTS:
            _free.popitem(last=False)
        own = clones.pop() if clones else None
    own = own or _cloned(spark, place)
    try:
        yield own
    finally:
        with _lock:
            clones.append(own)


def in_thread(spark: SparkSession | None, run: _Run) -> _Run:
    """Return the function for use in other threads, with the context, local properties and tags of this one."""
    context = copy_context()

    def in_context(*given: Any) -> object:
        return context.copy().run(run, *given)  # several threads may run it at once

    def in_one_thread(*given: Any) -> object:
        return _inheriting(spark, in_context)(*given)  # otherwise all threads would share one object of properties

    return cast("_Run", _inheriting(spark, in_one_thread))


def _inheriting(spark: SparkSession | None, run: Callable[..., object]) -> Callable[..., object]:
    # Without a session, Spark would warn that tags are lost. If threads are not pinned, it returns the session itself.
    inherit: Any = None if spark is None else inheritable_thread_target(spark)
    return cast("Callable[..., object]", inherit(run)) if callable(inherit) else run


def _cloned(spark: SparkSession, place: tuple[str, str]) -> SparkSession:
    """Clone a session, and add the settings that merges need and the user has not chosen."""
    jsession: Any = spark._jsparkSession  # noqa: SLF001 (no public method clones)
    own = SparkSession(spark.sparkContext, jsession.cloneSession())
    if own.catalog.currentCatalog() != place[0]:
        own.catalog.setCurrentCatalog(place[0])
    if own.catalog.currentDatabase() != place[1]:
        own.catalog.setCurrentDatabase(place[1])
    # Delta looks at the files of a table in so many tasks, several times in each MERGE.
    if spark.conf.get(_SNAPSHOT_PARTITIONS, None) is None:
        parallel = spark.sparkContext.defaultParallelism
        own.conf.set(_SNAPSHOT_PARTITIONS, str(min(parallel, _MOST_SNAPSHOT_PARTITIONS)))
    # A stream turns both off because of its state, but its micro-batches are merged as batches, of any size.
    if all(spark.conf.get(name, None) == "false" for name in (_ADAPTIVE, _COST_BASED)):
        own.conf.set(_ADAPTIVE, "true")
    # Each packed row has many records (`ticdc_source.pipeline.packed_records`), and Python copies the batch twice.
    if spark.conf.get(_ROWS_OF_A_BATCH, _DEFAULT_ROWS) == _DEFAULT_ROWS:
        own.conf.set(_ROWS_OF_A_BATCH, _FEW_ROWS)
    own.conf.set(SUBSTITUTE, "false")
    # Delta would copy the source of a MERGE, as it might change. This one is computed already (`computed`).
    own.conf.set(_MATERIALIZE_SOURCE, "none")
    _origins[own] = str(jsession.sessionUUID())
    return own


def origin(spark: SparkSession) -> str:
    """Return the id of a session, or of the session of which it is a clone."""
    if spark in _origins:
        return _origins[spark]
    session: Any = spark
    jsession = getattr(session, "_jsparkSession", None)
    return str(session.session_id if jsession is None else jsession.sessionUUID())


def frame_in(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Return the frame in another session, whose settings it is then computed with."""
    if spark is frame.sparkSession:
        return frame
    jvm: Any = spark._jvm  # noqa: SLF001 (as foreachBatch does it in the JVM)
    dataset = getattr(jvm, "org.apache.spark.sql.classic.Dataset")
    jframe: Any = frame._jdf  # noqa: SLF001
    return DataFrame(dataset.ofRows(spark._jsparkSession, jframe.queryExecution().analyzed()), spark)  # noqa: SLF001


@contextmanager
def shuffling(spark: SparkSession, rows: int) -> Iterator[None]:
    """Shuffle into fewer partitions if there are few `rows`: a MERGE rewrites at most one file for each row."""
    most = int(spark.conf.get(_SHUFFLE_PARTITIONS) or 1)
    with configured(spark, {_SHUFFLE_PARTITIONS: str(min(most, max(1, -(-rows // _FILES_OF_A_PARTITION))))}):
        yield


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            _restore(spark, name, old)


def _restore(spark: SparkSession, setting: str, before: str | None) -> None:
    if before is None:
        spark.conf.unset(setting)
    else:
        spark.conf.set(setting, before)
