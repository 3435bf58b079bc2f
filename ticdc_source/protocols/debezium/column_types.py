"""debezium's types: Kafka Connect schemas, `tidb_type` and `tableChanges` → MySQL types and how they are written.

For what only native Debezium writes, see "Data type mappings" in the documentation of Debezium's MySQL connector
(debezium/debezium documentation/modules/ROOT/partials/modules/all-connectors/shared-mariadb-mysql.adoc; docs/wire.md,
items 86 to 91). Its settings `decimal.handling.mode`, `bigint.unsigned.handling.mode`, `binary.handling.mode` and
`time.precision.mode` choose among several forms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from ticdc_source.kernels import strings
from ticdc_source.kernels.wire import NO_CAST, Cell, Kernel, Settings, Wire, no_number_cast
from ticdc_source.protocols.debezium.kernels import DATETIME, DECIMAL_NUMBER, KERNELS, TIME
from ticdc_source.protocols.messages import JSONObject, readable, text, whole_number
from ticdc_source.protocols.registry_framing import labels_of
from ticdc_source.schema.ddl_event import Moment
from ticdc_source.schema.json_text import loads
from ticdc_source.schema.model import NO_FACTS, Column, ColumnFacts, ReadField, TypeVersions
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import (
    BIGINT_UNSIGNED,
    BINARIES,
    DECIMAL_MAX,
    TEXTS,
    ColumnType,
    declared_type,
    parse_type,
    type_of,
)

DECIMAL = "org.apache.kafka.connect.data.Decimal"
_MOST_DIGITS = 65  # of MySQL's DECIMAL

# A string of native Debezium: text, a decimal with decimal.handling.mode=string, or a binary. Whether the binary is
# base64, base64-url-safe or hex (binary.handling.mode) is unknown, so it stays text.
NATIVE_STRING = "string of native Debezium"


class ConnectType(NamedTuple):
    """A type of a Connect schema.

    Attributes:
        behind: the possible MySQL types, the likely one first. `tidb_type` or `tableChanges` may say which.
        wire: returns how it is written, given the type in the message; None if `KERNELS` has it.
        fraction: the digits of fraction in a DATETIME's unit.
    """

    behind: tuple[str, ...]
    wire: Callable[[ColumnType], Wire] | None = None
    fraction: int | None = None


def _through(wire: Wire, change: Callable[[Cell], Cell]) -> Wire:
    """Return the wire form of cells that `change` turns into cells of `wire`."""

    def made(maker: Callable[[ColumnType, Settings], Kernel]) -> Callable[[ColumnType, Settings], Kernel]:
        def make(type_: ColumnType, settings: Settings) -> Kernel:
            run = maker(type_, settings)
            return lambda cells: run([None if cell is None else change(cell) for cell in cells])

        return make

    return replace(
        wire,
        natural=made(wire.natural),
        text=made(wire.text),
        number=None if wire.number is None else made(wire.number),
        raw=None if wire.raw is None else made(wire.raw),
        arrays=None,
        cast=NO_CAST,
        number_cast=no_number_cast,
        text_cast=None,
    )


def _times(factor: int) -> Callable[[Cell], Cell]:
    """Convert numbers to another unit; other cells stay as they are, for the kernel to refuse."""

    def change(cell: Cell) -> Cell:
        return cell * factor if type(cell) is int else cell

    return change


def _thousandth(cell: Cell) -> Cell:
    """Convert nanoseconds to microseconds, MySQL's finest unit."""
    return cell // 1000 if type(cell) is int else cell


def _decimal(type_: ColumnType) -> Wire:
    """Connect's Decimal: base64 of the unscaled number (big-endian two's complement), with the scale in the schema.

    The converter's decimal.format=NUMERIC writes a number instead.
    """
    scale = type_.scale or 0

    def text(cell: Cell) -> Cell:
        if type(cell) is not str:
            return cell
        if not 0 <= scale <= _MOST_DIGITS:
            raise ValueError(f"a decimal of scale {scale}, which MySQL does not have")
        digits = str(int.from_bytes(strings.base64_bytes(cell), "big", signed=True))
        sign, digits = ("-", digits[1:]) if digits[0] == "-" else ("", digits)
        digits = digits.rjust(scale + 1, "0")
        return f"{sign}{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}" if scale else sign + digits

    return _through(DECIMAL_NUMBER, text)


def decimal_type(field: JSONObject) -> ColumnType:
    """Return the type behind Connect's Decimal.

    Debezium writes a DECIMAL's precision. A field of scale 0 without one is a BIGINT UNSIGNED with
    bigint.unsigned.handling.mode=precise.
    """
    parameters = field.get("parameters") or {}
    precision, scale = parameters.get("connect.decimal.precision"), int(parameters.get("scale", 0))
    if precision is None:
        precision = DECIMAL_MAX if scale else BIGINT_UNSIGNED.precision
    return ColumnType("decimal", length=int(precision), scale=scale)


def wire_name(field: JSONObject, *, native: bool) -> str:
    """Return the key of a field's type in `CONNECT_TYPES`: its semantic name, or else its literal type."""
    name, literal = field.get("name"), field["type"]
    if name == _TIME and literal == "int64":
        return _MICROSECONDS
    return str(name or (NATIVE_STRING if native and literal == "string" else literal))


def _numbers_in_text(cell: Cell) -> Cell:
    return json.dumps(cell) if type(cell) is list else cell


# Kafka Connect's own Time has 32 bits and milliseconds. Debezium's documentation says 64 bits and microseconds.
_TIME = "org.apache.kafka.connect.data.Time"
_MICROSECONDS = f"{_TIME} int64"
_MILLISECOND_TIME = _through(TIME, _times(1000))

_MICRO_TIMESTAMP = "io.debezium.time.MicroTimestamp"
_STRINGS = (*TEXTS, *BINARIES)
CONNECT_TYPES: dict[str, ConnectType] = {
    "int8": ConnectType(("tinyint",)),
    "int16": ConnectType(("smallint", "tinyint")),
    "int32": ConnectType(("int", "mediumint", "smallint")),
    "int64": ConnectType(("bigint", "int")),
    "float": ConnectType(("float",)),
    "double": ConnectType(("double", "decimal", "float")),
    "boolean": ConnectType(("bit",)),
    # Numbers are text with decimal-handling-mode=string and bigint-unsigned-handling-mode=string (docs/wire.md, item
    # 85). Native Debezium has modes with these names.
    "string": ConnectType(("varchar", *_STRINGS, "decimal", "bigint")),
    NATIVE_STRING: ConnectType(("varchar", *TEXTS, "decimal")),
    "bytes": ConnectType(("varbinary", *_STRINGS)),
    DECIMAL: ConnectType(("decimal",), _decimal),
    "io.debezium.data.Bits": ConnectType(("bit",)),
    "io.debezium.time.Date": ConnectType(("date",)),
    "org.apache.kafka.connect.data.Date": ConnectType(("date",)),
    "io.debezium.time.Timestamp": ConnectType(("datetime",), fraction=3),
    "org.apache.kafka.connect.data.Timestamp": ConnectType(("datetime",), fraction=3),
    _MICRO_TIMESTAMP: ConnectType(("datetime",), fraction=6),
    "io.debezium.time.NanoTimestamp": ConnectType(("datetime",), lambda _: _through(DATETIME, _thousandth), 6),
    "io.debezium.time.ZonedTimestamp": ConnectType(("timestamp",)),
    _TIME: ConnectType(("time",), lambda _: _MILLISECOND_TIME),
    _MICROSECONDS: ConnectType(("time",)),
    "io.debezium.time.Time": ConnectType(("time",), lambda _: _MILLISECOND_TIME),
    "io.debezium.time.MicroTime": ConnectType(("time",)),
    "io.debezium.time.NanoTime": ConnectType(("time",), lambda _: _through(TIME, _thousandth)),
    "io.debezium.time.Year": ConnectType(("year",)),
    "io.debezium.data.Enum": ConnectType(("enum",)),
    "io.debezium.data.EnumSet": ConnectType(("set",)),
    "io.debezium.data.Json": ConnectType(("json",)),
    "io.debezium.data.TiDBVectorFloat32": ConnectType(("vector",)),
    "io.debezium.data.FloatVector": ConnectType(("vector",), lambda _: _through(strings.VECTOR_TEXT, _numbers_in_text)),
}
# Types whose defaults in a schema look as in MySQL.
_PLAIN_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})
_PLAIN_TEXTS = frozenset({"char", "varchar", "enum", "set"})
_2_53 = 1 << 53
_BETWEEN_LABELS = re.compile(r"'\s*,\s*'")


def wire_column(name: str, field: JSONObject | None, *, native: bool = False) -> Column:
    """Return the column that a field of the schema describes."""
    if field is None:
        return Column(name)
    column = _typed_column(name, field, native=native)
    return replace(column, facts=_field_facts(field, column))


def _field_facts(field: JSONObject, column: Column) -> ColumnFacts:
    """Return what a field of the schema says beside the type.

    Its default is a wire value, such as a DATE's number of days, or a double for a large BIGINT UNSIGNED. It is used
    only if MySQL writes it in the same way.
    """
    optional, default = field.get("optional"), field.get("default")
    type_name = "" if column.type is None else column.type.name
    exact = (type(default) is int and abs(default) < _2_53 and type_name in _PLAIN_NUMBERS) or (
        type(default) is str and type_name in _PLAIN_TEXTS and not column.vague
    )
    return ColumnFacts(
        nullable=optional if type(optional) is bool else None, default=readable(default) if exact else None
    )


def _typed_column(name: str, field: JSONObject, *, native: bool) -> Column:
    wire = wire_name(field, native=native)
    if wire not in CONNECT_TYPES:
        return Column(name, ColumnType(text(wire)), wire=wire)
    behind, _, fraction = CONNECT_TYPES[wire]
    type_ = ColumnType(behind[0])
    exact = field.get("tidb_type")
    if exact and (wire == "string" or not parse_type(exact).is_unspecified):
        type_ = parse_type(exact)
    else:  # a DECIMAL, of which `tidb_type` never has the precision
        exact = None
    parameters = field.get("parameters") or {}
    if wire == DECIMAL:
        type_ = decimal_type(field)
    elif fraction is not None:
        type_ = replace(type_, length=fraction)
    elif wire == "io.debezium.data.Bits":
        type_ = replace(type_, length=int(parameters["length"]) if "length" in parameters else None)
    elif wire == "boolean":
        type_ = replace(type_, length=1)
    elif type_.name in ("enum", "set") and "allowed" not in parameters:
        type_ = ColumnType("varchar")  # values are labels as text, and nothing lists them
    elif type_.name == "enum":
        type_ = replace(type_, labels=labels_of(text(parameters["allowed"])))
    elif type_.name == "set":
        type_ = replace(type_, labels=tuple(text(parameters["allowed"]).split(",")))
    return Column(name, type_, wire=wire, vague=not exact and len(behind) > 1)


def declared_facts(changes: Sequence[JSONObject] | None, table: TableName) -> dict[str, ColumnFacts]:
    """Return what a DDL event's `tableChanges` say about columns beside their types, by lower-case name.

    `generated` is ignored: it is true for columns that TiDB sets itself, and false for generated columns (docs/wire.md,
    item 111).
    """
    described = _described_table(changes, table)
    keys = described.get("primaryKeyColumnNames")
    facts = {}
    for column in described.get("columns") or ():
        name, optional, comment = column["name"], column.get("optional"), column.get("comment")
        facts[name.lower()] = ColumnFacts(
            primary_key=name in keys if type(keys) is list else None,
            nullable=optional if type(optional) is bool else None,
            default=_declared_default(column),
            comment=readable(comment) if type(comment) is str and comment else None,
        )
    return facts


def _declared_default(column: JSONObject) -> str | None:
    """Return a default if it is surely right: CURRENT_TIMESTAMP is sent as the epoch, bits as decimal digits."""
    default, type_ = column.get("defaultValueExpression"), parse_type(column["typeName"])
    if type(default) is not str or type_.name == "bit" or type_.family == "binary":
        return None
    if type_.name in ("datetime", "timestamp") and default.startswith("1970-01-01 00:00:00"):
        return None
    return readable(default)


def declared_columns(changes: Sequence[JSONObject] | None, table: TableName) -> dict[str, ColumnType]:
    columns = _described_table(changes, table).get("columns") or ()
    return {column["name"].lower(): _declared_type(column) for column in columns}


def _described_table(changes: Sequence[JSONObject] | None, table: TableName) -> JSONObject:
    for change in changes or ():
        described: JSONObject | None = change.get("table")
        if described and _names(change.get("id") or "", table):
            return described
    return {}


def _names(identity: str, table: TableName) -> bool:
    """Whether the `id` of a change names this table.

    TiCDC does not escape quotes in it, native Debezium doubles them. RENAME TABLE has both names (docs/wire.md, items
    84 and 91).
    """
    identity = identity.lower()
    plain = f'"{table.database}"."{table.table}"'.lower()
    doubled = ".".join('"' + part.replace('"', '""') + '"' for part in table.folded)
    return any(identity == name or identity.endswith(f",{name}") for name in (plain, doubled))


def _declared_type(column: JSONObject) -> ColumnType:
    type_ = parse_type(column["typeName"])
    length, scale = (whole_number(column.get(member)) for member in ("length", "scale"))
    if type_.name == "float" and length is not None and scale is None:  # its binary digits
        return replace(parse_type(f"float({length})"), unsigned=type_.unsigned)
    labels = _declared_labels(column.get("enumValues")) if type_.family in ("enum", "set") else None
    return declared_type(type_, length=length, scale=scale, fraction=length, labels=labels)


def _declared_labels(declared: object) -> tuple[str, ...]:
    """Return the labels of an ENUM or a SET, given a list, or the text `['e1', 'e2']` (docs/wire.md, item 84).

    In that text, quotes in labels may not be doubled; then `','` ends a label.
    """
    if not declared:
        return ()
    if isinstance(declared, str):
        try:
            declared = loads(declared)  # the text of a JSON list
        except ValueError:
            return _labels_in_text(text(declared).strip())
    if not isinstance(declared, list):
        raise TypeError(f"labels {declared!r:.40}")
    return tuple(_bare_label(text(label)) for label in declared)


def _labels_in_text(listed: str) -> tuple[str, ...]:
    if listed[:1] == "[" and listed[-1:] == "]":
        listed = listed[1:-1].strip()
    if len(listed) < 2 or not listed[0] == listed[-1] == "'":  # noqa: PLR2004 (two quotes)
        raise ValueError(f"labels {listed!r:.40}")
    try:
        return parse_type(f"enum({listed})").labels or ()
    except ValueError:  # quotes within a label are not doubled
        return tuple(_BETWEEN_LABELS.split(listed[1:-1]))


def _bare_label(label: str) -> str:
    return label[1:-1] if len(label) > 1 and label[0] == label[-1] == "'" else label


def type_versions(changes: Sequence[tuple[Moment, Mapping[str, ColumnType]]]) -> dict[str, TypeVersions]:
    versions: dict[str, list[tuple[Moment, ColumnType]]] = {}
    for start, columns in changes:
        for name, type_ in columns.items():
            earlier = versions.setdefault(name, [])
            if not earlier or earlier[-1][1] != type_:
                earlier.append((start, type_))
    return {name: tuple(types) for name, types in versions.items()}


def described_columns(
    columns: Sequence[Column],
    versions: Mapping[str, TypeVersions],
    facts: Mapping[str, ColumnFacts],
    first: Moment,
    keys: frozenset[str],
) -> tuple[Column, ...]:
    """Complete the columns of messages by DDL's declarations, unless messages contradict them.

    Args:
        versions, facts: the declarations, by lower-case column name.
        first: the moment of the first message with these columns.
    """
    out = []
    for column in columns:
        declared = versions.get(column.name.lower(), ())
        before = [type_ for start, type_ in declared if start < first] or [type_ for _, type_ in declared[:1]]
        type_ = _decided(column, before[-1]) if before else column.type
        vague = column.vague and not before
        key = column.name in keys
        said = ColumnFacts(handle_key=key if keys else None, nullable=column.facts.nullable)
        said = said.or_else(facts.get(column.name.lower(), NO_FACTS)).or_else(column.facts)
        out.append(replace(column, type=type_, key=key, versions=declared, vague=vague, facts=said))
    return tuple(out)


def _decided(column: Column, exact: ColumnType) -> ColumnType:
    """Return the declared type if the type in the messages allows it; else the latter."""
    if column.type is None:
        return exact
    connect = CONNECT_TYPES.get(column.wire)
    if connect is None or exact.name not in connect.behind:
        return column.type
    if not column.vague and exact.name != column.type.name:  # the message has a `tidb_type`
        return column.type
    if connect.fraction is not None and ((exact.length or 0) > 3) != (column.wire == _MICRO_TIMESTAMP):  # noqa: PLR2004
        return column.type
    return exact


def wire_of(column: Column, read_field: ReadField) -> tuple[Wire | None, ColumnType]:
    """Choose how to read a column: by its type in the message, or the declared type if the message allows it."""
    declared = read_field.type_since(column.since)
    if column.type is None and declared is None and read_field.arrow == pa.string():
        return None, ColumnType("json")  # nothing says a type: it is read as JSON text
    if column.type is None:
        type_ = declared or type_of(read_field.arrow)
    else:
        type_ = _decided(column, declared) if declared is not None else column.type
    if column.vague and read_field.arrow == pa.binary() and type_.family == "text" and column.wire != NATIVE_STRING:
        return strings.BASE64_BINARY, ColumnType("varbinary")
    if column.may_be_decimal and pa.types.is_decimal(read_field.arrow):
        return KERNELS["decimal"], type_of(read_field.arrow)
    connect = CONNECT_TYPES.get(column.wire)
    if connect is not None and connect.wire is not None and column.type is not None:
        return connect.wire(column.type), column.type if column.wire == DECIMAL else type_
    return KERNELS.get(type_.name), type_
