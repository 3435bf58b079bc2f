"""The source of a read, what fetches its records, and the searches outside its offset ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial

from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.planning.definition_search import Bounds, DefinitionSearch, last_commit_ts
from ticdc_source.planning.resolved_ts import Fetch
from ticdc_source.protocols import FORMATS, PROTOCOLS
from ticdc_source.protocols.decoding import Decoder
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.choose import source_of
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.record_source import Fetcher, RecordSource

# The most records in a chunk while the protocol is unknown.
_DRIVER_CHUNK_RECORDS = 4000
# The driver chooses for each DDL event the partition that returns it; workers of other partitions drop their copies.
_LOST_COPIES = (
    "DDL events in these records, such as TRUNCATE or DROP TABLE, are lost too: this read drops their copies in other "
    "partitions. Compare the tables with TiDB"
)


def has_ddl_copies(protocol: str | None, options: Options) -> bool:
    """Return whether the read outputs DDL events, and every partition has a copy of them."""
    if options.output_format != "event" or protocol is None:
        return False
    return PROTOCOLS[protocol].facts.ddl_partition is None


def fetch_settings(options: Options, protocol: str | None = None) -> FetchSettings:
    """Return how to fetch records of a protocol; it is None as long as it is not known."""
    chunk_records = _DRIVER_CHUNK_RECORDS if protocol is None else PROTOCOLS[protocol].facts.chunk_records
    return FetchSettings(
        max_records=min(chunk_records, options.max_rows_per_batch),
        max_bytes=options.max_bytes_per_batch,
        include_headers=options.include_headers or options.output_format == "record",
        poll_timeout_ms=options.kafka_consumer_poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
        lost_too=_LOST_COPIES if has_ddl_copies(protocol, options) else "",
        max_record_bytes=options.max_message_bytes,
        native=options.native_code != "off",
    )


def record_source(options: Options) -> RecordSource:
    """Return where the records that the options name come from; it connects to nothing yet."""
    return source_of(options, FORMATS)


def driver_fetcher(options: Options) -> Fetcher:
    """Return a fetcher for the driver. Of each file it reads `inferSchema.maxRecords` rows, for the sample."""
    return record_source(options).fetcher(
        fetch_settings(options),
        protocol=None if options.protocol == "auto" else options.protocol,
        max_rows=options.infer_schema_max_records,
    )


def task_fetcher(options: Options, protocol: str, *, fresh: bool) -> AbstractContextManager[Fetcher]:
    return record_source(options).task_fetcher(fetch_settings(options, protocol), protocol, fresh=fresh)


def definition_search(decoder: Decoder, options: Options, *, driver: bool = True) -> DefinitionSearch:
    """Return the search for table definitions that rows name and the read lacks; it connects at the first search.

    If they must be searched for, a worker of a stream repeats it for up to `kafkaConsumer.pollTimeoutMs`, because TiCDC
    may still write the definition.
    """
    fetch, bounds = _access(decoder, options, driver=driver)
    return DefinitionSearch(
        decoder,
        fetch,
        bounds,
        record_source(options).defining,
        limit=options.infer_schema_max_scanned_records,
        timeout_s=options.infer_schema_timeout_ms / 1000,
        wait_s=options.kafka_consumer_poll_timeout_ms / 1000 if options.is_stream and not driver else 0,
    )


def previous_rows(
    decoder: Decoder, options: Options, *, driver: bool = True
) -> Callable[[TableName, TopicPartition, int], int | None]:
    """Return what `Learned.previous` asks for the row before an offset."""
    fetch, bounds = _access(decoder, options, driver=driver)
    return partial(
        last_commit_ts,
        decoder=decoder,
        fetch=fetch,
        bounds=bounds,
        limit=options.infer_schema_max_scanned_records,
        timeout_s=options.infer_schema_timeout_ms / 1000,
    )


def _access(decoder: Decoder, options: Options, *, driver: bool) -> tuple[Fetch, Bounds]:
    """Return what yields the records of any offset range, and what returns the bounds of topic partitions.

    Each call connects anew.
    """

    def fetch(wanted: OffsetRange) -> Iterator[Chunk]:
        source, settings = record_source(options), fetch_settings(options)
        with source.fetcher(settings, protocol=decoder.facts.name, driver=driver) as fetcher:
            yield from fetcher.fetch(wanted)

    def bounds(topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        with record_source(options) as source:
            earliest, latest = source.earliest(topic_partitions), source.latest(topic_partitions)
        return {each: (earliest[each], latest[each]) for each in earliest.keys() & latest.keys()}

    return fetch, bounds
