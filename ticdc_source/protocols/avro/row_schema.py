"""A schema of the registry → the table, its columns, and which fields are TiCDC's own.

Source: pingcap/ticdc pkg/sink/codec/avro/arvo.go, `value2AvroSchema`, `columnToAvroSchema` (docs/wire.md, items 122
to 124).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ticdc_source.errors import DecodeError
from ticdc_source.options.registry import RegistrySettings
from ticdc_source.protocols.avro.names import original_columns, original_table
from ticdc_source.protocols.images import Row
from ticdc_source.protocols.registry_framing import AvroSchema, schema_of
from ticdc_source.schema.model import Column, ColumnFacts
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import ColumnType
from ticdc_source.sources.registries.lookup import SchemaId

__all__ = ["BEFORE", "CHECKSUM", "COMMIT_TS", "CORRUPTED", "OP", "RowSchema", "row_schema_of"]

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

# What `tidb_type` says → the MySQL type, and whether messages leave open which one of its family it is.
_TYPES: Mapping[str, tuple[str, bool]] = {
    "INT": ("int", True),
    "BIGINT": ("bigint", False),
    "FLOAT": ("float", False),
    "DOUBLE": ("double", False),
    "DECIMAL": ("decimal", False),
    "BIT": ("bit", False),
    "TEXT": ("text", True),
    "BLOB": ("blob", True),
    "ENUM": ("enum", False),
    "SET": ("set", False),
    "DATE": ("date", False),
    "DATETIME": ("datetime", False),
    "TIMESTAMP": ("timestamp", False),
    "TIME": ("time", False),
    "YEAR": ("year", False),
    "JSON": ("json", False),
    "TiDBVECTORFloat32": ("vector", False),
}
_UNSIGNED = " UNSIGNED"


@dataclass(frozen=True, slots=True)
class RowSchema:
    """What the schema of a key or a value says.

    Attributes:
        schema: the schema.
        table: the table.
        columns: the columns, in the order of the fields.
        own: the names of TiCDC's own fields.
        renamed: the names of columns by those of their fields, where they differ.
    """

    schema: AvroSchema
    table: TableName
    columns: tuple[Column, ...]
    own: frozenset[str]
    renamed: Mapping[str, str]

    def row(self, fields: Row) -> Row:
        """Return the cells of a row by column."""
        renamed = self.renamed
        return {renamed.get(name, name): cell for name, cell in fields.items()} if renamed else fields


@lru_cache(maxsize=4096)
def row_schema_of(settings: RegistrySettings, schema_id: SchemaId, table_ddl: str | None = None) -> RowSchema:
    """Return what the schema says that an id names.

    Args:
        settings: where the schema is.
        schema_id: the id.
        table_ddl: the option `tableDDL`, which may know names that Avro cannot spell.

    Raises:
        DecodeError: the registry has no such schema, or TiCDC did not make it.
        SchemaRegistryUnavailableError: as `schema_of`.
    """
    schema = schema_of(settings, schema_id)
    try:
        return _row_schema(schema, table_ddl)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        msg = f"schema {schema_id} is none of TiCDC's avro protocol: {error!r:.100}"
        raise DecodeError(msg) from None


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
    branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
    (type_,) = [each for each in branches if each != "null"]
    parameters = type_["connect.parameters"]
    said = parameters["tidb_type"]
    name, is_vague = _TYPES[said.removesuffix(_UNSIGNED)]
    return Column(
        field["name"],
        _exact(ColumnType(name, unsigned=said.endswith(_UNSIGNED)), type_, parameters),
        wire=type_["type"],
        vague=is_vague,
        facts=ColumnFacts(nullable="null" in branches),
    )


def _exact(type_: ColumnType, avro: Mapping[str, Any], parameters: Mapping[str, str]) -> ColumnType:
    """Return a type with what its field says beside its name."""
    match type_.name:
        case "decimal" if "precision" in avro:
            precision, scale = avro["precision"], avro.get("scale", 0)
            if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision:
                msg = f"a decimal of precision {precision!r} and scale {scale!r}"
                raise ValueError(msg)
            return ColumnType("decimal", length=precision, scale=scale)
        case "bit":
            return ColumnType("bit", length=int(parameters["length"]))
        case "enum" | "set":
            return ColumnType(type_.name, labels=_labels(parameters["allowed"]))
        case _:
            return type_


def _labels(allowed: str) -> tuple[str, ...]:
    r"""Return the labels, of which commas are written `\,` (docs/wire.md, item 123)."""
    labels, label, escaped = [], "", False
    for character in allowed:
        if character == "," and not escaped:
            labels.append(label)
            label = ""
        elif character == "," and escaped:
            label = f"{label[:-1]},"
        else:
            label += character
        escaped = character == "\\"
    return (*labels, label)
