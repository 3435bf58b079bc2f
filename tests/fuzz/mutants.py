"""Mutants of row messages: most changes lie inside values, so that many mutants still are what a template expects."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.mutations import MUTATIONS, in_another_form

_MEMBER = re.compile(rb'"((?:[^"\\]|\\.)*)":("(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|null|true|false)')
_DATE, _TIME = re.compile(rb'"\d{4}-\d\d-\d\d'), re.compile(rb'"-?\d+:\d\d')
_BASE64 = re.compile(rb'"(?:[A-Za-z0-9+/]{4})+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"')
_TIMES = frozenset({b"es", b"ts", b"ts_ms", b"commit_ts", b"commitTs", b"start_ts"})
_MYSQL_TYPES = re.compile(rb'"mysqlType":\{([^{}]*)\}')

NUMBERS = [b"0", b"-0", b"00", b"01", b"-01", b"+1", b"1.0", b"1.", b".5", b"-", b"1e5", b"1E5", b"1e+5", b"1e-5",
           b"1e99", b"1e100", b"1e308", b"1e400", b"-1e400", b"1e-400", b"0.0", b"-0.0", b"0e0", b"9" * 18, b"9" * 19,
           b"9" * 20, b"9" * 38, b"9" * 39, b"9" * 40, b"9" * 41, b"-" + b"9" * 38, b"-" + b"9" * 40,
           b"0." + b"1" * 30, b"0." + b"3" * 38, b"0" * 30 + b"1", b"127", b"128", b"-128", b"-129", b"255", b"256",
           b"32767", b"32768", b"-32768", b"-32769", b"65535", b"65536", b"2147483647", b"2147483648", b"-2147483648",
           b"-2147483649", b"4294967295", b"4294967296", b"9007199254740992", b"9007199254740993",
           b"-9007199254740993", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808",
           b"-9223372036854775809", b"18446744073709551615", b"18446744073709551616", b"16777217", b"3.4028235e38",
           b"3.4028236e38", b"1e39", b"1.17549435e-38", b"1e-46", b"5e-324", b"2e-324", b"0x10", b"1_0", b"NaN",
           b"Infinity", b"-Infinity", b"nan", b"inf", b"1d", b"0.1", b"0.10", b"123456789012345.678",
           b"1000000000000000000000", b"\xef\xbc\x91", b"9999999999999999.99", b"0.30000000000000004",
           b"253402300799999", b"253402300800000", b"-62135596800001", b"-719162", b"-719163", b"2932896", b"2932897",
           b"1970", b"2155"]  # fmt: skip
TIMES = [b"1", b"0", b"-1", b"01", b"1795247640910", b"179524764091", b"17952476409101", b"35184372088831",
         b"35184372088832", b"470613397708734472", b"0470613397708734472", b"4706133977087344720", b"9" * 18,
         b"9" * 19, b"9223372036854775807", b"9223372036854775808", b"null", b'"470613397708734472"', b"1.0", b"1e3",
         b"470613397708734472.0"]  # fmt: skip
ESCAPES = [b"\\u0041", b"\\n", b"\\t", b"\\b", b"\\f", b"\\r", b"\\/", b"\\\\", b'\\"', b"\\u00e9", b"\\u00E9",
           b"\\u0000", b"\\u003c", b"\\ud83d\\ude00", b"\\uD83D\\uDE00", b"\\ud800", b"\\udc00", b"\\ud83d\\u0041",
           b"\\ud83dx", b"\\udc80", b"\\u0100", b"\\ufffd", b"\\uffff", b"\\u12", b"\\u12g4", b"\\u+123", b"\\x41",
           b"\\", b"\\'", b"\\U0001F600", b"\\u2028", b"\\ude00\\ud83d"]  # fmt: skip
TEXTS = [b"", b"a", b" ", b"0", b"1", b"null", b"true", b"\xc3\xa9", b"\xc3\xbf", b"\xc4\x80", b"\xf0\x9f\x98\x80",
         b"\xef\xbf\xbd", b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xed\xb3\xbf", b"\xf4\x90\x80\x80",
         b"\xe2\x82", b"\x80", b"\xf0\x9f\x98", b"\x00", b"\x01", b"\x1f", b"\x7f", b"\n", b"\t", b"\xc2\x80",
         b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"x" * 7, b"y" * 8, b"z" * 9, b"x" * 70, b"[1,2,3]", b"[]", b"[ 1 , 2 ]",
         b"[1e39]", b"[nan]", b"[1,2", b"[1_0]", b"a,b", b"b", b"'", b'{\\"a\\":1}', b"[1.0]", b"1e400",
         b"\xef\xbc\x91"]  # fmt: skip
ARMOURED = [b"", b"A", b"AA", b"AAA", b"AAAA", b"AA==", b"AAA=", b"AB==", b"AAB=", b"QUJD", b"QUI=", b"QQ==", b"AA=A",
            b"A===", b"====", b"AA==AAAA", b"AA==AA==", b"-_-_", b"+/+/", b"QUJD\\n", b"QUJD\\r\\n", b"QU JD",
            b"QUJD ", b"QU\\u004aD", b"QUJD=", b"w6k=", b"/w==", b"gICA", b"7aCA", b"4oI=", b"AAAAAAAAAAA=",
            b"//////////8=", b"AQAAAAAAAAAA"]  # fmt: skip
OTHERS = [b"null", b"true", b"false", b"[]", b"{}", b"[1]", b'{"t":1}', b'""', b'"1"', b"nul", b"TRUE", b"[[[[", b" 1",
          b"1 ", b'"a" ', b"", b'"a","b"', b'"a":1', b"{},"]  # fmt: skip
CODES = [b"-7", b"-6", b"5", b"4", b"-5", b"3", b"7", b"8", b"1", b"12", b"2005", b"2004", b"91", b"92", b"93", b"0",
         b"1111"]  # fmt: skip
FLAGS = [b"0", b"1", b"11", b"64", b"65", b"66", b"128", b"192", b"193", b"203", b"null", b"true", b"1.0",
         b"64.0", b"6.4e1", b"-0"]  # fmt: skip

_CODES = 0.4  # of the numbers outside of rows, how many get a `sqlType`
_BLOBS = 0.4  # of the `sqlType` that are changed, how many become that of binary columns
_FITTING = 0.9  # of the messages that are changed, how many fit a template


@dataclass(frozen=True)
class Value:
    """A value in a message: where it stands, and the name of its member."""

    name: bytes
    start: int
    end: int


@dataclass(frozen=True)
class Base:
    """A message to change: its bytes, the values of its rows, and all others."""

    payload: bytes
    cells: tuple[Value, ...]
    others: tuple[Value, ...]


class Mutator:
    """Makes mutants of the messages of one table.

    Args:
        payloads: the messages.
        before: what stands before the rows of a message; empty if rows are all there is.
        after: what stands behind them; empty for the end.
        boundaries: the commit-ts at which the columns change.
    """

    def __init__(self, payloads: Sequence[bytes], before: bytes, after: bytes, boundaries: Sequence[int]) -> None:
        self.bases = [_base(payload, before, after) for payload in payloads]
        self._donors: dict[bytes, list[bytes]] = defaultdict(list)
        for base in self.bases:
            for value in base.cells:
                self._donors[value.name].append(base.payload[value.start : value.end])
        self._times = TIMES + [b"%d" % (start + more) for start in boundaries for more in (-1, 0, 1)]

    def mutant(self, chooser: random.Random, fitting: Sequence[int] = ()) -> tuple[int, bytes]:
        """Return the index of a message, mostly of one that fits a template, and the message with some changes."""
        index = (
            chooser.choice(fitting) if fitting and chooser.random() < _FITTING else chooser.randrange(len(self.bases))
        )
        base, chance = self.bases[index], chooser.random()
        if chance < 0.8:
            return index, self._with_values(base, chooser, 1 if chance < 0.55 else 2 if chance < 0.72 else 4)
        if chance < 0.85:
            return index, chooser.choice(MUTATIONS)(base.payload, chooser)
        if chance < 0.9:
            return index, self._spliced(base, chooser)
        return index, chooser.choice(_MEMBER_CHANGES)(base, chooser)

    def _with_values(self, base: Base, chooser: random.Random, count: int) -> bytes:
        payload = base.payload
        values = base.cells if base.cells and (not base.others or chooser.random() < 0.85) else base.others
        if not values:
            return payload
        for value in sorted(chooser.sample(values, min(count, len(values))), key=lambda value: -value.start):
            if values is base.others and chooser.random() < _CODES and payload[value.start] in b"-0123456789":
                other = chooser.choice(CODES)
            else:
                other = self._other(base.payload, value, chooser)
            payload = payload[: value.start] + other + payload[value.end :]
        return payload

    def _other(self, payload: bytes, value: Value, chooser: random.Random) -> bytes:
        """Return what stands in place of a value."""
        own, chance = payload[value.start : value.end], chooser.random()
        if value.name in _TIMES:
            return chooser.choice(self._times) if chance < 0.7 else _tweaked(own, chooser)
        if value.name in (b"t", b"f", b"h") and chance < 0.6:
            return chooser.choice(FLAGS) if chance < 0.3 else in_another_form(own, chooser)
        donors = self._donors[value.name]
        like = own if own != b"null" or not donors else chooser.choice(donors)
        if chance < 0.25 and donors:
            return chooser.choice(donors)
        if chance < 0.5:
            return _tweaked(like, chooser)
        if chance < 0.55:
            return in_another_form(like, chooser)
        if chance < 0.92:
            return _like(like, chooser)
        return chooser.choice(OTHERS)

    def _spliced(self, base: Base, chooser: random.Random) -> bytes:
        """Return the begin of one message and the end of another."""
        other = chooser.choice(self.bases)
        if not base.cells or not other.cells:
            return base.payload
        first = chooser.choice(base.cells)
        alike = [value for value in other.cells if value.name == first.name] or other.cells
        return base.payload[: first.start] + other.payload[chooser.choice(alike).start :]


def _base(payload: bytes, before: bytes, after: bytes) -> Base:
    start = payload.find(before)
    end = payload.find(after, start) if after else -1
    end = len(payload) if end < 0 else end
    values = [Value(found[1], *found.span(2)) for found in _MEMBER.finditer(payload)]
    if not before:  # in a cell of open-protocol, the value has this name
        return Base(
            payload,
            tuple(value for value in values if value.name == b"v"),
            tuple(value for value in values if value.name != b"v"),
        )
    inside = [value for value in values if start <= value.start < end]
    return Base(payload, tuple(inside), tuple(value for value in values if not start <= value.start < end))


def _like(own: bytes, chooser: random.Random) -> bytes:
    """Return a value of the kind of another one, or a text or a number in its place."""
    chance = chooser.random()
    if own[:1] != b'"':
        if chance < 0.85:
            return chooser.choice(NUMBERS) if chooser.random() < 0.6 else _number(chooser)
        return b'"%b"' % chooser.choice(NUMBERS)
    if _DATE.match(own):
        text = _date(chooser) if chance < 0.8 else chooser.choice(TEXTS)
    elif _TIME.match(own):
        text = _time(chooser) if chance < 0.8 else chooser.choice(TEXTS)
    elif chance < 0.5 and own[1:2] in b"-0123456789":
        text = chooser.choice(NUMBERS) if chooser.random() < 0.6 else _number(chooser)
    elif chance < 0.7 and _BASE64.fullmatch(own):
        text = chooser.choice(ARMOURED)
    elif chance < 0.8:
        text = b"".join(chooser.choices(TEXTS + ESCAPES, k=chooser.randrange(4)))
    else:
        text = chooser.choice(chooser.choice((NUMBERS, TEXTS, ESCAPES, ARMOURED)))
    return b'"%b"' % text


def _tweaked(own: bytes, chooser: random.Random) -> bytes:
    """Return a value with a small change."""
    chance, at = chooser.random(), chooser.randrange(len(own) + 1)
    if own[:1] != b'"':
        if chance < 0.35:
            return own[:at] + chooser.choice((b"0", b"1", b"9", b"-", b".", b"e1", b"5")) + own[at + 1 :]
        if chance < 0.6:
            return own[:at] + chooser.choice((b"0", b"1", b"7", b"-", b"+", b".", b" ", b"E2")) + own[at:]
        if chance < 0.8:
            return own + chooser.choice((b".0", b".5", b"e0", b"e1", b"E-1", b"0", b" ", b".", b"00000"))
        if chance < 0.9:
            return own[1:] if own[:1] == b"-" else b"-" + own
        return own[:at] + own[at + 1 :]
    at = min(max(at, 1), len(own) - 1)
    if chance < 0.25 and at < len(own) - 1 and own[at] < 0x80 and own[at] != 0x5C and own[at - 1] != 0x5C:
        return own[:at] + b"\\u%04x" % own[at] + own[at + 1 :]  # the same character
    if chance < 0.45:
        return own[:at] + chooser.choice(ESCAPES) + own[at:]
    if chance < 0.65:
        return own[:at] + chooser.choice(TEXTS) + own[at:]
    if chance < 0.8:
        return own[:at] + b"%c" % chooser.randrange(256) + own[at + 1 :]
    if chance < 0.9:
        return own[:at] + own[at + 1 :]
    return own[:at] + chooser.choice((b"0", b"1", b"9", b"-", b".", b":", b"T", b"=", b"+", b"/")) + own[at:]


def _number(chooser: random.Random) -> bytes:
    digits = chooser.choice((1, 1, 2, 3, 3, 5, 8, 10, 15, 17, 18, 19, 20, 38, 39, 40))
    text = "".join(chooser.choices("0123456789", k=digits))
    text = (text.lstrip("0") or "0") if chooser.random() < 0.8 else text
    text = ("-" if chooser.random() < 0.3 else "") + text
    if chooser.random() < 0.5:
        text += "." + "".join(chooser.choices("0123456789", k=chooser.choice((1, 1, 2, 3, 4, 6, 10, 17, 30))))
    if chooser.random() < 0.1:
        text += chooser.choice("eE") + chooser.choice(("", "+", "-")) + str(chooser.choice((0, 1, 5, 20, 99, 308)))
    return text.encode()


def _date(chooser: random.Random) -> bytes:
    year, month = chooser.choice((0, 1, 1000, 1582, 1900, 1970, 2000, 2023, 2024, 9999, 10000)), chooser.randrange(14)
    day = chooser.choice((0, 1, 2, 15, 28, 29, 30, 31, 32))
    text = f"{year:04d}-{month:02d}-{day:02d}" if chooser.random() < 0.95 else f"{year}-{month}-{day}"
    if chooser.random() < 0.25:
        return text.encode()
    separator = chooser.choice("      T_")
    return f"{text}{separator}{_clock(chooser, chooser.choice((0, 1, 12, 23, 23, 24, 25)))}{_zone(chooser)}".encode()


def _zone(chooser: random.Random) -> str:
    return chooser.choice(("", "", "", "", "", "Z", "Z", "+08:00", " ", "z", "-0800", "[UTC]"))


def _time(chooser: random.Random) -> bytes:
    hours = chooser.choice((0, 1, 9, 23, 24, 99, 100, 838, 839, 999, 1000, 8380))
    return (chooser.choice(("", "", "-", "+", "--")) + _clock(chooser, hours)).encode()


def _clock(chooser: random.Random, hours: int) -> str:
    minutes, seconds = chooser.choice((0, 1, 30, 59, 59, 60)), chooser.choice((0, 1, 30, 59, 59, 60, 99))
    text = f"{hours:02d}:{minutes:02d}:{seconds:02d}" if chooser.random() < 0.95 else f"{hours}:{minutes}:{seconds}"
    digits = chooser.choice((0, 0, 0, 1, 2, 3, 3, 6, 6, 7, 9, 12))
    return text + ("." + "".join(chooser.choices("0123456789", k=digits)) if digits or chooser.random() < 0.03 else "")


def _without(base: Base, chooser: random.Random) -> bytes:
    """Remove a member, with the comma before or behind it."""
    value = chooser.choice(base.cells or base.others)
    start, end = value.start - len(value.name) - 3, value.end
    if base.payload[end : end + 1] == b",":
        end += 1
    elif base.payload[start - 1 : start] == b",":
        start -= 1
    return base.payload[:start] + base.payload[end:]


def _twice(base: Base, chooser: random.Random) -> bytes:
    """Repeat a member, there or elsewhere."""
    value = chooser.choice(base.cells or base.others)
    member = base.payload[value.start - len(value.name) - 3 : value.end]
    end = chooser.choice(base.cells or base.others).end
    return base.payload[:end] + b"," + member + base.payload[end:]


def _swapped(base: Base, chooser: random.Random) -> bytes:
    """Swap two members."""
    values = base.cells or base.others
    first, second = sorted(chooser.choices(values, k=2), key=lambda value: value.start)
    begins = [value.start - len(value.name) - 3 for value in (first, second)]
    payload = base.payload
    if first is second or begins[1] < first.end:
        return payload
    return (
        payload[: begins[0]]
        + payload[begins[1] : second.end]
        + payload[first.end : begins[1]]
        + payload[begins[0] : first.end]
        + payload[second.end :]
    )


def _renamed(base: Base, chooser: random.Random) -> bytes:
    """Change a name, or write it in another way."""
    value = chooser.choice(base.cells + base.others)
    start, name = value.start - len(value.name) - 2, value.name
    at = chooser.randrange(len(name)) if name else 0
    letter = name[at : at + 1]
    other = chooser.choice([
        name.swapcase(), name + b"x", name[:-1], b"", b"\\u%04x" % (letter or b"a")[0] + name[1:],
        name[:at] + b"\xc3\xa9" + name[at + 1 :], name[:at] + b"\xff" + name[at + 1 :], b"u", b"d", b"p", b"data",
                                       b"old", b"before",
    ])  # fmt: skip
    return base.payload[:start] + other + base.payload[start + len(name) :]


def _other_codes(base: Base, chooser: random.Random) -> bytes:
    """Change some `sqlType`, or other numbers outside of rows, mostly to the code of binary columns."""
    payload = base.payload
    values = [value for value in base.others if payload[value.start] in b"-0123456789" and value.name not in _TIMES]
    some = chooser.sample(values, min(len(values), chooser.randrange(1, 5)))
    for value in sorted(some, key=lambda value: -value.start):
        code = b"2004" if chooser.random() < _BLOBS else chooser.choice(CODES)
        payload = payload[: value.start] + code + payload[value.end :]
    return payload


def _shuffled(base: Base, chooser: random.Random) -> bytes:
    """Shuffle the members of `mysqlType`, and sometimes repeat or drop one."""
    found = _MYSQL_TYPES.search(base.payload)
    if found is None:
        return _swapped(base, chooser)
    members = re.findall(rb'"[^"]*":"[^"]*"', found[1])
    chooser.shuffle(members)
    chance = chooser.random()
    if chance < 0.15 and members:
        members[0] = members[-1]
    elif chance < 0.25:
        members = members[1:]
    elif chance < 0.35:
        members += members[:1]
    return base.payload[: found.start(1)] + b",".join(members) + base.payload[found.end(1) :]


def _extended(base: Base, chooser: random.Random) -> bytes:
    """Add a member or bytes at a place between values."""
    at = chooser.choice(base.cells + base.others).end
    more = chooser.choice([b',"x":1', b" ", b"\n", b',"x":{}', b"}", b"}}", b"]", b',{"a":1}', b"},{",
                           b',"onlyHandleKey":true',
                           b',"claimCheckLocation":"x"', b"\x00", b'},"p":{', b'},"d":{', b'},"u":{',
                           b'}],"x":[{'])  # fmt: skip
    return base.payload[:at] + more + base.payload[at:]


def _longer(base: Base, chooser: random.Random) -> bytes:
    """Add bytes at an end, or cut some off."""
    payload = base.payload
    return chooser.choice([payload + b" ", payload + b"\n", b" " + payload, payload + b"}", payload[:-1],
                           payload + payload,
                           b"\xef\xbb\xbf" + payload, payload + b"\x00",
                           payload[: chooser.randrange(len(payload))]])  # fmt: skip


_MEMBER_CHANGES: list[Callable[[Base, random.Random], bytes]] = [
    _without, _twice, _swapped, _renamed, *[_other_codes] * 3, *[_shuffled] * 2, _extended, _longer,
]  # fmt: skip
