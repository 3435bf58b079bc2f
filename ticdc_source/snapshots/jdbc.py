"""`snapshot`: a table as of a TSO, by Spark's JDBC source, as rows of the changelog."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's users know)

from ticdc_source.errors import OptionError, TiCDCSourceError
from ticdc_source.events import TableName
from ticdc_source.pipeline.metadata import SEQUENCE
from ticdc_source.snapshots.queries import (
    CURRENT_TSO_SQL,
    MOST_BIGINT,
    SnapshotColumn,
    SnapshotTable,
    check_tso,
    check_url,
    connection_properties,
    described,
    explained,
    table_of,
)
from ticdc_source.spark.schema import to_spark
from ticdc_source.tso import physical_ms

__all__ = ["current_tso", "snapshot"]

Result = TypeVar("Result")


def current_tso(
    spark: SparkSession,
    jdbc_url: str,
    *,
    user: str | None = None,
    password: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> int:
    """Return TiDB's TSO of this moment: everything that was committed before is in a snapshot at it.

    Take it once, and read all tables at it.

    Args:
        spark: the session, with MySQL's JDBC driver among its jars.
        jdbc_url: the address of a TiDB server, `jdbc:mysql://host:4000/`.
        user: the user, if the address has none.
        password: the password.
        properties: other settings of the JDBC driver, or of Spark's JDBC source.

    Example:
        ```python
        import ticdc_source

        tso = ticdc_source.current_tso(spark, "jdbc:mysql://tidb:4000/", user="reader", password="…")
        print(tso)
        ```

    Raises:
        TiCDCSourceError: TiDB cannot be read.
    """
    jdbc = _Jdbc(spark, jdbc_url, _given(user, password, properties), None)
    row = jdbc.row(CURRENT_TSO_SQL, sessionInitStatement="BEGIN")
    return int(row["tso"])


def snapshot(
    spark: SparkSession,
    jdbc_url: str,
    table: str,
    *,
    at: int,
    user: str | None = None,
    password: str | None = None,
    properties: Mapping[str, str] | None = None,
    partition_column: str | None = None,
    num_partitions: int | None = None,
    lower_bound: int | None = None,
    upper_bound: int | None = None,
    zero_date: str = "null",
    metadata_column_prefix: str = "_",
) -> DataFrame:
    """Return a table's rows as of a TSO, as a changelog frame: each row is an `insert` whose commit-ts is `at`.

    The stream of changes goes on with `startingCommitTs=<at + 1>`. All JDBC partitions read the same moment, and so
    does each action on the frame, until TiDB's GC removes it.

    Args:
        spark: the session, with MySQL's JDBC driver among its jars.
        jdbc_url: the address of a TiDB server, `jdbc:mysql://host:4000/`.
        table: `database.table`; names with dots, commas or blanks in backticks.
        at: the TSO, for instance from `current_tso`.
        user: the user, if the address has none.
        password: the password.
        properties: other settings of the JDBC driver, or of Spark's JDBC source.
        partition_column: an integer column; each JDBC partition reads a range of it. Without it there is one partition.
        num_partitions: how many JDBC partitions.
        lower_bound: where the second range begins, about; by default the smallest value, for which TiDB is asked.
        upper_bound: where the last range begins, about; by default the largest value.
        zero_date: what a zero or invalid date is: `null`, or `fail` for an error, as the option `zeroDate`.
        metadata_column_prefix: as the option `metadataColumnPrefix`.

    Example:
        ```python
        import ticdc_source

        orders = ticdc_source.snapshot(
            spark, "jdbc:mysql://tidb:4000/", "shop.orders", at=469237788138012675, user="reader", password="…"
        )
        orders.select("_commit_version", "id").show()
        ```

    Raises:
        TiCDCSourceError: an argument is wrong, or TiDB cannot be read; its text says what to do.
    """
    check_tso(at)
    if zero_date not in ("null", "fail"):
        msg = f"zero_date='{zero_date}' is neither null nor fail"
        raise OptionError(msg)
    name, question = table_of(table)
    jdbc = _Jdbc(spark, jdbc_url, _given(user, password, properties), at)
    source_table = described(name, [row.asDict() for row in jdbc.rows(question)], at)
    _refuse_collisions(source_table, metadata_column_prefix)
    ranges = _ranges(jdbc, source_table, partition_column, num_partitions, (lower_bound, upper_bound))
    read_as = ", ".join(f"{column.alias} {_ddl(column.arrow_read)}" for column in source_table.columns)
    rows = jdbc.frame(source_table.select_sql(), customSchema=read_as, **ranges)
    metadata = [column.alias(metadata_column_prefix + name) for name, column in _metadata(at).items()]
    data = [
        _converted(column, source_table.name, zero_date).alias(column.name, metadata=column.metadata(source_table.name))
        for column in source_table.columns
    ]
    return rows.select(*metadata, *data)


def _given(user: str | None, password: str | None, properties: Mapping[str, str] | None) -> dict[str, str]:
    named = {"user": user, "password": password}
    return {**(properties or {}), **{name: value for name, value in named.items() if value is not None}}


class _Jdbc:
    """Spark's JDBC source with one address, at one moment. Its errors say what to do, and hold no secret."""

    def __init__(self, spark: SparkSession, url: str, given: Mapping[str, str], at: int | None) -> None:
        check_url(url, given)
        self._spark = spark
        self._url = url
        self._at = at
        self._options = connection_properties(given, at)
        in_url = re.findall(r"password=([^&,)]*)|//[^/@:]*:([^@/]*)@", url, re.IGNORECASE)
        secrets = [url, *(part for parts in in_url for part in parts)]
        secrets += [value for name, value in given.items() if re.search("password|secret|token", name, re.IGNORECASE)]
        self._secrets = [*secrets, *(unquote(secret) for secret in secrets)]

    def frame(self, dbtable: str, **options: str) -> DataFrame:
        reader = self._spark.read.format("jdbc").options(**self._options, **options)
        return self._do(reader.option("url", self._url).option("dbtable", dbtable).load)

    def rows(self, dbtable: str, **options: str) -> list[Row]:
        return self._do(self.frame(dbtable, **options).collect)

    def row(self, dbtable: str, **options: str) -> Row:
        return self.rows(dbtable, **options)[0]

    def _do(self, action: Callable[[], Result]) -> Result:
        try:
            return action()
        except TiCDCSourceError:
            raise
        except Exception as error:  # noqa: BLE001 (Py4J's, Spark Connect's: each has its own)
            raise TiCDCSourceError(explained("\n".join(_causes(error)), self._at, self._secrets)) from None


def _causes(error: Exception) -> Iterator[str]:
    """Yield what an error of Spark says, and what its causes in the JVM say, if it has any."""
    yield str(error)
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        yield f"Caused by: {java.toString()}"
        java = java.getCause()


def _ranges(
    jdbc: _Jdbc, table: SnapshotTable, name: str | None, partitions: int | None, bounds: tuple[int | None, int | None]
) -> dict[str, str]:
    """Return the options that split the read."""
    if name is None:
        if partitions not in (None, 1) or bounds != (None, None):
            msg = "num_partitions, lower_bound and upper_bound need a partition_column"
            raise OptionError(msg)
        return {}
    column = table.column_to_split(name)
    if partitions is None or partitions < 1:
        msg = f"partition_column='{name}' needs num_partitions: the number of JDBC partitions"
        raise OptionError(msg)
    low, high = bounds
    if low is None or high is None:
        row = jdbc.row(table.bounds_sql(column))
        if row["low"] is None or row["high"] is None:
            return {}  # no rows
        low, high = (int(row["low"]) if low is None else low), (int(row["high"]) if high is None else high)
    low, high = min(low, MOST_BIGINT - 1), min(high, MOST_BIGINT)
    return {
        "partitionColumn": column.alias,
        "numPartitions": str(partitions),
        "lowerBound": str(low),
        "upperBound": str(max(high, low + 1)),
    }


def _metadata(at: int) -> dict[str, Column]:
    """Return the metadata columns. Every change whose commit-ts is larger has a larger `_sequence`."""
    sequence = f"'commit_ts', {at}L, 'rank', 1, 'partition', -1, 'offset', -1L, 'index', -1"
    type_ = _ddl(SEQUENCE)  # whose fields may be NULL, as in the changes
    return {
        "change_type": F.lit("insert"),
        "commit_version": F.expr(f"{at}L"),
        "commit_timestamp": F.expr(f"timestamp_millis({physical_ms(at)}L)"),
        "sequence": F.expr(f"cast(named_struct({sequence}) AS {type_})"),
    }


def _refuse_collisions(table: SnapshotTable, prefix: str) -> None:
    taken = {(prefix + name).lower() for name in _NAMES}
    for column in table.columns:
        if column.name.lower() in taken:
            msg = (
                f"{table.name} has a column '{column.name}', and that is a metadata column's name too: choose another "
                "metadata_column_prefix, e.g. '_ticdc_', and the same as the option 'metadataColumnPrefix'"
            )
            raise OptionError(msg)


_NAMES = ("change_type", "commit_version", "commit_timestamp", "sequence")


def _ddl(arrow: pa.DataType) -> str:
    return to_spark(pa.schema([("c", arrow)]))["c"].dataType.simpleString()


def _converted(column: SnapshotColumn, table: TableName, zero_date: str) -> Column:
    """Return the column in its Spark type."""
    read = column.alias
    match column.type.family:
        case "bit" if pa.types.is_boolean(column.type.arrow):
            return F.expr(f"{read} <> 0")
        case "datetime" | "timestamp":
            zone = " || 'Z'" if column.type.family == "timestamp" else ""
            date = f"CASE WHEN {read} >= '0001' THEN try_cast({read}{zone} AS {_ddl(column.type.arrow)}) END"
            return F.expr(date if zero_date == "null" else _checked(read, date, f"column {column.name} of {table}"))
        case "time":
            digits = f"trim(LEADING '-' FROM {read})"
            parts = [f"cast(split_part({digits}, ':', {number}) AS {type_})" for number, type_ in _TIME_PARTS]
            positive = f"make_dt_interval(0, {', '.join(parts)})"
            return F.expr(f"CASE WHEN {read} LIKE '-%' THEN -{positive} ELSE {positive} END")
        case "vector":
            return F.expr(f"from_json({read}, '{_ddl(column.type.arrow)}')")
        case _:
            return F.col(read)


_TIME_PARTS = ((1, "int"), (2, "int"), (3, "decimal(8,6)"))


def _checked(read: str, date: str, where: str) -> str:
    message = f"{where} has a zero or invalid date; zero_date='null' reads it as NULL".replace("\\", "").replace(
        "'", "\\'"
    )
    return f"CASE WHEN {read} IS NULL OR ({date}) IS NOT NULL THEN {date} ELSE raise_error('{message}') END"
