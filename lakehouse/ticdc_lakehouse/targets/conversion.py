"""Values of one type → values of another, as TiDB converts them where that is exact: expressions of Spark SQL."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
)

from ticdc_lakehouse.targets.literals import text_literal
from ticdc_source.developer_api import ColumnType

__all__ = ["Conversion", "conversion", "renumbered"]

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_NUMBERS = (*_INTEGERS, DecimalType, FloatType, DoubleType)
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_FRACTION_DIGITS = 6
# What TiDB converts by rules of its own: the number of a label, the bytes of a BIT, the zone of a session, two digits
# of a year. A TIME is stored as a number of microseconds.
_OWN_RULES = frozenset({"enum", "set", "bit", "json", "time", "timestamp", "year", "vector"})


class Conversion(NamedTuple):
    """A conversion of the values of a column.

    Attributes:
        value: the value as the other type.
        exact: whether TiDB has this value too; also true of NULL.
    """

    value: str
    exact: str


def conversion(
    column: str, old: DataType, new: DataType, old_mysql: ColumnType | None = None, new_mysql: ColumnType | None = None
) -> Conversion:
    """Return how the values of a column become values of another type.

    Args:
        column: the column, as SQL.
        old: its type.
        new: the other type.
        old_mysql: its MySQL type; None if that is not known.
        new_mysql: the other MySQL type.
    """
    name = new.simpleString()
    cast = f"try_cast({column} AS {name})"
    exact = "false"
    labels = _labels_as_numbers(column, new, old_mysql)
    if labels is not None:
        cast, exact = f"CAST({labels} AS {name})", "true"
    elif isinstance(old, BooleanType) and isinstance(new, (*_INTEGERS, DecimalType)):
        exact = "true"
    elif isinstance(old, _INTEGERS) and isinstance(new, BooleanType):
        exact = f"{column} IN (0, 1)"
    elif _keep_numbers(old, new, old_mysql, new_mysql):
        exact = f"{cast} IS NOT NULL AND try_cast({cast} AS {old.simpleString()}) = {column}"
    elif not _has_own_rules(old_mysql, new_mysql):
        cast, exact = _by_text(column, cast, old, new, old_mysql, new_mysql)
    return Conversion(cast, f"{column} IS NULL OR coalesce({exact}, false)")


def _keep_numbers(old: DataType, new: DataType, old_mysql: ColumnType | None, new_mysql: ColumnType | None) -> bool:
    names = {one.name for one in (old_mysql, new_mysql) if one is not None}
    if isinstance(old, (DateType, TimestampNTZType)) and isinstance(new, (DateType, TimestampNTZType)):
        return True
    return isinstance(old, _NUMBERS) and isinstance(new, _NUMBERS) and not names & _OWN_RULES - {"bit"}


def _has_own_rules(old_mysql: ColumnType | None, new_mysql: ColumnType | None) -> bool:
    old, new = ("" if one is None else one.name for one in (old_mysql, new_mysql))
    if old == "year" and new not in _OWN_RULES:
        return False
    labelled = old in ("enum", "set", "json") and new_mysql is not None and new_mysql.family == "binary"
    return not labelled and bool({old, new} & _OWN_RULES)


def _by_text(
    column: str, cast: str, old: DataType, new: DataType, old_mysql: ColumnType | None, new_mysql: ColumnType | None
) -> tuple[str, str]:
    """Return a conversion from or to text."""
    if isinstance(old, StringType):
        return _from_text(column, cast, new, new_mysql)
    if isinstance(new, BinaryType):  # the bytes of the text
        text = _as_text(column, old, old_mysql)
        return (cast, "false") if text is None or _pads(new_mysql) else (f"CAST({text} AS BINARY)", "true")
    if not isinstance(new, StringType):
        return cast, "false"
    if isinstance(old, BinaryType):
        text = f"CAST({column} AS STRING)"
        trimmed = f" AND NOT endswith({text}, ' ')" if new_mysql is not None and new_mysql.name == "char" else ""
        return text, f"is_valid_utf8({text}){trimmed}"
    text = _as_text(column, old, old_mysql)
    return (cast, "false") if text is None else (text, "true")


def _pads(type_: ColumnType | None) -> bool:
    return type_ is not None and type_.name == "binary"


def _as_text(column: str, old: DataType, old_mysql: ColumnType | None) -> str | None:
    """Return the text that MySQL has for a value; None if Spark has another one."""
    text = f"CAST({column} AS STRING)"
    if isinstance(old, (*_INTEGERS, DecimalType, DateType)):
        return text
    if isinstance(old, TimestampNTZType) and old_mysql is not None and old_mysql.name == "datetime":
        digits = old_mysql.length or 0
        return f"substr({text}, 1, 19)" + (f" || '.' || rpad(substr({text}, 21), {digits}, '0')" if digits else "")
    return None


def _from_text(column: str, cast: str, new: DataType, new_mysql: ColumnType | None) -> tuple[str, str]:
    """Return a conversion of texts; exact is only what every MySQL mode converts alike."""
    pattern = None
    if isinstance(new, BinaryType):
        return f"CAST({column} AS BINARY)", "false" if _pads(new_mysql) else "true"
    if isinstance(new, _INTEGERS):
        pattern = "[+-]?[0-9]+"
    elif isinstance(new, DecimalType):
        pattern = "[+-]?[0-9]+" + (f"(\\.[0-9]{{1,{new.scale}}})?" if new.scale else "")
    elif isinstance(new, DoubleType):
        pattern = "[+-]?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?"
    elif isinstance(new, DateType):
        pattern = _DAY
    elif isinstance(new, TimestampNTZType):
        digits = _FRACTION_DIGITS if new_mysql is None else new_mysql.length or 0
        pattern = f"{_DAY} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}" + (f"(\\.[0-9]{{1,{digits}}})?" if digits else "")
    if pattern is None:
        return cast, "false"
    return cast, f"{column} RLIKE {text_literal(f'^{pattern}$')} AND {cast} IS NOT NULL"


def _labels_as_numbers(column: str, new: DataType, old_mysql: ColumnType | None) -> str | None:
    """Return the numbers that TiDB has for labels of an ENUM or a SET; None if this is something else."""
    if old_mysql is None or not old_mysql.labels or not isinstance(new, (*_INTEGERS, DecimalType)):
        return None
    labels = f"array({', '.join(text_literal(label) for label in old_mysql.labels)})"
    if old_mysql.name == "enum":
        return f"CASE WHEN {column} IS NOT NULL THEN array_position({labels}, {column}) END"
    one = f"shiftleft(1L, CAST(array_position({labels}, label) AS INT) - 1)"
    members = f"filter(split({column}, ','), label -> label != '')"
    return f"aggregate(transform({members}, label -> {one}), 0L, (sum, bit) -> sum + bit)"


def renumbered(column: str, old: ColumnType, new: ColumnType) -> Conversion:
    """Return what the numbers of an ENUM or a SET are, once its labels have another order.

    Args:
        column: the column of numbers, as SQL.
        old: the type before.
        new: the type now.
    """
    places = {label: place for place, label in enumerate(new.labels or (), 1)}
    labels = old.labels or ()
    if old.name == "enum":
        numbers = ", ".join(str(places.get(label, "NULL")) for label in labels)
        value = f"element_at(array({numbers}), CAST({column} AS INT))"
        other = f"{column} NOT BETWEEN 1 AND {len(labels)}"  # 0 is a value that TiDB could not store
        return Conversion(f"CASE WHEN {other} THEN {column} ELSE {value} END", f"{other} OR {value} IS NOT NULL")
    bits = ", ".join(f"{1 << places[label] - 1}L" if label in places else "NULL" for label in labels)
    members = f"filter(sequence(0, {len(labels) - 1}), bit -> shiftright(CAST({column} AS BIGINT), bit) % 2 != 0)"
    value = f"aggregate({members}, 0L, (sum, bit) -> sum + element_at(array({bits}), bit + 1))"
    return Conversion(value, f"{column} IS NULL OR {value} IS NOT NULL")
