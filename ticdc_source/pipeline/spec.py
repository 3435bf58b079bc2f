"""A read's fixed parameters (`ReadSpec`), its changing state (`ReadState`), and the rows of the table that it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from ticdc_source.errors import SchemaError
from ticdc_source.events import Chunk, Corrupt, TableEvents, TableName, as_indices, merged, taken
from ticdc_source.options.ranges import CommitRange
from ticdc_source.options.tables import TableFilter
from ticdc_source.pipeline.assemble import ROW_FACTS, Rows
from ticdc_source.pipeline.layout import Layout
from ticdc_source.pipeline.metrics import Counters
from ticdc_source.protocols.base import Decoded, Decoder, Learned
from ticdc_source.protocols.plan import Plan

__all__ = ["ReadSpec", "ReadState", "decode_events", "events_of_one_table", "rows_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSpec:
    """The parameters of a read. They are fixed before the first chunk and never change.

    Attributes:
        decoder: the decoder of the protocol.
        plan: how message columns become table columns of the read schema.
        layout: which fields of the read schema are table columns, metadata columns and others.
        tables: the filter that the option `tables` gives.
        table: the one table of this read; None means the first that occurs.
        mode: FAILFAST, PERMISSIVE or DROPMALFORMED.
        max_rows: the maximum number of rows in a record batch.
        max_bytes: the maximum number of bytes of whole keys, values and headers in a record batch, if it has more than
            one row.
        commits: the range of commit-ts to keep.
        on_destructive_ddl: what to do about a DDL event that removes rows without delete events.
        keeps_ddl: whether to keep the DDL events of this topic partition. Of a DDL event in all partitions, one copy is
            kept.
        plan_of: with `outputFormat=event`, builds the plan of a table.
        partitions: how many topic partitions the whole read covers; None if that is not known.
    """

    decoder: Decoder
    plan: Plan
    layout: Layout
    tables: TableFilter = field(default_factory=TableFilter)
    table: TableName | None = None
    mode: str = "FAILFAST"
    max_rows: int = 8192
    max_bytes: int = 8 << 20
    commits: CommitRange = field(default_factory=CommitRange)
    on_destructive_ddl: str = "warn"
    keeps_ddl: bool = True
    plan_of: Callable[[TableName], Plan] | None = None
    partitions: int | None = None


@dataclass(slots=True)
class ReadState:
    """Everything that changes during a read, in one object that the caller creates at the start.

    Attributes:
        table: the one table of the read, once it is known.
        plans: with `outputFormat=event`, the plan of each table seen so far.
        learned: what the decoder keeps about messages, to decode later ones faster.
        counters: the counts of the present offset range.
    """

    table: TableName | None = None
    plans: dict[TableName, Plan] = field(default_factory=dict)
    learned: Learned = field(default_factory=Learned)
    counters: Counters = field(default_factory=Counters)

    @classmethod
    def of(cls, spec: ReadSpec) -> ReadState:
        """Return the state at the start of a read."""
        return cls(spec.table, learned=Learned(native=spec.plan.native_path))


def events_of_one_table(
    tables: Mapping[TableName, TableEvents], chunk: Chunk, spec: ReadSpec, state: ReadState
) -> TableEvents:
    """Return the events of the one table of this read, empty if the chunk has none; set `state.table` if it is unknown.

    Raises:
        SchemaError: the messages hold a second wanted table.
    """
    chosen = []
    for table, table_events in tables.items():
        if not spec.tables.matches(table):
            continue
        if state.table is None:
            state.table = table
        if not table.is_same(state.table):
            msg = (
                f"a second table, {table}, beside {state.table}: a read returns the rows of one table. "
                f"Choose one: .option('tables', '{state.table}') ({table_events.address(0)})"
            )
            raise SchemaError(msg)
        chosen.append(table_events)
    if len(chosen) > 1:  # the same table, spelled in different letter cases
        return merged(chosen)
    return chosen[0] if chosen else TableEvents(chunk, state.table or TableName("", ""))


def decode_events(
    table_events: TableEvents, plan: Plan, spec: ReadSpec, state: ReadState
) -> tuple[Decoded, list[Corrupt]]:
    """Decode the events of a table and update the counters; return the images, and the events that cannot be read."""
    decoded = spec.decoder.decode(table_events, plan, state.learned)
    counters = state.counters
    counters.count_events(len(table_events))
    counters.general += decoded.parsed
    counters.native += len(decoded.change_types) - decoded.parsed
    counters.skipped += decoded.empty
    counters.claim_checks += decoded.claimed
    counters.key_only += decoded.key_only
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
    """Return one row per row image."""
    events, positions = decoded.events, table_events.positions
    facts = [
        events if isinstance(positions, range) else taken(as_indices(positions), events),
        decoded.indexes,
        decoded.change_types,
        taken(decoded.commit_ts, events),
        taken(decoded.build_ts, events),
        taken(decoded.cluster_id, events),
    ]
    return Rows(
        chunk=table_events.chunk,
        protocol=spec.decoder.name,
        table=state.table or table_events.table,  # one spelling, even if the letter case varies
        facts=pa.RecordBatch.from_arrays(facts, schema=ROW_FACTS),
        columns=decoded.columns,
    )
