"""Show what is in topics: protocol, changefeed settings, tables, schemas, lag, DDL and bad records.

It reads all records of a small topic, but only both ends of a large one.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from itertools import count as numbers

from ticdc_source import __version__
from ticdc_source.cli.arguments import add_connection, add_limits, argument, given_by_user, options_of
from ticdc_source.cli.screen import Screen, Table, errors, literal, moment, output, print_json, progress_line, visible
from ticdc_source.errors import OptionError, counted
from ticdc_source.inspection.inspect import inspect
from ticdc_source.inspection.report import (
    Finding,
    Inspection,
    PartitionReport,
    ProtocolReport,
    TableReport,
    TopicReport,
)
from ticdc_source.options import parsers
from ticdc_source.options.names import HIDDEN, without_secrets
from ticdc_source.options.topics import parse_table
from ticdc_source.pipeline.metadata import METADATA
from ticdc_source.schema.table_name import TableName, expression_name
from ticdc_source.schema.tso import duration

SUMMARY = "show protocol, settings, tables, schemas, lag and bad records of topics"
_MOST_SCHEMAS = 3  # tables whose columns are shown
_MOST_ROWS = 20  # of tables and of DDL events
_MOST_NAMES = 8  # of tables that share a finding
_LONGEST_STATEMENT = 200  # characters of a DDL event


# How the file of a pipeline gets its session, by platform.
PLATFORMS = {
    "oss": (
        "from pyspark.sql import SparkSession",
        "from pyspark.sql import functions as F",
        "",
        "spark = SparkSession.active()",
    ),
    "databricks": (
        "from ticdc_source import TiCDCDataSource",
        "",
        "spark.dataSource.register(TiCDCDataSource)  # the platform defines spark",
    ),
}
_HEAD = '''"""A pipeline with the tables of {topics}.

Written by `ticdc-source inspect --pipeline {platform}` (ticdc-source {version}); run it again for new tables. Each
table reads the topic once, from its first record: rows that have not changed since are missing, unless OPTIONS has
snapshot=initial. With it, a full refresh removes the rows that TRUNCATE or DROP TABLE left.
"""'''
# Prefixes of options that the file sets itself, that add columns outside the tables, or that a stream refuses.
_NOT_OF_USERS = ("preimages", "tables", "outputformat", "includemetadata", "includeheaders", "ending", "subscribe")

_CHANGES_OF = "{}_changes"

_CHANGES = """

def changes(table, **options):
    return spark.readStream.format("ticdc").options(**OPTIONS, **options, tables=table).load()
"""
_KEEP = '''

def keep(name, table, keys, **options):
    """Keep a table as it is in TiDB, by AUTO CDC: the newest row of each key."""

    @dp.temporary_view(name=f"{name}_changes")
    def view():
        return changes(table, **options)

    dp.create_streaming_table(name)
    dp.create_auto_cdc_flow(
        target=name,
        source=f"{name}_changes",
        keys=keys,
        sequence_by="{prefix}sequence",
        # An update's old row sorts before its new row, so it removes a row only if the update changes the key. Messages
        # without old rows leave that row, if TiCDC's output-raw-change-event=true keeps such an update whole.
        apply_as_deletes="{prefix}change_type IN ('delete', 'update_preimage')",
        except_column_list=[{metadata}],
        # With 2, a version's __END_AT and the next __START_AT have the same commit_ts, though not the same rank, and
        # each update starts a version, whatever track_history_column_list says.
        stored_as_scd_type=1,
    )
'''
# Open-source Spark has no table format yet that AUTO CDC can write (AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE).
_NEWEST = '''

def newest(name, source, keys):
    """Make a table as it is in TiDB: the newest row of each key, computed from all changes in each run."""

    @dp.materialized_view(name=name)
    def rows():
        # An update's old row sorts before its new row, so it is the newest of its key only if the key has changed.
        newest_row = F.max_by(F.struct("*"), "{prefix}sequence").alias("{prefix}newest")
        by_key = spark.read.table(source).groupBy(*keys).agg(newest_row)
        exists = by_key.where("{prefix}newest.{prefix}change_type IN ('insert', 'update_postimage')")
        return exists.selectExpr("{prefix}newest.* EXCEPT ({metadata})")
'''
_APPEND = '''

def append(name, table, **options):
    """Append each change of a table."""

    @dp.table(name=name)
    def rows():
        return changes(table, **options)
'''
_GUESS = "  # a guess: messages do not say the TiCDC server's --tz"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    add_limits(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON, for scripts")
    form.add_argument(
        "--pipeline",
        type=argument(parsers.one_of(*PLATFORMS)),
        metavar="PLATFORM",
        help=f"print a declarative pipeline that keeps these tables up to date, for {' or '.join(PLATFORMS)}",
    )
    parser.add_argument(
        "--all", action="store_true", help="show the columns of all tables, all DDL events, and every finding"
    )


def run(arguments: argparse.Namespace) -> int:
    """Inspect topics; return 1 if there is a finding."""
    given = options_of(arguments)
    with progress_line() as progress:
        inspection = inspect(given, progress, max_records=arguments.max_records, timeout=arguments.timeout)
    inspection.options = without_secrets(given_by_user(given))
    if arguments.json:
        print_json(inspection.as_json())
    elif arguments.pipeline:
        lines = list(pipeline_file(inspection, arguments.pipeline))
        for _, message in finding_lines(inspection.findings, everything=arguments.all):
            errors().print(("warning: ", "yellow"), visible(message))
        for line in lines:
            output().print(line)
        return 0 if lines else 1
    else:
        show(inspection, output(), everything=arguments.all)
    return 1 if inspection.findings else 0


def show(inspection: Inspection, screen: Screen, *, everything: bool = False) -> None:
    for topic in inspection.topics:
        _show_topic(topic, inspection, screen, everything=everything)
    if inspection.findings:
        screen.print(("To know", "bold"))
        for code, message in finding_lines(inspection.findings, everything=everything):
            screen.print("  ", (code, "yellow"), f"  {visible(message)}")
    else:
        screen.print(("Nothing unusual.", "green"))


def finding_lines(findings: Sequence[Finding], *, everything: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the code and text of each finding; findings of one kind about several tables of a topic share a text."""
    groups: dict[object, list[Finding]] = {}
    for number, finding in enumerate(findings):
        alone = everything or finding.table is None
        groups.setdefault(number if alone else (finding.code, finding.topic), []).append(finding)
    for first, *others in groups.values():
        names = list(dict.fromkeys(_table_and_columns(finding) for finding in others))
        listed = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
        also = f". Also: {listed} ({len(others):,} more: --all shows them)" if others else ""
        yield first.code, first.message + also


def _table_and_columns(finding: Finding) -> str:
    return f"{finding.table} ({', '.join(finding.columns)})" if finding.columns else str(finding.table)


def _show_topic(topic: TopicReport, inspection: Inspection, screen: Screen, *, everything: bool) -> None:
    read, offsets = (sum(each) for each in zip(*((p.scanned, p.end - p.start) for p in topic.partitions), strict=True))
    protocols = ", ".join(each.protocol for each in topic.protocols) or "no messages"
    count = f"{counted(read, 'record')}" if read == offsets else f"{read:,} of {counted(offsets, 'offset')} read"
    partitions = counted(len(topic.partitions), "partition")
    lag = "" if topic.watermark_lag_s is None else f"; complete up to {moment(topic.watermark_time)}"
    screen.print((visible(topic.topic), "bold"), ": ", (protocols, "cyan"), f", {count} in {partitions}{lag}\n")
    for messages in topic.protocols:
        _show_protocol(messages, topic, inspection, screen, everything=everything)
    table = Table(
        "partition", "offsets", "read", "first commit", "last commit", "watermark", "lag", right=("read", "lag"),
        title="Partitions",
    )  # fmt: skip
    for partition in topic.partitions:
        table.add_row(*_partition_cells(partition))
    screen.show(table, ())


def _show_protocol(
    messages: ProtocolReport, topic: TopicReport, inspection: Inspection, screen: Screen, *, everything: bool
) -> None:
    if messages.settings:
        table = Table("setting", "value", "because", title=f"Settings of the changefeed ({messages.protocol})")
        for setting in messages.settings:
            table.add_row(setting.name, (setting.value, "cyan"), setting.because)
        screen.show(table, ())
    tables = messages.tables if everything else sorted(messages.tables, key=lambda each: -each.events)[:_MOST_ROWS]
    if tables:
        table = Table(
            "table", "insert", "update", "delete", "sent again", "first change", "last change", "key",
            right=("insert", "update", "delete", "sent again"), title=f"Tables ({len(messages.tables)})",
        )  # fmt: skip
        for each in tables:
            times = (moment(each.first_time), moment(each.last_time))
            counts = (f"{each.insert:,}", f"{each.update:,}", f"{each.delete:,}", f"{each.sent_again:,}")
            table.add_row(each.table, *counts, *times, ", ".join(each.keys) or "none")
        screen.show(table)
        if len(tables) < len(messages.tables):
            screen.print((f"… and {len(messages.tables) - len(tables)} more: --all shows them", "dim"))
        screen.print()
    if everything or len(messages.tables) <= _MOST_SCHEMAS:
        for each in messages.tables:
            _show_schema(each, topic.topic, inspection, screen)
    if messages.ddl:
        events = messages.ddl if everything else messages.ddl[-_MOST_ROWS:]
        table = Table("time", "table", "kind", "statement", title=f"DDL ({len(messages.ddl)})")
        for event in events:
            kind = (event.kind, "red" if event.removes_rows else "")
            statement = " ".join(event.query.split())
            if len(statement) > _LONGEST_STATEMENT and not everything:
                statement = statement[:_LONGEST_STATEMENT] + "…"
            table.add_row(moment(event.time), event.table, kind, statement)
        screen.show(table, ())


def _show_schema(table: TableReport, topic: str, inspection: Inspection, screen: Screen) -> None:
    if not table.columns:
        return
    rows = Table("column", "MySQL type", "Spark type", "", title=table.table)
    for column in table.columns:
        notes = [note for note, holds in (("key", column.key), ("uncertain", column.uncertain)) if holds]
        rows.add_row(column.name, column.mysql_type or "?", column.spark_type, ", ".join(notes))
    screen.show(rows, ())
    for line in option_lines(table, topic, inspection):
        screen.print((visible(line), "green"))
    screen.print()


def option_lines(table: TableReport, topic: str, inspection: Inspection) -> Iterator[str]:
    """Yield the lines of a job that read a table, with option names that `--conf` takes too."""
    yield "changes = ("
    yield '    spark.read.format("ticdc")'
    needed = _needed(inspection.options, table)
    for name, value in {**inspection.options, "subscribe": topic, **needed}.items():
        yield f"    .option({literal(name)}, {literal(value)}){_GUESS if name == 'timeZone' and name in needed else ''}"
    yield "    .load()"
    yield ")"


def _needed(given: Mapping[str, str], *tables: TableReport) -> dict[str, str]:
    names = {name.lower() for name in given}
    return {name: value for table in tables for name, value in table.options.items() if name.lower() not in names}


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


def pipeline_file(inspection: Inspection, platform: str) -> Iterator[str]:
    """Yield the lines of a declarative pipeline with every table; none if no table can be read.

    A table with rows that lack its key is only appended. AUTO CDC fails on a NULL key, and rows written before the key
    existed may share a value, so deleting one would remove another.

    Raises:
        OptionError: `metadataColumnPrefix` has characters other than letters, digits and underscores.
    """
    topics = [topic.topic for topic in inspection.topics]
    tables = [(topic.topic, table) for topic in inspection.topics for kind in topic.protocols for table in kind.tables]
    if not any(table.columns for _, table in tables):
        return
    given = {name: value for name, value in inspection.options.items() if not name.lower().startswith(_NOT_OF_USERS)}
    prefix = {name.lower(): value for name, value in given.items()}.get("metadatacolumnprefix", "_")
    if re.fullmatch(r"\w*", prefix, re.ASCII) is None:
        raise OptionError(
            f"metadataColumnPrefix={visible(prefix)}: a pipeline needs only letters, digits and underscores"
        )
    needed = _needed(given, *(table for _, table in tables))
    needed.pop("tables", None)
    subscribe = {"subscribe": topics[0]} if len(topics) == 1 else {}
    options = {"startingOffsets": "earliest", **given, **subscribe, **needed}
    core = [prefix + column.name for column in METADATA if column.level == "core"]
    if platform == "oss":
        keep, metadata = _NEWEST, ", ".join(core)
    else:
        keep, metadata = _KEEP, ", ".join(map(literal, core))
    yield from _HEAD.format(topics=visible(", ".join(topics)), version=__version__, platform=platform).splitlines()
    yield from ("", "from pyspark import pipelines as dp", *PLATFORMS[platform], "", "OPTIONS = {")
    for name, value in options.items():
        yield f"    {literal(name)}: {_value(name, value)},{_GUESS if name == 'timeZone' and name in needed else ''}"
    yield "}"
    yield from _CHANGES.splitlines()
    yield from (_APPEND + keep.replace("{metadata}", metadata).replace("{prefix}", prefix)).splitlines()
    yield from ("", "")
    names = _names([parse_table(table.table) for _, table in tables])
    for (topic, table), name in zip(tables, names, strict=True):
        more = [f"subscribe={literal(topic)}"] if len(topics) > 1 else []
        changes = literal(_CHANGES_OF.format(name))
        keys = f"[{', '.join(literal(expression_name(key)) for key in table.keys)}]"
        if not table.columns:
            yield f"# {visible(table.table)} cannot be read: ticdc-source inspect says why"
        elif not table.has_keys:
            why = "some of its rows lack the key" if table.keys else "it has no key"
            yield f"append({', '.join([literal(name), literal(table.table), *more])})  # {why}"
        elif platform == "oss":
            yield f"append({', '.join([changes, literal(table.table), *more])})"
            yield f"newest({literal(name)}, {changes}, {keys})"
        else:
            yield f"keep({', '.join([literal(name), literal(table.table), keys, *more])})"


def _value(name: str, value: str) -> str:
    return f"spark.conf.get({literal('ticdc.' + name)})" if value == HIDDEN else literal(value)


def _names(tables: Sequence[TableName]) -> list[str]:
    """Return a valid Spark name for each table: its own, prefixed with its database if that name is taken."""
    names: list[str] = []
    for table in tables:
        short, long = (
            re.sub(r"^(?=\d)|\W", "_", name, flags=re.ASCII).lower() for name in (table.table, "_".join(table))
        )
        taken = {*names, *map(_CHANGES_OF.format, names)}
        tried = chain((short, long), (f"{long}_{number}" for number in numbers(2)))
        names.append(next(name for name in tried if not {name, _CHANGES_OF.format(name)} & taken))
    return names
