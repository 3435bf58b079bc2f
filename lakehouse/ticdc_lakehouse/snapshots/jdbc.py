"""`snapshot`: a table as of a TSO, by Spark's JDBC source, as rows of the changelog."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's users know)

from ticdc_lakehouse.common.verbatim import computed, with_verbatim_sql
from ticdc_lakehouse.snapshots.gc import GC_SQL, SAFE_POINT_SQL, GCState, gc_state
from ticdc_lakehouse.snapshots.key_ranges import RowKey, key_of, key_question, spread
from ticdc_lakehouse.snapshots.queries import (
    CURRENT_TSO_SQL,
    MOST_BIGINT,
    KeyValue,
    SnapshotColumn,
    SnapshotTable,
    TiDBAddress,
    check_tso,
    check_url,
    connection_properties,
    described,
    explained,
    table_of,
    tables_sql,
)
from ticdc_source.developer_api import SEQUENCE, SNAPSHOT_RANK, TableFilter, TableName, physical_ms, to_spark
from ticdc_source.errors import OptionError, TiCDCSourceError

Result = TypeVar("Result")


@with_verbatim_sql
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
        import ticdc_lakehouse

        tso = ticdc_lakehouse.current_tso(spark, "jdbc:mysql://tidb:4000/", user="reader", password="…")
        print(tso)
        ```

    Raises:
        TiCDCSourceError: TiDB cannot be read.
    """
    row = _Jdbc(spark, TiDBAddress(url=jdbc_url, user=user, password=password, properties=properties or {}), None).row(
        CURRENT_TSO_SQL, sessionInitStatement="BEGIN"
    )
    return int(row["tso"])


@with_verbatim_sql
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
        partition_column: an integer column; each JDBC partition reads a range of it. Without it the ranges are those of
            the key by which TiDB stores the rows, of whatever type.
        num_partitions: how many JDBC partitions, at most; one by default.
        lower_bound: where the second range begins, about; by default the smallest value, for which TiDB is asked.
        upper_bound: where the last range begins, about; by default the largest value.
        zero_date: what a zero or invalid date is: `null`, or `fail` for an error, as the option `zeroDate`.
        metadata_column_prefix: as the option `metadataColumnPrefix`.

    Example:
        ```python
        import ticdc_lakehouse

        orders = ticdc_lakehouse.snapshot(
            spark, "jdbc:mysql://tidb:4000/", "shop.orders", at=469237788138012675, user="reader", password="…"
        )
        orders.select("_commit_version", "id").show()
        ```

    Raises:
        TiCDCSourceError: an argument is wrong, or TiDB cannot be read; its text says what to do.
    """
    tidb = TiDBAddress(url=jdbc_url, user=user, password=password, properties=properties or {})
    rows = SnapshotRows.of(
        spark, tidb, table, at=at, zero_date=zero_date, metadata_column_prefix=metadata_column_prefix
    )
    bounds = (lower_bound, upper_bound)
    if partition_column is not None:
        return rows.by_column(partition_column, num_partitions, bounds)
    if bounds != (None, None):
        msg = "lower_bound and upper_bound need a partition_column"
        raise OptionError(msg)
    if num_partitions is None or num_partitions == 1:
        return rows.frame()
    if num_partitions < 1:
        msg = f"num_partitions={num_partitions}: it must be 1 or more"
        raise OptionError(msg)
    return rows.frame([clause for clause, _ in rows.ranges(num_partitions)])


@with_verbatim_sql
def gc_state_of(spark: SparkSession, tidb: TiDBAddress, at: int) -> GCState:
    """Return what TiDB's garbage collection keeps of a moment, without a check."""
    jdbc = _Jdbc(spark, tidb, None)
    row = jdbc.row(GC_SQL)
    try:
        found = jdbc.rows(SAFE_POINT_SQL)
    except TiCDCSourceError as error:
        if "denied" not in str(error):
            raise
        found = []
    safe_point = str(found[0][0]) if found else None
    return gc_state(at, str(row["life_time"]), str(row["enabled"]), str(row["now"]), safe_point)


@with_verbatim_sql
def tables_at(spark: SparkSession, tidb: TiDBAddress, selected: TableFilter, *, at: int) -> list[TableName]:
    """Return the tables as of a TSO that the patterns of the option `tables` select, by name; no views."""
    found = _Jdbc(spark, tidb, at).rows(tables_sql())
    names = [TableName(str(row["table_schema"]), str(row["table_name"])) for row in found]
    return [name for name in names if selected.matches(name)]


class Range(NamedTuple):
    """A range of the rows of a table: what TiDB's WHERE says of it, and about how many rows it has."""

    clause: str
    rows: int


class SnapshotRows:
    """The rows of a table as of a TSO, of which TiDB has said what they are: frames of them, and ranges."""

    def __init__(self, jdbc: _Jdbc, table: SnapshotTable, key: RowKey | None, zero_date: str, prefix: str) -> None:
        self.table = table
        self._jdbc = jdbc
        self._key = key
        self._zero_date = zero_date
        self._prefix = prefix

    @staticmethod
    def of(
        spark: SparkSession,
        tidb: TiDBAddress,
        table: str,
        *,
        at: int,
        zero_date: str = "null",
        metadata_column_prefix: str = "_",
    ) -> SnapshotRows:
        """Ask TiDB what a table is; the arguments are those of `snapshot`."""
        check_tso(at)
        if zero_date not in ("null", "fail"):
            msg = f"zero_date='{zero_date}' is neither null nor fail"
            raise OptionError(msg)
        name, question = table_of(table)
        jdbc = _Jdbc(spark, tidb, at)
        source_table = described(name, [row.asDict() for row in jdbc.rows(question)], at)
        _refuse_collisions(source_table, metadata_column_prefix)
        return SnapshotRows(jdbc, source_table, None, zero_date, metadata_column_prefix)

    def frame(self, clauses: Sequence[str] = ()) -> DataFrame:
        """Return the rows, with a JDBC partition for each WHERE clause, of `ranges`; without one, by one partition."""
        if not clauses:
            return self.as_changes(self._jdbc.frame(self.table.select_sql(), customSchema=self._read_as()))
        key = self._row_key()
        columns = [f"{self._read_as()}", *(f"{alias} STRING" for alias in key.aliases)]  # of the key only TiDB knows
        sql = self.table.select_sql(key.selected())
        return self.as_changes(self._jdbc.ranges(sql, clauses, customSchema=", ".join(columns)))

    def with_text(self, text: str, alias: str, where: str, *, rank: int, index: int) -> DataFrame:
        """Return the rows that meet a condition of TiDB's SQL ("" for none), with a column more, a text in TiDB's SQL.

        `rank` and `index` are those of the rows in `_sequence`.
        """
        sql = self.table.select_sql(f"{text} AS {alias}", where=where)
        read = self._jdbc.frame(sql, customSchema=f"{self._read_as()}, {alias} STRING")
        return self.as_changes(read, alias, rank=rank, index=index)

    def of_keys(self, names: Sequence[str], keys: Iterable[Sequence[KeyValue]], *, rank: int) -> DataFrame:
        sql = self.table.select_sql(where=self.table.keys_condition(names, keys))
        return self.as_changes(self._jdbc.frame(sql, customSchema=self._read_as()), rank=rank)

    def as_changes(
        self, read: DataFrame, *kept: str, change_type: str = "insert", rank: int = SNAPSHOT_RANK, index: int = -1
    ) -> DataFrame:
        """Return rows as JDBC reads them (`SnapshotColumn.alias`, `arrow_read`) as a changelog frame."""
        values = _metadata(self._jdbc.moment, change_type, rank, index)
        metadata = [column.alias(self._prefix + name) for name, column in values.items()]
        name = self.table.name
        data = [
            _converted(column, name, self._zero_date).alias(column.name, metadata=column.metadata(name))
            for column in self.table.columns
        ]
        return read.select(*metadata, *data, *kept)

    def answer(self, dbtable: str, read_as: str) -> DataFrame:
        """Return TiDB's answer to a question about the same moment; it is asked once."""
        return self._jdbc.computed(dbtable, customSchema=read_as)

    def by_column(
        self, name: str, partitions: int | None, bounds: tuple[int | None, int | None] = (None, None)
    ) -> DataFrame:
        """Return the rows, with JDBC partitions that are ranges of an integer column."""
        ranges = _ranges(self._jdbc, self.table, name, partitions, bounds)
        return self.as_changes(self._jdbc.frame(self.table.select_sql(), customSchema=self._read_as(), **ranges))

    def ranges(self, most: int) -> list[Range]:
        """Return at most so many ranges of the key, of about as many rows each; none if the table has no rows."""
        key = self._row_key()
        sampled = key.bounds(self._jdbc.rows(key.sample_sql()))
        if len(sampled) >= most:
            return _sized(key.clauses(spread(sampled, most)), key.rows)
        return self._counted(key, lambda rows: -(-rows // most))

    def ranges_of(self, rows: int) -> list[Range]:
        """Return ranges of so many rows; of a table with many regions, a range for each."""
        key = self._row_key()
        sampled = key.bounds(self._jdbc.rows(key.sample_sql()))
        if len(sampled) >= _MANY_REGIONS:
            return _sized(key.clauses(sampled[1:]), key.rows)
        return self._counted(key, lambda _: rows)

    def _counted(self, key: RowKey, step_of: Callable[[int], int]) -> list[Range]:
        """Return ranges of equal numbers of rows: TiDB counts the rows, and reads their keys in order."""
        count = int(self._jdbc.row(key.count_sql())["n"])
        step = max(1, step_of(count))
        bounds = key.bounds(self._jdbc.rows(key.every_sql(step))) if count > step else []
        return _sized(key.clauses(bounds), count) if count else []

    def _row_key(self) -> RowKey:
        if self._key is None:
            answer = self._jdbc.rows(key_question(self.table.name))
            self._key = key_of(self.table, [row.asDict() for row in answer])
        return self._key

    @staticmethod
    def read_as(column: SnapshotColumn) -> str:
        """Return the type in which JDBC reads a column, as DDL of Spark."""
        return _ddl(column.arrow_read)

    def _read_as(self) -> str:
        return ", ".join(f"{column.alias} {self.read_as(column)}" for column in self.table.columns)


# A table with fewer regions has at most a few GB: to count its rows takes seconds.
_MANY_REGIONS = 8


def _sized(clauses: Sequence[str], rows: int) -> list[Range]:
    """Return ranges that share the rows."""
    return [
        Range(clause, rows * (number + 1) // len(clauses) - rows * number // len(clauses))
        for number, clause in enumerate(clauses)
    ]


class _Jdbc:
    """Spark's JDBC source with one address, at one moment. Its errors say what to do, and hold no secret."""

    def __init__(self, spark: SparkSession, tidb: TiDBAddress, at: int | None) -> None:
        url, given = tidb.url, tidb.given()
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

    @property
    def moment(self) -> int:
        """The TSO of what is read."""
        assert self._at is not None  # noqa: S101 (for mypy)
        return self._at

    def ranges(self, dbtable: str, clauses: Sequence[str], **options: str) -> DataFrame:
        """Return a frame with a JDBC partition for each WHERE clause.

        Not by `predicates` of `DataFrameReader.jdbc`: that writes the names of settings in lower case, and Connector/J
        ignores `sessionvariables`. Each partition would read the present.
        """
        texts = [f"(SELECT * FROM {dbtable} WHERE {clause}) AS key_range" for clause in clauses]  # noqa: S608 (quoted)
        frames = [self.frame(text, **options) for text in texts]
        while len(frames) > 1:  # in pairs: Spark analyses the whole plan at each union
            pairs = (frames[start : start + 2] for start in range(0, len(frames), 2))
            frames = [reduce(DataFrame.union, pair) for pair in pairs]
        return frames[0]

    def computed(self, dbtable: str, **options: str) -> DataFrame:
        return self._do(partial(computed, self.frame(dbtable, **options)))

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
    jdbc: _Jdbc, table: SnapshotTable, name: str, partitions: int | None, bounds: tuple[int | None, int | None]
) -> dict[str, str]:
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


def _metadata(at: int, change_type: str, rank: int, index: int) -> dict[str, Column]:
    """Return the metadata columns. Every change whose commit-ts is larger has a larger `_sequence`."""
    sequence = f"'commit_ts', {at}L, 'rank', {rank}, 'partition', -1, 'offset', -1L, 'index', {index}"
    type_ = _ddl(SEQUENCE)  # whose fields may be NULL, as in the changes
    return {
        "change_type": F.lit(change_type),
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
