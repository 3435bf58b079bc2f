"""How a protocol writes a type (`Wire`), and the kernels that read such columns.

A kernel turns the cells of one column, as the messages' JSON has them, in row order and with None for NULL, into one
Arrow array. It is made once for a column, a target type and the settings of the read. On cells that do not fit it
raises whatever Arrow or Python raise; `failing_cells` finds them.
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
from ticdc_source.kernels.contract import Cast, DecimalCast, IntegerCast
from ticdc_source.kernels.variants import variants
from ticdc_source.schema.types import CONVERSIONS, DECIMAL_MAX, VARIANT, ColumnType, category_of, convertible, type_of

Cell: TypeAlias = object  # what JSON gives: str, int, float, bool, list, dict, None
Cells: TypeAlias = Sequence[Cell]  # or an array, if `Wire.arrays` says so
Kernel: TypeAlias = Callable[[Cells], pa.Array]


class Settings(NamedTuple):
    """The options that kernels obey."""

    time_zone: str = "UTC"
    zero_date: str = "null"
    invalid_utf8: str = "replace"


# By family: the categories of target type that ask for a value's number, not for the value itself.
_NUMBERS = {
    "enum": ("integer", "decimal"),
    "set": ("integer", "decimal"),
    "bit": ("integer", "decimal", "float", "double"),
}

Maker: TypeAlias = Callable[[ColumnType, Settings], Kernel]
# Returns the native cast that equals the natural kernel, except for cells that it declines; None if there is none.
CastOf: TypeAlias = Callable[[ColumnType, Settings], Cast | None]


def always(cast: Cast | None) -> CastOf:
    return lambda _type, _settings: cast


NO_CAST = always(None)


def no_number_cast(_target: pa.DataType) -> Cast | None:
    return None


def integer_cast(arrow: pa.DataType, *, text: bool) -> Cast | None:
    """Return the cast that reads integers or decimals, from JSON numbers or from digits in text."""
    if pa.types.is_decimal(arrow):
        return DecimalCast(text, arrow.precision, arrow.scale) if arrow.scale >= 0 else None
    return IntegerCast(text, arrow.bit_width // 8) if pa.types.is_signed_integer(arrow) else None


@dataclass(frozen=True, slots=True)
class Wire:
    """How a protocol writes a type: the makers of its kernels.

    Attributes:
        natural: returns values of the type `ColumnType.arrow`.
        text: returns MySQL's text of each value, for columns read as string.
        number: returns the number of an ENUM, a SET or a BIT, as decimal(20,0).
        raw: returns the bytes of a text.
        arrays: the type of arrays that all kernels but `raw` also take; None if they take only cells. Such an array
            loses nothing of the JSON, except that 1 and 1.0 are one double.
        labels: whether ENUM and SET are written as labels, not as numbers.
        cast: the native cast that equals `natural`.
        number_cast: returns the native cast that equals `number`, converted to a type; None if there is none.
        text_cast: the native cast that equals `text`.
    """

    natural: Maker
    text: Maker
    _: KW_ONLY
    number: Maker | None = None
    raw: Maker | None = None
    arrays: pa.DataType | None = None
    labels: bool = False
    cast: CastOf = NO_CAST
    number_cast: Callable[[pa.DataType], Cast | None] = no_number_cast
    text_cast: Cast | None = None


class Reading(NamedTuple):
    """How a column of one type, written in one way, is read as another type; `arrays` and `cast` as in `Wire`."""

    run: Kernel
    arrays: pa.DataType | None = None
    cast: Cast | None = None


def reading(wire: Wire | None, type_: ColumnType, target: pa.DataType, settings: Settings) -> Reading:
    """Choose how a column of `type_`, written as `wire`, is read as Arrow type `target`.

    Raises:
        UnsupportedTypeError: the type is unknown (`wire` is None), and `target` is not string.
        SchemaError: a column of this type cannot be read as `target`.
    """
    category = category_of(target)
    if wire is None:
        if category == "string":
            return Reading(lambda cells: plain_text(cells, settings))
        raise UnsupportedTypeError(f"type {type_} is not supported")
    if target == VARIANT and type_.name == "json":
        read = wire.text(type_, settings._replace(invalid_utf8="fail"))
        return Reading(lambda cells: variants(read(cells)), wire.arrays)
    if wire.raw is not None and category == "binary":
        return Reading(wire.raw(type_, settings))
    if wire.number is not None and category in _NUMBERS[type_.family] and not _is_natural(type_, target):
        number = wire.number(type_, settings)
        return Reading(lambda cells: convert(number(cells), target), wire.arrays, wire.number_cast(target))
    type_ = _made(type_, target)
    if type_.arrow == target:
        return Reading(wire.natural(type_, settings), wire.arrays, wire.cast(type_, settings))
    if category == "string":
        return Reading(wire.text(type_, settings), wire.arrays, wire.text_cast)
    if not convertible(type_.arrow, target):
        allowed = ", ".join(sorted({"string", *CONVERSIONS.get(category_of(type_.arrow), ())}))
        raise SchemaError(f"{type_} ({type_.arrow}) cannot be read as {target}; it can be read as {allowed}")
    natural = wire.natural(type_, settings)
    return Reading(lambda cells: convert(natural(cells), target), wire.arrays)


def _made(type_: ColumnType, target: pa.DataType) -> ColumnType:
    """Return the type whose natural kernel makes the target's values directly, without an intermediate type's loss."""
    category = category_of(target)
    if type_.name == "decimal" and category == "decimal":
        return replace(type_, length=target.precision, scale=target.scale)
    if type_.name == "decimal" and category == "string" and not type_.is_supported:
        return replace(type_, length=None, scale=None)
    if type_.family == "number" and category == category_of(type_.arrow) == "integer":
        return type_of(target)
    return type_


def _is_natural(type_: ColumnType, target: pa.DataType) -> bool:
    """Whether the target holds a BIT's own values: up to 64 bits as a signed bigint."""
    return type_.family == "bit" and target in (pa.int64(), type_.arrow)


def plain_text(cells: Cells, settings: Settings) -> pa.Array:
    """Strings as they are, everything else as JSON."""
    return texts([None if c is None else c if isinstance(c, str) else json_text(c) for c in cells], settings)


_encoded = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_MOST_EXPONENT = 400  # more than that of any double


def json_text(value: Cell) -> str:
    """Write a value as JSON, numbers with all of their digits.

    Raises:
        ValueError: a number is far beyond the range of a double, or not finite.
    """
    try:
        return _encoded(value)
    except TypeError:  # there is a Decimal
        if isinstance(value, dict):
            return "{" + ", ".join(f"{_encoded(name)}: {json_text(member)}" for name, member in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(json_text, value)) + "]"
        if isinstance(value, Decimal):
            return number_text(value)
        raise


def number_text(number: Decimal) -> str:
    """Write a number without an exponent.

    Raises:
        ValueError: it is far beyond the range of a double: its zeros might not fit the memory.
    """
    if abs(number.adjusted()) > _MOST_EXPONENT:
        raise ValueError(f"a number far beyond the range of a double: {number!s:.40}")
    return format(number, "f")


def texts(cells: Sequence[str | None], settings: Settings) -> pa.Array:
    """Make a string array; lone surrogates in the cells stand for bytes that are not UTF-8 (PEP 383).

    Raises:
        ValueError: a text is not UTF-8, and `invalidUtf8` is `fail`.
    """
    if isinstance(cells, pa.StringArray):
        return cells
    try:
        return pa.array(cells, pa.string())
    except UnicodeEncodeError:
        return pa.array([None if c is None else decoded(text_bytes(c), settings) for c in cells], pa.string())


def text_bytes(text: str) -> bytes:
    """Encode a text, including bytes that the parser kept as surrogates (PEP 383)."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # a surrogate of a JSON escape stands for no byte
        return text.encode(errors="surrogatepass")


_BAD_BYTE = re.compile("[\udc80-\udcff]")


def decoded(value: bytes, settings: Settings) -> str:
    """Decode UTF-8 as `invalidUtf8` says; each bad byte becomes U+FFFD, as in Go and so in TiCDC.

    Raises:
        ValueError: the value is not UTF-8, and `invalidUtf8` is `fail`.
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        if settings.invalid_utf8 == "replace":
            return _BAD_BYTE.sub("\ufffd", value.decode(errors="surrogateescape"))
        raise ValueError("not UTF-8: set invalidUtf8=replace to read U+FFFD for each bad byte") from None


def convert(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast to another type without loss.

    Raises:
        ValueError: a value does not survive the cast (pa.ArrowInvalid is a ValueError).
    """
    if array.type == target:
        return array
    source, category = category_of(array.type), category_of(target)
    if category == "boolean":
        truth = pc.equal(array, 1)
        if not pc.all(pc.or_(truth, pc.equal(array, 0)), min_count=0).as_py():
            raise ValueError("a value other than 0 and 1 cannot be read as boolean")
        return truth
    if source == "decimal" and category in ("float", "double"):  # the number of a BIT: 64 of them are an error
        array = array.cast(pa.int64())
    if source == "boolean":
        array = array.cast(pa.int8())
    if category == "decimal":
        return decimals_of_text(array.cast(pa.string()), target)
    return array.cast(target)


def decimals_of_text(text: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast decimal texts without loss.

    Arrow's own cast wraps around, unnoticed, if a number has more than 38 digits at the target's scale. It is used only
    if the texts are too short for that.

    Raises:
        ValueError, ArithmeticError: a text is not a decimal, or does not fit.
    """
    longest = pc.max(pc.binary_length(text)).as_py() or 0
    written = bytes_of_texts(text)
    if longest + target.scale <= DECIMAL_MAX and b"e" not in written and b"E" not in written:
        return text.cast(target)
    if written.translate(None, b"0123456789+-.eE"):  # Decimal would read " 1_0" as 10, which Arrow refuses
        raise ValueError("not a decimal")
    # `number_text` refuses the exponents at which Arrow overflows its stack.
    numbers = [None if cell is None else Decimal(number_text(Decimal(cell))) for cell in text.to_pylist()]
    return pa.array(numbers, target)


def bytes_of_texts(text: pa.Array) -> bytes:
    """Return a column's texts, concatenated: searching them for a byte is 20 times as fast as a regex."""
    data = text.buffers()[2]
    return b"" if data is None else data.to_pybytes()


def failing_cells(run: Callable[[Cells], object], cells: Cells) -> dict[int, str]:
    """Call a kernel on each cell alone; return why it refuses some, by row index."""
    failures = {}
    for row, cell in enumerate(cells):
        try:
            run([cell])
        except Exception as error:  # noqa: BLE001 (a kernel may raise anything on garbage)
            failures[row] = _reason(error, cell)
    return failures


_SHOWN = 80  # characters of a bad value that an error repeats


def _reason(error: Exception, cell: Cell) -> str:
    shown = repr(cell)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    return f"{shown}: {' '.join(str(error).splitlines()) or type(error).__name__}"
