"""The table of types: every MySQL type that TiDB has, its family, and the Arrow type of its values.

The Spark type follows from the Arrow type. A column has the same type as in `spark.read.jdbc`, unless that type loses
something (docs/design/0002-types.md).

In this order: the table; a column's type; types from and to text; what a type can be read as; merging of types.
"""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from ticdc_source.errors import SchemaError, UnsupportedTypeError

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
TIME = pa.duration("us")
FLOATS = pa.list_(pa.field("element", pa.float32()))
# Spark's VARIANT in Arrow (pyspark/sql/pandas/types.py, `to_arrow_type`); only the flag tells it from a struct.
VARIANT = pa.struct([
    pa.field("value", pa.binary(), nullable=False),
    pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
])  # fmt: skip
DECIMAL_MAX = 38  # digits of Spark's decimals, and of Arrow's decimal128
UNSPECIFIED_SCALE = 18  # of a DECIMAL column if a sample has only NULLs
BIGINT_UNSIGNED = pa.decimal128(20, 0)


class TypeRow(NamedTuple):
    """One MySQL type.

    Attributes:
        family: types of one family merge into the widest of them.
        rank: the order in the family, from narrow to wide.
        unsigned: the Arrow type of the unsigned variant; None if there is none.
        code: TiDB's number of the type (pingcap/tidb pkg/parser/mysql/type.go); binary types have a text type's.
        sql_types: its java.sql.Types in TiCDC and Canal (docs/wire.md, items 19, 71 and 75); the last one for large
            values of an unsigned integer, and before v5.4 for all.
    """

    family: str
    rank: int
    arrow: pa.DataType
    unsigned: pa.DataType | None = None
    code: int | None = None
    sql_types: tuple[int, ...] = ()


TYPES: dict[str, TypeRow] = {
    "tinyint": TypeRow("number", 1, pa.int8(), pa.int16(), code=1, sql_types=(-6, 5)),
    "smallint": TypeRow("number", 2, pa.int16(), pa.int32(), code=2, sql_types=(5, 4)),
    "mediumint": TypeRow("number", 3, pa.int32(), pa.int64(), code=9, sql_types=(4,)),
    "int": TypeRow("number", 4, pa.int32(), pa.int64(), code=3, sql_types=(4, -5)),
    "bigint": TypeRow("number", 5, pa.int64(), BIGINT_UNSIGNED, code=8, sql_types=(-5, 3)),
    "decimal": TypeRow("number", 6, pa.decimal128(DECIMAL_MAX, UNSPECIFIED_SCALE), code=246, sql_types=(3,)),
    "year": TypeRow("number", 0, pa.int32(), code=13, sql_types=(12,)),
    "float": TypeRow("float", 1, pa.float32(), pa.float32(), code=4, sql_types=(7,)),
    "double": TypeRow("float", 2, pa.float64(), pa.float64(), code=5, sql_types=(8,)),
    "bit": TypeRow("bit", 1, pa.int64(), code=16, sql_types=(-7,)),
    "date": TypeRow("datetime", 1, pa.date32(), code=10, sql_types=(91,)),
    "datetime": TypeRow("datetime", 2, TIMESTAMP_NTZ, code=12, sql_types=(93,)),
    "timestamp": TypeRow("timestamp", 1, TIMESTAMP, code=7, sql_types=(93,)),
    "time": TypeRow("time", 1, TIME, code=11, sql_types=(92,)),
    "char": TypeRow("text", 1, pa.string(), code=254, sql_types=(1, 12)),
    "varchar": TypeRow("text", 2, pa.string(), code=15, sql_types=(12,)),
    "tinytext": TypeRow("text", 3, pa.string(), code=249, sql_types=(2005, 12)),
    "text": TypeRow("text", 4, pa.string(), code=252, sql_types=(2005, 12)),
    "mediumtext": TypeRow("text", 5, pa.string(), code=250, sql_types=(2005, 12)),
    "longtext": TypeRow("text", 6, pa.string(), code=251, sql_types=(2005, 12)),
    "binary": TypeRow("binary", 1, pa.binary(), sql_types=(2004,)),
    "varbinary": TypeRow("binary", 2, pa.binary(), sql_types=(2004,)),
    "tinyblob": TypeRow("binary", 3, pa.binary(), sql_types=(2004,)),
    "blob": TypeRow("binary", 4, pa.binary(), sql_types=(2004,)),
    "mediumblob": TypeRow("binary", 5, pa.binary(), sql_types=(2004,)),
    "longblob": TypeRow("binary", 6, pa.binary(), sql_types=(2004,)),
    "enum": TypeRow("enum", 1, pa.int32(), code=247, sql_types=(4,)),
    "set": TypeRow("set", 1, pa.int64(), code=248, sql_types=(-7,)),
    "json": TypeRow("json", 1, pa.string(), code=245, sql_types=(12,)),
    "vector": TypeRow("vector", 1, FLOATS, code=225, sql_types=(12,)),
}
INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
MAY_BE_UNSIGNED = frozenset({*INTEGERS, "decimal", "float", "double"})
TEXTS, BINARIES = (tuple(name for name, row in TYPES.items() if row.family == family) for family in ("text", "binary"))
BINARY_OF = dict(zip(TEXTS, BINARIES, strict=True))  # the type of the same values with the character set `binary`

# Other names of the same types in MySQL, TiDB or a protocol: in messages, `tableDDL` and DDL. SERIAL, and FLOAT with
# more than `_FLOAT_DIGITS` binary digits, are in `parse_type`.
ALIASES = {
    "bool": "tinyint",
    "boolean": "tinyint",
    "integer": "int",
    "int1": "tinyint",
    "int2": "smallint",
    "int3": "mediumint",
    "middleint": "mediumint",
    "int4": "int",
    "int8": "bigint",
    "dec": "decimal",
    "numeric": "decimal",
    "fixed": "decimal",
    "real": "double",
    "double precision": "double",
    "float4": "float",
    "float8": "double",
    "character": "char",
    "nchar": "char",
    "national char": "char",
    "national character": "char",
    "nvarchar": "varchar",
    "varcharacter": "varchar",
    "national varchar": "varchar",
    "national varcharacter": "varchar",
    "nchar varchar": "varchar",
    "nchar varying": "varchar",
    "char varying": "varchar",
    "character varying": "varchar",
    "national char varying": "varchar",
    "national character varying": "varchar",
    "var_string": "varchar",
    "long": "mediumtext",
    "long varchar": "mediumtext",
    "long varbinary": "mediumblob",
    "datetime2": "datetime",
    "tidbvectorfloat32": "vector",  # in TiCDC's documentation (docs/wire.md, item 72)
}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's MySQL type, as far as it is known.

    Attributes:
        name: a key of `TYPES`; for an unknown type, the protocol's name.
        length: the precision of a DECIMAL, the bits of a BIT, the digits of fraction of a DATETIME, TIMESTAMP or TIME,
            the characters or bytes of strings; None if unknown. TINYINT keeps only 1.
        scale: digits after the decimal point; for a DECIMAL without precision, those in a sample.
        whole: for a DECIMAL without precision, the most digits before the point in a sample.
        labels: the members of ENUM and SET; None if unknown.
        wide: for a SET without labels, whether a sample has the 64th member.
    """

    name: str
    _: KW_ONLY
    unsigned: bool = False
    length: int | None = None
    scale: int | None = None
    whole: int | None = None
    labels: tuple[str, ...] | None = None
    wide: bool = False

    @property
    def family(self) -> str:
        """The family in `TYPES`; "" for an unknown type."""
        row = TYPES.get(self.name)
        return row.family if row else ""

    @property
    def is_supported(self) -> bool:
        """Whether the type is in `TYPES`, and for a DECIMAL, has digits, and at least as many as its scale."""
        if self.name == "decimal" and self.length is not None:
            return self.length > 0 and 0 <= (self.scale or 0) <= self.length
        return self.name in TYPES

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the values.

        Raises:
            KeyError: the type is not in `TYPES`.
            UnsupportedTypeError: it is an impossible DECIMAL.
        """
        row = TYPES[self.name]
        if self.name == "decimal":
            return self._decimal_arrow()
        if self.unsigned and row.unsigned is not None:
            return row.unsigned
        if self.name == "bit" and self.length == 1:
            return pa.bool_()
        if self.labels is not None:
            return pa.string()
        if self.name == "set" and self.wide:
            return BIGINT_UNSIGNED
        return row.arrow

    def _decimal_arrow(self) -> pa.DataType:
        if not self.is_supported:
            raise UnsupportedTypeError(f"type {self} is not supported")
        if self.length is not None:
            if self.length > DECIMAL_MAX:
                return pa.string()
            return pa.decimal128(self.length, self.scale or 0)
        if self.scale is None:
            return TYPES["decimal"].arrow
        if (self.whole or 0) + self.scale > DECIMAL_MAX:
            return pa.string()
        return pa.decimal128(DECIMAL_MAX, self.scale)

    @property
    def is_unspecified(self) -> bool:
        """Whether this is a DECIMAL without a known precision."""
        return self.name == "decimal" and self.length is None

    @property
    def is_blank(self) -> bool:
        """Whether this is a DECIMAL about which nothing is known, as with only NULLs in a sample."""
        return self.is_unspecified and self.scale is None and self.whole is None

    def refined_by(self, other: ColumnType | None) -> ColumnType:
        """Complete this type by `other`, the same type from another source; unchanged if the types differ."""
        if other is None or other.name != self.name:
            return self
        return replace(
            self,
            unsigned=self.unsigned or other.unsigned,
            length=self.length if self.length is not None else other.length,
            scale=self.scale if self.length is not None or other.length is None else other.scale,
            labels=self.labels if self.labels is not None else other.labels,
            wide=self.wide or other.wide,
        )

    def __str__(self) -> str:
        if self.labels is not None:
            return f"{self.name}({quote_labels(self.labels)})"
        if self.name == "set" and self.wide:
            return "set(64)"
        text = self.name
        if self.length is not None:
            scale = f",{self.scale}" if self.scale is not None else ""
            text += f"({self.length}{scale})"
        return f"{text} unsigned" if self.unsigned else text


def quote_labels(labels: tuple[str, ...]) -> str:
    """Write labels as MySQL does: in single quotes, which are doubled in labels; nothing else is escaped."""
    return ",".join("'" + label.replace("'", "''") + "'" for label in labels)


_FLOAT_DIGITS = 24  # binary digits, above which FLOAT(p) is a DOUBLE
_NO_ROW = TypeRow("", 0, pa.null())
_TYPE = re.compile(
    r"^\s*([a-z_][a-z0-9_ ]*?)\s*(?:\(\s*(.*)\s*\))?\s*((?:unsigned|signed|zerofill|byte|\s)*)$",
    re.IGNORECASE | re.DOTALL,
)
_LABEL = re.compile(r"\s*'((?:[^']|'')*)'\s*(?:,|$)", re.DOTALL)


def parse_type(text: str) -> ColumnType:
    """Parse a type as MySQL, `SHOW CREATE TABLE` or a message writes it.

    A name that is not in `TYPES` is kept, in lower case, for errors. ZEROFILL implies UNSIGNED.

    Raises:
        ValueError: the text is not a type at all.
    """
    text.encode()  # no schema could hold labels with bytes that are not UTF-8
    match = _TYPE.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a MySQL type")
    name, arguments, attributes = " ".join(match[1].lower().split()), match[2], match[3].lower()
    if name.endswith((" unsigned", " zerofill", " signed")):  # no brackets between the name and its attributes
        words = name.split()
        name, attributes = words[0], " ".join(words[1:])
    unsigned = "unsigned" in attributes.split() or "zerofill" in attributes
    if name in ("bool", "boolean"):
        return ColumnType("tinyint", length=1)
    if name == "serial":
        return ColumnType("bigint", unsigned=True)
    name = ALIASES.get(name, name)
    if name in ("enum", "set") and arguments is not None and "'" in arguments:
        return ColumnType(name, labels=_parse_labels(arguments))
    if name == "set" and arguments is not None:
        return ColumnType(name, wide=True)
    numbers = [int(part) for part in arguments.split(",")] if arguments else []
    length = numbers[0] if numbers else None
    scale = numbers[1] if len(numbers) > 1 else None
    if name == "decimal" and length is not None:
        return ColumnType(name, unsigned=unsigned, length=length, scale=scale or 0)
    if TYPES.get(name, _NO_ROW).family == "number" and name != "decimal" and not (name == "tinyint" and length == 1):
        length = None  # a display width
    if name == "float" and scale is None and (length or 0) > _FLOAT_DIGITS:
        name = "double"
    if name == "char" and "byte" in attributes:
        name = "binary"
    if name in ("float", "double"):
        length = scale = None  # they describe a rounding that TiDB has already done
    if name == "bit" and length is None and arguments is not None:
        length = 1
    return ColumnType(name, unsigned=unsigned, length=length, scale=scale)


def declared_type(
    type_: ColumnType, *, length: int | None, scale: int | None, fraction: int | None, labels: tuple[str, ...] | None
) -> ColumnType:
    """Add a definition's separate members to a type.

    Args:
        length: digits, bits, characters, bytes or dimensions.
        scale: the scale of a DECIMAL.
        fraction: the digits of a second's fraction.
        labels: the labels of an ENUM or a SET.
    """
    match type_.family:
        case "enum" | "set":
            return replace(type_, labels=labels)
        case "bit":
            return replace(type_, length=length or 1)
        case "datetime" | "timestamp" | "time" if type_.name != "date":
            return replace(type_, length=fraction or 0)
        case "text" | "binary" | "vector":
            return replace(type_, length=length)
    if type_.name == "decimal":
        return replace(type_, length=10 if length is None else length, scale=scale or 0)
    return replace(type_, length=1) if type_.name == "tinyint" and length == 1 and not type_.unsigned else type_


def _parse_labels(text: str) -> tuple[str, ...]:
    labels, start = [], 0
    while start < len(text):
        match = _LABEL.match(text, start)
        if match is None:
            raise ValueError(f"the labels {text!r} are not a list of quoted strings")
        labels.append(match[1].replace("''", "'"))
        start = match.end()
    return tuple(labels)


# What a hint or a merged schema may ask for, beside a column's own type and string, by category of Arrow type. A value
# that does not survive the conversion is an error, and is never rounded.
CONVERSIONS: dict[str, tuple[str, ...]] = {
    "integer": ("integer", "decimal", "double", "float", "boolean"),
    "decimal": ("integer", "decimal"),
    "float": ("float", "double"),
    "double": ("double",),
    "boolean": ("boolean", "integer", "decimal"),
    "date": ("date", "timestamp_ntz"),
    "timestamp_ntz": ("timestamp_ntz",),
    "timestamp": ("timestamp",),
    "interval": ("interval",),
    "string": ("string", "binary"),
    "binary": ("binary",),
    "array": ("array",),
}


def category_of(arrow: pa.DataType) -> str:
    """Return the category of an Arrow type: a key of `CONVERSIONS`; "" for any other type."""
    checks = (
        ("integer", pa.types.is_integer(arrow)),
        ("decimal", pa.types.is_decimal(arrow)),
        ("float", arrow == pa.float32()),
        ("double", arrow == pa.float64()),
        ("boolean", pa.types.is_boolean(arrow)),
        ("date", arrow == pa.date32()),
        ("timestamp", pa.types.is_timestamp(arrow) and arrow.tz is not None),
        ("timestamp_ntz", pa.types.is_timestamp(arrow)),
        ("interval", pa.types.is_duration(arrow)),
        ("string", pa.types.is_string(arrow)),
        ("binary", pa.types.is_binary(arrow)),
        ("array", pa.types.is_list(arrow)),
    )
    return next((category for category, matches in checks if matches), "")


def convertible(source: pa.DataType, target: pa.DataType) -> bool:
    return category_of(target) == "string" or category_of(target) in CONVERSIONS.get(category_of(source), ())


_NUMERIC = frozenset({"integer", "decimal", "float", "double", "boolean"})


def is_text_of(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether MySQL's text of a value of `source` may be the text of a value of `target`."""
    if category_of(source) == "string":
        return category_of(target) in _TYPE_OF_CATEGORY or category_of(target) in _NUMERIC
    return {category_of(source), category_of(target)} <= _NUMERIC


_TYPE_OF_CATEGORY = {
    "decimal": "decimal", "float": "float", "double": "double", "date": "date", "timestamp": "timestamp",
    "timestamp_ntz": "datetime", "interval": "time", "string": "varchar", "binary": "varbinary", "array": "vector",
}  # fmt: skip
_TYPE_OF_INTEGER = {pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint"}


def type_of(arrow: pa.DataType) -> ColumnType:
    """Return the MySQL type for an Arrow type, for columns whose type is otherwise unknown.

    Raises:
        SchemaError: there is none.
    """
    if arrow in _TYPE_OF_INTEGER:
        return ColumnType(_TYPE_OF_INTEGER[arrow])
    if arrow == VARIANT:
        return ColumnType("json")
    category = category_of(arrow)
    if category == "boolean":
        return ColumnType("bit", length=1)
    if category == "decimal":
        return ColumnType("decimal", length=arrow.precision, scale=arrow.scale)
    if category not in _TYPE_OF_CATEGORY:
        raise SchemaError(f"no TiDB type is read as {arrow}")
    return ColumnType(_TYPE_OF_CATEGORY[category])


_SIGNED_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
# Decimal digits that hold every value, to merge an integer with a DECIMAL.
_INTEGER_DIGITS = {"year": 4, "tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 20}


def merge_types(first: ColumnType, second: ColumnType) -> ColumnType | None:
    """Return the type that can hold the values of both; None if only text can."""
    if first == second:
        return first
    if first.family != second.family or not first.family:
        return None
    match first.family:
        case "number":
            return _merge_numbers(first, second)
        case "bit" | "enum" | "set":
            return _merge_lists(first, second)
        case _:
            wider, other = sorted(
                (first, second), key=lambda type_: (TYPES[type_.name].rank, type_.length or 0), reverse=True
            )
            length = None if None in (wider.length, other.length) else max(wider.length or 0, other.length or 0)
            return replace(wider, unsigned=wider.unsigned and other.unsigned, length=length)


def _merge_lists(first: ColumnType, second: ColumnType) -> ColumnType:
    length = first.length if first.length == second.length else None
    labels = first.labels
    if second.labels is not None and (labels is None or len(second.labels) >= len(labels)):
        labels = second.labels
    return replace(first, length=length, labels=labels, wide=first.wide or second.wide)


def _merge_numbers(first: ColumnType, second: ColumnType) -> ColumnType:
    if "decimal" in (first.name, second.name):
        return _merge_decimals(first, second)
    # A smallint holds every year (to 2155). Two years are equal types, so at most one of these is a year.
    first, second = (ColumnType("smallint") if type_.name == "year" else type_ for type_ in (first, second))
    wider, other = sorted((first, second), key=lambda type_: TYPES[type_.name].rank, reverse=True)
    if wider.unsigned == other.unsigned:
        return replace(wider, length=None) if wider.length != other.length else wider
    signed, unsigned = (wider, other) if other.unsigned else (other, wider)
    needed = _SIGNED_BITS[unsigned.name] + 1
    for name, bits in _SIGNED_BITS.items():
        if bits >= needed and bits >= _SIGNED_BITS[signed.name]:
            return ColumnType(name)
    return ColumnType("decimal", length=20, scale=0)


def _merge_decimals(first: ColumnType, second: ColumnType) -> ColumnType:
    for blank, other in ((first, second), (second, first)):
        if blank.is_blank and other.name == "decimal":
            return other
    # A DECIMAL without a scale has had only NULLs and integers: it tells no more than an integer.
    decimals = [type_ for type_ in (first, second) if type_.name == "decimal" and not _lacks_scale(type_)]
    whole, scale = (
        max(_whole_digits(first), _whole_digits(second)),
        max((each.scale or 0 for each in decimals), default=0),
    )
    if not decimals:
        return ColumnType("decimal", whole=whole)
    if all(each.length is not None for each in decimals):
        return ColumnType("decimal", length=whole + scale, scale=scale)
    return ColumnType("decimal", whole=whole, scale=scale)


def _lacks_scale(type_: ColumnType) -> bool:
    return type_.is_unspecified and type_.scale is None


def _whole_digits(type_: ColumnType) -> int:
    if type_.name != "decimal":
        return _INTEGER_DIGITS[type_.name]
    return type_.whole or 0 if type_.length is None else type_.length - (type_.scale or 0)
