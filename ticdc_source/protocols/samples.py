"""Describing tables from sampled row images: what values show and declarations leave out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ticdc_source.events import TableName
from ticdc_source.protocols.images import Images
from ticdc_source.schema import Column, TableSchema
from ticdc_source.types import ColumnType

__all__ = ["describe_images"]

_2_63 = 1 << 63
_MOST_DIGITS = 20  # of 64 bits


def describe_images(table: TableName, images: Images) -> list[TableSchema]:
    """Return one schema per run of the images, completed by what the run's values show."""
    return [
        TableSchema(table, tuple(_observed(column, images.rows[start:end]) for column in columns))
        for start, end, columns in images.spans()
    ]


def _observed(column: Column, rows: Sequence[dict[str, Any]]) -> Column:
    if column.type is None:
        return replace(column, shape=_shape([row.get(column.name) for row in rows]))
    if column.type.is_unspecified:
        return replace(column, type=_observed_decimal(column.type, [row.get(column.name) for row in rows]))
    if column.type.name == "set" and column.type.labels is None:
        wide = any(_is_wide(row.get(column.name)) for row in rows)
        return replace(column, type=replace(column.type, wide=wide)) if wide else column
    return column


def _is_wide(cell: Any) -> bool:
    if isinstance(cell, str):
        return cell.isdecimal() and len(cell) <= _MOST_DIGITS and int(cell) >= _2_63
    return isinstance(cell, int) and cell >= _2_63


def _observed_decimal(type_: ColumnType, cells: list[Any]) -> ColumnType:
    """MySQL prints every value with its column's scale: a sample's scale is the declared one."""
    texts = [cell.lstrip("-") for cell in cells if isinstance(cell, str)]
    if not texts:
        return type_
    parts = [text.partition(".") for text in texts]
    whole = max(len(before.lstrip("0")) for before, _, _ in parts)
    scale = max(len(after) for _, _, after in parts)
    return replace(type_, whole=whole, scale=scale)


def _shape(cells: list[Any]) -> pa.DataType | None:
    kinds = set(map(type, cells)) - {type(None)}
    if not kinds:
        return None
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        fits = all(c is None or -_2_63 <= c < _2_63 for c in cells)
        return pa.int64() if fits else pa.decimal128(20, 0)
    if kinds <= {int, float}:
        return pa.float64()
    return pa.string()
