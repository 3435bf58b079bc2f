"""What a read wants of a table, and how to read it from each version of the table."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa

from ticdc_source.errors import SchemaError
from ticdc_source.kernels.contract import Cast
from ticdc_source.kernels.json_documents import JSONWriter, rescue_writer
from ticdc_source.kernels.wire import Kernel, Settings, Wire, reading
from ticdc_source.options.hints import string_hint
from ticdc_source.schema.ddl_event import Moment
from ticdc_source.schema.model import Column, ReadField, check_names
from ticdc_source.schema.types import ColumnType

_log = logging.getLogger(__name__)

# Chooses the wire form and type of a column in the messages, given the field of the read schema.
WireOf = Callable[[Column, ReadField], tuple[Wire | None, ColumnType]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedColumn:
    """How to read a field of the read schema from one version of the table.

    Attributes:
        source: the column's name in the messages; None if they lack it.
        raw: the kernel that returns the bytes of a text.
        arrays, cast: as in `kernels.wire.Reading`.
    """

    field: ReadField
    source: str | None = None
    run: Kernel | None = None
    raw: Kernel | None = None
    rescue: JSONWriter | None = None
    arrays: pa.DataType | None = None
    cast: Cast | None = None


class PlannedVersion(NamedTuple):
    """How to read one version of a table.

    Attributes:
        columns: one for each field of the read schema.
        unknown: columns without a field, by their name in the messages, with the writers of their JSON.
    """

    columns: tuple[PlannedColumn, ...]
    unknown: dict[str, JSONWriter]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a read wants of a table.

    Attributes:
        known_columns: lower-case names of all columns expected in the messages: others are unknown. None if that is not
            known; the user then left out the columns that the schema lacks.
        told_at: the TSO as of which TiDB told the columns, if it did: earlier events may have more, dropped since.
        others: what is known about columns without a field, to rescue them.
        rescued: the name of the rescued column.
        rescue: whether values and columns that fit no field go into that column; otherwise they are errors.
        documents: whether to return rows as JSON documents (`cast.cast_images`) instead of the columns of `fields`,
            which then only have what is known about some columns.
        native_path: whether decoders may take the native path, which returns the same rows.
    """

    fields: tuple[ReadField, ...]
    _: KW_ONLY
    settings: Settings = field(default_factory=Settings)
    operations: frozenset[str] = frozenset({"insert", "update", "delete"})
    preimages: bool = True
    known_columns: frozenset[str] | None = None
    told_at: int | None = None
    others: tuple[ReadField, ...] = ()
    rescued: str | None = None
    rescue: bool = False
    documents: bool = False
    native_path: bool = True

    def boundaries(self) -> list[Moment]:
        """Return, ascending, the moments of DDL whose effects on columns may not show in messages."""
        return sorted({start for item in (*self.fields, *self.others) for start, _ in item.versions})

    def unknown(self, columns: tuple[Column, ...]) -> list[Column]:
        expected = self.known_columns
        return [] if expected is None else [column for column in columns if column.name.lower() not in expected]

    def _warn_of_dropped(self, unknown: list[Column], columns: tuple[Column, ...]) -> None:
        """Warn about values left out: a column that was renamed is NULL."""
        present = {column.name.lower() for column in columns}
        absent = [item.name for item in self.fields if item.name.lower() not in present]
        _log.warning(
            "Events up to TSO %s have columns that TiDB had dropped by then, and are returned without them: %s%s. Set "
            "onSchemaDrift=rescue to keep them",
            self.told_at,
            ", ".join(column.name for column in unknown),
            f"; if one was renamed, its values are missing in {', '.join(absent)}, which is NULL there" * bool(absent),
        )

    def for_columns(self, columns: tuple[Column, ...], wire_of: WireOf, *, dropped: bool = False) -> PlannedVersion:
        """Choose the kernels for one version of the table; `LearnedTable.planned` keeps the result.

        Args:
            dropped: whether to leave out unknown columns, because TiDB has dropped them.

        Raises:
            SchemaError: a column is new, or cannot be read as the read schema asks, and is not rescued; or Spark takes
                two columns for one.
        """
        check_names(None, columns)
        unknown = self.unknown(columns)
        if dropped and not self.rescue:
            self._warn_of_dropped(unknown, columns)
            unknown = []
        if unknown and not self.rescue:
            raise _drift(unknown)
        by_name = {column.name.lower(): column for column in columns}
        planned = tuple(self._plan_field(item, by_name.get(item.name.lower()), wire_of) for item in self.fields)
        unknown += [
            by_name[column.field.name.lower()]
            for column in planned
            if column.source is None and column.field.name.lower() in by_name
        ]
        others = {item.name.lower(): item for item in self.others}
        fields = {each.name: others.get(each.name.lower()) or ReadField(each.name, pa.string()) for each in unknown}
        return PlannedVersion(planned, {each.name: self._json(each, fields[each.name], wire_of) for each in unknown})

    def _plan_field(self, read_field: ReadField, column: Column | None, wire_of: WireOf) -> PlannedColumn:
        if column is None:
            return PlannedColumn(field=read_field)
        rescued = self.rescue and not (column.key or read_field.key)  # a row without its key is useless
        try:
            wire, type_ = wire_of(column, read_field)
            chosen = reading(wire, type_, read_field.arrow, self.settings)
            return PlannedColumn(
                field=read_field,
                source=column.name,
                run=chosen.run,
                raw=_bytes_of_text(wire, type_, read_field.arrow, self.settings),
                rescue=self._json(column, replace(read_field, arrow=pa.string()), wire_of) if rescued else None,
                arrays=chosen.arrays,
                cast=chosen.cast,
            )
        except SchemaError as error:
            if rescued:
                return PlannedColumn(field=read_field)
            raise type(error)(
                f"Column {column.name}: {error}. {string_hint(column.name, user_schema=read_field.user_schema)}"
            ) from None

    def _json(self, column: Column, read_field: ReadField, wire_of: WireOf) -> JSONWriter:
        wire, type_ = wire_of(column, read_field)
        return rescue_writer(wire, type_, self.settings)


def _bytes_of_text(wire: Wire | None, type_: ColumnType, target: pa.DataType, settings: Settings) -> Kernel | None:
    """Make the kernel that returns the bytes of a column read as string."""
    if wire is None or target != pa.string():
        return None
    if wire.raw is not None:
        return wire.raw(type_, settings)
    return wire.natural(type_, settings) if type_.family == "binary" else None


def _drift(unknown: list[Column]) -> SchemaError:
    listed = ", ".join(f"{column.name} {column.type or ''}".strip() for column in unknown)
    return SchemaError(
        f"the messages have columns that the schema lacks: {listed}. Load the source again, a stream by restarting "
        "its query, to infer the schema anew; if the columns occur only in the middle, raise inferSchema.maxRecords. "
        "Or set onSchemaDrift: rescue keeps them in a column of JSON, ignore leaves them out"
    )
