"""The options of records that come as rows of a DataFrame: those that do not say how to get them from Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ticdc_source.errors import OptionError
from ticdc_source.native import warn_of_missing
from ticdc_source.options.names import refuse_misspelt, warn_of_unknown
from ticdc_source.options.options import OPTIONS, Options

__all__ = ["frame_options"]

# What the program that made the frame has decided: which records, and how tasks share them.
_OF_KAFKA = frozenset({
    *("assign", "subscribe", "subscribePattern"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "failOnDataLoss"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition"),
    *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "fetchOffset.minIntervalMs"),
    *("kafkaConsumer.pollTimeoutMs", "brokerTimeoutMs", "groupIdPrefix", "commitGroupOffsets", "metricsPath"),
})  # fmt: skip


def frame_options(given: Mapping[str, str], *, is_stream: bool = False) -> Options:
    """Return the options of a DataFrame's records, checked.

    Args:
        given: options by name, in any case.
        is_stream: whether the DataFrame is a stream.

    Raises:
        OptionError: an option is wrong, or is about fetching from Kafka.
    """
    refuse_misspelt(given)
    options = Options.of(given, from_kafka=False)
    kafka = [f"kafka.{name}" for name in options.kafka]
    about_kafka = [option.name for option in OPTIONS.values() if option.name in _OF_KAFKA]
    refused = kafka + [name for name in about_kafka if options.is_given(name)]
    if refused:
        msg = f"Option '{refused[0]}' says how to read Kafka; here the records come from a DataFrame: set it there"
        raise OptionError(msg)
    if options.ending_commit_ts == "resolved":
        msg = (
            "endingCommitTs=resolved is not supported for the records of a DataFrame, which need not be all: give the "
            "commit-ts, such as the smallest over the topic partitions of their largest _watermark_ts"
        )
        raise OptionError(msg)
    warn_of_unknown(options)
    warn_of_missing(options.native_code)
    return replace(options, is_stream=is_stream)
