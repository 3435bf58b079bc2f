"""The row events of one table → what an inspection reports of it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import SchemaError, TiCDCSourceError
from ticdc_source.inspection.evidence import COMMIT_TS, PARTITION, Evidence, shift_of
from ticdc_source.inspection.report import ColumnReport, Finding, TableReport
from ticdc_source.options.hints import hint_of, spark_name
from ticdc_source.options.options import Options
from ticdc_source.pipeline.spec import read_spec
from ticdc_source.planning.inference import Sample
from ticdc_source.planning.read_context import context_of_schema
from ticdc_source.planning.read_schema import read_schema
from ticdc_source.protocols.base import Learned
from ticdc_source.protocols.decoding import Decoder
from ticdc_source.protocols.events import Corrupt, TableEvents
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.change_order import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from ticdc_source.schema.ddl import lack_types, with_handle_key, with_table_ddl
from ticdc_source.schema.ddl_kinds import removes_rows_of
from ticdc_source.schema.model import MYSQL_TYPE, TABLE, TableSchema, TypeVersions, merge_schemas
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.tso import physical_ms_each, utc
from ticdc_source.schema.types import TIMESTAMP
from ticdc_source.sources.chunk import Chunk

_ENDS = 50  # chunks from each end whose rows are described
_OTHER_PREFIX = "_ticdc_"  # of metadata columns, if a table column has the name of one
# Columns beside those of the table, by names that no table of MySQL has: they end in a space.
_CHANGE_TYPE, _RUN = "change_type ", "run "
_EVERY_OPERATION = frozenset({"insert", "update", "delete"})


class InspectedTable(NamedTuple):
    """What was found of a table.

    Attributes:
        rows: each new row and each deleted one, with its topic partition, its commit-ts and the columns of the key.
        failed: the events that cannot be read; their errors have the addresses.
        is_in_zone: whether a TIMESTAMP column lies beside the commit times without a shift.
    """

    report: TableReport
    rows: pa.Table
    failed: list[Corrupt]
    findings: list[Finding]
    is_in_zone: bool

    def commit_range_of_partitions(self) -> dict[int, tuple[int, int]]:
        """Return the smallest and the largest commit-ts of each topic partition."""
        bounds = self.rows.group_by(PARTITION).aggregate([(COMMIT_TS, "min"), (COMMIT_TS, "max")])
        first, last = f"{COMMIT_TS}_min", f"{COMMIT_TS}_max"
        return {row[PARTITION]: (row[first], row[last]) for row in bounds.to_pylist() if row[first] is not None}


def inspect_table(
    table: TableName,
    parts: Sequence[TableEvents],
    sample: Sample,
    options: Options,
    declared: Mapping[str, TypeVersions],
    evidence: Evidence,
) -> InspectedTable:
    """Describe a table, and decode all its events.

    The events are in offset order, one topic partition after the other; `declared` has the types that DDL texts give.
    """
    decoder = sample.decoder
    load = _load_schema(parts, sample, declared, options)
    report = TableReport(table=str(table), options={"tables": str(table), **_needed_options(load, decoder)})
    findings = []
    if load.refused is not None:
        findings.append(Finding(code="refused", message=str(load.refused), table=str(table)))
    if load.described is not None:
        report.columns = _columns(load.described, load)
        report.keys = [column.name for column in report.columns if column.key]
        report.schema = ", ".join(hint_of(item.name, item.type) for item in load.fields)
        findings += _uncertain_types(report, sample)
    rows, failed = _decoded(parts, _plan(load), sample, evidence)
    kinds = Counter(rows[_CHANGE_TYPE].to_pylist())
    report.insert, report.update, report.delete = kinds[INSERT], kinds[UPDATE_POSTIMAGE], kinds[DELETE]
    bounds = pc.min_max(rows[COMMIT_TS])
    report.first_commit_ts, report.last_commit_ts = bounds["min"].as_py(), bounds["max"].as_py()
    report.first_time, report.last_time = utc(report.first_commit_ts), utc(report.last_commit_ts)
    changed = rows.filter(pc.not_equal(rows[_CHANGE_TYPE], UPDATE_PREIMAGE))
    keys = report.keys if set(report.keys) <= set(rows.column_names) else []  # a part of a key identifies no row
    if any(pa.types.is_nested(rows.schema.field(name).type) for name in keys):
        keys = []  # such values are not compared
    keyed = changed
    for name in keys:  # an older row lacks the column of a newer key
        keyed = keyed.filter(keyed[name].is_valid())
    report.has_keys = bool(keys) and keyed.num_rows == changed.num_rows
    report.sent_again = _sent_again(keyed, keys)
    if options.preimages and options.operations == _EVERY_OPERATION:
        evidence.updates += report.update
        evidence.old_rows += kinds[UPDATE_PREIMAGE]
        if decoder.facts.updates_as_inserts and not any(removes_rows_of(event, table) for event in sample.ddl):
            evidence.rewritten += _rewritten(keyed, keys)
    is_in_zone = False
    if not decoder.facts.zoned_timestamps:
        shifted, is_in_zone = _shifted(table, changed, options)
        findings += shifted
    there = [name for name in report.keys if name in changed.column_names]
    return InspectedTable(report, changed.select([PARTITION, COMMIT_TS, *there]), failed, findings, is_in_zone)


def _sent_again(rows: pa.Table, keys: Sequence[str]) -> int:
    """Return how many changes have the kind, key and commit-ts of another one before them."""
    if not keys:
        return 0
    return int(rows.num_rows - rows.group_by([_CHANGE_TYPE, COMMIT_TS, *keys]).aggregate([]).num_rows)


def _rewritten(rows: pa.Table, keys: Sequence[str]) -> int:
    """Return how many rows were inserted again, and not deleted in between: updates that look like inserts.

    Between two runs of records some were not read, and a delete may be among them.
    """
    if not keys:
        return 0
    is_insert, is_delete = (pc.equal(rows[_CHANGE_TYPE], kind) for kind in (INSERT, DELETE))
    inserted = pc.if_else(is_insert, rows[COMMIT_TS], pa.scalar(None, pa.int64()))
    columns = [*map(rows.column, keys), rows[_RUN], inserted, is_delete.cast(pa.int32())]
    events = pa.table(columns, names=[*keys, _RUN, "in ", "out "])
    by_run = events.group_by([*keys, _RUN]).aggregate([("in ", "count_distinct"), ("out ", "sum")])
    by_key = by_run.group_by(list(keys)).aggregate([("in _count_distinct", "max"), ("out _sum", "sum")])
    more = pc.greater(by_key["in _count_distinct_max"], pc.add(by_key["out _sum_sum"], 1))
    return int(more.to_pylist().count(True))


class _Load(NamedTuple):
    """What load() would give.

    Attributes:
        described: the versions of the table, merged; None if no row can be read.
        schema: the read schema; None if it would refuse the table whatever the prefix of metadata columns is.
        refused: why it would refuse the table with the options that the user gave.
    """

    described: TableSchema | None
    schema: pa.Schema | None
    options: Options
    refused: TiCDCSourceError | None = None

    @property
    def fields(self) -> list[pa.Field]:
        return [item for item in self.schema or () if item.metadata and TABLE.encode() in item.metadata]


def _load_schema(
    parts: Sequence[TableEvents], sample: Sample, declared: Mapping[str, TypeVersions], options: Options
) -> _Load:
    """Describe a table, and try the user's options, then another prefix of metadata columns."""
    some = parts if len(parts) <= 2 * _ENDS else [*parts[:_ENDS], *parts[-_ENDS:]]
    described: TableSchema | None = None
    refused: TiCDCSourceError | None = None
    for tried in (options, replace(options, metadata_column_prefix=_OTHER_PREFIX)):
        try:
            if described is None:
                schemas = [schema for part in some for schema in sample.describe(part, declared)]
                merged = merge_schemas(schemas)
                if merged is None:
                    break
                typed = with_table_ddl(merged, sample.table_ddl, required=False)
                described = with_handle_key(typed, sample.ddl, sample.table_ddl, whole=sample.whole)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # findings report it instead
                return _Load(
                    described,
                    read_schema(described, sample.decoder, tried, definitions=sample.definitions),
                    tried,
                    refused,
                )
        except TiCDCSourceError as error:
            refused = refused or error
    return _Load(described, None, options, refused)


def _needed_options(load: _Load, decoder: Decoder) -> dict[str, str]:
    needed = {}
    if load.refused is not None and load.schema is not None:
        needed["metadataColumnPrefix"] = load.options.metadata_column_prefix
    if any(item.type == TIMESTAMP for item in load.fields) and not decoder.facts.zoned_timestamps:
        needed["timeZone"] = load.options.time_zone
    return needed


def _columns(described: TableSchema, load: _Load) -> list[ColumnReport]:
    fields = {item.name: item for item in load.fields}
    reports = []
    for column in described.columns:
        item = fields.get(column.name)
        if item is None:
            mysql_type, spark_type = str(column.type), ""
        else:
            mysql_type = item.metadata.get(MYSQL_TYPE.encode(), b"").decode()
            spark_type = spark_name(item.type)
        reports.append(
            ColumnReport(
                name=column.name,
                mysql_type=mysql_type or None,
                spark_type=spark_type,
                key=column.key,
                uncertain=column.conflict or lack_types([column]),
            )
        )
    return reports


def _uncertain_types(report: TableReport, sample: Sample) -> list[Finding]:
    """Say which columns need a CREATE TABLE, for types or labels that the messages lack."""
    columns = tuple(column.name for column in report.columns if column.uncertain)
    if not columns:
        return []
    unread = " DDL events in the topic were not all read, so types from DDL are not used." if not sample.whole else ""
    message = (
        f"The messages do not fully say the types of {', '.join(columns)} (precision, length or labels), or say "
        f"several.{unread} To give them, set tableDDL to what SHOW CREATE TABLE {report.table} prints. To keep the "
        "types that are shown, set schemaHints"
    )
    return [Finding(code="types-uncertain", message=message, table=report.table, columns=columns)]


def _plan(load: _Load) -> Plan:
    """Return the plan that load() would make, except that it leaves out columns that the schema lacks."""
    context = None if load.schema is None else context_of_schema(load.schema, load.options)
    if context is None:
        return Plan(())
    return replace(read_spec(load.schema, load.options, context).plan, known_columns=None)


def _decoded(
    parts: Sequence[TableEvents], plan: Plan, sample: Sample, evidence: Evidence
) -> tuple[pa.Table, list[Corrupt]]:
    """Return the row images of all events with partition, commit-ts and run, and the events that cannot be read.

    Images of messages that do not fit the plan have no columns, so NULLs. A run has chunks without a gap between them.
    """
    decoder, learned = sample.decoder, Learned(native=plan.native_path, definitions=sample.definitions)
    tables, failed = [], []
    names = [item.name for item in plan.fields]
    run = 0
    last: Chunk | None = None
    for events in parts:
        run += last is not None and not _follows(events.chunk, last)
        last = events.chunk
        try:
            decoded, used = decoder.decode(events, plan, learned), names
        except SchemaError:  # kinds and times need no columns
            decoded, used = decoder.decode(events, Plan(())), []
        count = len(decoded.change_types)
        columns = {
            _CHANGE_TYPE: decoded.change_types,
            PARTITION: pa.repeat(pa.scalar(events.chunk.partition, pa.int32()), count),
            COMMIT_TS: decoded.commit_ts.take(decoded.events),
            _RUN: pa.repeat(run, count),
        }
        evidence.add_events(events, decoded)
        tables.append(pa.table({**columns, **{name: decoded.columns[name] for name in used}}))
        failed += [
            Corrupt(events.positions[event], events.indexes[event], error.at(events.address(event)))
            for event, error in decoded.failures.items()
        ]
    return pa.concat_tables(tables, promote_options="default"), failed


def _follows(chunk: Chunk, last: Chunk) -> bool:
    """Return whether no record is between two chunks; the events of one may come in several pieces."""
    return chunk is last or (chunk.partition == last.partition and chunk.offsets[0] == last.offsets[-1] + 1)


def _shifted(table: TableName, rows: pa.Table, options: Options) -> tuple[list[Finding], bool]:
    """Say which TIMESTAMP columns differ from the commit times like time zones, and whether one does not differ."""
    new = rows.filter(pc.not_equal(rows[_CHANGE_TYPE], DELETE))
    commit_ms = physical_ms_each(new[COMMIT_TS])
    shifts: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    is_in_zone = False
    for name in new.column_names:
        if new.schema.field(name).type == TIMESTAMP:
            shift = shift_of(new[name].combine_chunks(), commit_ms.combine_chunks(), options.time_zone)
            if shift is not None and not shift.seconds:
                is_in_zone = True
            elif shift is not None:
                shifts.setdefault((shift.offset, shift.zones), []).append(name)
    findings = []
    for (offset, zones), columns in shifts.items():
        named = f" (that of {', '.join(zones)})" if zones else ""
        message = (
            f"TIMESTAMP columns {', '.join(columns)} look shifted against the commit times, as if TiCDC's server were "
            f"not in {options.time_zone}: try timeZone={zones[0] if zones else offset}, offset {offset}{named}"
        )
        findings.append(Finding(code="timestamp-shifted", message=message, table=str(table), columns=tuple(columns)))
    return findings, is_in_zone
