"""What a read wants of a table, decided once for each version of it that the messages show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ticdc_source.errors import SchemaError
from ticdc_source.hints import mending_hint
from ticdc_source.kernels import Kernel, Settings, Wire, kernel
from ticdc_source.schema import Column, ReadField
from ticdc_source.types import ColumnType

__all__ = ["Plan", "Planned", "WireOf"]

# Chooses how a message's column is read as a field of the read schema: its wire form, and its type.
WireOf = Callable[[Column, ReadField], tuple[Wire | None, ColumnType]]


class Planned(NamedTuple):
    """A field of the read schema, planned for one version of the table."""

    field: ReadField
    source: str | None  # the column's name in these messages; None where they lack it
    run: Kernel | None


@dataclass(slots=True)
class Plan:
    """What a read wants of a table: fixed once, run for every tray.

    Attributes:
        fields: the table columns of the read schema.
        settings: what kernels obey.
        operations: the operations wanted, of insert, update, delete.
        preimages: whether the rows before an update are wanted.
        known: lower-case names of all columns that inference saw; None where it did not run, so that a column
            the schema lacks is one the user left out.
    """

    fields: tuple[ReadField, ...]
    settings: Settings = field(default_factory=Settings)
    operations: frozenset[str] = frozenset({"insert", "update", "delete"})
    preimages: bool = True
    known: frozenset[str] | None = None
    _cache: dict[tuple[Column, ...], tuple[Planned, ...]] = field(default_factory=dict)

    def boundaries(self) -> list[int]:
        """Return where versions of a column begin that messages do not tell apart: commit_ts of DDL, rising."""
        return sorted({start for wanted in self.fields for start, _ in wanted.versions})

    def for_columns(self, columns: tuple[Column, ...], wire_of: WireOf) -> tuple[Planned, ...]:
        """Return, for one version of the table, the kernel of each field; made at first sight, then cached.

        Raises:
            SchemaError: a column is new, or cannot be read as the read schema wants it.
        """
        planned = self._cache.get(columns)
        if planned is None:
            self._refuse_drift(columns)
            by_name = {column.name.lower(): column for column in columns}
            planned = self._cache[columns] = tuple(
                self._plan_field(wanted, by_name.get(wanted.name.lower()), wire_of) for wanted in self.fields
            )
        return planned

    def _plan_field(self, wanted: ReadField, column: Column | None, wire_of: WireOf) -> Planned:
        if column is None:
            return Planned(wanted, None, None)
        try:
            wire, type_ = wire_of(column, wanted)
            return Planned(wanted, column.name, kernel(wire, type_, wanted.arrow, self.settings))
        except SchemaError as error:
            msg = f"Column {column.name}: {error}. {mending_hint(column.name)}"
            raise type(error)(msg) from None

    def _refuse_drift(self, columns: tuple[Column, ...]) -> None:
        if self.known is None:
            return
        new = [column for column in columns if column.name.lower() not in self.known]
        if new:
            listed = ", ".join(f"{column.name} {column.type or ''}".strip() for column in new)
            msg = (
                f"the messages have columns that the schema lacks: {listed}. Load the source again to infer the "
                "schema anew (from more rows with inferSchema.maxRecords, if they come up in the middle only), or set "
                "onSchemaDrift=ignore to leave them out"
            )
            raise SchemaError(msg)
