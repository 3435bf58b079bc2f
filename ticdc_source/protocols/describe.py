"""Describing tables from sampled row images: what declarations leave out and values show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from ticdc_source.events import TableName
from ticdc_source.protocols.images import Images, Row
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.ddl import completed, version_at
from ticdc_source.schema.model import Column, ReadField, TableSchema, TypeVersions
from ticdc_source.schema.types import ColumnType

__all__ = ["describe_images", "plan_of"]

_2_63 = 1 << 63
_MOST_DIGITS = 20  # of a number with 64 bits


def plan_of(declared: Mapping[str, TypeVersions] | None) -> Plan:
    """Return the plan to parse a sample with. Its fields make a run of images end where a version ends."""
    fields = (ReadField(name, pa.null(), versions=versions) for name, versions in (declared or {}).items())
    return Plan(tuple(fields))


def describe_images(
    table: TableName,
    images: Images,
    commit_ts: Sequence[int | None] = (),
    declared: Mapping[str, TypeVersions] | None = None,
) -> list[TableSchema]:
    """Return one schema for each run of images, completed by what values show and by what DDL declares.

    Args:
        table: the table.
        images: its row images.
        commit_ts: of each event; needed only with `declared`.
        declared: the types that DDL declares, by lower-case column name.
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
    """Complete a column by the type that DDL declares for it at the event's commit-ts."""
    versions = (declared or {}).get(column.name.lower(), ())
    exact = version_at(versions, commit_ts[event] or 0) if versions else None
    if exact is None:
        return column
    column = completed(column, exact)
    # Which label a number stands for changes with the version: the reader needs all versions.
    labelled = all(type_.family in ("enum", "set") for _, type_ in versions)
    return replace(column, versions=versions) if labelled else column


def _observed(column: Column, rows: Sequence[Row]) -> Column:
    """Complete a column by what its values show."""
    if column.type is None:
        return replace(column, json_type=_json_type([row.get(column.name) for row in rows]))
    if column.type.is_unspecified:
        return replace(column, type=_observed_decimal(column.type, [row.get(column.name) for row in rows]))
    if column.type.name == "set" and column.type.labels is None:
        wide = any(_is_wide(row.get(column.name)) for row in rows)
        return replace(column, type=replace(column.type, wide=wide)) if wide else column
    return column


def _is_wide(cell: object) -> bool:
    """Return whether a SET's number has bit 63."""
    if isinstance(cell, str):
        return cell.isdecimal() and len(cell) <= _MOST_DIGITS and int(cell) >= _2_63
    return isinstance(cell, int) and cell >= _2_63


def _observed_decimal(type_: ColumnType, cells: Sequence[object]) -> ColumnType:
    """Return the type with the scale of a sample: MySQL prints every value with the declared scale."""
    texts = [cell.lstrip("-") for cell in cells if isinstance(cell, str)]
    if not texts:
        return type_
    parts = [text.partition(".") for text in texts]
    whole = max(len(before.lstrip("0")) for before, _, _ in parts)
    scale = max(len(after) for _, _, after in parts)
    return replace(type_, whole=whole, scale=scale)


def _json_type(cells: Sequence[object]) -> pa.DataType | None:
    """Return the Arrow type that JSON values suggest; None if all of them are null."""
    types = set(map(type, cells)) - {type(None)}
    if not types:
        return None
    if types == {bool}:
        return pa.bool_()
    if types == {int}:
        fits = all(-_2_63 <= cell < _2_63 for cell in cells if isinstance(cell, int))
        return pa.int64() if fits else pa.decimal128(20, 0)
    if types <= {int, float}:
        return pa.float64()
    return pa.string()
