"""Messages that were damaged, or written by somebody else: each function changes one message a little."""

import random
import re
from collections.abc import Callable

Mutation = Callable[[bytes, random.Random], bytes]

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


def in_another_form(literal: bytes, chooser: random.Random) -> bytes:
    """Return what Python takes for an equal number: `64.0` or `6.4e1` for 64, `true` for 1, `-0` for 0."""
    number = {b"true": b"1", b"false": b"0"}.get(literal, literal)
    sign, digits = (b"-", number[1:]) if number[:1] == b"-" else (b"", number)
    if not digits.isdigit():
        return literal + b"0" if b"." in literal and b"e" not in literal.lower() else literal
    forms = [number, number + b".0", number + b"e0", number + b"E+0"]
    if len(digits) > 1:
        forms.append(b"%b%b.%be%d" % (sign, digits[:1], digits[1:], len(digits) - 1))
    forms += {b"0": [b"false", b"-0", b"-0.0"], b"1": [b"true"]}.get(number, [])
    return chooser.choice([form for form in forms if form != literal])


_LITERAL = re.compile(rb"(?<=[:\[,])(?:-?[0-9]+(?:\.[0-9]+)?|true|false)(?=[,}\]])")


def another_form(data: bytes, chooser: random.Random) -> bytes:
    """Write a number or truth value in another form."""
    literals = list(_LITERAL.finditer(data))
    if not literals:
        return mangled(data, chooser)
    literal = chooser.choice(literals)
    return data[: literal.start()] + in_another_form(literal[0], chooser) + data[literal.end() :]


MUTATIONS: list[Mutation] = [
    mangled, repeated_member, spaced, other_bytes, another_form,
]  # fmt: skip
