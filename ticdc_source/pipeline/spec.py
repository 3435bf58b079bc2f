"""A read's fixed parameters (`ReadSpec`), its changing state (`ReadState`), and the events of its table.

`read_spec` builds the parameters from the read schema, the options and the read context.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from ticdc_source.errors import SchemaError
from ticdc_source.kernels.arrays import as_indices, taken
from ticdc_source.kernels.native import refuse_missing
from ticdc_source.kernels.wire import Settings
from ticdc_source.options.options import Options
from ticdc_source.options.ranges import CommitRange
from ticdc_source.options.topics import TableFilter
from ticdc_source.pipeline.assemble import Rows, row_facts
from ticdc_source.pipeline.context import BatchScope, ReadContext
from ticdc_source.pipeline.metadata import Layout
from ticdc_source.pipeline.metrics import Counters
from ticdc_source.pipeline.packed_records import RECORD_ROWS, TOLD, are_packed, pack
from ticdc_source.protocols import decoder_of
from ticdc_source.protocols.base import Decoded, Learned
from ticdc_source.protocols.decoding import Decoder
from ticdc_source.protocols.events import Corrupt, TableEvents, merged
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.model import TABLE, Definitions, ReadField
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import UNKNOWN_PARTITION, Chunk

# The target size of a record batch. At this size its fixed cost is negligible.
_MAX_BYTES = 8 << 20
_UNKNOWN_SCOPE = BatchScope()
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSpec:
    """The parameters of a read, which never change.

    Attributes:
        plan: how message columns become table columns of the read schema.
        tables: the option `tables`.
        table: the one table of this read; None means the first that occurs.
        max_bytes: the most bytes of keys, values and headers in a record batch; a single row may exceed it.
        plan_of: with `outputFormat=event`, builds the plan of a table: whole rows as JSON documents.
        claim_checks: whether messages may be in claim-check files; chunks are then cut into small portions.
        definitions: the table versions known before the read.
        packs: whether the rows are records to be packed.
    """

    decoder: Decoder
    plan: Plan
    layout: Layout
    tables: TableFilter
    table: TableName | None
    mode: str
    max_rows: int
    max_bytes: int
    commits: CommitRange
    on_destructive_ddl: str
    plan_of: Callable[[TableName], Plan]
    claim_checks: bool
    scope: BatchScope
    definitions: Definitions
    packs: bool

    def keeps_ddl(self, chunk: Chunk, event: DDLEvent) -> bool:
        """Whether to keep a DDL event; of several copies, the one in the lowest partition is kept.

        Each copy is decided alone, because tasks read partitions in parallel.
        """
        if self.decoder.facts.ddl_partition is not None or chunk.partition == UNKNOWN_PARTITION:
            return True
        of_topic = self.scope.ddl_copies.get(chunk.topic)
        if of_topic is None:
            return chunk.partition == 0
        return not any(copies.has(event) for partition, copies in of_topic.items() if partition < chunk.partition)

    def packed(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return pack(batches) if self.packs else batches


@dataclass(slots=True)
class ReadState:
    """Everything that changes during a read, in one object that the caller creates at the start.

    Attributes:
        table: the one table of the read, once it is known.
        plans: with `outputFormat=event`, the plan of each table seen so far.
        learned: what the decoder keeps about messages, to decode later ones faster.
        counters: the counts of the current offset range.
        destructive: the identities of reported DDL events that remove rows.
    """

    table: TableName | None = None
    plans: dict[TableName, Plan] = field(default_factory=dict)
    learned: Learned = field(default_factory=Learned)
    counters: Counters = field(default_factory=Counters)
    destructive: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, spec: ReadSpec) -> ReadState:
        return cls(spec.table, learned=Learned(native=spec.plan.native_path, definitions=spec.definitions))


def read_spec(
    schema: pa.Schema,
    options: Options,
    context: ReadContext,
    scope: BatchScope = _UNKNOWN_SCOPE,
    *,
    protocol: str | None = None,
) -> ReadSpec:
    """Return the parameters of a read; every worker builds its own. `protocol` is for a context without one.

    Raises:
        SchemaError: a metadata column has a wrong type, or the rescued column is missing.
        OptionError: this process lacks the native path, and `nativeCode` requires it.
    """
    refuse_missing(options.native_code)
    packs = are_packed(schema.names)
    if packs:  # a message with only its key tells the types of the key
        options = replace(options, on_handle_key_only="null")
    layout = layout_of(schema, options)
    plan = _plan(layout, options, context)
    end = scope.commit_end if options.ending_commit_ts == "resolved" else options.ending_commit_ts
    return ReadSpec(
        decoder=decoder_of(context.protocol or protocol or "", options),
        plan=plan,
        layout=layout,
        tables=TableFilter(options.tables or ()),
        table=context.table,
        mode=options.mode,
        max_rows=options.max_rows_per_batch,
        max_bytes=min(options.max_bytes_per_batch, _MAX_BYTES),
        commits=CommitRange(options.starting_commit_ts, end),
        on_destructive_ddl=options.on_destructive_ddl,
        plan_of=lambda table: replace(plan, fields=tuple(context.columns_of(table)), documents=True),
        claim_checks=options.claim_check_location is not None,
        scope=scope,
        definitions=context.definitions,
        packs=packs,
    )


def layout_of(schema: pa.Schema, options: Options) -> Layout:
    """Return the layout of a read schema; that of packed records is of the records.

    Raises:
        SchemaError: see `Layout.of`.
    """
    if options.output_format == "record" and are_packed(schema.names):
        layout = Layout.of(RECORD_ROWS, replace(options, metadata_column_prefix="_"))
        return replace(layout, schema=RECORD_ROWS.append(TOLD), own={**layout.own, "told": TOLD.name})
    return Layout.of(schema, options)


def _plan(layout: Layout, options: Options, context: ReadContext) -> Plan:
    rescues = options.on_schema_drift == "rescue"
    fields, expected = layout.data_fields(), context.expected
    names = frozenset(item.name.lower() for item in fields)
    if rescues and options.columns is None:  # every column that the schema lacks is unknown, whatever inference saw
        expected = names
    others = [column for name, column in context.columns.items() if rescues and name not in names]
    return Plan(
        tuple(_field_of_schema(item, context) for item in fields),
        settings=Settings(options.time_zone, options.zero_date, options.invalid_utf8),
        operations=options.operations,
        preimages=options.preimages,
        known_columns=expected,
        told_at=context.told_at,
        others=tuple(others),
        rescued=layout.rescued,
        rescue=rescues,
        native_path=options.native_code != "off",
    )


def _field_of_schema(item: pa.Field, context: ReadContext) -> ReadField:
    column = context.columns.get(item.name.lower()) or ReadField(item.name, item.type)
    is_inferred = item.metadata is not None and TABLE.encode() in item.metadata
    return replace(column, name=item.name, arrow=item.type, user_schema=not is_inferred)


def events_of_one_table(
    tables: Mapping[TableName, TableEvents], chunk: Chunk, spec: ReadSpec, state: ReadState
) -> TableEvents:
    """Return the events of the read's table, maybe none. The first wanted table sets `state.table`.

    Raises:
        SchemaError: the messages have rows of a second table that the filter accepts.
    """
    chosen = []
    for table, table_events in tables.items():
        if not spec.tables.matches(table):
            continue
        if state.table is None:
            state.table = table
        if not table.is_same(state.table):
            raise SchemaError(
                f"the messages have a second table, {table}, beside {state.table}: a read returns the rows of one "
                f"table. Choose one: .option('tables', '{state.table}') ({table_events.address(0)})"
            )
        chosen.append(table_events)
    if len(chosen) > 1:  # the same table, spelled in different letter cases
        return merged(chosen)
    return chosen[0] if chosen else TableEvents(chunk, state.table or TableName("", ""))


def decode_events(
    table_events: TableEvents, plan: Plan, spec: ReadSpec, state: ReadState
) -> tuple[Decoded, list[Corrupt]]:
    """Decode a table's events and update the counters; return the images, and the events that cannot be read."""
    decoded = spec.decoder.decode(table_events, plan, state.learned)
    counters = state.counters
    counters.count_events(len(table_events))
    counters.general += decoded.parsed
    counters.native += len(decoded.change_types) - decoded.parsed
    counters.skipped += decoded.empty
    counters.claim_checks += decoded.claimed
    counters.key_only += decoded.key_only
    counters.checksums += decoded.verified
    if decoded.suspect:
        if not counters.wrong_checksums:
            event = min(decoded.suspect)
            _log.warning("verifyChecksum=warn: %s (%s)", decoded.suspect[event], table_events.address(event))
        counters.wrong_checksums += len(decoded.suspect)
    counters.invalid_utf8 += decoded.replaced
    if plan.rescued is not None:
        rescued = decoded.columns[plan.rescued]
        counters.rescued += len(rescued) - rescued.null_count
    failed = [
        Corrupt(table_events.positions[event], table_events.indexes[event], error)
        for event, error in decoded.failures.items()
    ]
    return decoded, failed


def rows_of(table_events: TableEvents, decoded: Decoded, spec: ReadSpec, state: ReadState) -> Rows:
    events, positions = decoded.events, table_events.positions
    facts = row_facts(
        len(events),
        position=events if isinstance(positions, range) else taken(as_indices(positions), events),
        index=decoded.indexes,
        change_type=decoded.change_types,
        commit_ts=taken(decoded.commit_ts, events),
        start_ts=taken(decoded.start_ts, events),
        build_ts=taken(decoded.build_ts, events),
        cluster_id=taken(decoded.cluster_id, events),
        placed=taken(decoded.placed, events),
    )
    return Rows(
        chunk=table_events.chunk,
        protocol=spec.decoder.facts.name,
        table=state.table or table_events.table,  # one spelling, even if the letter case varies
        facts=facts,
        columns=decoded.columns,
    )
