"""What Python hands to native code is checked there: anything else is an exception, and the next call works."""

import random
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

SEED = 20261122
ROUNDS = 3000
MESSAGES = [b'{"id":%d}' % number for number in range(8)]
STEPS: list[tuple[object, ...]] = [("const", b"{"), ("operation", 0), ("row", 1), ("const", b"}")]
REFUSED = (ValueError, TypeError, OverflowError, IndexError)


def scanner(
    module: ModuleType, steps: object = STEPS, casts: object = ((0, ("integer", False, 8)),), **given: Any
) -> Any:
    """Make a scanner of messages with one column."""
    more = {
        "partial": False,
        "operations": [True] * 3,
        "preimages": True,
        "commit_ts_range": (-1, (1 << 63) - 1),
        **given,
    }
    return module.Scanner(steps, [[b'"id":']], b"", casts, **more)


def spans(messages: list[bytes]) -> tuple[bytes, list[int]]:
    """Return messages as native code takes them, but for the bounds, which are a list."""
    bounds, data = [], b"--"
    for message in messages:
        bounds += [len(data), len(data) + len(message)]
        data += message + b"-"
    return data, bounds


def packed(bounds: list[int]) -> bytes:
    """Return bounds as native code takes them."""
    return struct.pack(f"={len(bounds)}i", *bounds)


def changed(chooser: random.Random, data: bytes, bounds: list[int]) -> tuple[bytes, bytes]:
    """Return messages with wrong bounds: beyond the bytes, negative, falling, or cut off."""
    bounds = list(bounds)
    for _ in range(chooser.randrange(1, 4)):
        bounds[chooser.randrange(len(bounds))] = chooser.choice(
            [-1, 0, 1, len(data), len(data) + 1, 2**31 - 1, -(2**31), chooser.randrange(-9, 2 * len(data))]
        )
    written = packed(bounds)
    cut = chooser.choice([len(written), len(written), chooser.randrange(len(written))])
    return data[: chooser.choice([len(data), chooser.randrange(len(data))])], written[:cut]


def test_messages_beyond_their_bytes_are_errors(native_path: ModuleType) -> None:
    """Wrong bounds and wrong indexes are exceptions or other bytes that were given, and the scanner stays whole."""
    chooser, scan = random.Random(SEED), scanner(native_path)
    data, bounds = spans(MESSAGES)
    expected = scan.scan((data, packed(bounds))).columns[0]
    refused = 0

    for number in range(ROUNDS):
        wrong = changed(chooser, data, bounds)
        indexes = [None, [0, 7, 3], [chooser.randrange(-3, 40)], [2**32 - 1], list(range(8))]
        events = chooser.choice(indexes)
        try:
            found = scan.scan(wrong, events)
        except REFUSED:
            refused += 1
        else:
            tried = len(wrong[1]) // 8 if events is None else len(events)
            assert len(found.accepted) + len(found.declined) == 4 * tried, (SEED, number)
        assert scan.scan((data, packed(bounds))).columns[0] == expected, (SEED, number)

    assert ROUNDS // 4 < refused < ROUNDS


@pytest.mark.parametrize(
    "messages",
    [None, 7, "text", [1], [None], ["text"], [bytearray(b"{}")], (b"data", "bounds"),
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
    "a step without a name": lambda module: scanner(module, [()]),
    "an unknown step": lambda module: scanner(module, [("skip", b"x")]),
    "a constant that is no bytes": lambda module: scanner(module, [("const", 7)]),
    "a slot beyond the last": lambda module: scanner(module, [("number", 9, 1)]),
    "a number beyond 64 bits": lambda module: scanner(module, [("number", 0, 1 << 63)]),
    "a row beyond the last": lambda module: scanner(module, [("row", 2)]),
    "an unknown operation": lambda module: scanner(module, [("operation", 3)]),
    "equal members": lambda module: scanner(module, [("members", [b'"a":"b"', b'"a":"b"'])]),
    "an unknown cast": lambda module: scanner(module, casts=[(0, ("guess",))]),
    "a cast without what it needs": lambda module: scanner(module, casts=[(0, ("integer",))]),
    "a precision beyond 38": lambda module: scanner(module, casts=[(0, ("decimal", False, 39, 0))]),
    "two operations": lambda module: scanner(module, operations=[True, False]),
    "a negative column": lambda module: scanner(module, casts=[(-1, ("text",))]),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_is_no_template_is_refused(native_path: ModuleType, wrong: Callable[[ModuleType], object]) -> None:
    """A step, a cast or a choice that native code does not know is an exception."""
    with pytest.raises(REFUSED):
        wrong(native_path)


def test_a_column_beyond_the_last_declines_all(native_path: ModuleType) -> None:
    """A cast of a column that the template lacks declines every message."""
    scanned = scanner(native_path, casts=[(5, ("text",))]).scan(MESSAGES)

    assert (len(scanned.accepted), len(scanned.declined)) == (0, 4 * len(MESSAGES))


def test_wrong_bounds_of_prefixes_are_errors(native_path: ModuleType) -> None:
    """Telling tables apart refuses wrong bounds, too, and goes on with the prefixes that it has learned."""
    chooser, prefixes = random.Random(SEED), native_path.Prefixes(b'"op":"')
    message = b'{"t":"a","op":"c","x":1}'
    data, bounds = spans([message] * 8)
    assert prefixes.learn(message, message.index(b'"x"'), 7)
    assert prefixes.tables((data, packed(bounds))) == packed([7] * 8)
    refused = 0

    for number in range(ROUNDS):
        try:
            prefixes.tables(changed(chooser, data, bounds))
        except REFUSED:
            refused += 1
        assert prefixes.tables([message]) == packed([7]), (SEED, number)

    assert ROUNDS // 4 < refused < ROUNDS
