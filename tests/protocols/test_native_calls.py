"""What Python hands to native code is checked there: anything else is an exception, and the next call works."""

import random
import struct
from collections.abc import Callable
from enum import Enum
from types import ModuleType
from typing import Any, NamedTuple, get_args

import pytest

from ticdc_source.kernels.contract import (
    CHANGE_TYPES,
    AvroField,
    AvroNumber,
    AvroRow,
    AvroSkip,
    AvroType,
    BitCast,
    BitsCast,
    Branch,
    Cast,
    Choice,
    ColumnCast,
    Const,
    DateCast,
    DatetimeCast,
    DecimalCast,
    FloatCast,
    Forget,
    Image,
    IntegerCast,
    LabelCast,
    LabelsCast,
    Members,
    Number,
    Operation,
    PackedMessages,
    PlainCast,
    Program,
    Row,
    SetOperation,
    Slot,
    Step,
    UnscaledCast,
    Wanted,
    Way,
)

SEED = 20261122
ROUNDS = 3000
MESSAGES = [b'{"id":%d}' % number for number in range(8)]
STEPS = [Const(b"{"), SetOperation(Operation.INSERT), Row(Image.MAIN), Const(b"}")]
NUMBERS = ColumnCast(0, IntegerCast(text=False, bytes=8))
REFUSED = (ValueError, TypeError, OverflowError, IndexError, AttributeError)


class Skip(NamedTuple):
    """Neither a step nor a cast."""

    content: bytes


class More(Enum):
    """An operation that there is not."""

    TRUNCATE = 1


More.__name__ = "Operation"


def scanner(module: ModuleType, steps: Any = STEPS, columns: Any = (NUMBERS,), operations: Any = Operation) -> Any:
    """Make a scanner of messages with one column."""
    program = Program(steps, [b'"id":'], tail=b"", partial=False)
    wanted = Wanted(columns, list(operations), preimages=True, after=-1, last=(1 << 63) - 1)
    return module.Scanner(program, wanted, CHANGE_TYPES)


def spans(messages: list[bytes]) -> tuple[bytes, list[int]]:
    """Return bytes that messages lie in, and their bounds."""
    bounds, data = [], b"--"
    for message in messages:
        bounds += [len(data), len(data) + len(message)]
        data += message + b"-"
    return data, bounds


def packed(bounds: list[int]) -> bytes:
    """Return numbers of 32 bits in native byte order."""
    return struct.pack(f"={len(bounds)}i", *bounds)


def changed(chooser: random.Random, data: bytes, bounds: list[int]) -> PackedMessages:
    """Return messages with wrong bounds: beyond the bytes, negative, falling, or cut off."""
    bounds = list(bounds)
    for _ in range(chooser.randrange(1, 4)):
        bounds[chooser.randrange(len(bounds))] = chooser.choice(
            [-1, 0, 1, len(data), len(data) + 1, 2**31 - 1, -(2**31), chooser.randrange(-9, 2 * len(data))]
        )
    written = packed(bounds)
    cut = chooser.choice([len(written), len(written), chooser.randrange(len(written))])
    return PackedMessages(data[: chooser.choice([len(data), chooser.randrange(len(data))])], written[:cut])


def test_messages_beyond_their_bytes_are_errors(native_path: ModuleType) -> None:
    """Wrong bounds and wrong indexes are exceptions or other bytes that were given, and the scanner stays whole."""
    chooser, scan = random.Random(SEED), scanner(native_path)
    data, bounds = spans(MESSAGES)
    expected = scan.scan(PackedMessages(data, packed(bounds))).columns[0].data
    refused = 0

    for number in range(ROUNDS):
        wrong = changed(chooser, data, bounds)
        indexes = [None, [0, 7, 3], [chooser.randrange(-3, 40)], [2**32 - 1], list(range(8))]
        events = chooser.choice(indexes)
        try:
            scanned = scan.scan(wrong, events)
        except REFUSED:
            refused += 1
        else:
            tried = len(wrong.bounds) // 8 if events is None else len(events)
            assert len(scanned.accepted) + len(scanned.declined) == 4 * tried, (SEED, number)
        assert scan.scan(PackedMessages(data, packed(bounds))).columns[0].data == expected, (SEED, number)

    assert ROUNDS // 4 < refused < ROUNDS


@pytest.mark.parametrize(
    "messages",
    [None, 7, "text", [1], [None], ["text"], [bytearray(b"{}")], (b"data", "bounds"), PackedMessages(b"data", [0, 4]),  # type: ignore[arg-type]
     [b"{}", None]],
    ids=repr,
)  # fmt: skip
def test_what_are_no_messages_is_refused(native_path: ModuleType, messages: object) -> None:
    """Messages are bytes, or lie in bytes with their bounds."""
    scan = scanner(native_path)

    with pytest.raises(REFUSED):
        scan.scan(messages)

    assert len(scan.scan(MESSAGES).accepted) == 4 * len(MESSAGES)


WRONG: dict[str, Callable[[ModuleType], object]] = {
    "no step": lambda module: scanner(module, [()]),
    "an unknown step": lambda module: scanner(module, [Skip(b"x")]),
    "a constant that is no bytes": lambda module: scanner(module, [Const(7)]),  # type: ignore[arg-type]
    "an unknown slot": lambda module: scanner(module, [Number(9, 1)]),  # type: ignore[arg-type]
    "a slot that is an image": lambda module: scanner(module, [Number(Image.MAIN, 1)]),  # type: ignore[arg-type]
    "a number beyond 64 bits": lambda module: scanner(module, [Number(Slot.IGNORED, 1 << 63)]),
    "an unknown image": lambda module: scanner(module, [Row(Slot.IGNORED)]),  # type: ignore[arg-type]
    "an unknown operation": lambda module: scanner(module, [SetOperation(More.TRUNCATE)]),  # type: ignore[arg-type]
    "equal members": lambda module: scanner(module, [Members([b'"a":"b"', b'"a":"b"'])]),
    "an unknown cast": lambda module: scanner(module, columns=[ColumnCast(0, Skip(b""))]),  # type: ignore[arg-type]
    "a precision beyond 38": lambda module: scanner(module, columns=[ColumnCast(0, DecimalCast(False, 39, 0))]),
    "operations that are none": lambda module: scanner(module, operations=[True, False]),
    "a negative column": lambda module: scanner(module, columns=[ColumnCast(-1, PlainCast.TEXT)]),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_is_no_template_is_refused(native_path: ModuleType, wrong: Callable[[ModuleType], object]) -> None:
    """A step, a cast or a choice that native code does not know is an exception."""
    with pytest.raises(REFUSED):
        wrong(native_path)


EVERY_STEP: list[Step] = [
    Const(b"{"),
    Choice([b"12", b"1"]),
    *(Number(slot, 9) for slot in Slot),
    Members([b'"a":"b"']),
    *map(Row, Image),
    *map(Forget, Image),
    *(AvroRow(image, [AvroField(kind, null) for kind in AvroType for null in (None, 0, 1)]) for image in Image),
    *(AvroNumber(slot, 9) for slot in Slot),
    *map(AvroSkip, AvroType),
    *map(SetOperation, Operation),
    Branch([Way(b"}", [Const(b",")]), Way(b"]", [])]),
]
EVERY_CAST: list[Cast] = [
    *PlainCast,
    IntegerCast(text=True, bytes=4),
    DecimalCast(text=True, precision=38, scale=2),
    UnscaledCast(precision=38, zeros=2),
    FloatCast(text=False, single=True),
    DateCast(zero_is_null=True),
    DatetimeCast(zero_is_null=False),
    LabelCast(text=True, labels=[b"a"]),
    LabelsCast(text=False, labels=[b"a", b"b"]),
    BitsCast(text=True),
    BitCast(text=False),
]


def test_native_code_knows_all_steps_and_casts(native_path: ModuleType) -> None:
    """Each class of step and of cast that Python has is one of native code."""
    assert {type(step) for step in EVERY_STEP} == set(get_args(Step))
    assert {type(cast) for cast in EVERY_CAST} == set(get_args(Cast))

    scanned = scanner(native_path, EVERY_STEP, [ColumnCast(0, cast) for cast in EVERY_CAST]).scan(MESSAGES)

    assert len(scanned.columns) == len(EVERY_CAST)


@pytest.mark.parametrize(
    "column",
    [ColumnCast(5, PlainCast.TEXT), ColumnCast(0, IntegerCast(text=False, bytes=3))],
    ids=["beyond the last", "of three bytes"],
)
def test_a_column_that_no_message_has_declines_all(native_path: ModuleType, column: ColumnCast) -> None:
    """A cast of a column that the program lacks, or to integers that Arrow lacks, declines every message."""
    scanned = scanner(native_path, columns=[column]).scan(MESSAGES)

    assert (len(scanned.accepted), len(scanned.declined)) == (0, 4 * len(MESSAGES))


def test_wrong_bounds_of_prefixes_are_errors(native_path: ModuleType) -> None:
    """Telling tables apart refuses wrong bounds, too, and goes on with the prefixes that it has learned."""
    chooser, prefixes = random.Random(SEED), native_path.Prefixes(b'"op":"')
    message = b'{"t":"a","op":"c","x":1}'
    data, bounds = spans([message] * 8)
    assert prefixes.learn(message, message.index(b'"x"'), 7)
    assert prefixes.tables(PackedMessages(data, packed(bounds))) == packed([7] * 8)
    refused = 0

    for number in range(ROUNDS):
        try:
            prefixes.tables(changed(chooser, data, bounds))
        except REFUSED:
            refused += 1
        assert prefixes.tables([message]) == packed([7]), (SEED, number)

    assert ROUNDS // 4 < refused < ROUNDS
