"""What a read wants of a table, decided once for each version of it that the messages show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from ticdc_source.errors import SchemaError
from ticdc_source.kernels import Kernel, Settings, Wire, arrays_taken, kernel
from ticdc_source.kernels.json_values import JSONKernel, json_kernel
from ticdc_source.options.hints import mending_hint
from ticdc_source.schema.model import Column, ReadField
from ticdc_source.schema.types import ColumnType

__all__ = ["Plan", "PlannedColumn", "UnknownColumn", "WireOf"]

# Chooses how a message's column is read as a field of the read schema: its wire form, and its type.
WireOf = Callable[[Column, ReadField], tuple[Wire | None, ColumnType]]


class PlannedColumn(NamedTuple):
    """A field of the read schema, planned for one version of the table."""

    field: ReadField
    source: str | None  # the column's name in these messages; None where they lack it
    run: Kernel | None
    raw: Kernel | None = None  # gives the bytes of a text
    rescue: JSONKernel | None = None  # for values that do not fit; None where those are errors
    arrays: pa.DataType | None = None  # of what type are arrays that `run` takes as well as cells


class UnknownColumn(NamedTuple):
    """A column that no field of the read schema holds, and what makes JSON of its values."""

    source: str
    run: JSONKernel


@dataclass(slots=True)
class Plan:
    """What a read wants of a table: fixed once, run for every table events.

    Attributes:
        fields: the table columns of the read schema.
        settings: what kernels obey.
        operations: the operations wanted, of insert, update, delete.
        preimages: whether the rows before an update are wanted.
        known: lower-case names of all columns that inference saw; None where it did not run, so that a column
            the schema lacks is one the user left out.
        rescued: the name of the rescued column, None where the read schema has none.
        rescue: whether values and columns that fit no field of the read schema go there, and are no errors.
        documents: makes the columns where they are not `fields` but JSON documents of whole rows
            (`documents.document_images`); `fields` then only say what is known of some columns.
        build_ts: whether it is wanted when messages were encoded; without, the fast path need not say it.
        fast_path: whether protocols may take their fast path; both give the same.
        columnar_from: how many events of one table are worth reading them by columns, where a protocol can.
        learned: what the fast path has learned of the messages, by protocol.
    """

    fields: tuple[ReadField, ...]
    settings: Settings = field(default_factory=Settings)
    operations: frozenset[str] = frozenset({"insert", "update", "delete"})
    preimages: bool = True
    known: frozenset[str] | None = None
    rescued: str | None = None
    rescue: bool = False
    documents: Callable[..., Any] | None = None
    build_ts: bool = True
    fast_path: bool = True
    columnar_from: int = 256
    learned: dict[str, Any] = field(default_factory=dict)
    _cache: dict[tuple[Column, ...], tuple[PlannedColumn, ...]] = field(default_factory=dict)
    _unknown_columns: dict[tuple[Column, ...], tuple[UnknownColumn, ...]] = field(default_factory=dict)

    def boundaries(self) -> list[int]:
        """Return where versions of a column begin that messages do not tell apart: commit_ts of DDL, rising."""
        return sorted({start for wanted in self.fields for start, _ in wanted.versions})

    def for_columns(self, columns: tuple[Column, ...], wire_of: WireOf) -> tuple[PlannedColumn, ...]:
        """Return, for one version of the table, the kernel of each field; made at first sight, then cached.

        Raises:
            SchemaError: a column is new, or cannot be read as the read schema wants it, and is not rescued.
        """
        planned = self._cache.get(columns)
        if planned is None:
            unknown_columns = self._new(columns)
            if unknown_columns and not self.rescue:
                raise _drift(unknown_columns)
            by_name = {column.name.lower(): column for column in columns}
            planned = tuple(
                self._plan_field(wanted, by_name.get(wanted.name.lower()), wire_of) for wanted in self.fields
            )
            unknown_columns += [
                by_name[item.field.name.lower()]
                for item in planned
                if item.source is None and item.field.name.lower() in by_name
            ]
            self._unknown_columns[columns] = tuple(
                UnknownColumn(unknown_column.name, self._json(unknown_column, wire_of))
                for unknown_column in unknown_columns
            )
            self._cache[columns] = planned
        return planned

    def unknown_columns(self, columns: tuple[Column, ...]) -> tuple[UnknownColumn, ...]:
        """Return the columns of this version, planned before, that are rescued whole."""
        return self._unknown_columns[columns]

    def _plan_field(self, wanted: ReadField, column: Column | None, wire_of: WireOf) -> PlannedColumn:
        if column is None:
            return PlannedColumn(wanted, None, None)
        saved = self.rescue and not (column.key or wanted.key)  # a row without its key could be applied to nothing
        try:
            wire, type_ = wire_of(column, wanted)
            return PlannedColumn(
                wanted,
                column.name,
                kernel(wire, type_, wanted.arrow, self.settings),
                _bytes_of_text(wire, type_, wanted.arrow, self.settings),
                self._json(column, wire_of) if saved else None,
                arrays_taken(wire, wanted.arrow),
            )
        except SchemaError as error:
            if saved:
                return PlannedColumn(wanted, None, None)
            msg = f"Column {column.name}: {error}. {mending_hint(column.name)}"
            raise type(error)(msg) from None

    def _json(self, column: Column, wire_of: WireOf) -> JSONKernel:
        wire, type_ = wire_of(column, ReadField(column.name, pa.string()))
        return json_kernel(wire, type_, self.settings)

    def _new(self, columns: tuple[Column, ...]) -> list[Column]:
        if self.known is None:
            return []
        return [column for column in columns if column.name.lower() not in self.known]


def _bytes_of_text(wire: Wire | None, type_: ColumnType, target: pa.DataType, settings: Settings) -> Kernel | None:
    """Make the kernel that gives the bytes behind a column read as string; None where it is no text."""
    if wire is None or target != pa.string():
        return None
    if wire.raw is not None:
        return wire.raw(type_, settings)
    return wire.natural(type_, settings) if type_.family == "binary" else None


def _drift(new: list[Column]) -> SchemaError:
    listed = ", ".join(f"{column.name} {column.type or ''}".strip() for column in new)
    msg = (
        f"the messages have columns that the schema lacks: {listed}. Load the source again, a stream by restarting "
        "its query, to infer the schema anew (from more rows with inferSchema.maxRecords, if they come up in the "
        "middle only), or set onSchemaDrift: rescue keeps them in a column of JSON, ignore leaves them out"
    )
    return SchemaError(msg)
