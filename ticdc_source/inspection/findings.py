"""What a person should know before reading a topic, concluded from its report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ticdc_source.inspection.report import BadRecords, Finding, Inspection, ProtocolReport, TopicReport
from ticdc_source.options.topics import listed
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.schema.tso import duration

__all__ = ["findings_of"]

_LATE_S = 600.0  # TiCDC writes watermarks every second; a restart of it takes minutes


def findings_of(inspection: Inspection) -> list[Finding]:
    """Return what the reports of topics show; single tables report for themselves."""
    findings = [finding for topic in inspection.topics for finding in _of_topic(topic)]
    if not inspection.whole:
        message = (
            f"Only {inspection.scanned:,} records were read, from both ends: counts are not those of the whole topic, "
            "and DDL in between is not known. Raise --max-records or --timeout to read more"
        )
        findings.append(Finding(code="not-whole", message=message))
    return findings


def _of_topic(topic: TopicReport) -> Iterator[Finding]:
    name = topic.topic
    if not any(partition.scanned for partition in topic.partitions):
        yield Finding(code="empty", message=f"{name} has no record in the range", topic=name)
        return
    if len(topic.protocols) > 1:
        protocols = ", ".join(f"{each.protocol} (records: {each.records:,})" for each in topic.protocols)
        message = (
            f"{name} has messages of several protocols: {protocols}. A read takes one: give it with 'protocol', and "
            "start behind the last message of the other (startingOffsets)"
        )
        yield Finding(code="several-protocols", message=message, topic=name)
    yield from _of_bad(name, topic.bad)
    if topic.others and not any(messages.tables for messages in topic.protocols):
        message = f"No row of {name} is of a table that 'tables' names; the tables there are: {', '.join(topic.others)}"
        yield Finding(code="no-such-table", message=message, topic=name)
    if topic.watermark_lag_s is not None and topic.watermark_lag_s > _LATE_S:
        message = (
            f"The watermark of {name} is {duration(topic.watermark_lag_s)} behind this machine's clock: is the "
            "changefeed running?"
        )
        yield Finding(code="late", message=message, topic=name)
    if topic.unknown:
        message = f"Records of {name} that are of no protocol that is read: {topic.unknown:,}"
        yield Finding(code="unknown-protocol", message=message, topic=name)
    for messages in topic.protocols:
        yield from _of_protocol(name, messages)
        without = [each.partition for each in topic.partitions if each.scanned and each.watermark is None]
        if without and messages.tables:
            message = (
                f"No watermark in partition {listed(without)} of {name}: endingCommitTs=resolved and "
                f"consistency=resolved do not work, and lag is not known; {_mend_of_watermarks(messages)}"
            )
            yield Finding(code="no-watermarks", message=message, topic=name)


def _mend_of_watermarks(messages: ProtocolReport) -> str:
    need = PROTOCOLS[messages.protocol].facts.watermarks_need
    if not messages.by_ticdc:
        return "only TiCDC sends them"
    extended = any(setting.name == "enable-tidb-extension" and setting.value == "true" for setting in messages.settings)
    if need is None or messages.watermarks or (extended and need == "enable-tidb-extension=true"):
        return "wait for the first ones, or look whether the changefeed is running"
    return f"TiCDC sends them with {need}"


def _of_bad(topic: str, bad: Iterable[BadRecords]) -> Iterator[Finding]:
    for each in bad:
        message = f"Records or events that cannot be read: {each.count:,}. {each.reason} (first: {each.first})"
        yield Finding(code="bad-records", message=message, topic=topic)


def _of_protocol(topic: str, messages: ProtocolReport) -> Iterator[Finding]:
    settings = {setting.name: setting.value for setting in messages.settings}
    yield from _of_bad(topic, messages.bad)
    if messages.no_commit_ts:
        adds = "; enable-tidb-extension=true adds it" if settings.get("enable-tidb-extension") == "false" else ""
        message = (
            f"Row messages of {topic} without a commit-ts: {messages.no_commit_ts:,}. The event's time stands in for "
            f"it, and changes of one time have the order of the topic: by partition, then offset{adds}"
        )
        yield Finding(code="no-commit-ts", message=message, topic=topic)
    large = settings.get("large-message-handle-option")
    if large in ("handle-key-only", "mixed"):
        message = (
            f"Messages of {topic} that were too large have their key columns only: reads fail, unless "
            "onHandleKeyOnly=null reads the other columns as NULL; TiCDC's large-message-handle-option=claim-check "
            "loses nothing"
        )
        yield Finding(code="handle-key-only", message=message, topic=topic)
    if large in ("claim-check", "mixed"):
        message = f"Messages of {topic} that were too large lie in claim-check storage: set claimCheckLocation"
        yield Finding(code="claim-check", message=message, topic=topic)
    need = PROTOCOLS[messages.protocol].facts.old_rows_need
    if messages.no_old_rows and messages.by_ticdc:
        message = (
            f"The changefeed of {topic} sends no old rows: updates have no update_preimage, or look like inserts. "
            f"TiCDC sends them with {need}"
        )
        yield Finding(code="no-old-rows", message=message, topic=topic)
    for event in messages.ddl:
        if event.removes_rows:
            message = (
                f"{event.kind} of {event.table} at {event.time} removed rows, and no delete events tell which "
                f"(onDestructiveDDL): {event.query[:200]}"
            )
            yield Finding(code="destructive-ddl", message=message, topic=topic, table=event.table)
    for table in messages.tables:
        if table.columns and not table.keys:
            message = (
                f"The messages of {table.table} name no key: changes cannot be merged by key. If it has a unique key "
                "of NOT NULL columns, set tableDDL to its SHOW CREATE TABLE; otherwise give the table a primary key, "
                "or append its changes to a log"
            )
            yield Finding(code="no-key", message=message, topic=topic, table=table.table)
