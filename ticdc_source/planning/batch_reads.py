"""Batch reads by a program: rows without Spark, and jobs that each read the commits since the last job.

docs/guides/repeated-batches.md has the recipe, and explains why no commit is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from ticdc_source.errors import OptionError, each_from_one_frame
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options, OptionValue, option_texts
from ticdc_source.options.topics import listed
from ticdc_source.planning.fetchers import driver_fetcher
from ticdc_source.planning.inference import find_protocol, nothing_there
from ticdc_source.planning.load import batch_options, load_schema, plan_batch
from ticdc_source.planning.partitions import Partition, read_partition
from ticdc_source.planning.watermarks import CLOCKS_DIFFER_MS, resolved_until
from ticdc_source.protocols import decoder_of
from ticdc_source.schema.tso import physical_ms
from ticdc_source.sources.kafka import KafkaCluster, report_loss


def read_arrow(options: Mapping[str, OptionValue], /) -> pa.RecordBatchReader:
    """Return the rows of `spark.read.format("ticdc")` with the same options, read in this process, without Spark.

    Rows are read while you iterate, one input partition after the other, so memory holds only a few batches. A reader
    that is not read to its end holds a connection until it is deleted.

    Args:
        options: those of a batch read, such as `{"kafka.bootstrap.servers": "broker:9092", "subscribe": "tidb-shop",
            "tables": "shop.orders"}`.

    Returns:
        The record batches, with Spark's columns as Arrow types; pandas, Polars and DuckDB read them.

    Raises:
        TiCDCSourceError: as `load()`; errors in records are raised when their batch is read.
    """
    given = option_texts(options)
    schema, parsed = load_schema(given), batch_options(given)
    return pa.RecordBatchReader.from_batches(schema, _Batches(_batches(plan_batch(schema, parsed), schema, parsed)))


class _Batches(Iterator[pa.RecordBatch]):
    """Record batches that raise their error again if read on, so that it is not taken for the end."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._error: Exception | None = None

    def __next__(self) -> pa.RecordBatch:
        if self._error is not None:
            raise self._error
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except Exception as error:
            self._error = error
            raise


@each_from_one_frame
def _batches(partitions: list[Partition], schema: pa.Schema, options: Options) -> Iterator[pa.RecordBatch]:
    for partition in partitions:
        yield from read_partition(partition, schema, options)


def complete_until(options: Mapping[str, str], *, since: int | None = None) -> int:
    """Return the commit-ts below which every transaction is completely in Kafka.

    It is the end of `endingCommitTs=resolved`, known before the read: a failed job can be repeated with the same end.
    It needs no Spark, and reads no records from before `since`.

    Args:
        options: the options of the read: brokers, topics, protocol, logins.
        since: the end of the previous job, None for the first one. The result is never smaller.

    Raises:
        TiCDCSourceError: an option is wrong, the brokers do not answer, a topic partition has no watermark, or Kafka
            has deleted records that may be newer than `since`.
    """
    for name in options:
        if name.lower() in ("startingcommitts", "endingcommitts"):
            raise OptionError(
                f"Option '{name}' cannot be used with complete_until(): pass its result to commit_range()"
            )
    parsed = batch_options({**options, **_start(since)})
    with KafkaCluster(parsed) as cluster:
        ranges = cluster.resolve_ranges()
        if since is not None:
            _refuse_loss(ranges, cluster, parsed, since)
    with driver_fetcher(parsed) as fetcher:
        protocol = find_protocol(ranges, fetcher.fetch, parsed)
        if protocol is None:
            raise nothing_there(ranges, parsed)
        until = resolved_until(ranges, fetcher.fetch, decoder_of(protocol, parsed))
    return until if since is None else max(until, since)


def commit_range(since: int | None, until: int) -> dict[str, str]:
    """Return the options of a batch read of the commits from `since` up to, but not including, `until`.

    Apart from clock differences, no record is older than its commits. So records from more than a minute before `since`
    are not read.

    Args:
        since: the end of the previous job; None for the first job, which reads from the earliest offsets.
        until: the end of this job, from `complete_until`; the next job begins there.

    Example:
        ```python
        import ticdc_source

        print(ticdc_source.commit_range(469237788138012673, 469237788138012675))
        ```
    """
    if since is not None and until < since:
        raise OptionError(f"commit_range({since}, {until}): a job cannot end before the one that precedes it")
    start = {} if since is None else {"startingCommitTs": str(since)}
    return {**_start(since), **start, "endingCommitTs": str(until)}


def _start(since: int | None) -> dict[str, str]:
    if since is None:
        return {"startingOffsets": "earliest"}
    # A partition without so new a record has nothing to read.
    oldest = physical_ms(since) - CLOCKS_DIFFER_MS
    return {"startingTimestamp": str(oldest), "startingOffsetsByTimestampStrategy": "latest"}


def _refuse_loss(ranges: list[OffsetRange], cluster: KafkaCluster, options: Options, since: int) -> None:
    """Report partitions whose first record, after deleted ones, is newer than `since`.

    If the read starts at the first record of the log, nothing proves that only older records were deleted.
    """
    earliest = cluster.earliest(one.topic_partition for one in ranges)
    gone = [one for one in ranges if one.start == earliest[one.topic_partition] > 0]
    if gone:
        where = listed(f"{one.topic_partition} (first offset {one.start})" for one in gone)
        reason = (
            f"Kafka has deleted records of {where}, maybe with commits since {since}: the topic's retention is shorter "
            "than the time between two jobs. Take a snapshot and continue from its TSO, or set failOnDataLoss=false"
        )
        report_loss(reason, fail=options.fail_on_data_loss)
