"""The canonical text of a value, in TiDB's SQL and in Spark's: different values have different texts.

TiDB runs with `time_zone = '+00:00'`, and Spark's session must have the time zone UTC and ANSI mode.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import types as spark

from ticdc_lakehouse.targets.changelog import time_in_sql
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_lakehouse.tidb import mysql_type
from ticdc_source.developer_api import Column, ColumnType, quoted_name

HASH_BITS = 60  # more than a hash of a row has: it is below 10 to the 18th
_DIGITS = 18  # of MD5; as decimal digits they fit into a BIGINT
_LETTERS, _DIGITS_FOR_LETTERS = "abcdef", "012345"
_LARGEST_EXPONENT = 1023  # of a double
_NULL = "N"  # stands for NULL: no text without a length before it is so
_FRACTION_DIGITS = 6


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """A column that both TiDB and the target have."""

    name: str
    value: str  # the target's column, as Spark's SQL
    tidb: str  # its canonical text, as TiDB's SQL
    spark: str  # the target's canonical text, as Spark's SQL
    rewritten: str = ""  # Spark's SQL that writes TiDB's text, `{}`, as Spark writes an equal value
    hashed: tuple[str, str] | tuple[()] = ()  # what is hashed instead of the texts, in both SQLs
    any_text: bool = False  # the text may have any character, commas too, so it needs its length before it

    @property
    def part_in_tidb(self) -> str:
        """The column's part of a row's text: never NULL."""
        text = self.hashed[0] if self.hashed else self.tidb
        text = f"CONCAT(LENGTH({text}), ':', {text})" if self.any_text else text
        return f"IFNULL({text}, '{_NULL}')"

    @property
    def part_in_spark(self) -> str:
        text = self.hashed[1] if self.hashed else self.spark
        text = f"concat(octet_length({text}), ':', {text})" if self.any_text else text
        return f"coalesce({text}, '{_NULL}')"


def row_hash_in_tidb(columns: Iterable[ComparedColumn]) -> str:
    """Return TiDB's SQL for the hash of a row, below 10 to the 18th: collisions are as likely as with 57 bits.

    REPLACE makes the hexadecimal digits decimal. CONV is shorter, but TiDB would then evaluate the whole expression row
    by row.
    """
    digits = f"LEFT(MD5({row_text_in_tidb(columns)}), {_DIGITS})"
    for letter, digit in zip(_LETTERS, _DIGITS_FOR_LETTERS, strict=True):
        digits = f"REPLACE({digits}, '{letter}', '{digit}')"
    return f"CAST({digits} AS UNSIGNED)"


def row_hash_in_spark(columns: Iterable[ComparedColumn]) -> str:
    digits = f"substr(md5(CAST({row_text_in_spark(columns)} AS BINARY)), 1, {_DIGITS})"
    return f"CAST(translate({digits}, '{_LETTERS}', '{_DIGITS_FOR_LETTERS}') AS BIGINT)"


def row_text_in_tidb(columns: Iterable[ComparedColumn]) -> str:
    return f"CONCAT_WS(',', {', '.join(column.part_in_tidb for column in columns)})"


def row_text_in_spark(columns: Iterable[ComparedColumn]) -> str:
    return f"concat_ws(',', {', '.join(column.part_in_spark for column in columns)})"


def compared_column(column: Column, stored: str, type_: spark.DataType, *, is_key: bool = False) -> ComparedColumn:
    """Return how a column of TiDB is compared with the target's column `stored`.

    The text of a key column must need no rewriting (`ComparedColumn.rewritten`).
    """
    name, mine = quoted_name(column.name), quoted(stored)
    as_char, as_string = f"CAST({name} AS CHAR)", f"CAST({mine} AS STRING)"
    is_text = isinstance(type_, spark.StringType)
    compared = partial(ComparedColumn, column.name, mine)
    match mysql_type(column).family:
        case "float":
            if is_text:
                return compared(as_char, mine, any_text=True)
            return _binary_fraction(column, mine, as_char, type_)
        case "number":
            return _number(column, mine, type_)
        case "bit":
            number = "UNSIGNED" if is_text or isinstance(type_, spark.DecimalType) else "SIGNED"
            return compared(f"CAST(CAST({name} AS {number}) AS CHAR)", _digits(mine, type_))
        case "enum" | "set" if not is_text:
            return compared(f"CAST(CAST({name} AS UNSIGNED) AS CHAR)", _digits(mine, type_))
        case "datetime" | "timestamp":
            if is_text:
                return compared(as_char, mine)
            text, rewritten = _moment(mysql_type(column), name, type_, is_key=is_key)
            return compared(text, as_string, rewritten)
        case "time":
            text = _time_of_text(mine) if is_text else time_in_sql(mine, _FRACTION_DIGITS)
            return compared(f"CAST(CAST({name} AS TIME({_FRACTION_DIGITS})) AS CHAR)", text)
        case "binary":
            return compared(f"HEX({name})", f"hex(CAST({mine} AS BINARY))" if is_text else f"hex({mine})")
        case "vector" if not is_text:
            numbers = _plain_number("CAST(x + float('0') AS STRING)")  # -0 is 0, as in `_without_minus_zero`
            start, end = "'[' || array_join(transform(", f", x -> {numbers}), ',', '{_NULL}') || ']'"
            rewritten = f"{start}from_json({{}}, 'array<float>'){end}"
            return compared(_without_minus_zero(as_char), f"{start}{mine}{end}", rewritten, any_text=True)
        case "text" if isinstance(type_, spark.BinaryType):
            return compared(f"HEX(CONVERT({name} USING utf8mb4))", f"hex({mine})")
        case "json" if isinstance(type_, spark.VariantType):
            return compared(as_char, f"to_json({mine})", "to_json(parse_json({}))", any_text=True)
        case "json" | "vector":
            return compared(as_char, mine, any_text=True)
        case "text":
            return compared(f"CONVERT({name} USING utf8mb4)", as_string, any_text=True)
        case _:  # labels
            return compared(f"CONVERT({as_char} USING utf8mb4)", as_string, any_text=True)


def _number(column: Column, stored: str, type_: spark.DataType) -> ComparedColumn:
    name, mysql = quoted_name(column.name), mysql_type(column)
    text = f"CAST({name} AS CHAR)"
    if mysql.name == "year":
        text = f"CAST({name} + 0 AS CHAR)"
    elif mysql.name == "decimal" and mysql.length == mysql.scale:
        # TiDB loses the last digit in the text of a negative decimal that has no digit before the point.
        text = f"CAST(CAST({name} AS DECIMAL({min((mysql.length or 0) + 1, 65)},{mysql.scale})) AS CHAR)"
    if mysql.name == "decimal" and mysql.scale:
        text = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"
    if isinstance(type_, (spark.FloatType, spark.DoubleType)):
        return _binary_fraction(column, stored, text, type_)
    if isinstance(type_, spark.BooleanType):
        text = f"CAST({name} <> 0 AS CHAR)"
    return ComparedColumn(column.name, stored, text, _digits(stored, type_))


def _binary_fraction(column: Column, stored: str, text: str, type_: spark.DataType) -> ComparedColumn:
    """Return how a FLOAT or a DOUBLE is compared: by its text in Java, with a hash of its exponent and 53 bits.

    The hash cannot be one of texts, as Java may write more digits than TiDB.
    """
    # A double of a FLOAT column may have the digits of its text, or those of its single.
    single = mysql_type(column).name == "float" or isinstance(type_, spark.FloatType)
    kind = "FLOAT" if single else "DOUBLE"
    rewritten = f"CAST(CAST({{}} AS {kind}) AS STRING)"
    own = f"CAST({stored} AS {kind})"
    name = f"{quoted_name(column.name)} * 1e0"
    hashed = []
    for number, zero, integer in ((name, text, "SIGNED"), (f"CAST({own} AS DOUBLE)", None, "BIGINT")):
        # If LOG2 is a little too small, FLOOR gives the wrong exponent: hence 1e-9.
        exponent = f"LEAST(CAST(FLOOR(LOG2(ABS({number})) + 1e-9) AS {integer}), {_LARGEST_EXPONENT})"
        bits = f"CAST({number} / POW(2, {exponent}) * {1 << 53} AS {integer})"
        of_zero = zero or f"IF(startswith(CAST({own} AS STRING), '-'), '-0', '0')"
        hashed.append(f"IF({number} = 0, {of_zero}, CONCAT({exponent}, ':', {bits}))")
    as_string = f"CAST({own} AS STRING)"
    in_spark = f"IF(isnan({own}) OR abs({own}) = double('Infinity'), {as_string}, {hashed[1]})"
    return ComparedColumn(column.name, stored, text, as_string, rewritten, (hashed[0], in_spark))


def _digits(stored: str, type_: spark.DataType) -> str:
    """Return Spark's SQL for the digits of an exact number, or of one that is stored as text."""
    if isinstance(type_, spark.BooleanType):
        return f"CASE {stored} WHEN true THEN '1' WHEN false THEN '0' END"
    text = f"CAST({stored} AS STRING)"
    trimmed = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"
    if isinstance(type_, spark.DecimalType):
        return trimmed if type_.scale else text
    return f"IF(contains({text}, '.'), {trimmed}, {text})" if isinstance(type_, spark.StringType) else text


def _moment(mysql: ColumnType, name: str, type_: spark.DataType, *, is_key: bool) -> tuple[str, str]:
    """Return TiDB's SQL for the text of a moment, and Spark's that turns invalid dates into NULL.

    Finding 30 February in TiDB would cost more than everything else, so TiDB does it for keys only.
    """
    text = f"CAST({name} AS CHAR)"
    if mysql.length:
        text = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"
    if mysql.name == "date" and isinstance(type_, spark.TimestampNTZType):
        text = f"CONCAT({text}, ' 00:00:00')"
    kind = "date" if mysql.name == "date" else "timestamp_ntz"
    invalid = f"{name} < '0001-01-01' OR MONTH({name}) = 0 OR DAY({name}) = 0"
    if is_key:
        invalid += f" OR DAY({name}) > DAY(LAST_DAY(CONCAT(LEFT(CAST({name} AS CHAR), 8), '01')))"
    return f"IF({invalid}, NULL, {text})", f"CASE WHEN try_cast({{}} AS {kind}) IS NOT NULL THEN {{}} END"


def _time_of_text(stored: str) -> str:
    clock, fraction = f"substring_index({stored}, '.', 1)", f"split_part({stored}, '.', 2)"
    return f"{clock} || '.' || rpad({fraction}, greatest({_FRACTION_DIGITS}, length({fraction})), '0')"


def _without_minus_zero(vector: str) -> str:
    """Return TiDB's SQL for the text of a vector with `-0` as `0`.

    REPLACE misses the second of two neighbours; `rewritten` corrects that.
    """
    for before, after in (",,", "[,", ",]", "[]"):
        vector = f"REPLACE({vector}, '{before}-0{after}', '{before}0{after}')"
    return vector


def _plain_number(text: str) -> str:
    """Return Spark's SQL for a number as text without an exponent: Java writes 1.5E10, and 2.0 for 2."""
    sign = f"IF(startswith({text}, '-'), '-', '')"
    digits = f"replace(replace(split_part({text}, 'E', 1), '.', ''), '-', '')"
    digits = f"IF(endswith(split_part({text}, 'E', 1), '.0'), left({digits}, length({digits}) - 1), {digits})"
    exponent = f"CAST(split_part({text}, 'E', 2) AS INT)"
    small = f"'0.' || repeat('0', -{exponent} - 1) || {digits}"
    large = f"{digits} || repeat('0', {exponent} + 1 - length({digits}))"
    broken = f"left({digits}, {exponent} + 1) || '.' || substr({digits}, {exponent} + 2)"
    with_exponent = (
        f"CASE WHEN {exponent} < 0 THEN {small} WHEN length({digits}) <= {exponent} + 1 THEN {large} ELSE {broken} END"
    )
    without = f"IF(endswith({text}, '.0'), left({text}, length({text}) - 2), {text})"
    return f"IF(contains({text}, 'E'), {sign} || {with_exponent}, {without})"


def columns_of(
    columns: Sequence[Column], stored: Mapping[str, spark.DataType], keys: Collection[str] = ()
) -> tuple[tuple[ComparedColumn, ...], tuple[str, ...]]:
    """Return the columns that can be compared, and the names of those that the target lacks."""
    names = {name.lower(): name for name in stored}
    of_key = {key.lower() for key in keys}
    compared = tuple(
        compared_column(column, name, stored[name], is_key=column.name.lower() in of_key)
        for column in columns
        if (name := names.get(column.name.lower())) is not None
    )
    return compared, tuple(column.name for column in columns if column.name.lower() not in names)
