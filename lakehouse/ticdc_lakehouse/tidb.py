"""TiDB as a sync reads it: the section `[tidb]`, queries, and the rows of a table as of a TSO, as changes."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's users know)
from pyspark.sql.types import DayTimeIntervalType

from ticdc_source.developer_api import (
    SEQUENCE,
    SNAPSHOT_RANK,
    Column,
    ColumnType,
    Cut,
    Options,
    Session,
    TableFilter,
    TableName,
    TableRows,
    base_tables,
    of_ms,
    of_time,
    physical_ms,
    quoted_name,
    type_of,
)
from ticdc_source.errors import AccessRefusedError, OptionError, TiCDCSourceError

_FIRST_TSO, _LAST_TSO = of_ms(1_420_070_400_000), 2**63 - 1  # from 2015 on, when TiDB began
_MILLISECONDS = range(10**12, 10**14)
_READS_ALL_S = 6 * 3600  # for how long TiDB may read all rows of a table before it answers
_METADATA_PREFIX = "__ticdc_"  # of frames that nobody else sees: a column of the table may be called _sequence


@dataclass(frozen=True, kw_only=True)
class TiDBConfig:
    """How to connect to TiDB; the `repr` shows neither the address nor the login.

    Attributes:
        url: host and port of a TiDB server, `tidb:4000`.
        user: a user with SELECT on the tables.
        password: the password.
        ssl_mode: the TLS mode, with the values of the option `tidb.ssl.mode`.
        ssl_ca: a PEM file with the CA certificates that verify TiDB's certificate.
        rows_per_range: how many rows a task reads.
    """

    url: str = field(repr=False)
    user: str = field(repr=False)
    password: str | None = field(default=None, repr=False)
    ssl_mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] | None = None
    ssl_ca: str | None = None
    rows_per_range: int = 200_000

    def __post_init__(self) -> None:
        """Check the options, without a connection."""
        if self.rows_per_range < 1:
            raise OptionError(f"tidb.rows_per_range = {self.rows_per_range}: it must be 1 or more")
        self._session()

    def options(self) -> dict[str, str]:
        """Return these settings as options of `format("ticdc")`."""
        named = {
            "tidb.url": self.url,
            "tidb.user": self.user,
            "tidb.password": self.password,
            "tidb.ssl.mode": self.ssl_mode,
            "tidb.ssl.ca": self.ssl_ca,
        }
        return {name: value for name, value in named.items() if value is not None}

    def _session(self) -> Session:
        return Session(Options.of({**self.options(), "snapshot": "only"}))

    def now(self) -> int:
        with _refused(), self._session() as session:
            return session.now()

    def life_time(self, at: int) -> tuple[float, float] | None:
        """Return for how many seconds TiDB keeps old versions, and how many are left for a TSO; None if unknown.

        If garbage collection has passed the TSO, a `DataLossError` is raised.
        """
        with _refused(), self._session() as session:
            kept, now = session.collected_after_s(), session.now()
            session.as_of(at)
        return None if kept is None else (kept, kept - (physical_ms(now) - physical_ms(at)) / 1000)

    def tables_at(self, selected: TableFilter, at: int) -> list[TableName]:
        with _refused(), self._session() as session:
            return base_tables(session, selected, at)

    def has(self, table: TableName, at: int) -> bool:
        exact = TableFilter(((table.database, table.table),))
        return any(map(table.is_same, self.tables_at(exact, at)))

    def table(
        self, name: TableName, at: int, *, prefix: str = _METADATA_PREFIX, zero_date: str = "null"
    ) -> SnapshotTable:
        """Read the definition of a table at a TSO: an error if there was none, or garbage collection has passed it."""
        check_tso(at)
        options = {"snapshot.rowsPerRange": str(self.rows_per_range), "zeroDate": zero_date}
        with _refused():
            return SnapshotTable.of({**self.options(), **options, "metadataColumnPrefix": prefix}, name, at)


@contextmanager
def _refused() -> Iterator[None]:
    """Turn a refused login into an ordinary error of TiDB: tables that need no TiDB go on."""
    try:
        yield
    except AccessRefusedError as error:
        raise TiCDCSourceError(str(error)) from None


class SnapshotTable(TableRows):
    """A table as of a TSO, whose rows are returned as changes."""

    def frame(
        self, spark: SparkSession, ranges: Sequence[Cut] | None = None, *, rank: int = SNAPSHOT_RANK, index: int = -1
    ) -> DataFrame:
        """Return the rows, all with one `_sequence`: a load has the same changes, however its ranges are cut."""
        sequence = f"{self.options.metadata_column_prefix}sequence"
        return super().frame(spark, ranges).withColumn(sequence, self._sequence(rank, index))

    def where(
        self, spark: SparkSession, condition: str, texts: Mapping[str, str], *, rank: int, index: int = -1
    ) -> DataFrame:
        """Return the rows that meet a condition ("" for all), with computed columns `texts`; both are TiDB's SQL."""
        return replace(self, condition=condition, computed=texts).frame(spark, rank=rank, index=index)

    def texts(self, spark: SparkSession, condition: str, texts: Mapping[str, str]) -> DataFrame:
        return replace(self, columns=(), condition=condition, computed=texts).frame(spark).select(*texts)

    def answer(self, sql: str) -> list[tuple[str | None, ...]]:
        with self.session(answer_s=_READS_ALL_S) as session:
            return session.rows(sql)

    def deletes(self, rows: DataFrame, keys: Mapping[str, SparkColumn], *, rank: int, index: int = -1) -> DataFrame:
        """Return deletes of `rows`, whose key columns have the values `keys`; a TIME is given as text."""
        metadata = {
            "change_type": F.lit("delete"),
            "commit_version": F.expr(f"{self.tso}L"),
            "commit_timestamp": F.expr(f"timestamp_millis({physical_ms(self.tso)}L)"),
            "sequence": self._sequence(rank, index),
        }
        columns = [column.alias(f"{self.options.metadata_column_prefix}{name}") for name, column in metadata.items()]
        for each in self.schema.fields[len(columns) :]:
            value = keys.get(each.name, F.lit(None))
            is_time = isinstance(each.dataType, DayTimeIntervalType) and each.name in keys
            value = _interval(value) if is_time else value.cast(each.dataType)
            columns.append(value.alias(each.name, metadata=each.metadata))
        return rows.select(*columns)

    def create_sql(self) -> str:
        """Return a `CREATE TABLE` with the types and the key: what DDL in a topic would say."""
        lines = [
            f"{quoted_name(column.name)} {column.type}{'' if column.facts.nullable else ' NOT NULL'}"
            for column in self.columns
        ]
        primary = [quoted_name(column.name) for column in self.columns if column.facts.primary_key]
        handle = [quoted_name(column.name) for column in self.columns if column.facts.handle_key]
        if primary:
            lines.append(f"PRIMARY KEY ({', '.join(primary)})")
        elif handle:
            lines.append(f"UNIQUE KEY handle_key ({', '.join(handle)})")
        return f"CREATE TABLE {quoted_name(*self.name)} ({', '.join(lines)})"

    def _sequence(self, rank: int, index: int) -> SparkColumn:
        """Return the `_sequence` of all rows: smaller than that of any change with a larger commit-ts."""
        values = f"'commit_ts', {self.tso}L, 'rank', {rank}, 'partition', -1, 'offset', -1L, 'index', {index}"
        type_ = type_of(SEQUENCE).simpleString()  # whose fields may be NULL, as in the changes
        return F.expr(f"cast(named_struct({values}) AS {type_})")


def mysql_type(column: Column) -> ColumnType:
    """Return the type of a column that was read from TiDB, where every column has one."""
    assert column.type is not None  # noqa: S101 (for mypy)
    return column.type


def _interval(text: SparkColumn) -> SparkColumn:
    """Return a TIME, given as MySQL's text, as an interval."""
    parts = F.split(F.regexp_replace(text, "^-", ""), ":")
    hours, minutes, seconds = parts[0].cast("int"), parts[1].cast("int"), parts[2].cast("decimal(18,6)")
    size = F.make_dt_interval(F.lit(0), hours, minutes, seconds)
    return F.when(text.startswith("-"), -size).otherwise(size)


def tso_of(moment: datetime.datetime) -> int:
    if moment.tzinfo is None:
        raise OptionError(f"{moment} has no time zone. If it is UTC, pass it as moment.replace(tzinfo=timezone.utc)")
    return of_time(moment)


def check_tso(at: int) -> None:
    if isinstance(at, bool) or not isinstance(at, int):
        raise OptionError(f"at={at!r}: a TSO is an int")
    if not _FIRST_TSO <= at <= _LAST_TSO:
        is_ms = f"as milliseconds since the epoch it is the TSO {of_ms(at)} ({at} << 18)" if at in _MILLISECONDS else ""
        raise OptionError(f"at={at} is not a TSO: {is_ms or 'a TSO is milliseconds since the epoch << 18'}")
