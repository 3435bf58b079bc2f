"""Describing tables from sampled row images: what values show and declarations leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ticdc_source.events import TableName
from ticdc_source.protocols.images import Images
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.ddl import completed, version_at
from ticdc_source.schema.model import Column, ReadField, TableSchema, TypeVersions
from ticdc_source.schema.types import ColumnType

__all__ = ["describe_images", "plan_of"]

_2_63 = 1 << 63
_MOST_DIGITS = 20  # of 64 bits


def plan_of(declared: Mapping[str, TypeVersions] | None) -> Plan:
    """Return the plan that parses a sample: its runs begin anew where a version begins."""
    fields = (ReadField(name, pa.null(), None, versions) for name, versions in (declared or {}).items())
    return Plan(tuple(fields))


def describe_images(
    table: TableName,
    images: Images,
    commit_ts: Sequence[int | None] = (),
    declared: Mapping[str, TypeVersions] | None = None,
) -> list[TableSchema]:
    """Return one schema per run of the images, completed by what the run's values show, and by what DDL declared.

    `commit_ts` is per event, and wanted with `declared` only.
    """
    return [
        TableSchema(
            table,
            tuple(
                _declared(_observed(column, images.rows[start:end]), declared, commit_ts, images.events[start])
                for column in columns
            ),
        )
        for start, end, columns in images.spans()
    ]


def _declared(
    column: Column, declared: Mapping[str, TypeVersions] | None, commit_ts: Sequence[int | None], event: int
) -> Column:
    versions = (declared or {}).get(column.name.lower(), ())
    exact = version_at(versions, commit_ts[event] or 0) if versions else None
    if exact is None:
        return column
    column = completed(column, exact)
    # Which labels a number stands for changes with the version: the reader needs all of them.
    members = all(type_.family in ("enum", "set") for _, type_ in versions)
    return replace(column, versions=versions) if members else column


def _observed(column: Column, rows: Sequence[dict[str, Any]]) -> Column:
    if column.type is None:
        return replace(column, json_type=_json_type([row.get(column.name) for row in rows]))
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


def _json_type(cells: list[Any]) -> pa.DataType | None:
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
