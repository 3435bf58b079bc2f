"""The row events of a table → its report, and the changefeed settings that messages prove.

A setting is shown only if messages prove it, and a finding or the options of a read depend on it. No message names the
time zone of TiCDC's server (docs/wire.md, item 21). But a column with the time of the change, such as `updated_at`, is
just before the commit time in the right zone, and off by whole quarters of an hour in any other.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import SchemaError, TiCDCSourceError
from ticdc_source.inspection.report import ChangefeedSetting, ColumnReport, Finding, TableReport
from ticdc_source.options.hints import hint_of, spark_name
from ticdc_source.options.logins import RegistrySettings
from ticdc_source.options.options import Options
from ticdc_source.pipeline.spec import read_spec
from ticdc_source.planning.inference import Sample
from ticdc_source.planning.read_context import context_of_schema
from ticdc_source.planning.read_schema import read_schema
from ticdc_source.protocols.base import Decoded, Learned, ProtocolFacts
from ticdc_source.protocols.compression import codec_of
from ticdc_source.protocols.events import Corrupt, TableEvents
from ticdc_source.protocols.messages import MALFORMED
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.change_order import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from ticdc_source.schema.ddl import lack_types, with_handle_key, with_table_ddl
from ticdc_source.schema.model import MYSQL_TYPE, TABLE, TableSchema, TypeVersions, merge_schemas
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.tso import physical_ms_each, utc
from ticdc_source.schema.types import TIMESTAMP
from ticdc_source.sources.chunk import Chunk

_ENDS = 50  # chunks from each end whose rows are described
# Extra columns, whose names no MySQL table can have: they end in a space.
_CHANGE_TYPE, _PARTITION, _COMMIT_TS = "change_type ", "partition ", "commit_ts "
_EVERY_OPERATION = frozenset({"insert", "update", "delete"})
_QUARTER_S = 900
_NEAR_S = 120.0  # the most between writing a row and its commit, and between clocks
_LEAST = 3  # rows, with as many commit times
_LEAST_PART = 0.5  # of the rows
# UTC offsets of time zones, in quarters of an hour. Others are times that are planned: an expiry in 15 minutes.
_OFFSETS = frozenset((*range(-48, 57, 4), -38, -14, -10, 14, 18, 22, 23, 26, 35, 38, 42, 51, 55))
_NEARLY_ALL = 0.95  # of the values: some bytes look compressed and are not


@dataclass(slots=True)
class Evidence:
    """Counts what the messages of one protocol have and lack.

    Attributes:
        placed: how many of them have no commit-ts of their own (`Decoded.placed`).
    """

    facts: ProtocolFacts
    registry: RegistrySettings
    rows: int = 0
    placed: int = 0
    updates: int = 0
    old_rows: int = 0
    _extended: int = 0
    _plain: int = 0
    _claimed: int = 0
    _key_only: int = 0
    _codecs: Counter[str] = field(default_factory=Counter)

    def add_values(self, chunk: Chunk) -> None:
        texts = ((value or b"")[self.facts.text_start :] for value in chunk.values)
        self._codecs.update(codec_of(text) for text in texts if text)

    def add_events(self, events: TableEvents, decoded: Decoded) -> None:
        self.rows += len(events) - len(decoded.failures)
        self.placed += decoded.placed.true_count
        self._claimed += decoded.claimed
        self._key_only += decoded.key_only
        if self.facts.shows_extension is None:
            return
        for payload in events.payloads:
            try:
                extended = self.facts.shows_extension(payload, self.registry)
            except MALFORMED:  # decoding reports it
                continue
            self._extended += extended is True
            self._plain += extended is False

    def by_ticdc(self, watermarks: int) -> bool:
        """Whether TiCDC wrote the messages; `watermarks` is how many of them are watermarks."""
        if self.facts.commit_ts_needs is None or watermarks or self._extended or self._plain:
            return True
        return self.placed < self.rows or not self.rows

    def no_commit_ts(self) -> int:
        """Return how many row messages lack a commit-ts, except deletes that no setting gives one."""
        return self._plain if self.facts.lacks_commit_ts else self.placed

    def no_old_rows(self) -> int:
        """Return how many updates lack their old rows; 0 if one has it, or if large messages may be the reason."""
        if self.old_rows or self.facts.old_rows_need is None:
            return 0
        return max(0, self.updates - self._claimed - self._key_only)

    def settings(self, watermarks: int) -> Iterator[ChangefeedSetting]:
        if self.facts.shows_extension is not None and (watermarks or self._extended or self._plain):
            extended = self._extended + watermarks  # they need it too
            value = _value({"true": extended, "false": self._plain})
            because = f"rows and watermarks with its fields: {extended:,} of {extended + self._plain:,}"
            yield ChangefeedSetting("enable-tidb-extension", value, because)
        large = {"claim-check": self._claimed, "handle-key-only": self._key_only}
        if any(large.values()):
            because = f"messages that were too large: {sum(large.values()):,}"
            yield ChangefeedSetting("large-message-handle-option", _value(large), because)
        total = self._codecs.total()
        for codec, count in self._codecs.most_common(1):
            how = "are not compressed" if codec == "none" else f"are compressed with {codec}"
            value = codec if count >= _NEARLY_ALL * total else "mixed"
            because = f"values that {how}: {count:,} of {total:,}"
            yield ChangefeedSetting("large-message-handle-compression", value, because)


def _value(counts: Mapping[str, int]) -> str:
    """Return the value that messages prove, given the number of messages for each; `mixed` if there are several."""
    proved = [value for value, count in counts.items() if count]
    return proved[0] if len(proved) == 1 else "mixed"


class InspectedTable(NamedTuple):
    """The report of a table, and what its topic's report needs.

    Attributes:
        commits: the smallest and the largest commit-ts of each topic partition.
        failed: the events that cannot be read; their errors have the addresses.
        is_in_zone: whether a TIMESTAMP column is near the commit times without a shift.
    """

    report: TableReport
    commits: dict[int, tuple[int, int]]
    failed: list[Corrupt]
    findings: list[Finding]
    is_in_zone: bool


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
    report = TableReport(table=str(table), options={"tables": str(table)})
    if any(item.type == TIMESTAMP for item in load.fields) and not decoder.facts.zoned_timestamps:
        report.options["timeZone"] = options.time_zone
    findings = []
    if load.refused is not None:
        findings.append(Finding(code="refused", message=str(load.refused), table=str(table)))
    if load.described is not None:
        report.columns = _columns(load.described, load)
        report.keys = [column.name for column in report.columns if column.key]
        report.schema = ", ".join(hint_of(item.name, item.type) for item in load.fields)
        findings += _uncertain_types(report, sample)
    rows, failed = _decoded(parts, _plan(load.schema, options), sample, evidence)
    kinds = Counter(rows[_CHANGE_TYPE].to_pylist())
    report.insert, report.update, report.delete = kinds[INSERT], kinds[UPDATE_POSTIMAGE], kinds[DELETE]
    bounds = pc.min_max(rows[_COMMIT_TS])
    report.first_commit_ts, report.last_commit_ts = bounds["min"].as_py(), bounds["max"].as_py()
    report.first_time, report.last_time = utc(report.first_commit_ts), utc(report.last_commit_ts)
    changed = rows.filter(pc.not_equal(rows[_CHANGE_TYPE], UPDATE_PREIMAGE))
    keyed = _keyed(changed, report.keys)
    if keyed is not None:
        report.has_keys = load.one_key and keyed.num_rows == changed.num_rows
        report.sent_again = _sent_again(keyed, report.keys)
    if options.preimages and options.operations == _EVERY_OPERATION:
        evidence.updates += report.update
        evidence.old_rows += kinds[UPDATE_PREIMAGE]
    is_in_zone = False
    if not decoder.facts.zoned_timestamps:
        shifted, is_in_zone = _shifted(table, changed, options)
        findings += shifted
    return InspectedTable(report, _commits(changed), failed, findings, is_in_zone)


def _commits(rows: pa.Table) -> dict[int, tuple[int, int]]:
    bounds = rows.group_by(_PARTITION).aggregate([(_COMMIT_TS, "min"), (_COMMIT_TS, "max")])
    first, last = f"{_COMMIT_TS}_min", f"{_COMMIT_TS}_max"
    return {row[_PARTITION]: (row[first], row[last]) for row in bounds.to_pylist() if row[first] is not None}


def _keyed(rows: pa.Table, keys: Sequence[str]) -> pa.Table | None:
    """Return the rows that have a key; None if the table has none, or its values cannot be compared."""
    if not keys or not set(keys) <= set(rows.column_names):  # a part of a key identifies no row
        return None
    if any(pa.types.is_nested(rows.schema.field(name).type) for name in keys):
        return None
    for name in keys:  # an older row lacks the column of a newer key
        rows = rows.filter(rows[name].is_valid())
    return rows


def _sent_again(rows: pa.Table, keys: Sequence[str]) -> int:
    """Return how many changes repeat the kind, key and commit-ts of an earlier one."""
    return int(rows.num_rows - rows.group_by([_CHANGE_TYPE, _COMMIT_TS, *keys]).aggregate([]).num_rows)


class _Load(NamedTuple):
    """What load() would return.

    Attributes:
        described: the versions of the table, merged; None if no row can be read.
        schema: the read schema; None if load() would refuse the table.
        refused: why it would.
        one_key: whether all versions of the table have the same key.
    """

    described: TableSchema | None = None
    schema: pa.Schema | None = None
    refused: TiCDCSourceError | None = None
    one_key: bool = False

    @property
    def fields(self) -> list[pa.Field]:
        return [item for item in self.schema or () if item.metadata and TABLE.encode() in item.metadata]


def _load_schema(
    parts: Sequence[TableEvents], sample: Sample, declared: Mapping[str, TypeVersions], options: Options
) -> _Load:
    some = parts if len(parts) <= 2 * _ENDS else [*parts[:_ENDS], *parts[-_ENDS:]]
    described: TableSchema | None = None
    try:
        versions = [schema for part in some for schema in sample.describe(part, declared)]
        merged = merge_schemas(versions)
        if merged is None:
            return _Load()
        typed = with_table_ddl(merged, sample.table_ddl, required=False)
        described = with_handle_key(typed, sample.ddl, sample.table_ddl, whole=sample.whole)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # findings report it instead
            schema = read_schema(described, sample.decoder, options, definitions=sample.definitions)
    except TiCDCSourceError as error:
        return _Load(described, refused=error)
    keys = {tuple(column.name for column in version.columns if column.key) for version in versions}
    return _Load(described, schema, one_key=len(keys) == 1)


def _columns(described: TableSchema, load: _Load) -> list[ColumnReport]:
    fields = {item.name: item for item in load.fields}
    reports = []
    for column in described.columns:
        mysql_type, spark_type = str(column.type), ""
        if item := fields.get(column.name):
            mysql_type, spark_type = item.metadata.get(MYSQL_TYPE.encode(), b"").decode(), spark_name(item.type)
        uncertain = column.conflict or lack_types([column])
        reports.append(ColumnReport(column.name, mysql_type or None, spark_type, column.key, uncertain))
    return reports


def _uncertain_types(report: TableReport, sample: Sample) -> list[Finding]:
    """Say which columns need a CREATE TABLE, for types or labels that the messages lack."""
    columns = tuple(column.name for column in report.columns if column.uncertain)
    if not columns:
        return []
    unread = " DDL events in the topic were not all read, so types from DDL are not used." if not sample.whole else ""
    message = (
        f"The messages do not fully say the types of {', '.join(columns)} (precision, length or labels), or say "
        f"several.{unread} Set tableDDL to what SHOW CREATE TABLE {report.table} prints; or, to keep the types shown, "
        "set schemaHints"
    )
    return [Finding(code="types-uncertain", message=message, table=report.table, columns=columns)]


def _plan(schema: pa.Schema | None, options: Options) -> Plan:
    """Return the plan of load(), except that columns the schema lacks are ignored."""
    context = None if schema is None else context_of_schema(schema, options)
    if context is None:
        return Plan(())
    return replace(read_spec(schema, options, context).plan, known_columns=None)


def _decoded(
    parts: Sequence[TableEvents], plan: Plan, sample: Sample, evidence: Evidence
) -> tuple[pa.Table, list[Corrupt]]:
    """Return the row images of all events with partition and commit-ts, and the events that cannot be read.

    Images of messages that do not fit the plan have only NULLs.
    """
    decoder, learned = sample.decoder, Learned(native=plan.native_path, definitions=sample.definitions)
    tables, failed = [], []
    names = [item.name for item in plan.fields]
    for events in parts:
        try:
            decoded, used = decoder.decode(events, plan, learned), names
        except SchemaError:  # kinds and times need no columns
            decoded, used = decoder.decode(events, Plan(())), []
        count = len(decoded.change_types)
        columns = {
            _CHANGE_TYPE: decoded.change_types,
            _PARTITION: pa.repeat(pa.scalar(events.chunk.partition, pa.int32()), count),
            _COMMIT_TS: decoded.commit_ts.take(decoded.events),
        }
        evidence.add_events(events, decoded)
        tables.append(pa.table({**columns, **{name: decoded.columns[name] for name in used}}))
        failed += [
            Corrupt(events.positions[event], events.indexes[event], error.at(events.address(event)))
            for event, error in decoded.failures.items()
        ]
    return pa.concat_tables(tables, promote_options="default"), failed


def _shifted(table: TableName, rows: pa.Table, options: Options) -> tuple[list[Finding], bool]:
    """Report TIMESTAMP columns that differ from commit times by a zone's offset; return whether one does not."""
    new = rows.filter(pc.not_equal(rows[_CHANGE_TYPE], DELETE))
    commit_ms = physical_ms_each(new[_COMMIT_TS])
    shifts: dict[str, list[str]] = {}
    is_in_zone = False
    for name in new.column_names:
        if new.schema.field(name).type == TIMESTAMP:
            offset = shift_of(new[name].combine_chunks(), commit_ms.combine_chunks(), options.time_zone)
            is_in_zone |= offset == ""
            if offset:
                shifts.setdefault(offset, []).append(name)
    findings = []
    for offset, columns in shifts.items():
        message = (
            f"TIMESTAMP columns {', '.join(columns)} look shifted against the commit times, as if TiCDC's server were "
            f"not in {options.time_zone}: try timeZone={offset}, or a zone that had this offset then"
        )
        findings.append(Finding(code="timestamp-shifted", message=message, table=str(table), columns=tuple(columns)))
    return findings, is_in_zone


def shift_of(values: pa.Array, commit_ms: pa.Array, time_zone: str) -> str | None:
    """Return the UTC offset that puts most values near their commit times; "" for `time_zone`'s own, None for none.

    The values were read in `time_zone`; `commit_ms` has their commit times, in milliseconds since the epoch.
    """
    pairs = [
        (value / 1e6, commit / 1e3)
        for value, commit in zip(values.cast(pa.int64()).to_pylist(), commit_ms.to_pylist(), strict=True)
        if value is not None and commit is not None
    ]
    quarters: Counter[int] = Counter()
    commits: dict[int, set[float]] = {}
    for value, commit in pairs:
        quarter = round((value - commit) / _QUARTER_S)
        if abs(value - commit - quarter * _QUARTER_S) <= _NEAR_S:
            quarters[quarter] += 1
            commits.setdefault(quarter, set()).add(commit)
    if not quarters:
        return None
    quarter, rows = quarters.most_common(1)[0]
    if rows < _LEAST_PART * len(pairs) or len(commits[quarter]) < _LEAST:
        return None
    if not quarter:
        return ""
    moment = datetime.fromtimestamp(max(commits[quarter]), timezone.utc)
    offset = _offset_of(time_zone, moment) + timedelta(seconds=quarter * _QUARTER_S)
    if offset / timedelta(seconds=_QUARTER_S) not in _OFFSETS:
        return None
    return str(timezone(offset)).removeprefix("UTC") or "UTC"


def _offset_of(time_zone: str, moment: datetime) -> timedelta:
    if time_zone == "UTC":
        return timedelta()
    zone = datetime.strptime(time_zone, "%z").tzinfo if time_zone[0] in "+-" else ZoneInfo(time_zone)
    return moment.astimezone(zone).utcoffset() or timedelta()
