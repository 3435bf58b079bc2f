"""Input partitions: what the driver sends to the workers, and how a worker reads one, in a batch or a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import pyarrow as pa

from ticdc_source.errors import SchemaError
from ticdc_source.kernels.native import why_general
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.pipeline.context import BatchScope, ReadContext
from ticdc_source.pipeline.metric_files import metric_files
from ticdc_source.pipeline.metrics import Counters, TaskFacts, metrics_line
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadSpec, ReadState, read_spec
from ticdc_source.planning.fetchers import search_of, task_fetcher
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.schema.model import Definitions

_MOST_KNOWN = 10_000  # definitions per topic


class _Found(dict[str, Definitions]):
    """The table versions that this worker has found, by topic, for later micro-batches.

    Versions never change. Those sent with a read are not kept, because they may lack columns.
    """

    def keep(self, topic: str, definitions: Definitions) -> None:
        """Keep definitions for later reads of a topic; above the limit, drop the oldest."""
        known = self.setdefault(topic, {})
        known.update(definitions)
        for key in list(known)[: max(0, len(known) - _MOST_KNOWN)]:
            del known[key]


_FOUND = _Found()


@dataclass(frozen=True, slots=True)
class Partition:
    """Offset ranges to read one after the other, maybe none, and what the driver knows.

    Attributes:
        lags: for each range, the number of offsets after its end when it was planned; None if unknown.
        options: its own, if they differ from those of the read.
    """

    ranges: Sequence[OffsetRange]
    context: ReadContext
    scope: BatchScope
    lags: Sequence[int | None] = ()
    options: Options | None = None


def read_partition(
    partition: Partition,
    schema: pa.Schema,
    options: Options,
    *,
    facts: Callable[[], TaskFacts] = TaskFacts,
    fresh: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Read an input partition.

    Args:
        facts: returns this Spark task's facts.
        fresh: whether to use new connections, because the task is a retry.

    Raises:
        TiCDCSourceError: see `pipeline.read.read` and `sources.kafka.Fetcher.fetch`.
    """
    if not partition.ranges:
        return
    context, options = partition.context, partition.options or options
    if context.protocol is None:
        if not _has_records(partition.ranges, options):
            return
        raise SchemaError(
            "the protocol is unknown, because there was no record when the read was planned: set 'protocol'"
        )
    spec = read_spec(schema, options, context, partition.scope)
    state = ReadState.of(spec)
    topics = {each.topic for each in partition.ranges}
    search = search_of(spec.decoder, options, driver=False)
    state.learned.search, state.learned.previous = search, search.last_commit_ts
    for topic in topics:
        state.learned.definitions = {**_FOUND.get(topic, {}), **state.learned.definitions}
    lines = []
    with task_fetcher(options, context.protocol, fresh=fresh) as fetcher:
        for offset_range, lag in zip_longest(partition.ranges, partition.lags):
            state.counters = Counters()
            search.around = offset_range
            yield from spec.packed(read(fetcher.fetch(offset_range), spec, state))
            lines.append(
                metrics_line(
                    state.counters,
                    offset_range,
                    lag,
                    facts(),
                    spec.commits.end,
                    table=_table_of(spec, state),
                    client=fetcher.library,
                    native_fallback=why_general(options.native_code),
                )
            )
        # At the end: if a topic still has its id, it had it while it was read.
        topic_ids = partition.scope.topic_ids
        fetcher.check_topics(
            {each.topic_partition: topic_ids[each.topic] for each in partition.ranges if each.topic in topic_ids}
        )
    found = {key: each for key, each in state.learned.definitions.items() if key not in context.definitions}
    for topic in topics:
        _FOUND.keep(topic, found)
    if options.metrics_path:
        query, number = facts().get("query"), facts().get("batch")
        name = "batch" if query is None else f"{query}-{number or 0:09d}"
        metric_files(options.metrics_path).write(name, lines)


def _has_records(ranges: Sequence[OffsetRange], options: Options) -> bool:
    """Whether any record of the ranges has a value; transaction markers have offsets, but no records."""
    with task_fetcher(options, next(iter(PROTOCOLS)), fresh=False) as fetcher:
        return any(any(chunk.values) for each in ranges for chunk in fetcher.fetch(each))


def _table_of(spec: ReadSpec, state: ReadState) -> str | None:
    """Return the table of the rows, else that of the option `tables`; None if there may be several."""
    table = (state.table if spec.layout.output in {"changelog", "envelope"} else None) or spec.tables.exact
    return None if table is None else str(table)
