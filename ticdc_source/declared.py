"""What DDL declares of a column, held against what the messages say of it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from ticdc_source.schema import Column, TypeVersions
from ticdc_source.type_merging import merge_types
from ticdc_source.types import ColumnType

__all__ = ["as_declared", "completed", "version_at"]

_STRINGS = frozenset({"text", "binary"})
_MEMBERS = frozenset({"enum", "set"})


def version_at(versions: TypeVersions, commit_ts: int) -> ColumnType | None:
    """Return the type of a row of `commit_ts`; of a row before all versions only what labels there are."""
    known = [type_ for start, type_ in versions if start < commit_ts]
    if known:
        return known[-1]
    return versions[0][1] if versions and versions[0][1].family in _MEMBERS else None


def completed(column: Column, exact: ColumnType) -> Column:
    """Return the column with what its messages leave open as a DDL event declares it; their own word stands."""
    type_ = column.type
    if type_ is None:
        return replace(column, type=exact, shape=None)
    if column.vague and _may_be(type_, exact):
        return replace(column, type=exact, vague=False)
    if (exact.name, exact.unsigned) != (type_.name, type_.unsigned):
        return column
    if type_.is_unspecified:  # MySQL prints every value with its column's scale
        shown = type_.scale in (None, exact.scale) and _has_room(exact, type_)
        return replace(column, type=exact) if shown else column
    return replace(column, type=type_.refined_by(exact))


def as_declared(column: Column, exact: ColumnType) -> Column | None:
    """Return the column as the user declares it; None where that does not hold what the messages say.

    It may be wider than they say, as the table may have been altered since.
    """
    type_ = column.type
    if type_ is None:
        return replace(column, type=exact, shape=None)
    if column.conflict:
        return column if exact.arrow == pa.string() else None
    if column.vague:
        return replace(column, type=exact, vague=False) if _may_be(type_, exact) else None
    if type_.is_unspecified and exact.name == "decimal":
        return replace(column, type=exact) if _has_room(exact, type_) else None
    if type_.labels is not None and exact.labels is not None:  # a wire may escape backslashes, or not
        labels = {label.replace("\\", "") for label in exact.labels}
        return column if {label.replace("\\", "") for label in type_.labels} <= labels else None
    if type_.name == exact.name == "bit" and type_.length is None:
        return replace(column, type=exact)
    merged = merge_types(type_, exact)
    if merged is None or merged.arrow != exact.arrow or _narrower(exact, merged):
        return column if type_.arrow == exact.arrow == pa.string() else None
    return replace(column, type=exact)


def _narrower(exact: ColumnType, merged: ColumnType) -> bool:
    """Tell whether an integer type lacks values that another of the same Arrow type has."""
    return (
        merged.name != "decimal"
        and (exact.family, exact.unsigned, exact.name) != (merged.family, merged.unsigned, merged.name)
        and exact.family == "number"
    )


def _may_be(vague: ColumnType, exact: ColumnType) -> bool:
    """Tell whether a type that messages leave open may be this one."""
    return (
        exact.family == vague.family
        or {exact.family, vague.family} <= _STRINGS
        or (vague.name == "double" and exact.name == "decimal")  # debezium
    )


def _has_room(exact: ColumnType, shown: ColumnType) -> bool:
    """Tell whether a decimal holds what a sample showed."""
    scale = exact.scale or 0
    return (shown.scale or 0) <= scale and (shown.whole or 0) <= (exact.length or 0) - scale
