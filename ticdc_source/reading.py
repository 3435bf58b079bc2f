"""The spine: chunks → split → decode → assemble. Data flows one way; nothing here infers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from ticdc_source.assembly import Layout, Rows, assemble
from ticdc_source.errors import DecodeError, SchemaError
from ticdc_source.events import Chunk, Corrupt, TableEvents, TableName
from ticdc_source.metrics import Counters
from ticdc_source.protocols.base import Decoder
from ticdc_source.protocols.plan import Plan
from ticdc_source.tables import TableFilter

__all__ = ["Reading", "read"]

_log = logging.getLogger(__name__)


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
        counters: what was read so far.
    """

    decoder: Decoder
    plan: Plan
    layout: Layout
    tables: TableFilter = field(default_factory=TableFilter)
    table: TableName | None = None
    mode: str = "FAILFAST"
    max_rows: int = 8192
    counters: Counters = field(default_factory=Counters)


def read(chunks: Iterable[Chunk], reading: Reading) -> Iterator[pa.RecordBatch]:
    """Read one table's rows out of chunks, one record batch a chunk; chunks without such rows give none.

    Raises:
        DecodeError: something cannot be read, and the mode is FAILFAST.
        SchemaError: the messages do not fit the read schema, or hold a second table.
    """
    counters = reading.counters
    for chunk in chunks:
        split = reading.decoder.split(chunk)
        counters.count_chunk(chunk, split)
        tray = _chosen(split.tables, chunk, reading)
        rows, failed = _decoded(chunk, tray, reading)
        counters.count_rows(len(tray), rows.kinds, rows.commit_ts)
        corrupt = _settled([*split.corrupt, *failed], reading)
        if rows.positions or corrupt:
            batch = assemble(rows, corrupt, reading.layout)
            counters.rows += batch.num_rows
            for start in range(0, batch.num_rows, reading.max_rows):
                yield batch.slice(start, reading.max_rows)
    if counters.rescued:
        _log.warning("%d rows have values in the rescued column", counters.rescued)
    if counters.invalid_utf8:
        _log.warning("%d texts are not UTF-8: U+FFFD stands for what is none", counters.invalid_utf8)
    if counters.dropped:
        _log.warning("mode=DROPMALFORMED has dropped %d records or events that cannot be read", counters.dropped)


def _chosen(trays: dict[TableName, TableEvents], chunk: Chunk, reading: Reading) -> TableEvents:
    """Return the tray of the one table of this read, an empty one where the chunk has none."""
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
        return _joined(chosen)
    return chosen[0] if chosen else TableEvents(chunk, reading.table or TableName("", ""))


def _joined(trays: list[TableEvents]) -> TableEvents:
    joined = TableEvents(trays[0].chunk, trays[0].table)
    events = [
        event for tray in trays for event in zip(tray.positions, tray.indexes, tray.payloads, tray.headers, strict=True)
    ]
    for event in sorted(events, key=lambda event: event[:2]):
        joined.append(*event)
    return joined


def _decoded(chunk: Chunk, tray: TableEvents, reading: Reading) -> tuple[Rows, list[Corrupt]]:
    decoded = reading.decoder.decode(tray, reading.plan)
    images = decoded.images
    events = images.events
    rows = Rows(
        chunk=chunk,
        protocol=reading.decoder.name,
        table=tray.table,
        positions=[tray.positions[event] for event in events],
        indexes=images.indexes,
        kinds=images.kinds,
        commit_ts=[decoded.commit_ts[event] for event in events],
        build_ts=[decoded.build_ts[event] for event in events],
        cluster_id=[decoded.cluster_id[event] for event in events],
        columns=decoded.columns,
    )
    reading.counters.skipped += decoded.empty
    reading.counters.claim_checks += decoded.claimed
    reading.counters.key_only += decoded.key_only
    reading.counters.invalid_utf8 += images.replaced
    if reading.plan.rescued is not None:
        rescued = decoded.columns[reading.plan.rescued]
        reading.counters.rescued += len(rescued) - rescued.null_count
    failed = [Corrupt(tray.positions[event], tray.indexes[event], error) for event, error in decoded.failures.items()]
    return rows, failed


def _settled(corrupt: list[Corrupt], reading: Reading) -> list[Corrupt]:
    """Do with bad records what `mode` says; return those that become rows."""
    corrupt.sort(key=lambda item: (item.position, item.index))
    reading.counters.decode_errors += len(corrupt)
    if not corrupt or reading.mode == "PERMISSIVE":
        return corrupt
    first: DecodeError = corrupt[0].error
    if reading.mode == "FAILFAST":
        raise first
    if not reading.counters.dropped:
        _log.warning("mode=DROPMALFORMED: %s", first)
    reading.counters.dropped += len(corrupt)
    return []
