"""What a kernel is, and how one is chosen for a column.

A kernel turns the cells of one column (what the protocol's JSON holds, in row order, None for NULL) into one
Arrow array. It is built once for a column, a target type and the read's settings, and then only called. It
raises whatever Arrow or Python raise on a cell that does not fit; `failing_cells` finds which ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import SchemaError, UnsupportedTypeError
from ticdc_source.types import CONVERSIONS, ColumnType, convertible, kind_of, type_of

__all__ = ["Cells", "Kernel", "Settings", "Wire", "convert", "failing_cells", "kernel"]

Cells = Sequence[Any]
Kernel = Callable[[Cells], pa.Array]


class Settings(NamedTuple):
    """The options that kernels obey; see the options of the same names."""

    time_zone: str = "UTC"
    zero_date: str = "null"
    invalid_utf8: str = "replace"


# The kinds of target for which a type's number is asked for, and not its natural value.
_NUMBERS = {"enum": ("integer", "decimal"), "set": ("integer", "decimal"), "bit": ("decimal",)}

Maker = Callable[[ColumnType, Settings], Kernel]


class Wire(NamedTuple):
    """How a protocol writes a type.

    Attributes:
        natural: makes the kernel that gives `type.arrow`.
        text: makes the kernel that gives MySQL's text of the value, for columns read as string.
        number: makes the kernel that gives the number behind an enum, a set or a bit, as decimal(20,0).
    """

    natural: Maker
    text: Maker
    number: Maker | None = None


def kernel(wire: Wire | None, type_: ColumnType, target: pa.DataType, settings: Settings) -> Kernel:
    """Make the kernel that reads a column of `type_`, written as `wire`, as Arrow type `target`.

    Raises:
        UnsupportedTypeError: there is no such type (`wire` is None), and `target` is not string.
        SchemaError: a column of this type cannot be read as `target`.
    """
    wants_text = kind_of(target) == "string"
    if wire is None:
        if wants_text:
            return plain_text
        msg = f"type {type_} is not supported; schemaHints can ask for its text with 'string'"
        raise UnsupportedTypeError(msg)
    if wire.number is not None and kind_of(target) in _NUMBERS[type_.family]:
        number = wire.number(type_, settings)
        return lambda cells: convert(number(cells), target)
    if type_.name == "decimal" and kind_of(target) == "decimal":
        type_ = replace(type_, length=target.precision, scale=target.scale)
    if type_.family == "number" and kind_of(target) == "integer" and kind_of(type_.arrow) == "integer":
        type_ = type_of(target)  # read at once what is wanted: no value is lost between
    if type_.arrow == target:
        return wire.natural(type_, settings)
    if wants_text:
        return wire.text(type_, settings)
    if not convertible(type_.arrow, target):
        allowed = ", ".join(sorted({"string", *CONVERSIONS.get(kind_of(type_.arrow), ())}))
        msg = f"{type_} ({type_.arrow}) cannot be read as {target}; it can be read as {allowed}"
        raise SchemaError(msg)
    natural = wire.natural(type_, settings)
    return lambda cells: convert(natural(cells), target)


def plain_text(cells: Cells) -> pa.Array:
    """Read cells of any JSON shape as text."""
    return pa.array([None if c is None else c if isinstance(c, str) else str(c) for c in cells], pa.string())


def convert(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast to another type without loss.

    Raises:
        ValueError: a value does not survive the cast (pa.ArrowInvalid is one).
    """
    if array.type == target:
        return array
    source, wanted = kind_of(array.type), kind_of(target)
    if wanted == "boolean":
        truth = pc.equal(array, 1)
        if not pc.all(pc.or_(truth, pc.equal(array, 0)), min_count=0).as_py():
            msg = "a value other than 0 and 1 cannot be read as boolean"
            raise ValueError(msg)
        return truth
    if source == "boolean":
        array = array.cast(pa.int8())
    if wanted == "decimal" and source in ("integer", "boolean"):
        array = array.cast(pa.string())  # Arrow's own cast asks for room for every value of the integer type
    return array.cast(target)


def failing_cells(run: Kernel, cells: Cells) -> dict[int, str]:
    """Find the cells that the kernel refuses, by calling it on each alone: place → reason."""
    failures = {}
    for place, cell in enumerate(cells):
        try:
            run([cell])
        except Exception as error:  # noqa: BLE001 (a kernel may raise anything on garbage; here it gets its address)
            failures[place] = _reason(error, cell)
    return failures


_SHOWN = 80  # characters of a bad value that an error repeats


def _reason(error: Exception, cell: Any) -> str:
    shown = repr(cell)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    return f"{shown}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
