"""Batch reads one after another: each reads the commits that the one before left, and not the whole topic.

docs/guides/repeated-batches.md has the recipe, and why no commit is lost.
"""

from __future__ import annotations

from collections.abc import Mapping

from ticdc_source.errors import OptionError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import listed
from ticdc_source.planning.fetchers import driver_fetcher
from ticdc_source.planning.inference import find_protocol, nothing_there
from ticdc_source.planning.load import batch_options
from ticdc_source.planning.resolved_ts import CLOCKS_DIFFER_MS, resolved_until
from ticdc_source.protocols import decoder_of
from ticdc_source.schema.tso import physical_ms
from ticdc_source.sources.kafka import KafkaCluster, report_loss


def complete_until(options: Mapping[str, str], *, since: int | None = None) -> int:
    """Return the commit-ts below which every transaction is completely in Kafka.

    It is what `endingCommitTs=resolved` means, but known before the read: a job that fails can be repeated with the
    same end. It needs no Spark. No broker is asked for the records of commits before `since`.

    Args:
        options: the options of the read: brokers, topics, protocol, logins.
        since: the end of the job before; the result is never smaller. None for the first job.

    Raises:
        TiCDCSourceError: an option is wrong, the brokers do not answer, a topic partition has no watermark, or Kafka
            has deleted records that may be newer than `since`.
    """
    given = {**options, **_start(since)}
    limited = [name for name in given if name.lower() in ("startingcommitts", "endingcommitts")]
    if [name for name in limited if name in options]:
        msg = f"Option '{limited[0]}' does not go with complete_until(): give its result to commit_range()"
        raise OptionError(msg)
    parsed = batch_options(given)
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

    Each record of such a commit has a timestamp that is not older than the commit, but for the difference of two
    clocks. So records that are older by a minute are not read.

    Args:
        since: the end of the job before; None for the first job, which reads from the earliest offsets.
        until: where the job ends, as `complete_until` returns it; the next job begins with it.

    Example:
        ```python
        import ticdc_source

        print(ticdc_source.commit_range(469237788138012673, 469237788138012675))
        ```
    """
    if since is not None and until < since:
        msg = f"commit_range({since}, {until}): a job cannot end before the one that precedes it"
        raise OptionError(msg)
    start = {} if since is None else {"startingCommitTs": str(since)}
    return {**_start(since), **start, "endingCommitTs": str(until)}


def _start(since: int | None) -> dict[str, str]:
    if since is None:
        return {"startingOffsets": "earliest"}
    # A partition without a record so new has nothing to read.
    oldest = physical_ms(since) - CLOCKS_DIFFER_MS
    return {"startingTimestamp": str(oldest), "startingOffsetsByTimestampStrategy": "latest"}


def _refuse_loss(ranges: list[OffsetRange], cluster: KafkaCluster, options: Options, since: int) -> None:
    """Report partitions that begin with a record newer than `since`, after deleted ones.

    If the start that was found is the first record of the log, no older one proves that only older ones were deleted.
    """
    earliest = cluster.earliest(one.topic_partition for one in ranges)
    gone = [one for one in ranges if one.start == earliest[one.topic_partition] > 0]
    if gone:
        where = listed(f"{one.topic_partition} (first offset {one.start})" for one in gone)
        reason = (
            f"Kafka has deleted records of {where}, and may have deleted commits since {since}: the topic's retention "
            "is shorter than the time between two jobs. Take a snapshot and go on from its TSO, or set "
            "failOnDataLoss=false"
        )
        report_loss(reason, fail=options.fail_on_data_loss)
