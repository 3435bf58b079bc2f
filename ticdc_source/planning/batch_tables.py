"""The tables that a micro-batch of records has: their schemas, or why they cannot be read, and their DDL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType

import pyarrow as pa

from ticdc_source.errors import DecodeError, TiCDCSourceError
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TableFilter
from ticdc_source.pipeline.metadata import metadata_columns
from ticdc_source.planning.frame_sample import sample_of_records, schema_of_sample
from ticdc_source.planning.inference import Sample, tell_order
from ticdc_source.planning.read_schema import column_types
from ticdc_source.schema.ddl import creates
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.ddl_kinds import removes_rows_of
from ticdc_source.schema.table_name import TableName

__all__ = ["FoundTables", "find_tables", "metadata_schema"]


@dataclass(slots=True, kw_only=True)
class FoundTables:
    """What a micro-batch has.

    Attributes:
        schemas: the read schema of each table with rows.
        column_types: the types of the columns of each table, of this micro-batch and of earlier ones, as far as one of
            them has shown them; by the table's name in lower case.
        errors: why a table with rows cannot be read.
        ddl: the DDL events of this micro-batch, by table, oldest first; each once, and none of an earlier one.
        ddl_records: the records of these events and of all earlier ones.
        corrupt: why the first record that cannot be read, so that its table is unknown, cannot be read.
    """

    schemas: dict[TableName, pa.Schema] = field(default_factory=dict)
    column_types: dict[str, Mapping[str, str]] = field(default_factory=dict)
    errors: dict[TableName, TiCDCSourceError] = field(default_factory=dict)
    ddl: dict[TableName, list[DDLEvent]] = field(default_factory=dict)
    ddl_records: pa.RecordBatch
    corrupt: DecodeError | None = None


def find_tables(
    records: pa.RecordBatch,
    earlier_ddl: pa.RecordBatch,
    options: Options,
    earlier_tables: Iterable[TableName] = (),
    earlier_types: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    options_of: Callable[[TableName], Options] | None = None,
    known_ddl: Mapping[str, Sequence[DDLEvent]] = MappingProxyType({}),
) -> FoundTables:
    """Return which tables a micro-batch has.

    Args:
        records: the records of the micro-batch that tell it (`record_frames.survey`).
        earlier_ddl: the records with DDL of earlier micro-batches.
        options: the options.
        earlier_tables: the tables of earlier micro-batches.
        earlier_types: the types of their columns, which decide for columns that have only NULLs now.
        options_of: the options of a table, if tables have options of their own.
        known_ddl: DDL of tables that is known from elsewhere, by the table's name in lower case. It tells types and
            keys, and is not returned.

    Raises:
        OptionError: the protocol cannot be detected.
        DecodeError: a record cannot be read, so that no one knows its table, and the mode is FAILFAST.
    """
    before, now = (sample_of_records([each], options).sample for each in (earlier_ddl, records))
    if now is None:
        return FoundTables(ddl_records=earlier_ddl, column_types=dict(earlier_types))
    if now.corrupt is not None and options.mode == "FAILFAST":
        raise now.corrupt.error
    returned = {event.identity for event in before.ddl} if before is not None else set()
    new = [event for event in _each_once(now.ddl) if event.identity not in returned]
    defined = before.definitions if before is not None else {}
    known_types = {name.lower(): types for name, types in earlier_types.items()}
    now.ddl = [*(before.ddl if before is not None else ()), *new]
    now.definitions = {**defined, **now.definitions}
    result = FoundTables(
        ddl_records=_with_ddl(
            records, earlier_ddl, {event.identity for event in new}, now.definitions.keys() - defined.keys(), options
        ),
        column_types=dict(known_types),
    )
    if now.corrupt is not None:
        result.corrupt = now.corrupt.error
    spelt = _spellings([*earlier_tables, *now.rows, *(event.table for event in new)])
    names = list(dict.fromkeys(spelt[name.folded] for name in now.rows))
    others = list(dict.fromkeys(spelt[name.folded] for name in (*names, *earlier_tables)))
    for event in new:
        for table in _concerned(event, spelt[event.table.folded], others):
            if now.tables.matches_ddl(table):
                result.ddl.setdefault(table, []).append(event)
    for name in names:
        types = known_types.get(str(name).lower(), {})
        own = options if options_of is None else options_of(name)
        try:
            its_sample = _only(now, name, known_ddl.get(str(name).lower(), ()))
            schema = result.schemas[name] = schema_of_sample(its_sample, own, types)
        except TiCDCSourceError as error:
            result.errors[name] = error
        else:
            if str(name).lower() not in known_types:
                tell_order(its_sample)
            result.column_types[str(name).lower()] = {**types, **column_types(schema)}
    return result


def _concerned(event: DDLEvent, own: TableName, names: Iterable[TableName]) -> list[TableName]:
    """Return the tables to which a DDL event does something: its own, and those of whose rows it removes some."""
    return list(dict.fromkeys([own, *(name for name in names if removes_rows_of(event, name))]))


def _each_once(ddl: Iterable[DDLEvent]) -> list[DDLEvent]:
    first: dict[str, DDLEvent] = {}
    for event in ddl:
        first.setdefault(event.identity, event)
    return sorted(first.values(), key=lambda event: event.moment)  # of one commit-ts: as they were written


def _with_ddl(
    records: pa.RecordBatch,
    earlier: pa.RecordBatch,
    new: set[str],
    defined: AbstractSet[tuple[TableName, int]],
    options: Options,
) -> pa.RecordBatch:
    """Return the records with earlier DDL, and one record of each new DDL event, and of each version newly defined."""
    kept: list[pa.RecordBatch] = [earlier]
    wanted: set[object] = {*new, *defined}
    for row in range(records.num_rows):
        if not wanted:
            break
        alone = records.slice(row, 1)
        sample = sample_of_records([alone], options).sample
        told = set() if sample is None else {*(event.identity for event in sample.ddl), *sample.definitions} & wanted
        if told:
            wanted -= told
            kept.append(alone)
    return pa.Table.from_batches(kept).combine_chunks().to_batches(max_chunksize=None)[0] if kept[1:] else earlier


def _spellings(names: Iterable[TableName]) -> dict[TableName, TableName]:
    """Return how to spell each table, by its folded name: as the first of its names is spelt."""
    spelt: dict[TableName, TableName] = {}
    for name in names:
        spelt.setdefault(name.folded, name)
    return spelt


def _only(sample: Sample, name: TableName, known_ddl: Sequence[DDLEvent]) -> Sample:
    return Sample(
        sample.decoder,
        TableFilter(((name.database, name.table),)),
        rows={table: parts for table, parts in sample.rows.items() if table.is_same(name)},
        ddl=[*known_ddl, *sample.ddl],
        definitions=sample.definitions,
        scanned=sample.scanned,
        table_ddl=sample.table_ddl if creates(sample.table_ddl, name) else None,
    )


def metadata_schema(options: Options) -> pa.Schema:
    """Return the columns that the changelog of every table has: for a table with DDL only."""
    columns = metadata_columns(options.include_metadata, headers=options.include_headers)
    return pa.schema([(options.metadata_column_prefix + column.name, column.arrow) for column in columns])
