"""The reports of an inspection and a diagnosis, as data, and the findings in them.

The classes are JSON with the same names: `Inspection.as_json`, `Diagnosis.as_json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from ticdc_source.options.topics import listed
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.schema.tso import duration

_LATE_S = 600.0  # TiCDC writes watermarks every second; a restart of it takes minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something to know before reading the topic; docs/guides/inspect.md lists the codes."""

    code: str
    message: str
    topic: str | None = None
    table: str | None = None
    columns: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class PartitionReport:
    """A topic partition.

    Attributes:
        start, end: the requested offset range, by default all that Kafka has. `end` is exclusive.
        first_commit_ts, last_commit_ts: the smallest and the largest of rows and DDL; None if there are none.
        watermark_lag_s: seconds behind this machine's clock.
    """

    partition: int
    start: int
    end: int
    scanned: int = 0
    first_commit_ts: int | None = None
    first_time: str | None = None
    last_commit_ts: int | None = None
    last_time: str | None = None
    watermark: int | None = None
    watermark_time: str | None = None
    watermark_lag_s: float | None = None


@dataclass(frozen=True, slots=True)
class ColumnReport:
    """A column. `mysql_type` is its type in TiDB, as far as messages and DDL tell."""

    name: str
    mysql_type: str | None
    spark_type: str
    key: bool
    uncertain: bool


@dataclass(slots=True, kw_only=True)
class TableReport:
    """A table, named as the option `tables` takes it.

    Attributes:
        sent_again: events with the kind, key and commit-ts of an earlier one, as after a restart of TiCDC; 0 if no key
            is known.
        has_keys: whether all rows read have the same key columns.
        schema: the columns in Spark's DDL, for `.schema(…)`; empty if no row can be read.
        options: the options that read it.
    """

    table: str
    insert: int = 0
    update: int = 0
    delete: int = 0
    sent_again: int = 0
    first_commit_ts: int | None = None
    first_time: str | None = None
    last_commit_ts: int | None = None
    last_time: str | None = None
    keys: list[str] = field(default_factory=list)
    has_keys: bool = False
    columns: list[ColumnReport] = field(default_factory=list)
    schema: str = ""
    options: dict[str, str] = field(default_factory=dict)

    @property
    def events(self) -> int:
        return self.insert + self.update + self.delete


@dataclass(frozen=True, slots=True, kw_only=True)
class DDLReport:
    """A DDL event of a table or a database; of several copies, the one in the lowest partition."""

    commit_ts: int | None
    time: str | None
    table: str
    kind: str
    query: str
    removes_rows: bool
    partition: int
    offset: int


@dataclass(slots=True, kw_only=True)
class BadRecords:
    """Records or events that cannot be read for one reason; `first` is the address of the first one."""

    reason: str
    count: int
    first: str


@dataclass(frozen=True, slots=True)
class ChangefeedSetting:
    """A setting of the changefeed that messages prove; its value is `mixed` if they prove two."""

    name: str
    value: str
    because: str


@dataclass(slots=True, kw_only=True)
class ProtocolReport:
    """The messages of one protocol in a topic.

    Attributes:
        by_ticdc: whether TiCDC wrote the messages, not the program that the wire format comes from.
        no_old_rows: the number of updates if none has its old row, else 0.
    """

    protocol: str
    records: int = 0
    by_ticdc: bool = True
    no_commit_ts: int = 0
    no_old_rows: int = 0
    settings: list[ChangefeedSetting] = field(default_factory=list)
    tables: list[TableReport] = field(default_factory=list)
    ddl: list[DDLReport] = field(default_factory=list)
    watermarks: int = 0
    bad: list[BadRecords] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class TopicReport:
    """A topic.

    Attributes:
        others: tables with rows that the option `tables` leaves out.
        unknown: the number of records that no protocol recognizes.
        bad: these records, and those that could not be extracted from their record batch.
        watermark, watermark_time, watermark_lag_s: the smallest watermark of its partitions, up to which the topic has
            every transaction; None if a partition has none.
    """

    topic: str
    partitions: list[PartitionReport] = field(default_factory=list)
    protocols: list[ProtocolReport] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    unknown: int = 0
    bad: list[BadRecords] = field(default_factory=list)
    watermark: int | None = None
    watermark_time: str | None = None
    watermark_lag_s: float | None = None


@dataclass(slots=True, kw_only=True)
class Inspection:
    """The content of topics. `whole`: whether all records of the ranges were read. `options` has no secrets."""

    topics: list[TopicReport] = field(default_factory=list)
    scanned: int = 0
    whole: bool = True
    options: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        return {"version": 1, **asdict(self)}


def findings_of(inspection: Inspection) -> list[Finding]:
    """Return the findings about topics; those about single tables come from their reports."""
    findings = [
        Finding(code=code, message=message, topic=topic.topic, table=table)
        for topic in inspection.topics
        for code, message, table in _of_topic(topic)
    ]
    if not inspection.whole:
        message = (
            f"Only {inspection.scanned:,} records were read, from both ends: counts are not those of the whole topic, "
            "and DDL in between is unknown. Raise --max-records or --timeout to read more"
        )
        findings.append(Finding(code="not-whole", message=message))
    return findings


_Found = tuple[str, str, str | None]  # code, message, and table if it concerns one


def _of_topic(topic: TopicReport) -> Iterator[_Found]:
    name = topic.topic
    if not any(partition.scanned for partition in topic.partitions):
        yield "empty", f"{name} has no record in the range", None
        return
    if len(topic.protocols) > 1:
        protocols = ", ".join(f"{each.protocol} (records: {each.records:,})" for each in topic.protocols)
        message = (
            f"{name} has messages of several protocols: {protocols}. A read takes one: set 'protocol', and "
            "startingOffsets after the last message of the other"
        )
        yield "several-protocols", message, None
    yield from _of_bad(topic.bad)
    if topic.others and not any(messages.tables for messages in topic.protocols):
        message = f"{name} has no row of a table in 'tables'; tables found: {', '.join(topic.others)}"
        yield "no-such-table", message, None
    if topic.watermark_lag_s is not None and topic.watermark_lag_s > _LATE_S:
        behind = f"{duration(topic.watermark_lag_s)} behind this machine's clock"
        yield "late", f"The watermark of {name} is {behind}: is the changefeed running?", None
    if topic.unknown:
        message = f"Records of {name} in no supported protocol: {topic.unknown:,}. Does TiCDC write to this topic?"
        yield "unknown-protocol", message, None
    for messages in topic.protocols:
        yield from _of_protocol(name, messages)
        without = [each.partition for each in topic.partitions if each.scanned and each.watermark is None]
        if without and messages.tables:
            message = (
                f"No watermark in partition {listed(without)} of {name}: endingCommitTs=resolved and "
                f"consistency=resolved do not work, and lag is not known; {_mend_of_watermarks(messages)}"
            )
            yield "no-watermarks", message, None


def _mend_of_watermarks(messages: ProtocolReport) -> str:
    need = PROTOCOLS[messages.protocol].facts.watermarks_need
    if not messages.by_ticdc:
        return "only TiCDC sends them"
    extended = any(setting.name == "enable-tidb-extension" and setting.value == "true" for setting in messages.settings)
    if need is None or messages.watermarks or (extended and need == "enable-tidb-extension=true"):
        return "wait for the first one, or check that the changefeed is running"
    return f"TiCDC sends them with {need}"


def _of_bad(bad: Iterable[BadRecords]) -> Iterator[_Found]:
    for each in bad:
        message = f"Records or events that cannot be read: {each.count:,}. {each.reason} (first: {each.first})"
        yield "bad-records", message, None


def _of_protocol(topic: str, messages: ProtocolReport) -> Iterator[_Found]:
    settings = {setting.name: setting.value for setting in messages.settings}
    yield from _of_bad(messages.bad)
    if messages.no_commit_ts:
        adds = "; enable-tidb-extension=true adds it" if settings.get("enable-tidb-extension") == "false" else ""
        message = (
            f"Row messages of {topic} without a commit-ts: {messages.no_commit_ts:,}. The event's time replaces it, "
            f"and changes with the same time are ordered by partition, then offset{adds}"
        )
        yield "no-commit-ts", message, None
    large = settings.get("large-message-handle-option")
    if large in ("handle-key-only", "mixed"):
        message = (
            f"Large messages of {topic} have only their key columns, so reads fail: set onHandleKeyOnly=null to read "
            "the other columns as NULL. TiCDC's large-message-handle-option=claim-check would lose nothing"
        )
        yield "handle-key-only", message, None
    if large in ("claim-check", "mixed"):
        message = f"Large messages of {topic} are in claim-check storage: set claimCheckLocation"
        yield "claim-check", message, None
    need = PROTOCOLS[messages.protocol].facts.old_rows_need
    if messages.no_old_rows and messages.by_ticdc:
        lack = (
            f"The changefeed of {topic} sends no old rows: updates have no update_preimage, and if "
            "output-raw-change-event=true keeps those of keys whole, copies keep rows with old keys"
        )
        yield "no-old-rows", f"{lack}. TiCDC sends them with {need}", None
    for event in messages.ddl:
        if event.removes_rows:
            message = (
                f"{event.kind} of {event.table} at {event.time} removed rows without delete events (onDestructiveDDL): "
                f"{event.query[:200]}"
            )
            yield "destructive-ddl", message, event.table
    for table in messages.tables:
        if table.columns and not table.keys:
            message = (
                f"The messages of {table.table} name no key: changes cannot be merged by key. If the table has a "
                "unique key of NOT NULL columns, set tableDDL to its SHOW CREATE TABLE; otherwise add a primary key, "
                "or append the changes to a log"
            )
            yield "no-key", message, table.table


class Outcome(NamedTuple):
    """The result of a step: `ok`, `warning`, `failed` or `skipped`, and what to do about it."""

    result: str
    message: str
    mend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A step and its subject, such as a server; empty if the step says it."""

    step: str
    subject: str
    result: str
    message: str
    mend: str
    seconds: float


@dataclass(slots=True, kw_only=True)
class Diagnosis:
    """The steps that were taken."""

    checks: list[Check] = field(default_factory=list)

    @property
    def is_well(self) -> bool:
        return all(check.result != "failed" for check in self.checks)

    def as_json(self) -> dict[str, object]:
        return {"version": 1, "ok": self.is_well, **asdict(self)}
