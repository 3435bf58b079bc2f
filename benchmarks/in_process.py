"""The work of a Spark worker in this process: without Spark, and without a broker unless fetching is measured."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from benchmarks.corpus import Message
from benchmarks.load import record_batch
from ticdc_source.kernels.arrays import Binaries
from ticdc_source.options.kafka_client import client_settings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.pipeline.spec import ReadSpec, read_spec
from ticdc_source.planning.fetchers import fetch_settings
from ticdc_source.planning.load import schema_of_ranges
from ticdc_source.planning.read_context import context_of_schema
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.kafka import KafkaFetcher
from ticdc_source.sources.kafka.cut import chunks_of as chunks_of_batches
from ticdc_source.sources.kafka.kafka_python.slicing import legacy_records
from ticdc_source.sources.kafka.record_batches import Fetched, record_batches

TOPIC = "in-process"

_BATCH_BYTES = 100_000  # of a record batch
_ANSWER_BYTES = 3 << 20  # max.partition.fetch.bytes
_CHUNK_BYTES = 4 << 20


class Answer(NamedTuple):
    """What a broker answers to a fetch: record batches, from an offset to another."""

    start: int
    end: int
    data: bytes


def cpu_of(run: Callable[[], Any], times: int = 3) -> float:
    """Return the CPU seconds that this process takes to run something: the least of several, as noise only adds."""
    took = []
    for _ in range(times):
        gc.collect()
        gc.disable()  # a worker leaves what lives longer out
        try:
            begun = time.process_time()
            run()
            took.append(time.process_time() - begun)
        finally:
            gc.enable()
    return min(took)


def make_options(**options: str) -> Options:
    """Return options with a broker that is never asked."""
    return Options.of({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": TOPIC, **options})


def chunks_of(messages: Iterable[Message], first: int = 0, protocol: str = "canal-json") -> Iterator[Chunk]:
    """Yield chunks of messages, as a fetcher would."""
    source = iter(messages)
    while part := list(islice(source, PROTOCOLS[protocol].facts.chunk_records)):
        offsets = list(range(first, first + len(part)))
        keys, values = [message.key for message in part], pa.array([message.value for message in part], pa.binary())
        yield Chunk(TOPIC, 0, offsets, [1_795_247_640_910] * len(part), keys, Binaries.of(values))
        first += len(part)


def spec_for(messages: Sequence[Message], **options: str) -> ReadSpec:
    """Infer a schema from messages, and return the specification with which a worker reads them."""
    parsed = make_options(**options)

    def fetch(offset_range: OffsetRange) -> Iterator[Chunk]:
        return chunks_of(messages[offset_range.start : offset_range.end], offset_range.start)

    schema = schema_of_ranges([OffsetRange(TOPIC, 0, 0, len(messages))], fetch, parsed)
    context = context_of_schema(schema, parsed)
    assert context is not None
    return read_spec(schema, parsed, context)


def fetched(bootstrap: str, topic: str, records: int) -> int:
    """Fetch a topic's partition 0 as a worker does, and drop it; return the number of records."""
    options = Options.of({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    with KafkaFetcher(client_settings(options, driver=False), fetch_settings(options)) as fetcher:
        return sum(len(chunk) for chunk in fetcher.fetch(OffsetRange(topic, 0, 0, records)))


def answers_of(messages: Iterable[Message]) -> Iterator[Answer]:
    """Yield the answers of a broker that has these messages in record batches that are not compressed."""
    source = iter(messages)
    start = end = 0
    batches: list[bytes] = []
    while first := next(source, None):
        more = _BATCH_BYTES // (len(first.value or b"") + len(first.key or b"") + 1)
        batch = record_batch([first, *islice(source, more)])
        if batches and sum(map(len, batches)) + len(batch.data) > _ANSWER_BYTES:
            yield Answer(start, end, b"".join(batches))
            start, batches = end, []
        batches.append(end.to_bytes(8, "big") + batch.data[8:])  # the checksum does not cover the first offset
        end += batch.records
    if batches:
        yield Answer(start, end, b"".join(batches))


def cut(answers: Iterable[Answer], protocol: str) -> Iterator[Chunk]:
    """Yield the chunks of a broker's answers, as a worker cuts them, checksums included."""
    limits = FetchSettings(
        max_records=PROTOCOLS[protocol].facts.chunk_records, max_bytes=_CHUNK_BYTES, include_headers=False
    )
    for start, end, data in answers:
        fetched_ = Fetched(topic=TOPIC, partition=0, start=start, data=data, read_legacy=legacy_records)
        batches, damage = record_batches(data, start, end, at_batch=True)
        yield from chunks_of_batches(fetched_, batches, damage, limits, end)
