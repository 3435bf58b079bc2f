"""`SyncConfig`: what a sync copies, from where, to where, and how. It is checked before Spark or a broker is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ticdc_source.driver.frame_sample import applies_to_frames, frame_options
from ticdc_source.errors import OptionError, nearest
from ticdc_source.events import TableName
from ticdc_source.lakehouse.database.names import Layout
from ticdc_source.options.names import refuse_unknown
from ticdc_source.options.options import Options, applies_to_records
from ticdc_source.options.parsers import ParseError
from ticdc_source.options.parsers import tables as table_patterns
from ticdc_source.options.table_filter import TableFilter, parse_table

__all__ = ["TABLE_OPTIONS", "SyncConfig", "TableConfig", "refuse_unknown_key"]

_LITERAL = re.compile(r"[A-Za-z0-9._-]+")  # the name of a topic, and no regular expression
# Options of the source that a sync sets itself, and what to do instead.
_OWN = {
    "assign": "write topics = ['tidb-shop']",
    "subscribe": "write topics = ['tidb-shop']",
    "subscribePattern": "write topics = ['tidb-.*']",
    "outputFormat": "a sync reads records",
    "tables": "write tables = ['shop.*'] at the top of sync.toml",
    "mode": "write bad_records = 'quarantine' at the top of sync.toml",
    "metadataColumnPrefix": "write column_prefix = '_ticdc_' at the top of sync.toml",
    "columns": "a copy has all columns",
    "operations": "a copy has all changes",
    "preimages": "a copy has all changes",
    "startingCommitTs": "a copy has all changes",
    "endingCommitTs": "a copy has all changes",
    "includeMetadata": "a copy has the columns of the table",
    "includeHeaders": "a copy has the columns of the table",
    "onDestructiveDDL": "a copy follows DDL",
    "onSchemaDrift": "a copy follows the schema of the table",
    "rescuedDataColumn": "a copy follows the schema of the table",
    "columnNameOfCorruptRecord": "the quarantine table has its own columns",
}
_MOST_PARALLEL = 64
_LARGEST_PORT = 65_535
TABLE_OPTIONS = ("tableDDL", "schemaHints", "unspecifiedDecimal")  # options that differ by table


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """What is said of one table.

    Attributes:
        skip: whether it is left out.
        deletes: `soft` keeps deleted rows, marked by `_is_deleted`; `hard` removes them.
        keys: the columns that identify a row, if the messages do not say it.
        log: whether all changes are appended to `<table>__log`, instead of the table, also if it has a key.
        history: whether all changes are appended to `<table>__log`, beside the table.
        options: options of the source for this table: `schemaHints`, `tableDDL`, `unspecifiedDecimal`.
    """

    skip: bool = False
    deletes: Literal["soft", "hard"] | None = None
    keys: tuple[str, ...] | None = None
    log: bool = False
    history: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SyncConfig:
    """What a sync copies, from where, to where, and how.

    Attributes:
        source: options of `format("ticdc")`: where Kafka is, and how messages are read.
        topics: the topics: names, or regular expressions, which also find topics that are made later.
        format: `delta` or `iceberg`.
        path: the folder of the tables; None if they are in a catalog.
        catalog: the catalog of the session in which the tables are; None for tables in a folder.
        checkpoint: the folder in which the sync stores how far it is.
        tables: patterns of the tables to copy, such as `shop.*`; empty for all.
        consistency: `latest` applies changes as they come; `resolved` only up to the resolved ts.
        deletes: what becomes of deleted rows, where a table says nothing else.
        column_prefix: what precedes the names of the columns that the sync adds.
        commit_time: whether tables have a column `_committed_at`, the time of the commit that changed a row last.
        time_as: how TIME is stored: `micros`, a number, or `text`.
        views: whether a view `<table>__current` has the rows that are not deleted, and `<table>__history` the versions
            of rows if the table has `history`. It needs a catalog with views.
        parallel: how many tables are written at once.
        bad_records: `quarantine` writes records that cannot be read to a table of their own; `fail` sets their table
            aside, or ends the sync if nobody can tell their table.
        prometheus_port: the port on which it serves metrics for Prometheus; None for none.
        trigger: time between two micro-batches, such as `10 seconds`; None ends when the topics are read.
        spark: settings of the Spark session that the command starts.
        table: what is said of single tables, by name.
    """

    source: Mapping[str, str] = field(repr=False)
    topics: tuple[str, ...]
    format: Literal["delta", "iceberg"]
    checkpoint: str
    path: str | None = None
    catalog: str | None = None
    tables: tuple[str, ...] = ()
    consistency: Literal["latest", "resolved"] = "latest"
    deletes: Literal["soft", "hard"] = "soft"
    column_prefix: str = "_"
    commit_time: bool = False
    time_as: Literal["micros", "text"] = "micros"
    views: bool = False
    parallel: int = 4
    bad_records: Literal["quarantine", "fail"] = "quarantine"
    prometheus_port: int | None = None
    trigger: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    table: Mapping[str, TableConfig] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check all that can be checked without Spark.

        Raises:
            OptionError: a value is wrong or missing, or contradicts another.
        """
        if (self.path is None) == (self.catalog is None):
            msg = "Say where the tables are: target.path is a folder, target.catalog a catalog of the session. Give one"
            raise OptionError(msg)
        if not self.topics:
            msg = "Say which topics to read, such as source.topics = ['tidb-shop']"
            raise OptionError(msg)
        if not 1 <= self.parallel <= _MOST_PARALLEL:
            msg = f"parallel = {self.parallel}: it must be from 1 to {_MOST_PARALLEL}"
            raise OptionError(msg)
        if self.views and self.catalog is None:
            msg = "views = true: a folder has no views. Give target.catalog, a catalog that has, or remove views = true"
            raise OptionError(msg)
        if self.prometheus_port is not None and not 0 <= self.prometheus_port <= _LARGEST_PORT:
            msg = f"prometheus_port = {self.prometheus_port}: it must be from 0 (any that is free) to {_LARGEST_PORT}"
            raise OptionError(msg)
        for name, instead in _OWN.items():
            if name.lower() in {given.lower() for given in self.source}:
                msg = f"source.{name} cannot be set: {instead}"
                raise OptionError(msg)
        refuse_unknown(self.source)
        for table, each in self.table.items():
            _check_name(table)
            for name in each.options:
                refuse_unknown_key(name, TABLE_OPTIONS, f'table."{table}"')
            if each.log and each.history:
                msg = f'[table."{table}"]: log = true is the log alone, history = true the table and its log. Give one'
                raise OptionError(msg)
        Options.of(self.reader_options())
        frame_options(self.decode_options())

    @property
    def layout(self) -> Layout:
        """Where the tables are."""
        return Layout(self.format, root=self.path, catalog=self.catalog)

    def reader_options(self) -> dict[str, str]:
        """Return the options of the stream of records."""
        given = {name: text for name, text in self.source.items() if applies_to_records(name)}
        if all(map(_LITERAL.fullmatch, self.topics)):
            given["subscribe"] = ",".join(self.topics)
        else:
            given["subscribePattern"] = "|".join(
                topic.replace(".", "[.]") if _LITERAL.fullmatch(topic) else f"(?:{topic})" for topic in self.topics
            )
        return {"startingOffsets": "earliest", **given, "outputFormat": "record"}

    def decode_options(self) -> dict[str, str]:
        """Return the options with which the records of all tables are decoded."""
        given = {name: text for name, text in self.source.items() if applies_to_frames(name)}
        ddl = [given.pop("tableDDL", ""), *(each.options.get("tableDDL", "") for each in self.table.values())]
        if any(ddl):
            given["tableDDL"] = ";\n".join(text.strip().rstrip(";") for text in ddl if text)
        if self.tables:
            given["tables"] = ",".join(self.tables)
        return {**given, "metadataColumnPrefix": self.column_prefix}

    def table_options(self) -> dict[str, dict[str, str]]:
        """Return the options of single tables that differ from those of all."""
        own = {name: {key: text for key, text in each.options.items() if key != "tableDDL"}
               for name, each in self.table.items()}  # fmt: skip
        return {name: options for name, options in own.items() if options}

    @property
    def time_zone(self) -> str:
        """The zone of TIMESTAMP values in messages."""
        return next((text for name, text in self.source.items() if name.lower() == "timezone"), "UTC")

    def selects(self, table: TableName) -> bool:
        """Return whether a table is copied."""
        patterns = table_patterns(",".join(self.tables)) if self.tables else ()
        return TableFilter(patterns).matches(table) and not self.of_table(table).skip

    def of_table(self, table: TableName) -> TableConfig:
        """Return what is said of a table."""
        return next((each for name, each in self.table.items() if parse_table(name).is_same(table)), _NOTHING)


_NOTHING = TableConfig()


def refuse_unknown_key(name: str, names: Iterable[str], section: str) -> None:
    """Refuse a name that is not one of these.

    Raises:
        OptionError: it is none of them; the message has the nearest.
    """
    names = list(names)
    if name in names:
        return
    near = nearest(name, names)
    where = f"[{section}]" if section else "the top of sync.toml"
    hint = f"did you mean {near[0]}?" if near else f"it may have {', '.join(names)}"
    msg = f"Unknown key {name!r} in {where}; {hint}"
    raise OptionError(msg)


def _check_name(table: str) -> None:
    try:
        parse_table(table)
    except (ValueError, ParseError):
        msg = f'[table."{table}"]: expected the name of a table, such as [table."shop.orders"]'
        raise OptionError(msg) from None
