"""`sync`: one stream of records → all tables of its topics, in Delta or Iceberg."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.failures import text_of
from ticdc_lakehouse.syncs.following import RunningSync
from ticdc_lakehouse.syncs.loading import LoadProgress
from ticdc_lakehouse.syncs.reports import BatchReport, SyncReport, exported
from ticdc_lakehouse.syncs.session_and_catalog import refuse_connect, start_workers
from ticdc_lakehouse.targets.sessions import with_verbatim_sql
from ticdc_source import infer_schema, packed_schema
from ticdc_source.developer_api import HAS_ADMISSION_CONTROL, warn

_QUERY = "ticdc-lakehouse sync"  # the name of its stream
_BETWEEN_LOSSES_S = 60.0  # a stream that loses records more often does not go on


@with_verbatim_sql
def sync(
    spark: SparkSession,
    config: SyncConfig,
    *,
    resume: tuple[str, ...] = (),
    on_batch: Callable[[BatchReport], None] | None = None,
    on_load: Callable[[LoadProgress], None] | None = None,
) -> SyncReport:
    """Copy the tables of topics to Delta or Iceberg, and keep the copies up to date.

    The sync reads one stream of records, splits each micro-batch into tables, and writes these in parallel. Changes of
    a table with a key are merged into it; without a key, they are appended to a log. A table that cannot be written is
    set aside with the reason, and its records are kept, while the other tables continue. With `config.heal`, the table
    is read again from TiDB instead. You can kill the sync at any time, and start it again with the same configuration.

    With `config.tidb`, existing rows are loaded first: every table is read as of one TSO, then the changes after the
    TSO are applied. A table that joins later is loaded while the others continue.

    Args:
        spark: a session with Delta or Iceberg.
        config: what to copy.
        resume: tables to resume; fix first what set them aside.
        on_batch: called after each micro-batch.
        on_load: called with the progress of each load, in the thread of that load.

    Returns:
        The status of each table, once all topics have been read (`trigger=None`), or the stream was stopped.

    Example:
        ```python
        from ticdc_lakehouse import SyncConfig, sync

        config = SyncConfig(
            source={"kafka.bootstrap.servers": "localhost:9092", "subscribe": "tidb-shop", "timeZone": "UTC"},
            format="delta",
            path="/data/lake",
            checkpoint="/data/checkpoints/shop",
        )
        report = sync(spark, config)
        print(report.set_aside)
        ```

    Raises:
        OptionError: an option is wrong, `resume` names a table that is not set aside, or the session uses Spark
            Connect.
        TargetError: the tables are copies of other topics, another process is writing them, or the status table cannot
            be written.
        CheckpointError: the tables were written with another checkpoint, or a checkpoint exists but no tables.
        TiCDCSourceError: the topics cannot be read.
    """
    refuse_connect(spark)
    start_workers(spark)
    running = RunningSync(spark, config, on_batch or (lambda _: None), on_load)
    try:
        records = _records(spark, config, config.trigger)  # a wrong option is an error before the tables are claimed
        running.start()
        with running.writing():
            running.resume(resume)
            with exported(spark, config, _QUERY, running.statuses):
                _follow(spark, config, running, records)
            return running.end()
    except Exception as error:
        without_secrets = running.stream.without_secrets(error)
        if without_secrets is error:
            raise
        raise without_secrets from None
    finally:
        running.close()


def _records(spark: SparkSession, config: SyncConfig, trigger: str | None, **more: str) -> DataFrame:
    options = {**config.reader_options(), **more}
    limits = [name for name in options if name.lower() in ("maxoffsetspertrigger", "minoffsetspertrigger")]
    if limits and trigger is None and not HAS_ADMISSION_CONTROL:
        warn(f"Option '{limits[0]}' is ignored: before PySpark 4.2, a sync without a trigger is one micro-batch")
        options = {name: text for name, text in options.items() if name not in limits}
    infer_schema(options)  # checks the options, as load() does only without a schema
    return spark.readStream.format("ticdc").schema(packed_schema()).options(**options).load()


def _follow(spark: SparkSession, config: SyncConfig, running: RunningSync, records: DataFrame) -> None:
    """Run the stream until it ends. If records are lost and tables heal, skip them and read all tables again.

    If more records are lost within a minute, the stream fails.
    """
    skipped_at = float("-inf")
    while True:
        try:
            _run(running, records, config.trigger)
        except Exception as error:
            if not running.heals_loss(error) or time.monotonic() - skipped_at < _BETWEEN_LOSSES_S:
                raise
            reason = text_of(error)
        else:
            return
        warn(f"{reason}. Every table is read again from TiDB, because heal = true")
        running.restart_after_loss(reason, skips=True)
        lossy = _records(spark, config, None, failOnDataLoss="false")
        _run(running, lossy, None)  # the checkpoint is behind the loss then
        running.restart_after_loss(reason, skips=False)
        skipped_at, records = time.monotonic(), _records(spark, config, config.trigger)


def _run(running: RunningSync, records: DataFrame, trigger: str | None) -> None:
    """Run a query until it ends: without a trigger, when the topics are read."""
    how = {"availableNow": True} if trigger is None else {"processingTime": trigger}
    stream = records.writeStream.foreachBatch(running.apply).trigger(**how)
    query = stream.option("checkpointLocation", running.checkpoint.folder).queryName(_QUERY).start()
    running.stream.query = query
    try:
        running.load(str(query.id))
        await_query(query)
        running.load_the_rest()
    except BaseException:
        running.stream.stop()  # errors that the stop causes must set no table aside
        with suppress(Exception):  # the JVM may be gone: a signal that stops this process stops its group
            query.stop()
        if running.stream.error is not None:  # Spark raises the same with a Java traceback
            raise running.stream.error from None
        raise


def await_query(query: StreamingQuery) -> None:
    """Wait until a query ends; a signal may interrupt the wait.

    Another thread makes the call that waits. If a signal handler raises during a call of Py4J, the answer stays on the
    connection of that thread, and its next call, such as the one that stops the query, would wait forever.
    """
    waiting = ThreadPoolExecutor(1, thread_name_prefix="await-query")
    try:
        waiting.submit(query.awaitTermination).result()
    finally:
        waiting.shutdown(wait=False)
