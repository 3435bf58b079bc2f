"""`SyncConfig`, with every setting of a sync: what it copies, from where and to where.

Settings are checked before Spark starts, or a broker is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Literal

from ticdc_lakehouse.syncs.names import Layout
from ticdc_lakehouse.targets.data_layout import DataLayout, WriteSettings
from ticdc_lakehouse.targets.opening import ENGINES
from ticdc_lakehouse.tidb import TiDBConfig
from ticdc_source.developer_api import (
    HIDDEN,
    Options,
    ParseError,
    TableFilter,
    TableName,
    applies_to_frames,
    applies_to_records,
    duration_ms,
    frame_options,
    is_option,
    nearest,
    parse_table,
    redacted,
    refuse_unknown,
    table_patterns,
    without_secrets,
)
from ticdc_source.errors import OptionError

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Options of the source that a sync sets itself, and what to do instead.
_SET_BY_SYNC = {
    "assign": "write subscribe = 'tidb-shop'; a sync reads whole topics",
    "outputFormat": "remove it; a sync reads records, and writes tables",
    "tables": "write tables = ['shop.*'] at the top of sync.toml",
    "mode": "write bad_records = 'quarantine' at the top of sync.toml",
    "metadataColumnPrefix": "write column_prefix = '_ticdc_' at the top of sync.toml",
    "columns": "remove it; a copy has all columns. Select columns in a view of the target",
    "operations": "remove it; a copy has all changes. To keep each of them, write log = true in the table's section",
    "preimages": "remove it; a copy has all changes",
    "snapshot": "write [tidb] with its url; a sync loads the rows that were there before the changes",
    "startingCommitTs": "write startingOffsets or startingTimestamp, or remove it to copy all changes",
    "endingCommitTs": "remove it; without trigger, a sync ends when the topics are read",
    "includeMetadata": "remove it; a copy has the columns of the table, and _sequence",
    "includeHeaders": "remove it; a copy has the columns of the table",
    "onDestructiveDDL": "remove it; a copy follows DDL",
    "onSchemaDrift": "remove it; a copy gets new columns by itself",
    "rescuedDataColumn": "remove it; a copy gets new columns by itself",
    "columnNameOfCorruptRecord": "remove it; bad records are in the table _ticdc_quarantine",
}
_MOST_PARALLEL = 64
_LARGEST_PORT = 65_535
# Settings that Spark needs when it starts, so that they are arguments of its JVM.
_AT_START = re.compile(
    r"spark\.(driver|executor|jars|submit|app|master|local|pyspark|python|yarn|kubernetes|sql\.(extensions|warehouse))\b"
)
SECRET_NAME = re.compile("secret|password|token|credential|access.?key|account.?key|private.?key", re.IGNORECASE)
_USER_OF_URL = re.compile(r"(?<=://)[^\s/@]+@")
_QUERY_OF_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s?#'\"`<>]*)\?[^\s'\"`<>]*", re.IGNORECASE)
_NAMED = re.compile(
    rf"((?:{SECRET_NAME.pattern}|signature|\bsig)[\w.-]*[\"']?\s*[=:]\s*)"
    r"(\"[^\"]*\"|'[^']*'|[^\s,;&)}\]]+)",
    re.IGNORECASE,
)
_AUTHORIZATION = re.compile(r"\b(Bearer|Basic|AWS4-HMAC-SHA256)\s+[^\s,;'\"]+", re.IGNORECASE)
_QUOTED = re.compile("\"([^\"]*)\"|'([^']*)'")
_SHORTEST = 4  # characters of a secret that is hidden wherever it stands, also within a word

TABLE_OPTIONS = ("tableDDL", "schemaHints", "unspecifiedDecimal")  # options that differ by table


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """Settings of one table.

    Attributes:
        skip: whether the table is left out.
        deletes: `soft` keeps deleted rows, marked by `_is_deleted`; `hard` removes them.
        keys: the columns that identify a row, if the messages do not name them.
        log: whether to keep only a log of all changes, `<table>__log`, and not the table.
        history: whether to keep the table and also a log of all changes, `<table>__log`.
        partition_by: the columns by which a new target is partitioned; in Iceberg also `days(created_at)` and
            similar transforms.
        cluster_by: the columns of liquid clustering, for a new target in Delta.
        options: `schemaHints`, `tableDDL` and `unspecifiedDecimal` of this table.
    """

    skip: bool = False
    deletes: Literal["soft", "hard"] | None = None
    keys: tuple[str, ...] | None = None
    log: bool = False
    history: bool = False
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def layout(self) -> DataLayout:
        return DataLayout(self.partition_by, self.cluster_by)


@dataclass(frozen=True, kw_only=True)
class MaintainConfig:
    """When the files of the tables are compacted and cleaned up, and what is kept.

    Attributes:
        every: how often each table is maintained, such as `6h`.
        keep: how long old versions of a table are kept, with what their commits record; at least `1h`.
        compact: whether small files are merged into larger ones.
        purge_deleted: how long deleted rows are kept, such as `30d`; None keeps them forever. It must be longer than
            the topic keeps its messages.
    """

    every: str = "6h"
    keep: str = "7d"
    compact: bool = True
    purge_deleted: str | None = None

    def __post_init__(self) -> None:
        for name, least in (("every", "1m"), ("keep", "1h"), ("purge_deleted", "1h")):
            given = getattr(self, name)
            too_short = given is not None and _duration(f"maintain.{name}", given) < _duration(name, least)
            _refuse_if(too_short, f"maintain.{name} = {given!r}: it must be at least {least}")

    @property
    def pause(self) -> timedelta:
        return _duration("maintain.every", self.every)

    @property
    def history(self) -> timedelta:
        return _duration("maintain.keep", self.keep)

    @property
    def memory(self) -> timedelta | None:
        return None if self.purge_deleted is None else _duration("maintain.purge_deleted", self.purge_deleted)


@dataclass(frozen=True, kw_only=True)
class SyncConfig:
    """What a sync copies, from where, to where, and how.

    Attributes:
        source: options of `format("ticdc")`: where Kafka is, its topics (`subscribe` or `subscribePattern`) or the
            `path` of a storage sink, and how messages are read.
        format: the engine of the tables.
        checkpoint: the folder that records how far the sync has read.
        path: the folder of the tables; None if they are in a catalog.
        catalog: the catalog of the tables, which the session must define; None for tables in a folder.
        tables: patterns of the tables to copy, such as `shop.*`; empty for all.
        consistency: `latest` applies changes as they come; `resolved` only up to the resolved ts.
        deletes: what happens to deleted rows, unless `table_configs` overrides it: `soft` or `hard`.
        column_prefix: precedes the names of the columns that the sync adds.
        commit_time: whether tables have a column `_committed_at`, the time of a row's last commit.
        time_as: how TIME is stored: `micros`, a number, or `text`.
        views: whether to create views in the catalog: `<table>__current` without deleted rows and, for tables with
            `history`, `<table>__history` with all versions of each row.
        parallel: how many tables are written at once.
        bad_records: `quarantine` writes bad records to the table `_ticdc_quarantine`. `fail` sets the table of a bad
            record aside, or ends the sync if that table is unknown.
        prometheus_port: the port that serves metrics for Prometheus.
        trigger: time between two micro-batches, such as `10 seconds`. If None, the sync ends when it has read the
            topics.
        maintain: when the files of the tables are compacted and cleaned up; None for never.
        spark: settings of the Spark session that the command starts.
        secret_settings: names of the settings in `spark` whose values are secret, as they came from the environment or
            a file.
        table_configs: settings of single tables, by name; `[table."…"]` in the file.
        tidb: the TiDB from which rows older than the first change are read; None copies changes only.
        heal: whether a table that would be set aside, or has a bad record, is read again from `tidb` instead.
    """

    source: Mapping[str, str] = field(repr=False)
    format: str
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
    maintain: MaintainConfig | None = None
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_settings: frozenset[str] = frozenset()
    table_configs: Mapping[str, TableConfig] = field(default_factory=dict)
    tidb: TiDBConfig | None = None
    heal: bool = False

    def __post_init__(self) -> None:
        """Check all that can be checked without Spark."""
        wrong = f"target.format = {self.format!r}: it must be {' or '.join(map(repr, ENGINES))}"
        _refuse_if(self.format not in ENGINES, wrong)
        _refuse_if(
            (self.path is None) == (self.catalog is None) or not (self.path or self.catalog),
            "Set where the tables go: either target.path, a folder, or target.catalog, a catalog of the session",
        )
        _refuse_if(
            sum(bool(self.source_option(name, "")) for name in ("subscribe", "subscribePattern", "path")) != 1,
            "Set what to read: source.subscribe = 'tidb-shop', or source.subscribePattern = 'tidb-.*', or "
            "source.path, the folder of a changefeed with a storage sink",
        )
        wrong = f"parallel = {self.parallel}: it must be from 1 to {_MOST_PARALLEL}"
        _refuse_if(not 1 <= self.parallel <= _MOST_PARALLEL, wrong)
        wrong = "views = true: a folder has no views. Remove views = true, or set target.catalog, a catalog with views"
        _refuse_if(self.views and self.catalog is None, wrong)
        wrong = "heal = true: tables are read again from TiDB. Add [tidb] with its url, or remove heal = true"
        _refuse_if(self.heal and self.tidb is None, wrong)
        wrong = f"prometheus_port = {self.prometheus_port}: it must be from 0 (any free port) to {_LARGEST_PORT}"
        _refuse_if(not 0 <= (self.prometheus_port or 0) <= _LARGEST_PORT, wrong)
        given = {name.lower() for name in self.source}
        wrong = f"[source] has an option twice, in upper and lower case: {', '.join(sorted(self.source))}"
        _refuse_if(len(given) < len(self.source), wrong)
        for name in self.reads if self.source_option("subscribe", "") else ():
            wrong = f"source.subscribe = {name!r}: not a topic. For a regular expression, use source.subscribePattern"
            _refuse_if(_TOPIC_NAME.fullmatch(name) is None, wrong)
        for name, instead in _SET_BY_SYNC.items():
            _refuse_if(name.lower() in given, f"source.{name} cannot be set: {instead}")
        refuse_unknown(self.source)
        for table, each in self.table_configs.items():
            _check_name(table)
            ENGINES[self.format].check_layout(each.layout, f'[table."{table}"]')
            refuse_unknown_keys(each.options, TABLE_OPTIONS, f'table."{table}"')
            wrong = (
                f'[table."{table}"]: set log = true, for the log alone, or history = true, for the table and its log'
            )
            _refuse_if(each.log and each.history, wrong)
        Options.of(self.reader_options())
        frame_options(self.decode_options())

    @property
    def folder(self) -> str | None:
        return self.source_option("path", "") or None

    @property
    def reads(self) -> tuple[str, ...]:
        """What the sync reads: the topics, their pattern, or the folder without secrets in its URL."""
        if self.folder is not None:
            return (redacted(self.folder),)
        names = (name.strip() for name in self.source_option("subscribe", "").split(","))
        return tuple(filter(None, names)) or (self.source_option("subscribePattern", ""),)

    @property
    def layout(self) -> Layout:
        return Layout(self.format, root=self.path, catalog=self.catalog)

    def reader_options(self) -> dict[str, str]:
        given = {name: text for name, text in self.source.items() if applies_to_records(name)}
        if ddl := self.decode_options().get("tableDDL"):
            given["tableDDL"] = ddl
        return {"startingOffsets": "earliest", **given, "outputFormat": "record"}

    def decode_options(self) -> dict[str, str]:
        given = {name: text for name, text in self.source.items() if applies_to_frames(name)}
        ddl = [given.pop("tableDDL", ""), *(each.options.get("tableDDL", "") for each in self.table_configs.values())]
        if any(ddl):
            given["tableDDL"] = ";\n".join(text.strip().rstrip(";") for text in ddl if text)
        if self.tables:
            given["tables"] = ",".join(self.tables)
        # The target follows DDL, so the reader need not warn of it.
        return {**given, "metadataColumnPrefix": self.column_prefix, "onDestructiveDDL": "ignore"}

    def table_options(self) -> dict[str, dict[str, str]]:
        """Return the options that are given for single tables, by table."""
        given = {name: {key: text for key, text in each.options.items() if key != "tableDDL"}
                 for name, each in self.table_configs.items()}  # fmt: skip
        return {name: options for name, options in given.items() if options}

    @property
    def secret_spark(self) -> dict[str, str]:
        """The secret settings of Spark: by their names, or as their values come from the environment or a file.

        A setting that Spark needs when it starts is secret only by its name.
        """
        return {
            name: value
            for name, value in self.spark.items()
            if SECRET_NAME.search(name) or (name in self.secret_settings and not _AT_START.match(name))
        }

    @cached_property
    def redact(self) -> Callable[[str], str]:
        """A function that hides secrets in a text: errors of stores and catalogs repeat URLs, headers and settings."""
        tidb = {} if self.tidb is None else self.tidb.options()
        return redactor(self.source, {**self.spark, **tidb}, self.secret_spark)

    def source_option(self, name: str, default: str) -> str:
        """Return an option of the source; the case of its name does not matter."""
        return next((text for given, text in self.source.items() if given.lower() == name.lower()), default)

    @property
    def may_lose_changes(self) -> bool:
        """Whether the stream skips records that Kafka has removed before it has read them."""
        return self.source_option("failOnDataLoss", "true").lower() != "true"

    def write_settings(self, table: TableName) -> WriteSettings:
        own = self.of_table(table)
        return WriteSettings(
            format=self.format,
            keys=own.keys,
            deletes=own.deletes or self.deletes,
            column_prefix=self.column_prefix,
            time_zone=self.source_option("timeZone", "UTC"),
            time_as=self.time_as,
            commit_time=self.commit_time,
            layout=own.layout,
            as_log=own.log,
        )

    @cached_property
    def table_filter(self) -> TableFilter:
        return TableFilter(table_patterns(",".join(self.tables)) if self.tables else ())

    def selects(self, table: TableName) -> bool:
        return self.table_filter.matches(table) and not self.of_table(table).skip

    def of_table(self, table: TableName) -> TableConfig:
        return next((each for name, each in self.table_configs.items() if parse_table(name).is_same(table)), _DEFAULT)


_DEFAULT = TableConfig()


def _refuse_if(is_wrong: object, message: str) -> None:
    if is_wrong:
        raise OptionError(message)


def refuse_unknown_keys(given: Iterable[str], names: Sequence[str], section: str) -> None:
    """Refuse unknown keys of a section; the error names the nearest known one."""
    for key in given:
        if key not in names:
            near = nearest(key, names)
            where = f"[{section}]" if section else "the top of sync.toml"
            hint = f"did you mean {near[0]}?" if near else f"known keys are {', '.join(names)}"
            raise OptionError(f"Unknown key {key!r} in {where}; {hint}")


def _duration(name: str, text: str) -> timedelta:
    try:
        return timedelta(milliseconds=duration_ms(text))
    except ParseError:
        raise OptionError(f"{name} = {text!r}: expected a duration such as 30m, 6h or 7d") from None


def _check_name(table: str) -> None:
    try:
        parse_table(table)
    except (ValueError, ParseError):
        raise OptionError(f'[table."{table}"]: expected the name of a table, such as [table."shop.orders"]') from None


def redactor(
    options: Mapping[str, str], settings: Mapping[str, str], secret: Collection[str] = ()
) -> Callable[[str], str]:
    """Return a function that hides secrets in texts: given ones, and what looks like one.

    `secret` has the names of settings that are secret, whatever they are called.
    """
    shown = without_secrets(options)
    values = {
        text for name, text in options.items() if shown[name] != text and (is_option(name) or SECRET_NAME.search(name))
    }
    values |= {text for name, text in settings.items() if name in secret or SECRET_NAME.search(name)}
    values |= {part for text in values for match in _QUOTED.findall(text) for part in match}
    given = _one_of(text for text in values if text.strip())

    def redact(text: str) -> str:
        text = text if given is None else given.sub(HIDDEN, text)
        text = _USER_OF_URL.sub(f"{HIDDEN}@", text)
        text = _QUERY_OF_URL.sub(rf"\1?{HIDDEN}", text)
        text = _AUTHORIZATION.sub(rf"\1 {HIDDEN}", text)
        return _NAMED.sub(rf"\1{HIDDEN}", text)

    return redact


def _one_of(values: Iterable[str]) -> re.Pattern[str] | None:
    patterns = [
        re.escape(text) if len(text) >= _SHORTEST else rf"(?<!\w){re.escape(text)}(?!\w)"
        for text in sorted(values, key=len, reverse=True)
    ]
    return re.compile("|".join(patterns)) if patterns else None
