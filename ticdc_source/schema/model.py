"""Columns and tables: what messages tell about them, and the columns that Spark asks for."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import NamedTuple

import pyarrow as pa

from ticdc_source.errors import SchemaError
from ticdc_source.schema.ddl_event import START, Moment
from ticdc_source.schema.json_text import loads
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import TYPES, ColumnType, convertible, is_text_of, merge_types, parse_type

# Keys of the field metadata in the inferred schema. Spark hands the schema back to the reader, so what the driver has
# inferred (labels, precision, the table, the protocol) reaches the workers this way.
MYSQL_TYPE = "ticdc.mysql_type"
KEY = "ticdc.key"
TABLE = "ticdc.table"
PROTOCOL = "ticdc.protocol"
VERSIONS = "ticdc.versions"
DEFINITIONS = "ticdc.definitions"
UNDECIDED = "ticdc.undecided"
UNSTATED_PRECISION = "ticdc.unstated_precision"

# Spark's own key for the comment of a column.
COMMENT = "comment"

# The types that DDL events gave a column: (moment of the DDL, type), oldest first. A row belongs to the last version
# whose moment is before its own.
TypeVersions = tuple[tuple[Moment, ColumnType], ...]


def versions_as_json(versions: TypeVersions) -> str:
    """Return versions as JSON, for field metadata: `[[commit_ts, type], …]`, or `[[[commit_ts, …place], type], …]`."""
    return json.dumps([[at.commit_ts if at == Moment(at.commit_ts) else at, str(type_)] for at, type_ in versions])


def versions_of_json(text: str) -> TypeVersions:
    return tuple((Moment(*at) if isinstance(at, list) else Moment(at), parse_type(type_)) for at, type_ in loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """What messages or DDL say about a column beside its type; None if unknown."""

    primary_key: bool | None = None
    handle_key: bool | None = None
    unique_key: bool | None = None
    nullable: bool | None = None
    generated: bool | None = None
    default: str | None = None
    comment: str | None = None

    def or_else(self, other: ColumnFacts) -> ColumnFacts:
        if other == NO_FACTS:
            return self
        stated = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(other, **{name: value for name, value in stated.items() if value is not None})

    def as_metadata(self) -> dict[str, str]:
        """Return the known facts as field metadata."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            COMMENT if name == COMMENT else f"ticdc.{name}": str(value).lower() if type(value) is bool else value
            for name, value in given.items()
            if value is not None
        }


NO_FACTS = ColumnFacts()


class Key(NamedTuple):
    """A key of a table, or another index.

    Attributes:
        name: its name in lower case; "" if TiDB names it.
        columns: its columns; "" stands for an expression.
    """

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    primary: bool = False

    @property
    def facts(self) -> ColumnFacts:
        """The facts about each of its columns."""
        if self.primary:
            return ColumnFacts(primary_key=True, nullable=False)
        return ColumnFacts(unique_key=True) if self.unique else NO_FACTS


def handle_key(keys: Iterable[Key], unfit: Collection[str]) -> frozenset[str]:
    """Return the columns by which TiCDC identifies a row; empty for a table without a suitable key.

    It is the primary key, else the oldest of the unique keys with the fewest columns, all NOT NULL and not virtual
    (docs/wire.md, item 52; `findHandleIndex` in TiCDC's table info).

    Args:
        keys: the table's indexes, oldest first.
        unfit: nullable and virtual columns.
    """
    fit: list[Key] = []
    for key in keys:
        if key.primary:
            return frozenset(key.columns)
        if key.unique and not {*unfit, ""}.intersection(key.columns):
            fit.append(key)
    return frozenset(min(fit, key=lambda key: len(key.columns)).columns) if fit else frozenset()


@dataclass(frozen=True, slots=True)
class Column:
    """A column, as messages describe it.

    Attributes:
        name: the name in the messages.
        type: its MySQL type; None if messages do not tell it, as they have no types, or only NULLs.
        key: whether it is part of the handle key, if messages tell.
        wire: how the protocol wrote the values, if it has several ways for a type; the protocol's own word.
        json_type: the Arrow type that the values' JSON suggests, if `type` is None.
        vague: whether messages leave the type open (text or binary, tinyint or smallint, …); `type` is then the likely
            one.
        behind: for a vague type, the names of the possible types, signed or unsigned; `type` can then hold the values
            of all. Empty if `type` alone is enough.
        coded: whether messages have only a type code, and all values as text, from which any type is read.
        conflict: whether versions of the table disagree across families; the column is then read as text.
        versions: the types in DDL events, if messages do not tell the whole type.
        facts: what messages and DDL say about it beside its type.
        is_local: whether its values are in the TiCDC server's zone, in a protocol that otherwise names zones.
        since: the moment of the DDL that began the column's version in these messages; 0 for the first version.
    """

    name: str
    type: ColumnType | None = None
    _: KW_ONLY
    key: bool = False
    wire: str = ""
    json_type: pa.DataType | None = None
    vague: bool = False
    behind: frozenset[str] = frozenset()
    coded: bool = False
    conflict: bool = False
    versions: TypeVersions = ()
    facts: ColumnFacts = NO_FACTS
    is_local: bool = False
    since: Moment = START

    @property
    def is_open(self) -> bool:
        """Whether messages leave the type open, so that `type` must not be stated as the column's type."""
        return self.vague and bool(self.behind)

    @property
    def is_undecided(self) -> bool:
        """Whether only values can tell its Arrow type, and the sample has none."""
        if self.type is None:
            return self.json_type is None
        return self.type.is_blank and not self.conflict

    @property
    def may_be_decimal(self) -> bool:
        """Whether it is a double in messages that also write a DECIMAL as a double."""
        return self.vague and self.type is not None and self.type.name == "double"

    @property
    def has_unstated_precision(self) -> bool:
        return self.type is not None and self.type.is_unspecified and not self.conflict

    @property
    def readings(self) -> list[pa.DataType]:
        """The Arrow types of its possible MySQL types."""
        likely = [] if self.type is None else [self.type.arrow]
        return [*likely, *(TYPES[name].arrow for name in self.behind)] if self.coded else likely

    def is_readable_as(self, target: pa.DataType) -> bool:
        """Whether a schema may ask for this type, whose values are converted without loss or are an error."""
        if self.type is None:
            return True
        if any(convertible(arrow, target) for arrow in self.readings):
            return True
        if self.type.family in ("enum", "set"):
            return bool(pa.types.is_integer(target) or pa.types.is_decimal(target))
        if self.type.name == "decimal" and pa.types.is_decimal(target):
            return True
        if self.may_be_decimal and pa.types.is_decimal(target):
            return True
        return self.coded and any(is_text_of(arrow, target) for arrow in self.readings)

    def merged_with(self, other: Column) -> Column:
        """Return a column for the values of both versions, with the facts of the newer one, `other`."""
        return replace(
            self._merged_types(other),
            versions=self.versions or other.versions,
            facts=other.facts.or_else(self.facts),
            coded=self.coded and other.coded,
            is_local=self.is_local or other.is_local,
        )

    def _merged_types(self, other: Column) -> Column:
        key = self.key or other.key
        if self.type is None or other.type is None:
            typed = self if self.type is not None else other
            return replace(typed, key=key, json_type=_merged_json_type(self.json_type, other.json_type))
        if self.conflict or other.conflict:
            return replace(self, key=key, conflict=True)
        for vague, sure in ((self, other), (other, self)):
            if vague.vague and sure.type is not None and sure.type.family == "binary":
                return replace(sure, key=key)
        first, second = self.type, other.type
        if self.is_open != other.is_open and first.family == second.family == "number":  # one of them tells the sign
            told = second if self.is_open else first
            first, second = (replace(type_, unsigned=told.unsigned) for type_ in (first, second))
        merged = merge_types(first, second)
        if merged is None and {first.family, second.family} == {"text", "binary"}:  # every text is bytes
            return replace(other if second.family == "binary" else self, key=key)
        if merged is None:
            return replace(self, type=ColumnType("text"), key=key, conflict=True)
        both = self.vague and other.vague
        behind = self.behind | other.behind if both else frozenset()
        return replace(self, type=merged, key=key, vague=both, behind=behind)


def without_key(columns: Iterable[Column]) -> list[Column]:
    return [replace(column, key=False, facts=replace(column.facts, handle_key=None)) for column in columns]


def _have_other_key(before: Mapping[str, Column], columns: Iterable[Column]) -> bool:
    """Whether the columns of a newer version have another key than before."""
    pairs = [(before[column.name.lower()].facts, column.facts) for column in columns if column.name.lower() in before]
    said = [(old.primary_key, new.primary_key) for old, new in pairs] + [
        (old.handle_key, new.handle_key) for old, new in pairs
    ]
    return any(None not in both and both[0] != both[1] for both in said)


def _merged_json_type(first: pa.DataType | None, second: pa.DataType | None) -> pa.DataType | None:
    """Return the Arrow type for the values of both; None if neither has values."""
    if first is None or second is None or first == second:
        return second if first is None else first
    return pa.float64() if {first, second} == {pa.int64(), pa.float64()} else pa.string()


# The columns of tables by the version that rows name, in the table's order (`ProtocolFacts.definitions`). The key has
# `TableName.folded`, as rows and definitions may spell a table differently.
Definitions = dict[tuple[TableName, int], tuple[Column, ...]]


def definitions_as_json(definitions: Definitions, table: TableName) -> str:
    """Return the versions of one table as JSON, for field metadata: `[[versions, [[column, type, is key], …]], …]`."""
    versions: dict[tuple[tuple[str, str, bool], ...], list[int]] = {}
    for (name, version), columns in definitions.items():
        if name == table.folded:
            versions.setdefault(tuple((each.name, str(each.type), each.key) for each in columns), []).append(version)
    return str(json.dumps([[numbers, columns] for columns, numbers in versions.items()], ensure_ascii=False))


def definitions_of_json(text: str, table: TableName) -> Definitions:
    return {
        (table.folded, number): tuple(Column(name, parse_type(type_), key=key) for name, type_, key in columns)
        for numbers, columns in loads(text)
        for number in numbers
    }


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table as messages describe it: its columns, in the table's order if the protocol keeps it."""

    table: TableName
    columns: tuple[Column, ...]


def check_names(table: TableName | None, columns: Iterable[Column]) -> None:
    """Check that Spark can tell the columns of one version of a table apart.

    TiDB ignores case, too, but by other rules: it has `İ` beside `i̇`, which are one name for Spark, by Java's
    `toLowerCase(Locale.ROOT)`, and for Python's `str.lower`.

    Raises:
        SchemaError: it cannot.
    """
    seen: dict[str, str] = {}
    for column in columns:
        other = seen.setdefault(column.name.lower(), column.name)
        if other != column.name:
            raise SchemaError(
                f"Columns {other} and {column.name}{f' of {table}' if table else ''}: Spark compares names without "
                "case, and takes both for one column. Rename one of them in TiDB, leave one out of the changefeed "
                "(column-selectors), or read with outputFormat=event"
            )


def merge_schemas(schemas: Iterable[TableSchema]) -> TableSchema | None:
    """Merge versions of one table, oldest first: every column of any version, each with the widest type.

    The newest version's columns come first, in its order, then those of only older versions. Only the newest key holds,
    because it identifies rows now.

    Returns:
        The table; None if there is no version.
    """
    table: TableName | None = None
    columns: dict[str, Column] = {}
    newest: list[str] = []
    for schema in schemas:
        table = schema.table
        if _have_other_key(columns, schema.columns):
            columns = dict(zip(columns, without_key(columns.values()), strict=True))
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
        type: the inferred MySQL type, which refines a message's type; None if inference did not run.
        versions: its types in DDL events, if they changed.
        key: whether it is part of the handle key; messages may lack other columns of the key.
        user_schema: whether the schema is the user's, so that `schemaHints` has no effect.
    """

    name: str
    arrow: pa.DataType
    _: KW_ONLY
    type: ColumnType | None = None
    versions: TypeVersions = ()
    key: bool = False
    user_schema: bool = False

    def type_since(self, since: Moment) -> ColumnType | None:
        """Return the type of the version that a DDL event began at `since`; None if unknown."""
        begun = [type_ for start, type_ in self.versions if start <= since]
        return begun[-1] if begun else self.versions[0][1] if self.versions else self.type
