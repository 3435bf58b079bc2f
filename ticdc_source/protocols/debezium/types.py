"""debezium's types: from Kafka Connect schemas, `tidb_type` and `tableChanges` to MySQL types and kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ticdc_source.events import TableName
from ticdc_source.kernels import Wire, strings
from ticdc_source.protocols.debezium.kernels import KERNELS
from ticdc_source.protocols.debezium.native import DECIMAL, NATIVE, NATIVE_STRING, decimal_type, wire_name
from ticdc_source.protocols.messages import text
from ticdc_source.schema.model import Column, ReadField, TypeVersions
from ticdc_source.schema.types import TYPES, ColumnType, parse_type, type_of

__all__ = ["declared_columns", "described_columns", "type_versions", "wire_column", "wire_of"]


# A Connect schema's type or semantic name → the MySQL type that stands for it, and all that may be behind it:
# what the schema leaves open, tidb_type or tableChanges may decide.
_INTEGERS = {
    "int8": ("tinyint",),
    "int16": ("smallint", "tinyint"),
    "int32": ("int", "mediumint", "smallint"),
    "int64": ("bigint", "int"),
}
_STRINGS = tuple(name for name, row in TYPES.items() if row.family in ("text", "binary"))
_BEHIND: dict[str, tuple[str, ...]] = {
    **_INTEGERS,
    "float": ("float",),
    "double": ("double", "decimal", "float"),
    "boolean": ("bit",),
    # As text: decimal-handling-mode=string, bigint-unsigned-handling-mode=string (TiCDC's newest, pingcap/ticdc
    # pkg/sink/codec/common/config_test.go; native Debezium has modes of these names).
    "string": ("varchar", *_STRINGS, "decimal", "bigint"),
    "bytes": ("varbinary", *_STRINGS),
    "io.debezium.data.Bits": ("bit",),
    "io.debezium.time.Date": ("date",),
    "io.debezium.time.Timestamp": ("datetime",),
    "io.debezium.time.MicroTimestamp": ("datetime",),
    "io.debezium.time.ZonedTimestamp": ("timestamp",),
    "io.debezium.time.MicroTime": ("time",),
    "io.debezium.time.Year": ("year",),
    "io.debezium.data.Enum": ("enum",),
    "io.debezium.data.EnumSet": ("set",),
    "io.debezium.data.Json": ("json",),
    "io.debezium.data.TiDBVectorFloat32": ("vector",),
    NATIVE_STRING: ("varchar", *(name for name in _STRINGS if TYPES[name].family == "text"), "decimal"),
    **{name: native.behind for name, native in NATIVE.items()},
}
# Digits of fraction that tell milliseconds from microseconds; the schema's name decides for each message.
_FRACTION = {
    "io.debezium.time.Timestamp": 3,
    "io.debezium.time.MicroTimestamp": 6,
    **{name: native.fraction for name, native in NATIVE.items() if native.fraction is not None},
}
_ENUM_COMMA = re.compile(r"(?<!\\),")


def wire_column(name: str, field: Mapping[str, Any] | None, *, native: bool = False) -> Column:
    """Make the column that a schema's field describes; without a field, only its name is known.

    `native` says that Debezium itself wrote the message: a string of its is never taken for base64.
    """
    if field is None:
        return Column(name)
    wire = wire_name(field, native=native)
    if wire not in _BEHIND:
        return Column(name, ColumnType(text(wire)), wire=wire)
    type_ = ColumnType(_BEHIND[wire][0])
    exact = field.get("tidb_type")
    if exact and (wire == "string" or not parse_type(exact).is_unspecified):
        type_ = parse_type(exact)
    else:  # a double: of a DECIMAL tidb_type never has the precision, only DDL has
        exact = None
    parameters = field.get("parameters") or {}
    if wire in NATIVE:
        type_ = decimal_type(field) if wire == DECIMAL else replace(type_, length=_FRACTION.get(wire))
        return Column(name, type_, wire=wire)
    if wire in _FRACTION:
        type_ = replace(type_, length=_FRACTION[wire])
    elif wire == "io.debezium.data.Bits":
        type_ = replace(type_, length=int(parameters["length"]) if "length" in parameters else None)
    elif wire == "boolean":
        type_ = replace(type_, length=1)
    elif type_.name in ("enum", "set") and "allowed" not in parameters:
        type_ = ColumnType("varchar")  # the labels come as text, and nothing says which there are
    elif type_.name == "enum":
        allowed = text(parameters.get("allowed", ""))
        labels = tuple(label.replace("\\,", ",") for label in _ENUM_COMMA.split(allowed))
        type_ = replace(type_, labels=labels)
    elif type_.name == "set":
        type_ = replace(type_, labels=tuple(text(parameters.get("allowed", "")).split(",")))
    return Column(name, type_, wire=wire, vague=not exact and len(_BEHIND[wire]) > 1)


def declared_columns(changes: Sequence[Mapping[str, Any]] | None, table: TableName) -> dict[str, ColumnType]:
    """Return the columns, by lower-case name, that a DDL event's `tableChanges` declares for a table."""
    for change in changes or ():
        described = change.get("table")
        if described and _names(change.get("id") or "", table):
            return {column["name"].lower(): _declared_type(column) for column in described.get("columns") or ()}
    return {}


def _names(identity: str, table: TableName) -> bool:
    """Tell whether a change is of this table: TiCDC does not escape quotes in its id, native Debezium doubles them.

    A RENAME's id names the old table, then the new.
    """
    plain = f'"{table.database}"."{table.table}"'
    doubled = ".".join('"' + part.replace('"', '""') + '"' for part in table)
    return any(identity == name or identity.endswith(f",{name}") for name in (plain, doubled))


def _declared_type(column: Mapping[str, Any]) -> ColumnType:
    type_ = parse_type(column["typeName"])
    length, scale = column.get("length"), column.get("scale")
    match type_.name:
        case "enum" | "set":
            labels = tuple(_bare_label(text(label)) for label in column.get("enumValues") or ())
            return replace(type_, labels=labels)
        case "decimal":
            return replace(type_, length=length if length is not None else 10, scale=scale or 0)
        case "bit":
            return replace(type_, length=length or 1)
        case "datetime" | "timestamp" | "time":
            return replace(type_, length=length or 0)
        case "tinyint":
            return replace(type_, length=1 if length == 1 and not type_.unsigned else None)
        case name if TYPES.get(name) and TYPES[name].family in ("text", "binary", "vector"):
            return replace(type_, length=length)
        case _:
            return type_


def _bare_label(label: str) -> str:
    """Take a label out of its quotes; TiCDC leaves quotes inside as they are."""
    return label[1:-1] if len(label) > 1 and label[0] == label[-1] == "'" else label


def type_versions(changes: Sequence[tuple[int, Mapping[str, ColumnType]]]) -> dict[str, TypeVersions]:
    """Return, by lower-case name, the types that DDL events (commit_ts, columns; oldest first) gave each column."""
    versions: dict[str, list[tuple[int, ColumnType]]] = {}
    for start, columns in changes:
        for name, type_ in columns.items():
            known = versions.setdefault(name, [])
            if not known or known[-1][1] != type_:
                known.append((start, type_))
    return {name: tuple(known) for name, known in versions.items()}


def described_columns(
    columns: Sequence[Column], versions: Mapping[str, TypeVersions], commit_ts: int, keys: frozenset[str]
) -> tuple[Column, ...]:
    """Complete what messages say of columns at `commit_ts` by what DDL declared, unless they contradict it."""
    out = []
    for column in columns:
        declared = versions.get(column.name.lower(), ())
        before = [type_ for start, type_ in declared if start < commit_ts] or [type_ for _, type_ in declared[:1]]
        type_ = _decided(column, before[-1]) if before else column.type
        vague = column.vague and not before
        out.append(replace(column, type=type_, key=column.name in keys, versions=declared, vague=vague))
    return tuple(out)


def _decided(column: Column, exact: ColumnType) -> ColumnType:
    """Return `exact` if the messages' own type leaves room for it, else that."""
    if column.type is None:
        return exact
    if exact.name not in _BEHIND.get(column.wire, ()):
        return column.type
    if not column.vague and exact.name != column.type.name:  # the message's own tidb_type stands
        return column.type
    if column.wire in _FRACTION and ((exact.length or 0) > 3) != (column.wire == "io.debezium.time.MicroTimestamp"):  # noqa: PLR2004
        return column.type
    return exact


def wire_of(column: Column, wanted: ReadField) -> tuple[Wire | None, ColumnType]:
    """Choose kernel and type: what the message says, decided by what inference knows."""
    known = wanted.type_since(column.since)
    if column.type is None and known is None and wanted.arrow == pa.string():
        return None, ColumnType("json")  # nothing tells a type: its JSON as text
    if column.type is None:
        type_ = known or type_of(wanted.arrow)
    else:
        type_ = _decided(column, known) if known is not None else column.type
    if column.vague and wanted.arrow == pa.binary() and type_.family == "text" and column.wire != NATIVE_STRING:
        return strings.BASE64_BINARY, ColumnType("varbinary")
    native = NATIVE.get(column.wire)
    if native is not None and native.wire is not None and column.type is not None:
        return native.wire(column.type), column.type if column.wire == DECIMAL else type_
    return KERNELS.get(type_.name), type_
