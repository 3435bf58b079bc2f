"""Show what is in topics: protocol, settings of the changefeed, tables, schemas, lag, DDL and bad records.

It reads all records of a small topic, and both ends of a large one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from rich.console import Console

from ticdc_source.cli.arguments import add_connection, add_limits, given_by_user, options_of
from ticdc_source.cli.screen import literal, moment, output, plain, print_json, progress_bar, table_of
from ticdc_source.errors import counted
from ticdc_source.inspection.inspect import Limits, ScanProgress, inspect
from ticdc_source.inspection.report import (
    Finding,
    Inspection,
    PartitionReport,
    ProtocolReport,
    TableReport,
    TopicReport,
)
from ticdc_source.options.names import without_secrets
from ticdc_source.schema.tso import duration

__all__ = ["SUMMARY", "add_arguments", "run", "show"]

SUMMARY = "protocol, settings, tables, schemas, lag and bad records of topics"
_MOST_SCHEMAS = 3  # tables whose columns are shown
_MOST_ROWS = 20  # of tables and of DDL events
_MOST_NAMES = 8  # of tables that share a finding
_LONGEST_STATEMENT = 200  # characters of a DDL event


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_connection(parser)
    add_limits(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")
    parser.add_argument(
        "--all", action="store_true", help="show all tables with their columns, all DDL events, and each finding"
    )


def run(arguments: argparse.Namespace) -> int:
    """Inspect topics; return 1 if there is something that a person should know."""
    given = options_of(arguments)
    limits = Limits(max_records=arguments.max_records, timeout=arguments.timeout)
    with progress_bar() as bar:

        def on_progress(progress: ScanProgress) -> None:
            bar(progress.doing, progress.done, progress.total)

        inspection = inspect(given, limits, on_progress)
    inspection.options = without_secrets(given_by_user(given))
    if arguments.json:
        print_json(inspection.as_json())
    else:
        show(inspection, output(), everything=arguments.all)
    return 1 if inspection.findings else 0


def show(inspection: Inspection, console: Console, *, everything: bool = False) -> None:
    """Print a report for people.

    Args:
        inspection: the report.
        console: where to print it.
        everything: whether to show all tables, all DDL events and each finding.
    """
    for topic in inspection.topics:
        _show_topic(topic, inspection, console, everything=everything)
    if inspection.findings:
        console.print("[bold]To know[/]")
        for code, message in finding_lines(inspection.findings, everything=everything):
            console.print(f"  [yellow]{code}[/]  {plain(message)}", soft_wrap=True)
    else:
        console.print("[green]Nothing unusual.[/]")


def finding_lines(findings: Sequence[Finding], *, everything: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the code and the text of each finding. What one topic has of a kind for several tables is one text.

    Args:
        findings: the findings.
        everything: whether each has its own text.
    """
    groups: dict[object, list[Finding]] = {}
    for number, finding in enumerate(findings):
        alone = everything or finding.table is None
        groups.setdefault(number if alone else (finding.code, finding.topic), []).append(finding)
    for first, *others in groups.values():
        names = list(dict.fromkeys(_table_and_columns(finding) for finding in others))
        listed = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
        also = f". Also: {listed} ({len(others):,} more; --all says each)" if others else ""
        yield first.code, first.message + also


def _table_and_columns(finding: Finding) -> str:
    return f"{finding.table} ({', '.join(finding.columns)})" if finding.columns else str(finding.table)


def _show_topic(topic: TopicReport, inspection: Inspection, console: Console, *, everything: bool) -> None:
    read, offsets = (sum(each) for each in zip(*((p.scanned, p.end - p.start) for p in topic.partitions), strict=True))
    protocols = ", ".join(each.protocol for each in topic.protocols) or "no messages"
    count = f"{counted(read, 'record')}" if read == offsets else f"{read:,} of {counted(offsets, 'offset')} read"
    partitions = counted(len(topic.partitions), "partition")
    lag = "" if topic.watermark_lag_s is None else f"; complete up to {moment(topic.watermark_time)}"
    console.print(f"[bold]{plain(topic.topic)}[/]: [cyan]{protocols}[/], {count} in {partitions}{lag}\n")
    for messages in topic.protocols:
        _show_protocol(messages, topic, inspection, console, everything=everything)
    table = table_of(
        "partition", "offsets", "read", "first commit", "last commit", "watermark", "lag", right=("read", "lag"),
        title="Partitions",
    )  # fmt: skip
    for partition in topic.partitions:
        table.add_row(*_partition_cells(partition))
    console.print(table, "")


def _show_protocol(
    messages: ProtocolReport, topic: TopicReport, inspection: Inspection, console: Console, *, everything: bool
) -> None:
    if messages.settings:
        table = table_of("setting", "value", "because", title=f"Settings of the changefeed ({messages.protocol})")
        for setting in messages.settings:
            table.add_row(setting.name, f"[cyan]{plain(setting.value)}[/]", plain(setting.because))
        console.print(table, "")
    tables = messages.tables if everything else sorted(messages.tables, key=lambda each: -each.events)[:_MOST_ROWS]
    if tables:
        table = table_of(
            "table", "insert", "update", "delete", "sent again", "first change", "last change", "key",
            right=("insert", "update", "delete", "sent again"), title=f"Tables ({len(messages.tables)})",
        )  # fmt: skip
        for each in tables:
            times = (moment(each.first_time), moment(each.last_time))
            counts = (f"{each.insert:,}", f"{each.update:,}", f"{each.delete:,}", f"{each.sent_again:,}")
            table.add_row(plain(each.table), *counts, *times, plain(", ".join(each.keys)) or "none")
        console.print(table)
        if len(tables) < len(messages.tables):
            console.print(f"[dim]… and {len(messages.tables) - len(tables)} more: --all shows them[/]")
        console.print()
    if everything or len(messages.tables) <= _MOST_SCHEMAS:
        for each in messages.tables:
            _show_schema(each, topic.topic, inspection, console)
    if messages.ddl:
        events = messages.ddl if everything else messages.ddl[-_MOST_ROWS:]
        table = table_of("time", "table", "kind", "statement", title=f"DDL ({len(messages.ddl)})")
        for event in events:
            kind = f"[red]{plain(event.kind)}[/]" if event.removes_rows else plain(event.kind)
            statement = " ".join(event.query.split())
            if len(statement) > _LONGEST_STATEMENT and not everything:
                statement = statement[:_LONGEST_STATEMENT] + "…"
            table.add_row(moment(event.time), plain(event.table), kind, plain(statement))
        console.print(table, "")


def _show_schema(table: TableReport, topic: str, inspection: Inspection, console: Console) -> None:
    if not table.columns:
        return
    rows = table_of("column", "MySQL type", "Spark type", "", title=f"{plain(table.table)}")
    for column in table.columns:
        notes = [note for note, holds in (("key", column.key), ("uncertain", column.uncertain)) if holds]
        rows.add_row(plain(column.name), plain(column.mysql_type or "?"), plain(column.spark_type), ", ".join(notes))
    console.print(rows, "")
    for line in option_lines(table, topic, inspection):
        console.print(f"[green]{plain(line)}[/]", soft_wrap=True)
    console.print()


def option_lines(table: TableReport, topic: str, inspection: Inspection) -> Iterator[str]:
    """Yield the lines of a job that read a table; `--conf` of these commands takes the same names."""
    yield "changes = ("
    yield '    spark.read.format("ticdc")'
    given = {**inspection.options, "subscribe": topic, **table.options}
    for name, value in given.items():
        guessed = name == "timeZone" and name not in inspection.options
        comment = "  # a guess: no message says the --tz of the TiCDC server" if guessed else ""
        yield f"    .option({literal(name)}, {literal(value)}){comment}"
    yield "    .load()"
    yield ")"


def _partition_cells(partition: PartitionReport) -> tuple[str, ...]:
    lag = "" if partition.watermark_lag_s is None else duration(partition.watermark_lag_s)
    return (
        str(partition.partition),
        f"{partition.start:,} to {partition.end:,}",
        f"{partition.scanned:,}",
        moment(partition.first_time),
        moment(partition.last_time),
        moment(partition.watermark_time),
        lag,
    )
