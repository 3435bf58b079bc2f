"""Native code knows all that templates are made of, and reads no bytes but those that it was given."""

import random
import struct
from types import ModuleType
from typing import Any, get_args

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
    CSVDialect,
    CSVRow,
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
    TextRow,
    UnscaledCast,
    Wanted,
    Way,
    ZonedCast,
)

SEED = 20261122
ROUNDS = 3000
MESSAGES = [b'{"id":%d}' % number for number in range(8)]
STEPS = [Const(b"{"), SetOperation(Operation.INSERT), Row(Image.MAIN), Const(b"}")]
NUMBERS = ColumnCast(0, IntegerCast(text=False, bytes=8))
REFUSED = (ValueError, TypeError, OverflowError, IndexError, AttributeError)


def scanner(module: ModuleType, steps: Any = STEPS, columns: Any = (NUMBERS,)) -> Any:
    program = Program(steps, [b'"id":'], tail=b"", partial=False)
    wanted = Wanted(columns, list(Operation), preimages=True, after=-1, last=(1 << 63) - 1)
    return module.Scanner(program, wanted, CHANGE_TYPES)


def spans(messages: list[bytes]) -> tuple[bytes, list[int]]:
    bounds, data = [], b"--"
    for message in messages:
        bounds += [len(data), len(data) + len(message)]
        data += message + b"-"
    return data, bounds


def packed(bounds: list[int]) -> bytes:
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


EVERY_STEP: list[Step] = [
    Const(b"{"),
    Choice([b"12", b"1"]),
    *(Number(slot, 9) for slot in Slot),
    Members([b'"a":"b"']),
    *map(Row, Image),
    *map(Forget, Image),
    *(AvroRow(image, [AvroField(kind, null) for kind in AvroType for null in (None, 0, 1)]) for image in Image),
    *(TextRow(image, [False, True]) for image in Image),
    *(CSVRow(image, [False, True], CSVDialect(b",", b'"', b"\\N", b"\r\n")) for image in Image),
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
    ZonedCast(begin=b'{"z":"', zero_is_null=True),
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
