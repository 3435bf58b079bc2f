"""What a read wants, and the rows of the one table that it is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ticdc_source.assembly import Rows
from ticdc_source.commit_range import CommitRange
from ticdc_source.errors import SchemaError
from ticdc_source.events import Chunk, Corrupt, TableEvents, TableName, merged
from ticdc_source.layout import Layout
from ticdc_source.metrics import Counters
from ticdc_source.protocols.base import Decoded, Decoder
from ticdc_source.protocols.plan import Plan
from ticdc_source.repeated import as_places, taken
from ticdc_source.tables import TableFilter

__all__ = ["Reading", "chosen_tray", "decoded_tray", "rows_of"]


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


def chosen_tray(trays: Mapping[TableName, TableEvents], chunk: Chunk, reading: Reading) -> TableEvents:
    """Return the tray of the one table of this read, an empty one where the chunk has none.

    Raises:
        SchemaError: there is a second table.
    """
    chosen = []
    for table, tray in trays.items():
        if not reading.tables.matches(table):
            continue
        if reading.table is None:
            reading.table = table
        if not reading.tables.same(table, reading.table):
            msg = (
                f"a second table, {table}, beside {reading.table}: one read gives the rows of one table. "
                f"Name it: .option('tables', '{reading.table}') ({tray.address(0)})"
            )
            raise SchemaError(msg)
        chosen.append(tray)
    if len(chosen) > 1:  # one table, whose name is written in different cases
        return merged(chosen)
    return chosen[0] if chosen else TableEvents(chunk, reading.table or TableName("", ""))


def decoded_tray(tray: TableEvents, plan: Plan, reading: Reading) -> tuple[Decoded, list[Corrupt]]:
    """Decode a tray; return its events that cannot be read apart."""
    decoded = reading.decoder.decode(tray, plan)
    reading.counters.skipped += decoded.empty
    reading.counters.claim_checks += decoded.claimed
    reading.counters.key_only += decoded.key_only
    reading.counters.invalid_utf8 += decoded.replaced
    if plan.rescued is not None:
        rescued = decoded.columns[plan.rescued]
        reading.counters.rescued += len(rescued) - rescued.null_count
    failed = [Corrupt(tray.positions[event], tray.indexes[event], error) for event, error in decoded.failures.items()]
    return decoded, failed


def rows_of(tray: TableEvents, decoded: Decoded, reading: Reading) -> Rows:
    """Return the rows of `outputFormat=changelog`: one for each row image."""
    events = decoded.events
    return Rows(
        chunk=tray.chunk,
        protocol=reading.decoder.name,
        table=reading.table or tray.table,  # one name, also where messages write it in different cases
        positions=events if isinstance(tray.positions, range) else taken(as_places(tray.positions), events),
        indexes=decoded.indexes,
        kinds=decoded.kinds,
        commit_ts=taken(decoded.commit_ts, events),
        build_ts=taken(decoded.build_ts, events),
        cluster_id=taken(decoded.cluster_id, events),
        columns=decoded.columns,
    )
