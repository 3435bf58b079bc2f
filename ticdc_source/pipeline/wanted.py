"""What a read wants, and the rows of the one table that it is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ticdc_source.errors import SchemaError
from ticdc_source.events import Chunk, Corrupt, TableEvents, TableName, as_indices, merged, taken
from ticdc_source.options.ranges import CommitRange
from ticdc_source.options.tables import TableFilter
from ticdc_source.pipeline.assemble import Rows
from ticdc_source.pipeline.layout import Layout
from ticdc_source.pipeline.metrics import Counters
from ticdc_source.protocols.base import Decoded, Decoder, Learned
from ticdc_source.protocols.plan import Plan

__all__ = ["Reading", "chosen_events", "decode_events", "rows_of"]


@dataclass(slots=True)
class Reading:
    """What a read wants, and what it counts.

    Attributes:
        decoder: the protocol.
        plan: the table columns.
        layout: the read schema.
        tables: which tables `tables` names.
        table: the one table of this read; None takes the first that comes.
        mode: FAILFAST, PERMISSIVE or DROPMALFORMED.
        max_rows: rows in a record batch at most.
        commits: which commit-ts are wanted.
        on_destructive_ddl: what to do at a DDL that removes rows without delete events.
        takes_ddl: whether this topic partition's copy of a DDL event is the one to keep.
        plan_of: with `outputFormat=event`, makes the plan of a table.
        plans: those that were made.
        counters: what was read so far.
        learned: what was learned of the messages so far.
    """

    decoder: Decoder
    plan: Plan
    layout: Layout
    tables: TableFilter = field(default_factory=TableFilter)
    table: TableName | None = None
    mode: str = "FAILFAST"
    max_rows: int = 8192
    commits: CommitRange = field(default_factory=CommitRange)
    on_destructive_ddl: str = "warn"
    takes_ddl: bool = True
    plan_of: Callable[[TableName], Plan] | None = None
    plans: dict[TableName, Plan] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    learned: Learned = field(default_factory=Learned)


def chosen_events(tables: Mapping[TableName, TableEvents], chunk: Chunk, reading: Reading) -> TableEvents:
    """Return the table events of the one table of this read, an empty one where the chunk has none.

    Raises:
        SchemaError: there is a second table.
    """
    chosen = []
    for table, table_events in tables.items():
        if not reading.tables.matches(table):
            continue
        if reading.table is None:
            reading.table = table
        if not table.is_same(reading.table):
            msg = (
                f"a second table, {table}, beside {reading.table}: one read gives the rows of one table. "
                f"Name it: .option('tables', '{reading.table}') ({table_events.address(0)})"
            )
            raise SchemaError(msg)
        chosen.append(table_events)
    if len(chosen) > 1:  # one table, whose name is written in different cases
        return merged(chosen)
    return chosen[0] if chosen else TableEvents(chunk, reading.table or TableName("", ""))


def decode_events(table_events: TableEvents, plan: Plan, reading: Reading) -> tuple[Decoded, list[Corrupt]]:
    """Decode a table's events; return its events that cannot be read apart."""
    decoded = reading.decoder.decode(table_events, plan, reading.learned)
    reading.counters.skipped += decoded.empty
    reading.counters.claim_checks += decoded.claimed
    reading.counters.key_only += decoded.key_only
    reading.counters.invalid_utf8 += decoded.replaced
    if plan.rescued is not None:
        rescued = decoded.columns[plan.rescued]
        reading.counters.rescued += len(rescued) - rescued.null_count
    failed = [
        Corrupt(table_events.positions[event], table_events.indexes[event], error)
        for event, error in decoded.failures.items()
    ]
    return decoded, failed


def rows_of(table_events: TableEvents, decoded: Decoded, reading: Reading) -> Rows:
    """Return the rows of `outputFormat=changelog`: one for each row image."""
    events = decoded.events
    return Rows(
        chunk=table_events.chunk,
        protocol=reading.decoder.name,
        table=reading.table or table_events.table,  # one name, also where messages write it in different cases
        positions=events
        if isinstance(table_events.positions, range)
        else taken(as_indices(table_events.positions), events),
        indexes=decoded.indexes,
        change_types=decoded.change_types,
        commit_ts=taken(decoded.commit_ts, events),
        build_ts=taken(decoded.build_ts, events),
        cluster_id=taken(decoded.cluster_id, events),
        columns=decoded.columns,
    )
