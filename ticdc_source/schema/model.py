"""Columns and tables: what the messages say (TableSchema), and what Spark asked for (ReadSchema)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from ticdc_source.events import TableName
from ticdc_source.schema.types import ColumnType, merge_types

__all__ = [
    "KEY",
    "MYSQL_TYPE",
    "PROTOCOL",
    "TABLE",
    "VERSIONS",
    "Column",
    "ReadField",
    "TableSchema",
    "TypeVersions",
    "merge_schemas",
]

# Field metadata of the inferred schema. Spark hands it back to the reader, so it is how what the driver has
# inferred (labels, precision, the table, the protocol) reaches the workers.
MYSQL_TYPE = "ticdc.mysql_type"
KEY = "ticdc.key"
TABLE = "ticdc.table"
PROTOCOL = "ticdc.protocol"
VERSIONS = "ticdc.versions"

# The types that DDL events gave a column: (commit_ts of the DDL, type), oldest first. A row belongs to the last one
# whose commit_ts is below its own (docs/wire.md, item 31).
TypeVersions = tuple[tuple[int, ColumnType], ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column, as messages describe it.

    Attributes:
        name: the name on the wire.
        type: its MySQL type; None where the messages do not tell (schema-less debezium, MySQL's Null).
        key: part of the handle key, where the wire tells.
        wire: how the protocol wrote the values, where a type has several ways; the protocol's own word.
        json_type: the Arrow type that the values' JSON json_type suggests, used where `type` is None.
        vague: the message leaves the type open (text or binary, tinyint or smallint, …); `type` says the likely one.
        conflict: versions of the table disagree across families: read as text.
        versions: what DDL events declared, where messages do not tell all of the type themselves.
        since: the commit_ts of the DDL whose version of the column a message holds, 0 for the first.
    """

    name: str
    type: ColumnType | None = None
    key: bool = False
    wire: str = ""
    json_type: pa.DataType | None = None
    vague: bool = False
    conflict: bool = False
    versions: TypeVersions = ()
    since: int = 0

    def merged_with(self, other: Column) -> Column:
        """Return the column that holds the values of both versions."""
        return replace(self._merged_types(other), versions=self.versions or other.versions)

    def _merged_types(self, other: Column) -> Column:
        key = self.key or other.key
        if self.type is None or other.type is None:
            known = self if self.type is not None else other
            json_type = (
                self.json_type if other.json_type is None or self.json_type == other.json_type else other.json_type
            )
            if self.json_type is not None and other.json_type is not None and self.json_type != other.json_type:
                json_type = _wider_json_type(self.json_type, other.json_type)
            return replace(known, key=key, json_type=json_type)
        if self.conflict or other.conflict:
            return replace(self, key=key, conflict=True)
        for vague, sure in ((self, other), (other, self)):
            if vague.vague and sure.type is not None and sure.type.family == "binary":
                return replace(sure, key=key)
        merged = merge_types(self.type, other.type)
        if merged is None:
            return replace(self, type=ColumnType("text"), key=key, conflict=True)
        return replace(self, type=merged, key=key, vague=self.vague and other.vague)


def _wider_json_type(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    json_types = {first, second}
    if json_types == {pa.int64(), pa.float64()}:
        return pa.float64()
    return pa.string()


@dataclass(frozen=True, slots=True)
class TableSchema:
    """What the messages say about a table: its columns in table order where the wire keeps it."""

    table: TableName
    columns: tuple[Column, ...]


def merge_schemas(schemas: Iterable[TableSchema]) -> TableSchema | None:
    """Merge versions of one table, oldest first: every column seen, each with the widest type.

    The newest version's order leads; columns that only older versions had follow.
    """
    table: TableName | None = None
    columns: dict[str, Column] = {}
    newest: list[str] = []
    for schema in schemas:
        table = schema.table
        for column in schema.columns:
            name = column.name.lower()  # MySQL compares column names without case
            before = columns.get(name)
            columns[name] = column if before is None else replace(before.merged_with(column), name=column.name)
        names = list(dict.fromkeys(column.name.lower() for column in schema.columns))
        if set(names) >= set(newest) or not set(names) <= set(newest):
            newest = names
    if table is None:
        return None
    order = [*newest, *(name for name in columns if name not in newest)]
    return TableSchema(table, tuple(columns[name] for name in order))


@dataclass(frozen=True, slots=True)
class ReadField:
    """A table column of the read schema.

    Attributes:
        name: the name Spark asked for.
        arrow: the Arrow type the column must have.
        type: the MySQL type that inference resolved, where it ran; refines what a message says itself.
        versions: the types that DDL events gave it, where they changed.
        key: part of the handle key, as far as inference knows.
    """

    name: str
    arrow: pa.DataType
    type: ColumnType | None = None
    versions: TypeVersions = ()
    key: bool = False

    def type_since(self, since: int) -> ColumnType | None:
        """Return the type of the version that began at `since`, the commit_ts of a DDL event."""
        known = [type_ for start, type_ in self.versions if start <= since]
        return known[-1] if known else self.versions[0][1] if self.versions else self.type
