"""What a kernel is, and how one is chosen for a column.

A kernel turns the cells of one column (what the protocol's JSON holds, in row order, None for NULL) into one
Arrow array. It is built once for a column, a target type and the read's settings, and then only called. It
raises whatever Arrow or Python raise on a cell that does not fit; `failing_cells` finds which ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from decimal import Decimal
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import SchemaError, UnsupportedTypeError
from ticdc_source.kernels.variants import variants
from ticdc_source.schema.types import CONVERSIONS, DECIMAL_MAX, VARIANT, ColumnType, convertible, kind_of, type_of

__all__ = [
    "Cell",
    "Cells",
    "Kernel",
    "Settings",
    "Wire",
    "arrays_taken",
    "bytes_of_texts",
    "convert",
    "decimals_of_text",
    "decoded",
    "failing_cells",
    "kernel",
    "text_bytes",
    "texts",
]

Cell: TypeAlias = object  # what JSON gives: str, int, float, bool, list, dict, None
Cells: TypeAlias = Sequence[Cell]  # or an array, if `Wire.arrays` says so
Kernel: TypeAlias = Callable[[Cells], pa.Array]


class Settings(NamedTuple):
    """The options that kernels obey; see the options of the same names."""

    time_zone: str = "UTC"
    zero_date: str = "null"
    invalid_utf8: str = "replace"


# The kinds of target for which a type's number is asked for, and not its natural value.
_NUMBERS = {
    "enum": ("integer", "decimal"),
    "set": ("integer", "decimal"),
    "bit": ("integer", "decimal", "float", "double"),
}

Maker = Callable[[ColumnType, Settings], Kernel]


@dataclass(frozen=True, slots=True)
class Wire:
    """How a protocol writes a type.

    Attributes:
        natural: makes the kernel that gives `type.arrow`.
        text: makes the kernel that gives MySQL's text of the value, for columns read as string.
        number: makes the kernel that gives the number behind an enum, a set or a bit, as decimal(20,0).
        raw: makes the kernel that gives the bytes of a text.
        written: what the value is in JSON, for the documentation of the protocols.
        arrays: the type of the arrays that all kernels but `raw` take as well as cells, in which its JSON is without
            loss but for 1 and 1.0 being one double; None where they take cells only.
        labels: whether enum and set are written as their labels, and not as numbers.
    """

    natural: Maker
    text: Maker
    _: KW_ONLY
    number: Maker | None = None
    raw: Maker | None = None
    written: str = ""
    arrays: pa.DataType | None = None
    labels: bool = False


def kernel(wire: Wire | None, type_: ColumnType, target: pa.DataType, settings: Settings) -> Kernel:
    """Make the kernel that reads a column of `type_`, written as `wire`, as Arrow type `target`.

    Raises:
        UnsupportedTypeError: there is no such type (`wire` is None), and `target` is not string.
        SchemaError: a column of this type cannot be read as `target`.
    """
    wants_text = kind_of(target) == "string"
    if wire is None:
        if wants_text:
            return lambda cells: plain_text(cells, settings)
        msg = f"type {type_} is not supported; schemaHints can ask for its text with 'string'"
        raise UnsupportedTypeError(msg)
    if target == VARIANT and type_.name == "json":
        read = wire.text(type_, settings._replace(invalid_utf8="fail"))
        return lambda cells: variants(read(cells))
    if wire.raw is not None and kind_of(target) == "binary":
        return wire.raw(type_, settings)
    if wire.number is not None and kind_of(target) in _NUMBERS[type_.family] and not _is_natural(type_, target):
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


def arrays_taken(wire: Wire | None, target: pa.DataType) -> pa.DataType | None:
    """Return the type of the arrays that the kernel for this target takes as well as cells, None for cells only."""
    if wire is None or (wire.raw is not None and kind_of(target) == "binary"):
        return None
    return wire.arrays


def _is_natural(type_: ColumnType, target: pa.DataType) -> bool:
    """Tell whether bits are wanted as the type table gives them: 64 of them as a signed bigint."""
    return type_.family == "bit" and target in (pa.int64(), type_.arrow)


def plain_text(cells: Cells, settings: Settings) -> pa.Array:
    """Read cells of any JSON shape as text: strings as they are, all else as JSON."""
    return texts(
        [None if c is None else c if isinstance(c, str) else json.dumps(c, ensure_ascii=False) for c in cells], settings
    )


def texts(cells: Sequence[str | None], settings: Settings) -> pa.Array:
    """Make a string array; a byte that is no UTF-8 is in the cells as a lone surrogate (PEP 383)."""
    if isinstance(cells, pa.StringArray):
        return cells
    try:
        return pa.array(cells, pa.string())
    except UnicodeEncodeError:
        return pa.array([None if c is None else decoded(text_bytes(c), settings) for c in cells], pa.string())


def text_bytes(text: str) -> bytes:
    """Undo the surrogateescape of the parser; a surrogate that came from a JSON escape is not a byte."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")


_BAD_BYTE = re.compile("[\udc80-\udcff]")


def decoded(value: bytes, settings: Settings) -> str:
    """Decode UTF-8 by `invalidUtf8`; U+FFFD stands for each bad byte, as where TiCDC itself writes it (Go does so)."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        if settings.invalid_utf8 == "replace":
            return _BAD_BYTE.sub("\ufffd", value.decode(errors="surrogateescape"))
        msg = "not UTF-8; invalidUtf8=replace puts U+FFFD for each bad byte"
        raise ValueError(msg) from None


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
    if source == "decimal" and wanted in ("float", "double"):  # the number of a BIT: 64 of them are an error
        array = array.cast(pa.int64())
    if source == "boolean":
        array = array.cast(pa.int8())
    if wanted == "decimal":
        return decimals_of_text(array.cast(pa.string()), target)
    return array.cast(target)


def decimals_of_text(text: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast decimal texts without loss.

    Arrow's own cast wraps around, unnoticed, where the digits at the target's scale pass 38: it is used where that
    cannot be.

    Raises:
        ValueError, ArithmeticError: a text is no decimal, or does not fit.
    """
    longest = pc.max(pc.binary_length(text)).as_py() or 0
    written = bytes_of_texts(text)
    if longest + target.scale <= DECIMAL_MAX and b"e" not in written and b"E" not in written:
        return text.cast(target)
    return pa.array([None if cell is None else Decimal(cell) for cell in text.to_pylist()], target)


def bytes_of_texts(text: pa.Array) -> bytes:
    """Return all texts of a column, one after the other: looking for a byte there is 20 times as fast as a regex."""
    data = text.buffers()[2]
    return b"" if data is None else data.to_pybytes()


def failing_cells(run: Callable[[Cells], object], cells: Cells) -> dict[int, str]:
    """Return the reasons why a kernel refuses cells, by row index: it is called on each cell alone."""
    failures = {}
    for row, cell in enumerate(cells):
        try:
            run([cell])
        except Exception as error:  # noqa: BLE001 (a kernel may raise anything on garbage; here it gets its address)
            failures[row] = _reason(error, cell)
    return failures


_SHOWN = 80  # characters of a bad value that an error repeats


def _reason(error: Exception, cell: Cell) -> str:
    shown = repr(cell)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    return f"{shown}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
