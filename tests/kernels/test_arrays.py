"""Kernels return the same for arrays as for cells, and pyarrow.json reads the same doubles as orjson."""

import base64
import decimal
import math
import random
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import orjson
import pyarrow as pa
import pytest

from ticdc_source.errors import SchemaError
from ticdc_source.kernels.arrays import consecutive, repeated, row_indices
from ticdc_source.kernels.contract import (
    CHANGE_TYPES,
    ColumnCast,
    Const,
    FloatCast,
    Image,
    Operation,
    Program,
    Row,
    Wanted,
)
from ticdc_source.kernels.wire import Settings, Wire, decimals_of_text, reading
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.schema.types import TYPES, ColumnType

SEED = 20261121
WIRES = [(protocol, name) for protocol in PROTOCOLS for name in TYPES]
ALPHABET = "ABCabc019+/="


def texts(chooser: random.Random) -> list[str]:
    known = ["", "0", "-1", "127", "128", "0x10", "1.5", "-0.01", "1e3", "9007199254740993", "new", "paid", "é",
             "[1,2]", "2024-02-29", "0000-00-00", "2024-02-29 12:34:56.789012", "2024-02-29T12:34:56Z",
             "0000-00-00T00:00:00Z", "2024-02-29T12:34:56.789+02:00", "\ufffd", "ÿþ"]  # fmt: skip
    some = [base64.b64encode(chooser.randbytes(chooser.randrange(9))).decode() for _ in range(8)]
    odd = ["".join(chooser.choices(ALPHABET, k=chooser.choice([3, 4, 8]))) for _ in range(4)]
    return known + some + odd


def numbers(chooser: random.Random) -> list[int]:
    edges = [
        sign * (1 << bits) + by for bits in (7, 8, 15, 16, 31, 32, 53, 62) for sign in (1, -1) for by in (-1, 0, 1)
    ]
    return [0, 1, 1_700_000_000_000, -(1 << 63), (1 << 63) - 1, chooser.randrange(1 << 40), *edges]


def doubles(chooser: random.Random) -> list[float]:
    prices = [chooser.randrange(-(10**9), 10**9) / 100 for _ in range(8)]
    return [0.0, 0.1, 1.0, -0.01, 1e-30, 1e21, 1e300, 3.1415927, 16777217.0, 9007199254740991.0, *prices]


def binaries(chooser: random.Random) -> list[bytes]:
    return [b"", b"\0", b"\x01", b"abc", "é".encode(), b"\xff\xfe", *(chooser.randbytes(n) for n in (1, 2, 7, 8))]


CELLS: dict[pa.DataType, Callable[[random.Random], Any]] = {
    pa.string(): texts,
    pa.int64(): numbers,
    pa.float64(): doubles,
    pa.binary(): binaries,
}


def attempt(run: Any, cells: Any) -> object:
    try:
        return run(cells)
    except Exception:  # noqa: BLE001 (whatever a kernel raises on garbage)
        return "refused"


@pytest.mark.parametrize("rounds", [25, pytest.param(100, marks=pytest.mark.slow("100 arrays of each type"))])
@pytest.mark.parametrize(("protocol", "name"), WIRES)
def test_a_kernel_returns_the_same_for_an_array_as_for_cells(protocol: str, name: str, rounds: int) -> None:
    """Every target type, with values that fit and values that do not; a kernel may refuse more arrays than cells."""
    wire: Wire = PROTOCOLS[protocol].facts.kernels[name]
    chooser = random.Random(f"{SEED} {protocol} {name}")
    types = [ColumnType(name), ColumnType(name, unsigned=True), ColumnType(name, length=10, scale=2)]
    if name in ("enum", "set"):
        types.append(ColumnType(name, labels=("new", "paid")))
    taken = 0

    for type_ in types:
        for target in {type_.arrow, pa.string(), pa.decimal128(20, 0), pa.int64(), pa.float64(), pa.binary()}:
            try:
                run, arrow, _ = reading(wire, type_, target, Settings())
            except SchemaError:
                continue
            if arrow is None:
                continue
            values: list[Any] = CELLS[arrow](chooser)
            several = [chooser.choices([*values, None], k=chooser.randrange(5)) for _ in range(rounds)]
            for cells in [*([value, None] for value in values), [value for value in values if value], [None], *several]:
                expected, found = attempt(run, cells), attempt(run, pa.array(cells, arrow))
                assert found == expected or (found == "refused" and arrow == pa.float64()), (SEED, cells)
                taken += found != "refused"

    assert taken or wire.arrays is None


def test_decimals_of_doubles_are_their_shortest_texts() -> None:
    """Doubles give the DECIMALs that their shortest texts are, at every scale; one that does not fit is refused."""
    chooser = random.Random(SEED)
    wire = PROTOCOLS["debezium"].facts.kernels["decimal"]
    taken = 0

    for _ in range(600):
        precision = chooser.randrange(1, 39)
        scale = chooser.randrange(min(precision, 30) + 1)
        type_ = ColumnType("decimal", length=precision, scale=scale)
        run = reading(wire, type_, pa.decimal128(precision, scale), Settings()).run
        digits = min(chooser.choice([1, 8, 14, 15, 15, 16, 17]), precision)
        cells = [chooser.choice([1, -1]) * chooser.randrange(10**digits) / 10**scale for _ in range(3)]
        largest = decimal.Decimal((0, (9,) * precision, -scale))
        exact = [decimal.Decimal(repr(cell)) for cell in cells]
        exact = [largest.copy_sign(value) if value.copy_abs() > largest else value for value in exact]
        found = attempt(run, cells)
        assert not isinstance(found, pa.Array) or found.to_pylist() == exact, (SEED, cells, scale)
        taken += isinstance(found, pa.Array)

    assert taken * 3 > 600


def test_doubles_are_read_to_the_bit(native_path: ModuleType) -> None:
    """The native path and orjson make the same double of a number's text."""
    chooser = random.Random(SEED)
    anything = [struct.unpack("<d", chooser.randbytes(8))[0] for _ in range(20_000)]
    tiny = [struct.unpack("<d", struct.pack("<Q", chooser.randrange(1 << 53)))[0] for _ in range(5_000)]
    written = [repr(number) for number in anything + tiny if math.isfinite(number)]
    written += [
        f"{number:.{chooser.randrange(25)}e}" for number in anything if math.isfinite(number) and abs(number) < 1e308
    ]
    written += [f"{chooser.uniform(-1e6, 1e6):.{chooser.randrange(30)}f}" for _ in range(10_000)]
    written += [str(chooser.randrange(10 ** chooser.randrange(1, 40))) for _ in range(5_000)]
    written.append("0." + "1" * 400)

    program = Program([Const(b"{"), Row(Image.MAIN), Const(b"}")], [b'"a":'], tail=b"", partial=False)
    columns = [ColumnCast(0, FloatCast(text=False, single=False))]
    wanted = Wanted(columns, list(Operation), preimages=True, after=-1, last=1)
    scanner = native_path.Scanner(program, wanted, CHANGE_TYPES)
    scanned = scanner.scan([f'{{"a":{text}}}'.encode() for text in written])

    fitting = memoryview(scanned.accepted).cast("i").tolist()
    found = memoryview(scanned.columns[0].data).cast("d").tolist()
    expected = [float(orjson.loads(written[index])) for index in fitting]
    assert len(fitting) > len(written) // 4  # exponents of three digits are declined
    differing = [
        written[index] for index, one, other in zip(fitting, expected, found, strict=True) if repr(one) != repr(other)
    ]
    assert not differing, (SEED, differing[:5])


@pytest.mark.parametrize("text", [" 10", "10 ", "1_0", "\uff11", "NaN"])
@pytest.mark.parametrize("others", [[], ["1"], ["1" * 39], ["1e1"]], ids=["alone", "short", "long", "exponent"])
def test_a_decimal_is_refused_whatever_stands_beside_it(text: str, others: list[str]) -> None:
    """A text that is no decimal is refused, also if a longer one beside it takes another way."""
    with pytest.raises((ValueError, ArithmeticError)):
        decimals_of_text(
            pa.array([*others, text]), pa.decimal256(50, 0) if "1" * 39 in others else pa.decimal128(38, 0)
        )


# Around the lengths at which a larger array is shared, or none.
COUNTS = [0, 1, 8191, 8192, 8193, 65536, 65537]


@pytest.mark.parametrize("count", COUNTS)
def test_slices_equal_new_arrays(count: int) -> None:
    """A slice of a shared array equals a new array, at each length and also on a second call."""
    for _ in range(2):
        assert repeated("a", pa.string(), count).equals(pa.array(["a"] * count, pa.string()))
        assert repeated(None, pa.string(), count).equals(pa.nulls(count, pa.string()))
        assert row_indices(count).equals(pa.array(range(count), pa.int32()))
        assert consecutive(1 << 60, count).equals(pa.array(range(1 << 60, (1 << 60) + count), pa.int64()))


def test_equal_values_of_different_types_have_different_arrays() -> None:
    """Equal values of different types have different arrays: 1 and True are one key of a dict."""
    assert repeated(1, pa.int32(), 2).type == pa.int32()
    assert repeated(value=True, arrow=pa.bool_(), count=2).to_pylist() == [True, True]
    assert repeated(1, pa.int64(), 2).type == pa.int64()
