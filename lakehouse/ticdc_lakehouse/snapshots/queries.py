"""A table as of a TSO over JDBC, without Spark: the SQL that reads it, and what each column is.

TiDB is asked what the columns are (`describe_sql`). Each one is then selected in a form that MySQL's JDBC driver
cannot bend: dates and times as MySQL's text, bits as numbers. So neither the time zone of a JVM nor a setting of the
driver changes a value (docs/design/0002-types.md).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal

import pyarrow as pa

from ticdc_source.developer_api import (
    KEY,
    MYSQL_TYPE,
    TABLE,
    ColumnFacts,
    ColumnType,
    Key,
    TableName,
    handle_key,
    of_ms,
    parse_table,
    parse_type,
)
from ticdc_source.errors import OptionError, SchemaError, UnsupportedTypeError

DRIVER = "com.mysql.cj.jdbc.Driver"
DRIVER_COORDINATE = "com.mysql:mysql-connector-j:9.4.0"
CURRENT_TSO_SQL = "(SELECT @@tidb_current_ts AS tso) AS moment"
MOST_BIGINT = 2**63 - 1  # Spark's bounds of JDBC partitions are bigint

_FIRST_TSO = of_ms(1_420_070_400_000)  # 2015, when TiDB began
_MILLISECONDS = range(10**12, 10**14)
# Settings of Connector/J, and options of Spark's JDBC source, that `snapshot` gives itself; in lower case.
_OURS = ("sessionvariables", "tinyint1isbit", "yearisdatetype")
_SPARKS = (
    *("url", "dbtable", "query", "customschema", "preparequery"),
    *("partitioncolumn", "numpartitions", "lowerbound", "upperbound", "sessioninitstatement"),
)
# Rows come as TiDB sends them. Without it the driver holds the whole result in memory.
_STREAM_ROWS = str(-(2**31))


@dataclass(frozen=True, slots=True, kw_only=True)
class TiDBAddress:
    """Where TiDB is, and who reads it; its `repr` shows nothing of that, because an address may hold a password.

    Attributes:
        url: the address of a TiDB server, `jdbc:mysql://host:4000/`.
        user: the user, if the address has none.
        properties: other settings of the JDBC driver, or of Spark's JDBC source.
    """

    url: str = field(repr=False)
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def given(self) -> dict[str, str]:
        """Return what is given beside the address, by the names of the JDBC driver."""
        named = {"user": self.user, "password": self.password}
        return {**self.properties, **{name: value for name, value in named.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class SnapshotColumn:
    """A column: how JDBC reads it, and what `snapshots/jdbc.py` makes of that. The alias needs no quotes."""

    name: str
    type: ColumnType
    _: KW_ONLY
    alias: str
    facts: ColumnFacts

    @property
    def comes_as_text(self) -> bool:
        """Whether it is read as MySQL's text though its Spark type is another."""
        return self.type.family in ("datetime", "timestamp", "time", "vector")

    @property
    def sql(self) -> str:
        name = quote(self.name)
        if self.type.family == "bit":
            return f"CAST({name} AS SIGNED)"
        if self.type.name == "float":  # TiDB sends one from 1e15 on, or below 1e-15, with 6 digits
            return f"{name} * 1e0"
        # As it is, Spark would fill a CHAR, ENUM or SET with blanks, and Connector/J write a decimal as 1E-30. TiDB
        # loses a digit in the text of a negative DECIMAL(5,5), where all digits follow the point: no decimal of more
        # than 38 digits is like that.
        as_text = self.type.name in ("char", "enum", "set", "decimal") and pa.types.is_string(self.type.arrow)
        return f"CAST({name} AS CHAR)" if as_text or self.comes_as_text else name

    @property
    def arrow_read(self) -> pa.DataType:
        """The Arrow type of what JDBC reads, before the conversion to `type.arrow`."""
        if self.comes_as_text:
            return pa.string()
        return pa.int64() if self.type.family == "bit" else self.type.arrow

    @property
    def splits(self) -> bool:
        """Whether JDBC partitions can be ranges of it."""
        return bool(pa.types.is_integer(self.type.arrow)) or self.type == ColumnType("bigint", unsigned=True)

    def metadata(self, table: TableName) -> dict[str, str]:
        """Return its field metadata, as a changelog frame has it."""
        metadata = {TABLE: f"{quote(table.database)}.{quote(table.table)}", MYSQL_TYPE: str(self.type)}
        if self.facts.handle_key:
            metadata[KEY] = "true"
        return metadata | self.facts.as_metadata()


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A table: its name as TiDB writes it, and the columns that TiCDC sends, in order."""

    name: TableName
    columns: tuple[SnapshotColumn, ...]

    def select_sql(self, *more: str, where: str = "") -> str:
        """Return the `dbtable` of Spark's JDBC source, with more columns as SQL, of the rows that meet a condition."""
        selected = ", ".join((*(f"{column.sql} AS {column.alias}" for column in self.columns), *more))
        condition = f" WHERE {where}" if where else ""
        return f"(SELECT {selected} FROM {self.quoted}{condition}) AS snapshot"  # noqa: S608 (names are quoted)

    def bounds_sql(self, column: SnapshotColumn) -> str:
        """Return the `dbtable` that asks for the smallest and the largest value of a column."""
        name = quote(column.name)
        return f"(SELECT MIN({name}) AS low, MAX({name}) AS high FROM {self.quoted}) AS bounds"  # noqa: S608

    def create_sql(self) -> str:
        """Return a `CREATE TABLE` with the types and the key of the table: what DDL in a topic would say of it."""
        lines = [f"{quote(column.name)} {column.type}{'' if column.facts.nullable else ' NOT NULL'}"
                 for column in self.columns]  # fmt: skip
        primary = [quote(column.name) for column in self.columns if column.facts.primary_key]
        handle = [quote(column.name) for column in self.columns if column.facts.handle_key]
        if primary:
            lines.append(f"PRIMARY KEY ({', '.join(primary)})")
        elif handle:
            lines.append(f"UNIQUE KEY handle_key ({', '.join(handle)})")
        return f"CREATE TABLE {self.quoted} ({', '.join(lines)})"

    def keys_condition(self, names: Sequence[str], keys: Iterable[Sequence[KeyValue]]) -> str:
        """Return the condition, as TiDB's SQL, of the rows that have one of some keys.

        `can_be_literal` is true of the named columns, and each key has its values in the order of the names.
        """
        types = [column.type for name in names for column in self.columns if column.name.lower() == name.lower()]
        values = (", ".join(map(_literal, types, key)) for key in keys)
        return f"({', '.join(map(quote, names))}) IN ({', '.join(f'({each})' for each in values)})"

    @property
    def quoted(self) -> str:
        return f"{quote(self.name.database)}.{quote(self.name.table)}"

    def column_to_split(self, name: str) -> SnapshotColumn:
        """Return the column whose ranges are the JDBC partitions."""
        column = next((column for column in self.columns if column.name.lower() == name.lower()), None)
        if column is not None and column.splits:
            return column
        integers = ", ".join(column.name for column in self.columns if column.splits) or "none"
        is_ = "has no such column" if column is None else f"has it as {column.type}"
        msg = (
            f"partition_column='{name}': {self.name} {is_}; JDBC partitions are ranges of an integer column, and it "
            f"has {integers}"
        )
        raise OptionError(msg)


def quote(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def text_literal(value: str) -> str:
    """Return a text as SQL writes it."""
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


KeyValue = int | Decimal | str | bytes | datetime.date


def can_be_literal(column: SnapshotColumn) -> bool:
    """Return whether SQL has a literal for each value of a column that is equal to it, and to no other."""
    return column.type.family in ("number", "text", "binary") or column.type.name == "date"


def _literal(type_: ColumnType, value: KeyValue) -> str:
    """Return a value of a key as SQL writes it, whatever `sql_mode` says of backslashes."""
    match value:
        case str() if type_.family == "number":  # a DECIMAL of more digits than Spark has
            return str(Decimal(value))
        case str():
            return f"_utf8mb4 x'{value.encode().hex()}'"
        case bytes():
            return f"x'{value.hex()}'"
        case datetime.date():
            return f"'{value}'"
        case _:
            return f"{value:f}" if isinstance(value, Decimal) else str(int(value))


def check_tso(at: int) -> None:
    if isinstance(at, bool) or not isinstance(at, int):
        msg = f"at={at!r}: a TSO is an int; ticdc_lakehouse.current_tso(…) returns that of this moment"
        raise OptionError(msg)
    if not _FIRST_TSO <= at <= MOST_BIGINT:
        hint = (
            f"as milliseconds since the epoch it is the TSO {of_ms(at)} ({at} << 18)"
            if at in _MILLISECONDS
            else "a TSO is milliseconds since the epoch << 18"
        )
        msg = f"at={at} is not a TSO: {hint}; ticdc_lakehouse.current_tso(…) returns that of this moment"
        raise OptionError(msg)


def check_url(url: str, properties: Mapping[str, str]) -> None:
    """Refuse an address that is not MySQL's, or a setting that would change values. The address is never shown."""
    if not url.startswith("jdbc:mysql"):
        msg = (
            "The JDBC URL must begin with jdbc:mysql: (jdbc:mysql://host:4000/). Spark quotes names in the way of "
            "another database for any other URL"
        )
        raise OptionError(msg)
    named = {name.lower() for name in re.findall(r"[?&]\s*([^=&]+?)\s*=", url)}
    given = sorted(name for name in _OURS if name in named)
    given += sorted(name for name in properties if name.lower() in (*_OURS[1:], *_SPARKS))
    if given:
        msg = (
            f"The JDBC setting {given[0]} cannot be given: snapshot() sets it, so that the types are those of the "
            "changes and all connections read one moment. Session variables may be in properties: "
            'properties={"sessionVariables": "tidb_isolation_read_engines=\'tikv\'"}'
        )
        raise OptionError(msg)


def connection_properties(given: Mapping[str, str], at: int | None = None) -> dict[str, str]:
    """Return what Spark's JDBC source is given beside the address; with `at`, every connection reads that moment.

    Also the connection by which Spark asks for the columns: `sessionInitStatement` would leave that one in the present.
    """
    users = {name: value for name, value in given.items() if name.lower() != "sessionvariables"}
    variables = [value for name, value in given.items() if name.lower() == "sessionvariables"]
    if at is not None:
        variables.append(f"tidb_snapshot='{at}'")
    variables.append("time_zone='+00:00'")  # TIMESTAMP as text is then UTC
    fixed = {"sessionVariables": ",".join(variables), "tinyInt1isBit": "false", "yearIsDateType": "false"}
    # TiDB would compare strings by their collations: 'A' = 'a'. Spark compares bytes, also in the changes.
    return {"driver": DRIVER, "fetchsize": _STREAM_ROWS, "pushDownPredicate": "false", **users, **fixed}


def table_of(text: str) -> tuple[TableName, str]:
    """Return the table that a user names, and the `dbtable` that asks TiDB for its columns and keys."""
    try:
        table = parse_table(text)
    except ValueError:
        msg = f"table='{text}' is not database.table; put names with dots, commas or blanks in backticks"
        raise OptionError(msg) from None
    columns = ", ".join(f"c.{name} AS {name}" for name in _COLUMN_FACTS)
    keys = ", ".join(f"k.{name} AS {name}" for name in _KEY_FACTS)
    source = (
        "information_schema.columns c LEFT JOIN information_schema.tidb_indexes k ON k.table_schema = c.table_schema "
        "AND k.table_name = c.table_name AND k.column_name = c.column_name"
    )
    wanted = f"c.table_schema = {text_literal(table.database)} AND c.table_name = {text_literal(table.table)}"
    return table, f"(SELECT {columns}, {keys} FROM {source} WHERE {wanted}) AS columns_and_keys"  # noqa: S608


_COLUMN_FACTS = (
    *("table_schema", "table_name", "column_name", "ordinal_position", "column_type", "is_nullable"),
    *("column_default", "extra", "column_comment"),
)
_KEY_FACTS = ("index_id", "key_name", "non_unique")

Fact = str | int | None


def tables_sql() -> str:
    """Return the `dbtable` with the names of all tables: no views, no sequences, and nothing of TiDB's own."""
    own = ", ".join(text_literal(name) for name in _SYSTEM_SCHEMAS)
    wanted = f"table_type = 'BASE TABLE' AND LOWER(table_schema) NOT IN ({own})"
    names = "table_schema AS table_schema, table_name AS table_name"
    return f"(SELECT {names} FROM information_schema.tables WHERE {wanted} ORDER BY 1, 2) AS all_tables"  # noqa: S608


# TiCDC replicates none of these (its pkg/filter, `IsSysSchema`).
_SYSTEM_SCHEMAS = (
    *("information_schema", "performance_schema", "mysql", "sys", "metrics_schema", "inspection_schema"),
    *("tidb_cdc", "lightning_task_info", "lightning_metadata"),
)


def described(table: TableName, rows: Sequence[Mapping[str, Fact]], at: int) -> SnapshotTable:
    """Return what the answer to `table_of`'s question says: a row for each column and index that it is part of.

    Virtual generated columns are left out, because TiCDC does not send them.
    """
    if not rows:
        msg = (
            f"TiDB had no table {table} at TSO {at}: it did not exist at that moment, or the user may not read it. "
            "Write table='database.table'"
        )
        raise SchemaError(msg)
    first = rows[0]
    name = TableName(str(first["table_schema"]), str(first["table_name"]))
    by_position = {int(row["ordinal_position"] or 0): row for row in rows}
    ordered = [by_position[position] for position in sorted(by_position)]
    virtual = {str(row["column_name"]) for row in ordered if "VIRTUAL GENERATED" in str(row["extra"]).upper()}
    keys = _unique_keys(rows)
    handle = handle_key(keys, virtual | {str(row["column_name"]) for row in rows if row["is_nullable"] == "YES"})
    columns: list[SnapshotColumn] = []
    for row in ordered:
        column = str(row["column_name"])
        if column not in virtual:
            type_ = _type(str(row["column_type"]), name, column)
            facts = _facts(row, keys, handle)
            columns.append(SnapshotColumn(column, type_, alias=f"c{len(columns)}", facts=facts))
    return SnapshotTable(name, tuple(columns))


def _type(text: str, table: TableName, column: str) -> ColumnType:
    type_ = parse_type(text)
    if not type_.is_supported:
        msg = f"Column {column} of {table}: type {text} is not supported"
        raise UnsupportedTypeError(msg)
    return type_


def _unique_keys(rows: Iterable[Mapping[str, Fact]]) -> list[Key]:
    """Return the unique keys, the oldest first: their numbers grow."""
    keys: dict[tuple[int, str], list[str]] = {}
    for row in rows:
        if row["key_name"] is not None and not int(row["non_unique"] or 0):
            key = int(row["index_id"] or 0), str(row["key_name"])
            keys.setdefault(key, []).append(str(row["column_name"]))
    return [
        Key(name, tuple(columns), unique=True, primary=name == "PRIMARY") for (_, name), columns in sorted(keys.items())
    ]


def _facts(row: Mapping[str, Fact], keys: Sequence[Key], handle: frozenset[str]) -> ColumnFacts:
    name = str(row["column_name"])
    default, comment = row["column_default"], row["column_comment"]
    return ColumnFacts(
        primary_key=any(name in key.columns for key in keys if key.primary),
        handle_key=name in handle,
        unique_key=any(name in key.columns for key in keys if not key.primary),
        nullable=row["is_nullable"] == "YES",
        generated="GENERATED" in str(row["extra"]).replace("DEFAULT_GENERATED", "").upper(),
        default=None if default is None else str(default),
        comment=str(comment) if comment else None,
    )


def explained(error: str, at: int | None, secrets: Iterable[str]) -> str:
    """Return what an error of JDBC says, and what to do about it, without the secrets."""
    causes = re.findall(r"^Caused by: (?:[\w.$]+: )?(.*)$", error, re.MULTILINE)
    reason = (causes[-1] if causes else error.strip().partition("\n")[0]).strip()
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        reason = reason.replace(secret, "…")
    moment = "" if at is None else f" as of TSO {at}"
    if re.search(r"Malformed|failed to parse the connection|NumberFormatException|WrongArgument", error):
        return f"TiDB cannot be read{moment}: the JDBC URL is not jdbc:mysql://host:port/"  # its parts may be secrets
    for pattern, advice in _ADVICE:
        if re.search(pattern, error, re.IGNORECASE):
            return f"TiDB cannot be read{moment}: {advice} ({reason})"
    return f"TiDB cannot be read{moment}: {reason}"


_ADVICE = (
    (
        r"ClassNotFoundException|No suitable driver",
        f"Spark has no JDBC driver for MySQL: start it with spark.jars.packages={DRIVER_COORDINATE}",
    ),
    (
        r"GC life time is shorter|older than (?:the )?GC safe ?point|GC too early",
        (
            "that moment is older than TiDB's GC safe point: SET GLOBAL tidb_gc_life_time to longer than the snapshot "
            "takes, and take a newer TSO (ticdc_lakehouse.current_tso)"
        ),
    ),
    (r"future time|in the future", "that moment lies in TiDB's future: take ticdc_lakehouse.current_tso"),
    (r"Access denied", "the user or the password is wrong, or the user may not read the table"),
    (r"Communications link failure|UnknownHostException", "no server answers at the host and port of the JDBC URL"),
)
