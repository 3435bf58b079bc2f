"""Merging the types that versions of a table give a column: the widest inside a family."""

from __future__ import annotations

from dataclasses import replace

from ticdc_source.types import TYPES, ColumnType

__all__ = ["merge_types"]

_SIGNED_RANGE = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
# Decimal digits that hold every value, for merging an integer with a DECIMAL.
_INTEGER_DIGITS = {"year": 4, "tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 20}


def merge_types(first: ColumnType, second: ColumnType) -> ColumnType | None:
    """Return the type that holds every value of both; None where only text can."""
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
            wider, other = sorted((first, second), key=lambda t: (TYPES[t.name].rank, t.length or 0), reverse=True)
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
    # A year (to 2155) fits what a smallint holds; both are years only where they are equal.
    first, second = (ColumnType("smallint") if t.name == "year" else t for t in (first, second))
    wider, other = sorted((first, second), key=lambda t: TYPES[t.name].rank, reverse=True)
    if wider.unsigned == other.unsigned:
        return replace(wider, length=None) if wider.length != other.length else wider
    signed, unsigned = (wider, other) if other.unsigned else (other, wider)
    needed = _SIGNED_RANGE[unsigned.name] + 1
    for name, bits in _SIGNED_RANGE.items():
        if bits >= needed and bits >= _SIGNED_RANGE[signed.name]:
            return ColumnType(name)
    return ColumnType("decimal", length=20, scale=0)


def _merge_decimals(first: ColumnType, second: ColumnType) -> ColumnType:
    whole, scale, known = 0, 0, True
    for type_ in (first, second):
        if type_.name != "decimal":
            whole = max(whole, _INTEGER_DIGITS[type_.name])
        elif type_.length is not None:
            whole, scale = max(whole, type_.length - (type_.scale or 0)), max(scale, type_.scale or 0)
        else:
            known = False
            whole, scale = max(whole, type_.whole or 0), max(scale, type_.scale or 0)
    if known:
        return ColumnType("decimal", length=whole + scale, scale=scale)
    nothing_seen = not any(t.name == "decimal" and t.scale is not None for t in (first, second))
    return ColumnType("decimal", whole=None if nothing_seen else whole, scale=None if nothing_seen else scale)
