"""Types in Spark's DDL → Arrow types: the options `schemaHints` and `unspecifiedDecimal`.

The parser is our own because `StructType.fromDDL` needs a JVM session, which `DataSource.schema()` does not have.
"""

from __future__ import annotations

import re

import pyarrow as pa

from ticdc_source.errors import OptionError
from ticdc_source.options.parsers import split_names, unquote_name
from ticdc_source.schema.table_name import expression_name
from ticdc_source.schema.types import DECIMAL_MAX, FLOATS, TIME, TIMESTAMP, TIMESTAMP_NTZ, VARIANT

_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "interval day to second": TIME,
    "interval hour to second": TIME,
    "array<float>": FLOATS,
    "decimal": pa.decimal128(10, 0),
    "dec": pa.decimal128(10, 0),
    "numeric": pa.decimal128(10, 0),
}
_DECIMAL = re.compile(r"^(?:decimal|dec|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)$")
_COMMENT = re.compile(r"""\s+comment\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", re.IGNORECASE)
_HINT = re.compile(r"^(`(?:[^`]|``)+`|[^\s:`]+)\s*(?::|\s)\s*(.+?)(?:\s+not\s+null)?$", re.IGNORECASE | re.DOTALL)


def parse_hint_type(text: str, option: str, column: str | None = None) -> pa.DataType:
    """Parse a type of Spark's DDL.

    Raises:
        OptionError: The text is not a type, or no TiDB column can be read as this type.
    """
    where = f"Option '{option}':" + ("" if column is None else f" column {column}:")
    name = " ".join(text.lower().split())
    name = re.sub(r"\s*([<>])\s*", r"\1", name)
    match = _DECIMAL.match(name)
    if match:
        precision, scale = int(match[1]), int(match[2] or 0)
        if not 0 < precision <= DECIMAL_MAX or scale > precision:
            raise OptionError(
                f"{where} {text.strip()} is not a Spark decimal (at most {DECIMAL_MAX} digits); decimal(10,2) has ten "
                "digits, two of them after the point"
            )
        return pa.decimal128(precision, scale)
    arrow = _TYPES.get(name)
    if arrow is None:
        raise OptionError(f"{where} unknown type {text.strip()!r}; known types are decimal(p,s), {', '.join(_TYPES)}")
    return arrow


def parse_hints(text: str) -> dict[str, pa.DataType]:
    """Parse hints such as `amount decimal(10,2), flag boolean`; return types by lower-case column name.

    Raises:
        OptionError: The text is not a list of names and types.
    """
    hints: dict[str, pa.DataType] = {}
    try:
        items = split_names(_COMMENT.sub("", text), keep_brackets=True)
    except ValueError as error:
        raise OptionError(f"Option 'schemaHints': {error}") from None
    for item in items:
        match = _HINT.match(item)
        if match is None:
            raise OptionError(f"Option 'schemaHints': expected e.g. amount decimal(10,2), flag boolean; got {item!r}")
        name = unquote_name(match[1]).lower()
        if name in hints:
            raise OptionError(f"Option 'schemaHints': {unquote_name(match[1])} is given twice")
        hints[name] = parse_hint_type(match[2], "schemaHints", unquote_name(match[1]))
    return hints


def spark_name(arrow: pa.DataType) -> str:
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if arrow == VARIANT:
        return "variant"
    if pa.types.is_struct(arrow):
        return f"struct<{', '.join(f'{field.name}: {spark_name(field.type)}' for field in arrow)}>"
    if pa.types.is_list(arrow):
        return f"array<{spark_name(arrow.value_type)}>"
    return next((name for name, type_ in _TYPES.items() if type_ == arrow), str(arrow))


def hint_of(column: str, arrow: pa.DataType) -> str:
    """Return the hint that reads a column as a type, such as `amount decimal(10,2)`."""
    return f"{expression_name(column)} {spark_name(arrow)}"


def string_hint(column: str, *, user_schema: bool = False) -> str:
    """Return advice for errors: how to read a column as text, whatever its type."""
    hint = hint_of(column, pa.string())
    if user_schema:
        return f"{hint} in .schema(…) reads its text"
    return f'schemaHints="{hint}" reads its text'
