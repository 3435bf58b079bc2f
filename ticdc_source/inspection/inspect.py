"""The sequence of an inspection: options → offset ranges → records → protocols → tables → findings.

All of a small topic is read, and both ends of a large one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ticdc_source.inspection.report import (
    BadRecords,
    DDLReport,
    Finding,
    Inspection,
    PartitionReport,
    ProtocolReport,
    TopicReport,
    findings_of,
)
from ticdc_source.inspection.table_report import Evidence, inspect_table
from ticdc_source.options.logins import RegistrySettings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TableFilter
from ticdc_source.planning.fetchers import Fetch, driver_fetcher
from ticdc_source.planning.inference import Sample, Sampler
from ticdc_source.planning.load import batch_options
from ticdc_source.protocols import FORMATS, decoder_of, describe_unknown, recognized
from ticdc_source.protocols.decoding import Decoder, splits_of
from ticdc_source.protocols.events import Corrupt, TableEvents
from ticdc_source.schema.ddl import ddl_types_of_tables
from ticdc_source.schema.ddl_event import DDLEvent, ddl_kind, removes_rows_of
from ticdc_source.schema.table_name import TableName, first_spellings
from ticdc_source.schema.tso import age, utc
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.kafka import KafkaCluster

_MOST_BYTES = 256 << 20  # of keys and values, which stay in memory


# Called now and then with one word for the activity, the number of records so far, and the total.
OnProgress = Callable[[str, int, int], object]


def inspect(
    given: Mapping[str, str],
    on_progress: OnProgress = lambda *_: None,
    now: Callable[[], float] = time.time,
    *,
    max_records: int = 100_000,
    timeout: float = 30.0,
) -> Inspection:
    """Inspect topics, reading about `max_records` records for about `timeout` seconds.

    Raises:
        TiCDCSourceError: an option is wrong, or the brokers do not answer, or refuse.
    """
    options = batch_options(given)
    with KafkaCluster(options) as cluster:
        ranges = cluster.resolve_ranges()
    with driver_fetcher(options) as fetcher:
        chunks, whole = scan(ranges, fetcher.fetch, on_progress, max_records=max_records, timeout=timeout)
    topics: dict[str, TopicReport] = {}
    for each in sorted(ranges):
        topic = topics.setdefault(each.topic, TopicReport(topic=each.topic))
        topic.partitions.append(PartitionReport(partition=each.partition, start=each.start, end=each.end))
    return inspect_chunks(chunks, list(topics.values()), options, whole=whole, on_progress=on_progress, now=now())


def scan(
    ranges: Sequence[OffsetRange], fetch: Fetch, on_progress: OnProgress, *, max_records: int, timeout: float = 30.0
) -> tuple[list[Chunk], bool]:
    """Read both ends of offset ranges, then on from the start, until everything is read or a limit is reached.

    Returns:
        The chunks, in offset order within each topic partition, maybe with gaps; and whether they are complete.
    """
    non_empty = [offset_range for offset_range in ranges if offset_range.size]
    total = min(max_records, sum(offset_range.size for offset_range in non_empty))
    deadline = time.monotonic() + timeout
    sampler = Sampler(non_empty, fetch, deadline)
    kept: list[Chunk] = []
    done = size = 0

    def keep(chunks: Iterable[Chunk]) -> bool:
        nonlocal done, size
        for chunk in chunks:  # all of them: the sampler does not read them again
            kept.append(chunk)
            done += len(chunk)
            size += sum(map(len, filter(None, (*chunk.keys, *chunk.values))))
            on_progress("read", min(done, total), total)
        return done < max_records and size < _MOST_BYTES

    more = True
    for first, last in sampler.first_windows(max(1, max_records // max(1, 2 * len(non_empty)))):
        more = keep([*first, *last])
        if not more:
            break
    while more and sampler and time.monotonic() < deadline:
        more = keep(sampler.forward(max(1, (max_records - done) // len(non_empty))))
    return sorted(kept, key=lambda chunk: (chunk.topic, chunk.partition, chunk.offsets[0])), not sampler


def inspect_chunks(
    chunks: Sequence[Chunk],
    topics: Sequence[TopicReport],
    options: Options,
    *,
    whole: bool,
    on_progress: OnProgress = lambda *_: None,
    now: float,
) -> Inspection:
    """Report on records, given in offset order within each topic partition.

    `whole` says whether no record of the ranges is missing; `now` is in seconds since the epoch.
    """
    total = sum(map(len, chunks))
    inspection = Inspection(topics=list(topics), scanned=total, whole=whole)
    done = 0
    for topic in topics:
        content = _Topic(topic, options, whole=whole)
        for chunk in chunks:
            if chunk.topic == topic.topic:
                content.add(chunk)
                done += len(chunk)
                on_progress("decode", done, total)
        inspection.findings += content.finish(now)
    inspection.findings += findings_of(inspection)
    return inspection


@dataclass(slots=True)
class _Messages:
    decoder: Decoder
    evidence: Evidence
    sample: Sample
    report: ProtocolReport
    ddl: list[tuple[Chunk, DDLEvent]] = field(default_factory=list)


class _Topic:
    def __init__(self, report: TopicReport, options: Options, *, whole: bool) -> None:
        self._report = report
        self._options = options
        self._whole = whole
        self._partitions = {each.partition: each for each in report.partitions}
        self._messages: dict[str, _Messages] = {}
        self._recognized: set[str] = set()
        self._bad: dict[tuple[str, str], BadRecords] = {}
        self._unknown: list[tuple[Chunk, int]] = []
        self._tables = TableFilter(options.tables or ())
        self._others: set[TableName] = set()

    def _wants(self, table: TableName) -> bool:
        if self._tables.matches(table):
            return True
        self._others.add(table)
        return False

    def add(self, chunk: Chunk) -> None:
        self._partitions[chunk.partition].scanned += len(chunk)
        if chunk.failure is not None:
            self._add_bad("", chunk.failure, str(chunk.address(0)))
            return
        names = [self._protocol_of(key, value) for key, value in zip(chunk.keys, chunk.values, strict=True)]
        start = 0
        for end in range(1, len(names) + 1):
            if end == len(names) or names[end] != names[start]:
                part = chunk if (start, end) == (0, len(names)) else chunk.part(start, end)
                self._add_part(names[start], part)
                start = end

    def _protocol_of(self, key: bytes | None, value: bytes | None) -> str:
        """Return the protocol of a record; empty if none recognizes it."""
        wanted = self._options.protocol
        if wanted != "auto":
            return wanted
        protocol = recognized(key, value)
        if protocol in FORMATS.in_topics:
            self._recognized.add(protocol)
            return protocol
        # Else it is a tombstone, or a broken message of the protocol seen so far.
        return next(iter(self._recognized)) if len(self._recognized) == 1 else ""

    def _add_part(self, protocol: str, chunk: Chunk) -> None:
        if not protocol:
            self._unknown += [(chunk, position) for position in range(len(chunk))]
            return
        messages = self._messages.get(protocol)
        if messages is None:
            messages = self._messages[protocol] = self._new(protocol)
        messages.report.records += len(chunk)
        messages.evidence.add_values(chunk)
        sample = messages.sample
        for split in splits_of(messages.decoder, chunk, self._wants):
            for table, events in split.tables.items():
                sample.rows.setdefault(table, []).append(events)
            sample.add_ddl(split)
            messages.ddl += [(chunk, event) for event in split.ddl if self._tables.matches_ddl(event.table)]
            messages.report.watermarks += len(split.watermarks)
            self._add_corrupt(protocol, chunk, split.corrupt)
            partition = self._partitions[chunk.partition]
            for mark in split.watermarks:
                partition.watermark = max(mark.ts, partition.watermark or 0)
            for event in split.ddl:
                _widen(partition, event.commit_ts, event.commit_ts)

    def _new(self, protocol: str) -> _Messages:
        tolerant = replace(self._options, on_handle_key_only="null")  # it is a finding
        decoder = decoder_of(protocol, tolerant, reads_files=self._options.claim_check_location is not None)
        sample = Sample(decoder, TableFilter(()), whole=self._whole, table_ddl=self._options.table_ddl)
        return _Messages(
            decoder,
            Evidence(decoder.facts, RegistrySettings.of(self._options)),
            sample,
            ProtocolReport(protocol=protocol),
        )

    def _add_corrupt(self, protocol: str, chunk: Chunk, corrupt: Iterable[Corrupt]) -> None:
        for each in corrupt:
            self._add_bad(protocol, each.error.reason, str(each.error.at(chunk.address(each.position)).address))

    def _add_bad(self, protocol: str, reason: str, where: str, kind: str = "") -> None:
        """Count a bad record by its reason, or by `kind` if reasons quote their records."""
        bad = self._bad.get((protocol, kind or reason))
        if bad is None:
            self._bad[protocol, kind or reason] = BadRecords(reason=reason, count=1, first=where)
        else:
            bad.count += 1

    def finish(self, now: float) -> list[Finding]:
        """Complete the report; return the findings about single tables."""
        self._report_unknown()
        self._report.others = sorted(map(str, self._others))
        findings: list[Finding] = []
        for protocol, messages in self._messages.items():
            findings += self._finish_protocol(protocol, messages)
            self._report.protocols.append(messages.report)
        self._report.bad = [bad for (protocol, _), bad in self._bad.items() if not protocol]
        for partition in self._report.partitions:
            _complete_times(partition, now)
        marks = [partition.watermark for partition in self._report.partitions]
        lowest = min((mark or 0 for mark in marks), default=0)
        if lowest:
            self._report.watermark, self._report.watermark_time = lowest, utc(lowest)
            self._report.watermark_lag_s = age(lowest, now)
        return [replace(finding, topic=self._report.topic) for finding in findings]

    def _report_unknown(self) -> None:
        """Report records before the first of a protocol, and records that no protocol recognizes."""
        for chunk, position in self._unknown:
            value = chunk.values[position]
            if not value and len(self._messages) <= 1:
                continue  # it carries no event
            self._report.unknown += 1
            self._add_bad("", describe_unknown(value or b""), str(chunk.address(position)), kind="unknown")

    def _finish_protocol(self, protocol: str, messages: _Messages) -> list[Finding]:
        report, sample, evidence = messages.report, messages.sample, messages.evidence
        is_in_zone = False
        findings: list[Finding] = []
        in_texts = {} if sample.decoder.facts.types_in_ddl else ddl_types_of_tables(sample.ddl, whole=sample.whole)
        for table, parts in sorted(_by_table(sample).items(), key=lambda item: str(item[0])):
            inspected = inspect_table(table, parts, sample, self._options, in_texts.get(table.folded, {}), evidence)
            report.tables.append(inspected.report)
            findings += inspected.findings
            is_in_zone |= inspected.is_in_zone
            for corrupt in inspected.failed:
                self._add_bad(protocol, corrupt.error.reason, str(corrupt.error.address))
            for number, (first, last) in inspected.commits.items():
                _widen(self._partitions[number], first, last)
        report.by_ticdc = evidence.by_ticdc(report.watermarks)
        if report.by_ticdc:
            report.settings = list(evidence.settings(report.watermarks))
        report.no_commit_ts, report.no_old_rows = evidence.no_commit_ts(), evidence.no_old_rows()
        report.ddl = _history(messages)
        report.bad = [bad for (name, _), bad in self._bad.items() if name == protocol]
        if is_in_zone:  # a changefeed has one zone: the other columns are planned times, such as an expiry
            return [finding for finding in findings if finding.code != "timestamp-shifted"]
        return findings


def _by_table(sample: Sample) -> dict[TableName, list[TableEvents]]:
    """Return each table's events under one spelling: TiDB ignores the case of names."""
    names = first_spellings(sample.rows)
    tables: dict[TableName, list[TableEvents]] = {}
    for table, parts in sample.rows.items():
        tables.setdefault(names[table.folded], []).extend(parts)
    return tables


def _history(messages: _Messages) -> list[DDLReport]:
    """Return the DDL events by commit-ts, each once: some protocols send a copy to every partition."""
    reports: dict[tuple[object, ...], DDLReport] = {}
    tables = list(messages.sample.rows)
    for chunk, event in messages.ddl:
        what = (event.moment, event.table, event.query, event.type)
        earlier = reports.get(what)
        offset = chunk.offsets[event.position]
        if earlier is not None and (earlier.partition, earlier.offset) <= (chunk.partition, offset):
            continue
        reports[what] = DDLReport(
            commit_ts=event.commit_ts,
            time=utc(event.commit_ts),
            table=str(event.table),
            kind=ddl_kind(event),
            query=event.query,
            removes_rows=any(removes_rows_of(event, table) for table in (event.table, *tables)),
            partition=chunk.partition,
            offset=offset,
        )
    return sorted(reports.values(), key=lambda report: (report.commit_ts or 0, report.partition, report.offset))


def _widen(partition: PartitionReport, first: int | None, last: int | None) -> None:
    if first is not None:
        partition.first_commit_ts = min(first, partition.first_commit_ts or first)
    if last is not None:
        partition.last_commit_ts = max(last, partition.last_commit_ts or last)


def _complete_times(partition: PartitionReport, now: float) -> None:
    partition.first_time, partition.last_time = utc(partition.first_commit_ts), utc(partition.last_commit_ts)
    partition.watermark_time, partition.watermark_lag_s = utc(partition.watermark), age(partition.watermark, now)
