"""Messages that were damaged, or written by somebody else: each function changes one message a little."""

import random
import re
from collections.abc import Callable

Mutation = Callable[[bytes, random.Random], bytes]

WORDS = [b"null", b"true", b"[]", b"{}", b'""', b"-1", b"1e400", b"9" * 20, b'"\xff"', b'"\\ud800"', b"0.5",
         b'{"t":1}', b'"0x10"', b'"nan"', b"[[[[", b"\x00" * 9]  # fmt: skip


def mangled(data: bytes, chooser: random.Random) -> bytes:
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
    colons = [index for index in range(len(data)) if data[index : index + 1] == b":"]
    if not colons:
        return data[::-1]
    start = chooser.choice(colons) + 1
    end = start
    while end < len(data) and data[end] not in b",}]":
        end += 1
    return data[:start] + chooser.choice(WORDS) + data[end:]


def repeated_member(data: bytes, chooser: random.Random) -> bytes:
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
    literals = list(_LITERAL.finditer(data))
    if not literals:
        return mangled(data, chooser)
    literal = chooser.choice(literals)
    return data[: literal.start()] + in_another_form(literal[0], chooser) + data[literal.end() :]


# What a value is replaced by, mostly one of its kind, so that many messages still are what the native path expects.
_MEMBER = re.compile(rb'"((?:[^"\\]|\\.)*)":("(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|null|true|false)')
_DATE, _TIME = re.compile(rb'"\d{4}-\d\d-\d\d'), re.compile(rb'"-?\d+:\d\d')
_BASE64 = re.compile(rb'"(?:[A-Za-z0-9+/]{4})+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"')
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


def other_member(data: bytes, chooser: random.Random) -> bytes:
    """Change the values of some members: to that of another one, a little, or to another of their kind."""
    members = list(_MEMBER.finditer(data))
    if not members:
        return mangled(data, chooser)
    for member in sorted(chooser.sample(members, min(len(members), chooser.choice((1, 1, 1, 2, 4)))),
                         key=lambda member: -member.start()):  # fmt: skip
        own, chance = member[2], chooser.random()
        if chance < 0.2:
            other = chooser.choice([each[2] for each in members if each[1] == member[1]])
        elif chance < 0.45:
            other = _tweaked(own, chooser)
        elif chance < 0.55:
            other = in_another_form(own, chooser)
        else:
            other = _like(own, chooser) if chance < 0.92 else chooser.choice(OTHERS)
        data = data[: member.start(2)] + other + data[member.end(2) :]
    return data


def _like(own: bytes, chooser: random.Random) -> bytes:
    chance = chooser.random()
    if own[:1] != b'"':
        if chance < 0.85:
            return chooser.choice(NUMBERS) if chooser.random() < 0.6 else _number(chooser)
        return b'"%b"' % chooser.choice(NUMBERS)
    if _DATE.match(own):
        text = _date(chooser) if chance < 0.8 else chooser.choice(TEXTS)
    elif _TIME.match(own):
        text = _hours(chooser) if chance < 0.8 else chooser.choice(TEXTS)
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


def _hours(chooser: random.Random) -> bytes:
    hours = chooser.choice((0, 1, 9, 23, 24, 99, 100, 838, 839, 999, 1000, 8380))
    return (chooser.choice(("", "", "-", "+", "--")) + _clock(chooser, hours)).encode()


def _clock(chooser: random.Random, hours: int) -> str:
    minutes, seconds = chooser.choice((0, 1, 30, 59, 59, 60)), chooser.choice((0, 1, 30, 59, 59, 60, 99))
    text = f"{hours:02d}:{minutes:02d}:{seconds:02d}" if chooser.random() < 0.95 else f"{hours}:{minutes}:{seconds}"
    digits = chooser.choice((0, 0, 0, 1, 2, 3, 3, 6, 6, 7, 9, 12))
    return text + ("." + "".join(chooser.choices("0123456789", k=digits)) if digits or chooser.random() < 0.03 else "")


MUTATIONS: list[Mutation] = [mangled, repeated_member, spaced, other_bytes, another_form]
