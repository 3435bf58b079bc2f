"""Messages that were damaged, or written by somebody else: each function changes one message a little."""

import random
from collections.abc import Callable

WORDS = [b"null", b"true", b"[]", b"{}", b'""', b"-1", b"1e400", b"9" * 20, b'"\xff"', b'"\\ud800"', b"0.5",
         b'{"t":1}', b'"0x10"', b'"nan"', b"[[[[", b"\x00" * 9]  # fmt: skip


def mangled(data: bytes, chooser: random.Random) -> bytes:
    """Cut, flip, repeat or replace a part of a message."""
    if not data:
        return bytes(chooser.randrange(256) for _ in range(chooser.randrange(12)))
    start, end = sorted((chooser.randrange(len(data)), chooser.randrange(len(data) + 1)))
    match chooser.randrange(6):
        case 0:
            return data[:start]
        case 1:
            return data[:start] + bytes([data[start] ^ 1 << chooser.randrange(8)]) + data[start + 1 :]
        case 2:
            return data[:start] + data[end:]
        case 3:
            return data[:end] + data[start:]
        case 4:
            return data[:start] + chooser.choice(WORDS) + data[start + 1 :]
        case _:
            return _other_value(data, chooser)


def _other_value(data: bytes, chooser: random.Random) -> bytes:
    """Replace one JSON value so that the message still parses."""
    colons = [index for index in range(len(data)) if data[index : index + 1] == b":"]
    if not colons:
        return data[::-1]
    start = chooser.choice(colons) + 1
    end = start
    while end < len(data) and data[end] not in b",}]":
        end += 1
    return data[:start] + chooser.choice(WORDS) + data[end:]


def repeated_member(data: bytes, chooser: random.Random) -> bytes:
    """Repeat a piece between two commas, or swap two pieces."""
    pieces = data.split(b',"')
    first, second = chooser.randrange(len(pieces)), chooser.randrange(len(pieces))
    if chooser.random() < 0.5:
        pieces.insert(first, pieces[second])
    else:
        pieces[first], pieces[second] = pieces[second], pieces[first]
    return b',"'.join(pieces)


def spaced(data: bytes, chooser: random.Random) -> bytes:
    """Insert white space, a sign, a digit, a comma or a brace, mostly beside a number or a brace."""
    indices = [index for index in range(1, len(data)) if data[index : index + 1] in b"0123456789{}[]:,"]
    index = chooser.choice(indices or [0])
    return data[:index] + chooser.choice([b" ", b"\n", b"0", b"-", b"+", b",", b"}", b"{", b"1"]) + data[index:]


def other_bytes(data: bytes, chooser: random.Random) -> bytes:
    """Replace one byte."""
    index = chooser.randrange(len(data))
    return data[:index] + chooser.choice([b"0", b"_", b" ", b'"', b"\\", b"\xff", b",", b"}", b"a"]) + data[index + 1 :]


MUTATIONS: list[Callable[[bytes, random.Random], bytes]] = [mangled, repeated_member, spaced, other_bytes]
