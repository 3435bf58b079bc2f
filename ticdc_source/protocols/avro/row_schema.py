"""A registry's schema → the table, its columns, and TiCDC's own fields.

TiCDC sanitizes names for Avro; `tableDDL` has the original ones. Source: pingcap/ticdc pkg/sink/codec/avro/arvo.go,
`value2AvroSchema`, `columnToAvroSchema` (docs/wire.md, items 122 to 124).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ticdc_source.errors import DecodeError
from ticdc_source.kernels.contract import (
    AvroField,
    AvroNumber,
    AvroRow,
    AvroSkip,
    AvroType,
    Branch,
    Const,
    Forget,
    Image,
    Program,
    Slot,
    Step,
    Way,
)
from ticdc_source.options.logins import RegistrySettings
from ticdc_source.protocols.images import Row
from ticdc_source.protocols.registry_framing import AvroSchema, labels_of, schema_of, type_of_field
from ticdc_source.protocols.templates import DELETE, INSERT, MOST_TSO, UPDATE, Template
from ticdc_source.schema.ddl import declared_tables
from ticdc_source.schema.model import Column, ColumnFacts
from ticdc_source.schema.mysql_ddl.statements import Create
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import TYPES, ColumnType, parse_type
from ticdc_source.sources.schema_registry import SchemaId

_REPLACED = re.compile("[^A-Za-z0-9_]")


def sanitized(name: str) -> str:
    replaced = _REPLACED.sub("_", name)
    return f"_{replaced}" if replaced[:1].isdigit() else replaced


def original_table(table: TableName, table_ddl: str | None) -> TableName:
    """Return a table's original name, if `tableDDL` declares exactly one with this sanitized name; else the latter."""
    declared = _declared(table, table_ddl)
    if len(declared) != 1:
        return table
    (original,) = declared
    return TableName(
        _original(table.database, original.database) if original.database else table.database,
        _original(table.table, original.table),
    )


def original_columns(table: TableName, columns: Sequence[str], table_ddl: str | None) -> dict[str, str]:
    """Map sanitized column names to the original ones, if they differ and are unambiguous."""
    by_name: dict[str, list[str]] = {}
    if len(_declared(_sanitized_table(table), table_ddl)) > 1:
        return {}  # the columns may be those of another table
    for original in column_order(table, table_ddl):
        by_name.setdefault(sanitized(original).lower(), []).append(original)
    declared = {name: by_name.get(name.lower(), []) for name in columns}
    return {
        name: _original(name, originals[0])
        for name, originals in declared.items()
        if len(originals) == 1 and originals[0] != name.lower()
    }


def column_order(table: TableName, table_ddl: str | None) -> Sequence[str]:
    """Return the original names of the columns that `tableDDL` declares, in lower case and in its order."""
    for name, created in _tables(table_ddl).items():
        if name.table.lower() == table.table.lower() and name.database.lower() in ("", table.database.lower()):
            return tuple(created.columns)
    return ()


def originals_of_sanitized(table_ddl: str | None) -> dict[TableName, TableName]:
    """Map sanitized table names to the original ones, if they differ. A database may be ""."""
    return {
        short: name
        for short, name in ((_sanitized_table(name), name) for name in _tables(table_ddl))
        if short != name and len(_declared(short, table_ddl)) == 1
    }


def _sanitized_table(table: TableName) -> TableName:
    return TableName(sanitized(table.database), sanitized(table.table))


def _declared(table: TableName, table_ddl: str | None) -> frozenset[TableName]:
    """Return the tables with a sanitized name; `tableDDL` need not name a database."""
    by_name = _by_sanitized_name(table_ddl)
    return by_name.get(table.folded) or by_name.get(TableName("", table.folded.table)) or frozenset()


def _tables(table_ddl: str | None) -> Mapping[TableName, Create]:
    return declared_tables(table_ddl) if table_ddl else {}


@lru_cache(maxsize=64)
def _by_sanitized_name(table_ddl: str | None) -> Mapping[TableName, frozenset[TableName]]:
    by_name: dict[TableName, frozenset[TableName]] = {}
    for name in _tables(table_ddl):
        short = _sanitized_table(name).folded
        by_name[short] = by_name.get(short, frozenset()) | {name}
    return by_name


def _original(name: str, declared: str) -> str:
    """Restore the characters that TiCDC replaced; the others keep the sanitized name's case."""
    kept = name[-len(declared) :]  # without the `_` before a leading digit
    return "".join(old if _REPLACED.match(old) else new for old, new in zip(declared, kept, strict=True))


OP, COMMIT_TS, BEFORE = "_tidb_op", "_tidb_commit_ts", "_ticdc_before"
CHECKSUM, CORRUPTED = "_tidb_row_level_checksum", "_tidb_corrupted"
# The fields of `enable-tidb-extension` and of the checksum, with their Avro types. A column of a user has a type with
# `connect.parameters`, whatever its name is.
_OWN = {
    OP: "string",
    COMMIT_TS: "long",
    "_tidb_commit_physical_time": "long",
    CHECKSUM: "string",
    CORRUPTED: "boolean",
    "_tidb_checksum_version": "int",
}

# Messages leave open which integer, text or binary type it is; `tidb_type` has one word for each of these families.
_VAGUE = frozenset({"int", "text", "blob"})


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The content of a key's or value's schema.

    Attributes:
        own: TiCDC's own fields.
        renamed: column names by field name, where they differ.
    """

    schema: AvroSchema
    table: TableName
    columns: tuple[Column, ...]
    own: frozenset[str]
    renamed: Mapping[str, str]

    def row(self, fields: Row) -> Row:
        renamed = self.renamed
        return {renamed.get(name, name): cell for name, cell in fields.items()} if renamed else fields


@lru_cache(maxsize=4096)
def row_schema_of(settings: RegistrySettings, schema_id: SchemaId, table_ddl: str | None = None) -> RowSchema:
    """Interpret a schema of the registry.

    Raises:
        DecodeError: the schema is missing, or not TiCDC's.
        SchemaRegistryUnavailableError: as `schema_of`.
    """
    schema = schema_of(settings, schema_id)
    try:
        return _row_schema(schema, table_ddl)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DecodeError(f"schema {schema_id} is not one of TiCDC's avro protocol: {error!r:.100}") from None


def _row_schema(schema: AvroSchema, table_ddl: str | None) -> RowSchema:
    declared = schema.declared
    # Behind `<keyspace>.`; the names cannot have dots.
    database = str(declared["namespace"]).rpartition(".")[2]
    fields: Sequence[Mapping[str, Any]] = declared["fields"]
    own = frozenset(field["name"] for field in fields if _is_own(field))
    table = original_table(TableName(database, declared["name"]), table_ddl)
    columns = tuple(_column(field) for field in fields if field["name"] not in own)
    renamed = original_columns(table, [column.name for column in columns], table_ddl)
    columns = tuple(replace(column, name=renamed.get(column.name, column.name)) for column in columns)
    return RowSchema(schema, table, columns, own, renamed)


def _is_own(field: Mapping[str, Any]) -> bool:
    name, type_ = field["name"], field["type"]
    if name == BEFORE:
        return isinstance(type_, list) and any(isinstance(each, dict) and each["type"] == "record" for each in type_)
    return name in _OWN and type_ == _OWN[name]


def _column(field: Mapping[str, Any]) -> Column:
    type_ = type_of_field(field)
    parameters = type_["connect.parameters"]
    said = parse_type(parameters["tidb_type"])
    if said.name not in TYPES:
        raise KeyError(said.name)
    return Column(
        field["name"],
        _exact(said, type_, parameters),
        wire=type_["type"],
        vague=said.name in _VAGUE,
        facts=ColumnFacts(nullable="null" in field["type"]),
    )


def _exact(type_: ColumnType, avro: Mapping[str, Any], parameters: Mapping[str, str]) -> ColumnType:
    match type_.name:
        case "decimal" if "precision" in avro:
            precision, scale = avro["precision"], avro.get("scale", 0)
            if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision:
                raise ValueError(f"a decimal with precision {precision!r} and scale {scale!r}")
            return ColumnType("decimal", length=precision, scale=scale)
        case "bit":
            return ColumnType("bit", length=int(parameters["length"]))
        case "enum" | "set":
            return ColumnType(type_.name, labels=labels_of(parameters["allowed"]))
        case _:
            return type_


# The template of rows, made of their schema.
_TYPES = {
    "boolean": AvroType.BOOLEAN,
    "int": AvroType.LONG,
    "long": AvroType.LONG,
    "float": AvroType.FLOAT,
    "double": AvroType.DOUBLE,
    "bytes": AvroType.BYTES,
    "string": AvroType.STRING,
}
# Texts of one letter. With avro-include-before-value, a delete also has its row as the old row.
_OPERATION = Branch([Way(b"\x02c", [INSERT]), Way(b"\x02u", [UPDATE]), Way(b"\x02d", [DELETE, Forget(Image.PREIMAGE)])])


def template_of(header: bytes, schema: RowSchema) -> Template | None:
    """Return the template of a schema's rows; None if TiCDC writes no such schema."""
    fields: Sequence[Mapping[str, Any]] = schema.schema.declared["fields"]
    count = len(schema.columns)
    row = [_field(field["type"]) for field in fields[:count]]
    if None in row or not schema.own.issuperset(field["name"] for field in fields[count:]):
        return None
    columns = [field for field in row if field is not None]
    steps: list[Step] = [Const(header), AvroRow(Image.MAIN, columns)]
    is_known = False  # the operation
    for field in fields[count:]:
        if field["name"] == OP:
            steps.append(_OPERATION)
            is_known = True
        elif field["name"] == COMMIT_TS:
            steps.append(AvroNumber(Slot.COMMIT_TS, MOST_TSO))
        elif field["name"] != BEFORE:
            steps.append(AvroSkip(_TYPES[field["type"]]))
        elif _is_same_row(field["type"], fields[:count]):
            old: list[Step] = [AvroRow(Image.PREIMAGE, columns)]
            inserted, updated = ([], old) if is_known else ([INSERT], [UPDATE, *old])
            steps.append(Branch([Way(b"\x00", inserted), Way(b"\x02", updated)]))
            is_known = True
        else:
            return None
    if not is_known:
        steps.append(INSERT)
    return Template(identity=header, program=lambda _: Program(steps, heads=(), tail=b"", partial=False))


def _is_same_row(branches: Sequence[Any], columns: Sequence[Mapping[str, Any]]) -> bool:
    if len(branches) != 2 or branches[0] != "null":  # noqa: PLR2004 (null, and the record)
        return False
    old = [(field["name"], field["type"]) for field in branches[1]["fields"]]
    return old == [(field["name"], field["type"]) for field in columns]


def _field(declared: object) -> AvroField | None:
    """Return a column's field; None unless its type is one of `_TYPES`, or a union of one with null."""
    branches = declared if isinstance(declared, list) else [declared]
    names = [each["type"] if isinstance(each, dict) else each for each in branches]
    types = [_TYPES[name] for name in names if name in _TYPES]
    if len(types) != 1 or AvroType.BOOLEAN in types or len(names) - names.count("null") != 1 or len(names) > 2:  # noqa: PLR2004
        return None
    return AvroField(types[0], names.index("null") if "null" in names else None)
