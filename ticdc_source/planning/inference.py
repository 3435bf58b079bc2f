"""Inference: a sample of both ends of the range → split → describe → merge; on the driver, once per load()."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import pyarrow as pa

from ticdc_source.errors import DecodeError, OptionError, SchemaError, counted
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.ranges import time_hint
from ticdc_source.options.topics import TableFilter, TopicPartition
from ticdc_source.planning.fetchers import Fetch, Search, record_source
from ticdc_source.protocols import decoder_of, detect_protocol, possible_decoders, with_likely_protocol
from ticdc_source.protocols.base import Learned
from ticdc_source.protocols.decoding import Decoder, definitions_in, small_portions, splits_of
from ticdc_source.protocols.events import Corrupt, Split, TableEvents
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.ddl import (
    ddl_types_of_tables,
    lack_types,
    table_ddl_types,
    tells_no_key,
    with_ddl_facts,
    with_handle_key,
    with_table_ddl,
)
from ticdc_source.schema.ddl_event import DDLEvent, is_too_long
from ticdc_source.schema.model import (
    Column,
    Definitions,
    ReadField,
    TableSchema,
    TypeVersions,
    check_names,
    merge_schemas,
)
from ticdc_source.schema.mysql_ddl.history import history_of
from ticdc_source.schema.table_name import TableName, first_spellings
from ticdc_source.schema.types import ColumnType
from ticdc_source.sources.chunk import Chunk

_log = logging.getLogger(__name__)


def tell_order(sample: Sample) -> None:
    """Log that a table's changes are ordered by partition and offset, if its last rows have no commit-ts."""
    facts = sample.decoder.facts
    for table, parts in sample.rows.items():
        if facts.commit_ts_needs is None or not parts:
            continue
        decoded = sample.decoder.decode(parts[-1].picked([len(parts[-1]) - 1]), Plan(()))
        if decoded.placed.true_count:
            _log.warning(
                "The messages of %s have no commit-ts, so changes with the same event time are ordered by partition, "
                "then offset. If changes of one row are in several partitions, an older one may win. %s",
                table,
                facts.commit_ts_needs,
            )


_FIRST_WINDOW = 16  # records of each topic partition to read first, at least
_PARTITIONS_AT_A_TIME = 32  # topic partitions to read before looking whether that is enough
_MOST_UNPACKED = 32 << 20  # bytes of decompressed messages that a sample keeps, unless the first is larger

MakesSearch = Callable[[Decoder], Search]


class Sampler:
    """Reads offset ranges from both ends towards the middle, a window of each topic partition at a time.

    After the deadline (by `time.monotonic`) it reads no more, but it always reads one window.
    """

    def __init__(self, ranges: Sequence[OffsetRange], fetch: Fetch, deadline: float = math.inf) -> None:
        self._left = {each.topic_partition: each for each in spread(ranges) if each.size}
        self._fetch = fetch
        self._deadline = deadline
        self._is_begun = False

    def first_windows(self, size: int) -> Iterator[tuple[list[Chunk], list[Chunk]]]:
        """Read the first and last `size` offsets of some topic partitions, then of more, until all have been read.

        Yields:
            the chunks from the start, and those from the end.
        """
        waiting = list(self._left)
        for first in range(0, len(waiting), _PARTITIONS_AT_A_TIME):
            some = waiting[first : first + _PARTITIONS_AT_A_TIME]
            yield list(self.forward(size, some)), list(self.backward(size, some))
            if time.monotonic() >= self._deadline:
                break

    def __bool__(self) -> bool:
        """Whether any offset is left between the ends."""
        return bool(self._left)

    @property
    def left(self) -> int:
        """The number of offsets between the ends."""
        return sum(each.size for each in self._left.values())

    def forward(self, size: int, wanted: Collection[TopicPartition] | None = None) -> Iterator[Chunk]:
        """Read the next `size` offsets of each topic partition, or of those wanted, from the start."""
        for left in self._waiting(wanted):
            middle = min(left.start + size, left.end)
            yield from self._read(left._replace(end=middle), left._replace(start=middle))

    def backward(self, size: int, wanted: Collection[TopicPartition] | None = None) -> Iterator[Chunk]:
        """Read the last `size` unread offsets of each topic partition, or of those wanted."""
        for left in self._waiting(wanted):
            middle = max(left.end - size, left.start)
            yield from self._read(left._replace(start=middle), left._replace(end=middle))

    def _waiting(self, wanted: Collection[TopicPartition] | None) -> Iterator[OffsetRange]:
        for topic_partition in list(self._left) if wanted is None else wanted:
            if self._is_begun and time.monotonic() >= self._deadline:
                return
            if topic_partition in self._left:
                yield self._left[topic_partition]
                self._is_begun = True

    def _read(self, now: OffsetRange, later: OffsetRange) -> Iterable[Chunk]:
        self._left[later.topic_partition] = later
        if not later.size:
            del self._left[later.topic_partition]
        return self._fetch(now)


def spread(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Order ranges for sampling: topics in turn, each with its lowest partition first.

    Some protocols have DDL only there. The others follow far apart, in the same order in each read.
    """
    by_topic: dict[str, list[OffsetRange]] = {}
    for offset_range in sorted(ranges):
        by_topic.setdefault(offset_range.topic, []).append(offset_range)
    for topic, of_topic in by_topic.items():
        step = max(1, len(of_topic) // _PARTITIONS_AT_A_TIME)
        by_topic[topic] = [offset_range for first in range(step) for offset_range in of_topic[first::step]]
    return [offset_range for turn in zip_longest(*by_topic.values()) for offset_range in turn if offset_range]


@dataclass(slots=True)
class Sample:
    """The events of a sample.

    Attributes:
        rows: row events of wanted tables, oldest first.
        ddl: DDL events of any table.
        definitions: the table versions that DDL and BOOTSTRAP events define (`ProtocolFacts.definitions`).
        wanted: the wanted tables that occur, even if `rows` has none of their events because it had enough.
        others: the other tables that occur.
        corrupt: the first record that cannot be split into events.
        scanned: the number of records read.
        whole: whether `ddl` has every DDL event of the range.
        ddl_places: the identities of the DDL events in each topic partition.
        most_unpacked: the most bytes of decompressed messages to keep.
        search: looks in the topic for table versions that rows name and the sample does not define.
    """

    decoder: Decoder
    tables: TableFilter
    rows: dict[TableName, list[TableEvents]] = field(default_factory=dict)
    ddl: list[DDLEvent] = field(default_factory=list)
    definitions: Definitions = field(default_factory=dict)
    wanted: set[TableName] = field(default_factory=set)
    others: set[TableName] = field(default_factory=set)
    corrupt: Corrupt | None = None
    scanned: int = 0
    whole: bool = True
    table_ddl: str | None = None
    ddl_places: dict[TopicPartition, set[str]] = field(default_factory=dict)
    most_unpacked: float = _MOST_UNPACKED
    search: Search | None = None
    _unpacked: int = 0

    def add(self, chunk: Chunk, *, rows: bool = True) -> int:
        """Add the events of a chunk; return the number of row events of wanted tables."""
        self.scanned += len(chunk)
        rows_added = 0
        identities = self.ddl_places.setdefault(TopicPartition(chunk.topic, chunk.partition), set())
        for split in splits_of(self.decoder, chunk):
            identities.update(event.identity for event in split.ddl)
            if split.corrupt and self.corrupt is None:
                self.corrupt = with_likely_protocol(split.corrupt[0], chunk, self.decoder)
            self.add_ddl(split)
            for event in filter(is_too_long, split.ddl):
                where = chunk.address(event.position, event.table)
                _log.warning("A DDL text of %d characters is too long to parse for types (%s)", len(event.query), where)
            for table, table_events in split.tables.items():
                if not self.tables.matches(table):
                    self.others.add(table)
                    continue
                self.wanted.add(table)
                if rows:
                    rows_added += len(table_events)
                    parts = self.rows.setdefault(table, [])
                    size = sum(map(len, table_events.payloads)) if split.unpacked else 0
                    if not parts or self._unpacked + size <= self.most_unpacked:
                        parts.append(table_events)
                        self._unpacked += size
        return rows_added

    def add_ddl(self, split: Split) -> None:
        """Add DDL events, and what they and BOOTSTRAP events define."""
        self.ddl += split.ddl
        self.definitions |= definitions_in(split, self.decoder)

    def describe(
        self, events: TableEvents, declared: Mapping[str, TypeVersions] | None = None, *, with_ddl: bool = True
    ) -> list[TableSchema]:
        """Return the versions of a table that events show; see `Decoder.describe`.

        `with_ddl` says whether to use DDL events that describe tables beside the SQL text.
        """
        if self.decoder.facts.definitions is None:
            return self.decoder.describe(events, self.ddl if with_ddl else (), declared)
        learned = Learned(definitions=self.definitions)
        if self.search is not None and len(events.chunk):
            chunk, learned.search = events.chunk, self.search
            self.search.around = OffsetRange(chunk.topic, chunk.partition, chunk.offsets[0], chunk.offsets[-1] + 1)
        schemas = self.decoder.describe(events, (), declared, learned)
        self.definitions |= learned.definitions
        return schemas


def find_protocol(ranges: Sequence[OffsetRange], fetch: Fetch, options: Options) -> str | None:
    """Return the option `protocol`, or with `auto` the protocol of the first and last records; None if unknown.

    With `outputFormat=record`, where bad records are rows too, records in no known format are skipped.

    Raises:
        OptionError: the protocol cannot be detected.
    """
    if options.protocol != "auto":
        return options.protocol
    deadline = time.monotonic() + options.infer_schema_timeout_ms / 1000
    sampler = Sampler(ranges, fetch, deadline)
    seen: list[Chunk] = []
    skips_unknown = options.output_format == "record"
    for first, last in sampler.first_windows(_FIRST_WINDOW):
        seen += (*first, *last)
        protocol = detect_protocol(seen, skips_unknown=skips_unknown)
        if protocol is not None:
            return protocol
    window, scanned = _FIRST_WINDOW, 0
    while sampler and scanned < options.infer_schema_max_scanned_records and time.monotonic() < deadline:
        window *= 2
        for chunk in sampler.forward(window):
            scanned += len(chunk)
            protocol = detect_protocol([chunk], skips_unknown=skips_unknown)
            if protocol is not None:
                return protocol
    return detect_protocol(seen) if sampler else None  # what follows must not be guessed


def take_sample(
    ranges: Sequence[OffsetRange], fetch: Fetch, options: Options, search: MakesSearch | None = None
) -> Sample | None:
    """Sample rows of the wanted tables, half from each end of the ranges, within the limits of `inferSchema.*`.

    Of many topic partitions, more are read only while there are not enough rows. With `protocol=auto` the first and
    last records determine the protocol. `search` makes the search for table versions that the sample does not define.

    Returns:
        The sample; None if the ranges have no record and the protocol is not set.

    Raises:
        OptionError: the protocol cannot be detected.
    """
    if options.claim_check_location:
        whole_chunks, decoders = fetch, possible_decoders(options)

        def fetch(wanted: OffsetRange) -> Iterable[Chunk]:
            return small_portions(whole_chunks(wanted), decoders)

    deadline = time.monotonic() + options.infer_schema_timeout_ms / 1000
    sampler = Sampler(ranges, fetch, deadline)
    half = max(1, options.infer_schema_max_records // 2)
    limit = options.infer_schema_max_scanned_records
    size = max(_FIRST_WINDOW, half // max(1, min(len(ranges), _PARTITIONS_AT_A_TIME)))
    seen: list[Chunk] = []
    both = None if options.protocol == "auto" else _both_ends(options.protocol, options, search)
    head_rows = tail_rows = 0
    for first, last in sampler.first_windows(size):
        seen += (*first, *last)
        if options.protocol == "auto":
            protocol = detect_protocol(seen)
            if protocol is None:
                continue
            both = both or _both_ends(protocol, options, search)
        assert both is not None  # noqa: S101 (for mypy)
        head_rows += sum(map(both[0].add, first))
        tail_rows += sum(map(both[1].add, last))
        if head_rows + tail_rows >= 2 * half or both[0].scanned + both[1].scanned >= limit:
            break
    if both is None:
        return None
    sample, tail = both
    for part, rows, step in ((sample, head_rows, sampler.forward), (tail, tail_rows, sampler.backward)):
        window, sampled_rows = size, rows
        while sampled_rows < half and sampler and sample.scanned + tail.scanned < limit and time.monotonic() < deadline:
            window *= 2
            sampled_rows += sum(part.add(chunk) for chunk in step(window))
    _join(sample, tail)
    # If messages have no types, only DDL events have them, and a column may change its type more than once: read all
    # DDL events in between. The same if DDL texts may say what messages lack, but only if all of them can be read.
    texts_help = ddl_texts_help(sample) is not False if options.output_format == "event" else _lacks_details(sample)
    if sampler and (lacks_types(sample) or (texts_help and sampler.left <= limit - sample.scanned)):
        while sampler and sample.scanned < limit and time.monotonic() < deadline:
            for chunk in sampler.forward(4096):
                sample.add(chunk, rows=False)
    sample.whole = not sampler
    return sample


def _both_ends(protocol: str, options: Options, search: MakesSearch | None) -> tuple[Sample, Sample]:
    decoder, tables = decoder_of(protocol, options), TableFilter(options.tables or ())
    head = Sample(decoder, tables, table_ddl=options.table_ddl, search=search and search(decoder))
    return head, Sample(decoder, tables)


def _join(head: Sample, tail: Sample) -> None:
    for table, parts in tail.rows.items():
        head.rows.setdefault(table, []).extend(reversed(parts))
    head.ddl += tail.ddl
    for place, identities in tail.ddl_places.items():
        head.ddl_places.setdefault(place, set()).update(identities)
    head.definitions |= tail.definitions
    head.wanted |= tail.wanted
    head.others |= tail.others
    head.corrupt = head.corrupt or tail.corrupt
    head.scanned += tail.scanned


def lacks_types(sample: Sample) -> bool:
    """Whether the messages leave all or some types to DDL events."""
    in_ddl = sample.decoder.facts.types_in_ddl
    columns = (column for schema in _schemas_in_messages(sample) for column in schema.columns)
    return any(column.type is None or (column.vague and in_ddl) for column in columns)


def _schemas_in_messages(sample: Sample) -> Iterator[TableSchema]:
    """Yield each table's schema as its first messages describe it, without DDL."""
    for parts in sample.rows.values():
        yield from sample.describe(parts[0], with_ddl=False)


def ddl_texts_help(sample: Sample) -> bool | None:
    """Whether DDL texts say what messages leave open, for `outputFormat=event`: labels, and whether a string is binary.

    None if the sample has no such column, so only later messages can tell.
    """
    if sample.decoder.facts.types_in_ddl:
        return False
    columns = [column for schema in _schemas_in_messages(sample) for column in schema.columns]
    types = (column.type for column in columns)
    labels = [type_.labels for type_ in types if type_ is not None and type_.family in ("enum", "set")]
    if None in labels or any(column.vague for column in columns):
        return True
    if labels:  # messages have them
        return False
    declared = ddl_types_of_tables(sample.ddl, whole=True).values()
    has_labels = any(type_.labels for columns in declared for versions in columns.values() for _, type_ in versions)
    return True if has_labels else None


def _lacks_details(sample: Sample) -> bool:
    """Whether DDL texts in the sample may say what a wanted table's messages leave open."""
    if sample.decoder.facts.types_in_ddl:
        return False
    tables = {event.table.folded for event in sample.ddl if event.query}
    return any(
        lack_types(schema.columns) or tells_no_key(schema.columns)
        for table, parts in sample.rows.items()
        if table.folded in tables  # describing others might read files, or search a topic
        for schema in sample.describe(parts[0], with_ddl=False)
    )


def describe_table(
    sample: Sample, table: TableName, declared: Mapping[str, TypeVersions] | None = None
) -> list[TableSchema]:
    """Return the versions of a table in a sample; `declared` has the types in DDL texts, None if not parsed yet."""
    decoder, parts = sample.decoder, sample.rows.get(table, ())
    if declared is None:
        texts = [] if decoder.facts.types_in_ddl else sample.ddl
        declared = ddl_types_of_tables(texts, whole=sample.whole).get(table.folded, {})
    schemas = [schema for table_events in parts for schema in sample.describe(table_events, declared)]
    if decoder.facts.definitions is None:
        return schemas
    return [schema for schema in schemas if _is_defined(schema)] or schemas  # decoding reports the other rows


def infer_table(sample: Sample) -> TableSchema:
    """Return the merged schema of a sample's one wanted table.

    Raises:
        OptionError: the sample has several wanted tables; the error lists them.
        SchemaError: it has none.
        DecodeError: no row can be read.
    """
    spellings = sorted(sample.rows, key=str)
    names = list(first_spellings(spellings).values())
    if len(names) > 1:
        listed = ", ".join(map(str, names))
        raise OptionError(
            f"The read selects {len(names)} tables, but outputFormat=changelog and envelope return only one: "
            f"{listed}. Choose one, e.g. .option('tables', '{names[0]}'). To read all, set outputFormat=event, which "
            "has rows as JSON, or call ticdc_source.tables(), which returns a typed DataFrame for each (see 'All "
            "tables of a micro-batch' in the documentation)"
        )
    if not names:
        declared = _declared_table(
            sample.decoder, sample.tables, sample.ddl if sample.whole else (), sample.definitions, sample.table_ddl
        )
        if declared is None:
            raise _nothing_found(sample)
        return _with_declarations(declared, sample)
    schemas = [schema for table in spellings for schema in describe_table(sample, table)]
    for schema in schemas:
        try:
            check_names(schema.table, schema.columns)
        except SchemaError as error:
            raise _with_address(error, sample, schema) from None
    _check_definitions(sample, schemas)
    merged = merge_schemas(schemas)
    if merged is None:  # no row can be read: decoding says what is wrong with the first
        raise _first_failure(sample, names[0], Plan(())) or DecodeError(f"no event of {names[0]} could be read")
    return _with_declarations(merged, sample)


def _declared_table(
    decoder: Decoder, tables: TableFilter, ddl: Sequence[DDLEvent], definitions: Definitions, table_ddl: str | None
) -> TableSchema | None:
    """Return the one wanted table of a sample without its rows; None if there is none or it is not declared."""
    table = tables.exact
    if table is None:
        names = {*(event.table for event in ddl if event.table.table), *(name for name, _ in definitions)}
        wanted = {name.folded: name for name in sorted(names) if tables.matches(name)}
        if len(wanted) != 1:
            return None
        (table,) = wanted.values()
    versions = {number: columns for (name, number), columns in definitions.items() if name.is_same(table)}
    if versions:
        return TableSchema(table, versions[max(versions)])
    types = _types(decoder, table, ddl, table_ddl)
    return TableSchema(table, tuple(Column(name, type_) for name, type_ in types.items())) if types else None


def _types(
    decoder: Decoder, table: TableName, ddl: Sequence[DDLEvent], table_ddl: str | None
) -> Mapping[str, ColumnType]:
    of_option = table_ddl_types(table_ddl)
    types = of_option.get(table.folded) or of_option.get(TableName("", table.table).folded)
    if types:
        return types
    in_form = {} if decoder.facts.types_in_ddl is None else decoder.facts.types_in_ddl(table, ddl)
    if in_form:
        return {name: versions[-1][1] for name, versions in in_form.items()}
    history = history_of(ddl, table)
    return history.columns if history.has_all_keys else {}  # a text has created it


def _with_declarations(schema: TableSchema, sample: Sample) -> TableSchema:
    described = with_table_ddl(with_ddl_facts(schema, sample.ddl, whole=sample.whole), sample.table_ddl)
    return with_handle_key(described, sample.ddl, sample.table_ddl, whole=sample.whole)


def _is_defined(schema: TableSchema) -> bool:
    """Whether the table version that rows name is known, and so all types."""
    return all(column.type is not None for column in schema.columns)


def _check_definitions(sample: Sample, schemas: Iterable[TableSchema]) -> None:
    """Refuse a table if no message defines a version named by its rows."""
    if sample.decoder.facts.definitions is None:
        return
    for schema in schemas:
        if not _is_defined(schema):
            failure = _first_failure(sample, schema.table, Plan((ReadField(schema.columns[0].name, pa.string()),)))
            if failure is not None:
                raise failure


def _with_address(error: SchemaError, sample: Sample, shown: TableSchema) -> SchemaError:
    """Return the error with the address of the first event that has the same columns."""
    names = [column.name for column in shown.columns]
    for part in sample.rows[shown.table]:
        for event in range(len(part)):
            alone = part.picked([event])
            if any(
                [column.name for column in schema.columns] == names for schema in sample.describe(alone, with_ddl=False)
            ):
                msg = f"{error} ({part.address(event)})"
                return SchemaError(msg)
    return error


def nothing_there(ranges: Sequence[OffsetRange], options: Options) -> SchemaError:
    place = record_source(options).described(ranges)
    msg = (
        f"No record in the range to read of {place}: the schema cannot be inferred. Set it with .schema(…) and the "
        f"options 'protocol' and 'tables', or load again when TiCDC has written something{time_hint(options)}"
    )
    return SchemaError(msg)


def absent_names(sample: Sample) -> TableFilter:
    """Return the names in the option `tables` without a row or DDL event in a sample."""
    seen = {*sample.wanted, *(event.table for event in sample.ddl)}
    names = (name for name in sample.tables.patterns if not any(map(TableFilter((name,)).matches, seen)))
    return TableFilter(tuple(names))


def no_row_in_sample(sample: Sample, wanted: TableFilter) -> str:
    return (
        f"{wanted.without_row(sample.wanted | sample.others, counted(sample.scanned, 'record'))} "
        "(inferSchema.maxScannedRecords and inferSchema.timeoutMs limit the search)"
    )


def _nothing_found(sample: Sample) -> Exception:
    if sample.corrupt is not None and not sample.others:
        return sample.corrupt.error
    wanted = ", ".join(".".join(pattern) for pattern in sample.tables.patterns)
    if sample.others:
        return OptionError(no_row_in_sample(sample, sample.tables))
    what = f"row of {wanted}" if wanted else "row"
    msg = (
        f"No {what} among {counted(sample.scanned, 'record')} of the range: the schema cannot be inferred. Set it "
        "with .schema(…) (and the options 'protocol' and 'tables'), raise inferSchema.maxScannedRecords, or read more "
        "records (startingOffsets of topics)"
    )
    return SchemaError(msg)


def _first_failure(sample: Sample, table: TableName, plan: Plan) -> DecodeError | None:
    for events in sample.rows[table]:
        failures = sample.decoder.decode(events, plan, Learned(definitions=sample.definitions)).failures
        if failures:
            return failures[min(failures)]
    return None
