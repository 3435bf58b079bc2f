"""Random columns of every MySQL type within its limits, and their values in the truth's canonical form."""

import random
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from tests.encoders.tables import BLOBS, TEXTS

_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_WIDTHS = {"tinyint": (4, 3), "smallint": (6, 5), "mediumint": (9, 8), "int": (11, 10), "bigint": (20, 20)}
_TEXTS = (
    "", " ", "a", "null", "NULL", "0", "-1", "1e3", "true", "{}", "[]", '{"u":{}}', "it's \"quoted\" <b>&amp;</b>",
    "back\\slash", "\\x41", "\\u0041", "\x00", "a\tb\nc\rd", "\x01\x1f\x7f",
    "\u0080\u009f\u00a0\u00ad", "ÿ", "é", "中文",
    "\u200b\u2028\u2029\ufeff", "\ufffd\uffff", "😀👩‍👩‍👧", "\U000e0001\U0010ffff", "AAEC", "a,b", "`", "$",
    "0000-00-00",
)  # fmt: skip
_LABELS = (
    "a",
    "b,c",
    "d'e",
    '"q"',
    "日本",
    "back\\slash",
    "😀",
    "binary",
    "2",
    "1",
    "",
    "e f",
    "(x)",
    "null",
    "<&>",
    "Ä",
)
_JSON = (
    "null", "true", "1.5", '"text"', "[]", "{}", '{"a": [1, 2, {"b": null}]}', '"\\"\\\\\\u0001"', '"日本 😀"',
    "18446744073709551615", '{"k": "v", "n": -1}', "1e300", '"2020-01-02 03:04:05.678901"',
)  # fmt: skip
_VECTORS = ("[]", "[1,2,3.5]", "[-0.1,0.0000001,3.4028235e38]", "[0]", "[1e-10,-1.25]")
_NULL_SHARE = 0.15


@dataclass(frozen=True)
class ColumnType:
    """A column's type, and a maker of its values.

    Attributes:
        mysql_type: as the information schema writes it.
        value: returns a random value.
        default: the text of the column's default; None if it can have none.
        key: whether a key can have it.
        kept: returns what a MODIFY COLUMN to this type makes of an old value.
    """

    mysql_type: str
    value: Callable[[], Any]
    default: str | None = None
    key: bool = True
    kept: Callable[[Any], Any] = lambda value: value


def choose(chance: random.Random, only: tuple[str, ...] = ()) -> ColumnType:
    return _MAKERS[chance.choice(only or tuple(_MAKERS))](chance)


def widened(chance: random.Random, column_type: ColumnType, only: tuple[str, ...] = ()) -> ColumnType | None:
    """Return a type to which MODIFY COLUMN can change this one without losing a value; None if there is none."""
    name = re.split(r"[( ]", column_type.mysql_type)[0]
    digits = [int(number) for number in re.findall(r"\d+", column_type.mysql_type)]
    unsigned = " unsigned" if column_type.mysql_type.endswith(" unsigned") else ""
    if name in _BITS and name != "bigint":
        return replace(column_type, mysql_type=f"bigint(20){unsigned}")
    if name == "decimal" and digits[0] <= 60:
        longer = replace(column_type, mysql_type=f"decimal({digits[0] + 5},{digits[1]}){unsigned}")
        return longer if digits[1] == 30 else _rescaled(longer, digits)
    if name in ("char", "varchar"):
        texts = ("varchar(250)", "text") if not only or "text" in only else ("varchar(250)",)
        return replace(column_type, mysql_type=chance.choice(texts), default=None)
    if name in ("datetime", "timestamp", "time") and digits != [6]:
        missing = 6 - (digits or [0])[0]
        dot = "" if digits else "."
        made = column_type.value

        def finer(value: str) -> str:
            return f"{value}{dot}{'0' * missing}"

        return replace(column_type, mysql_type=f"{name}(6)", value=lambda: finer(made()), kept=finer)
    return None


def _rescaled(column_type: ColumnType, digits: list[int]) -> ColumnType:
    made, dot = column_type.value, "" if digits[1] else "."
    unsigned = " unsigned" if column_type.mysql_type.endswith(" unsigned") else ""

    def finer(value: str) -> str:
        return f"{value}{dot}0"

    return replace(column_type, mysql_type=f"decimal({digits[0] + 5},{digits[1] + 1}){unsigned}",
                   value=lambda: finer(made()), kept=finer)  # fmt: skip


def _integer(chance: random.Random) -> ColumnType:
    name = chance.choice(tuple(_BITS))
    bits, unsigned = _BITS[name], chance.random() < 0.5
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    mysql_type = f"{name}({_WIDTHS[name][unsigned]}){' unsigned' if unsigned else ''}"
    if not unsigned and name == "tinyint" and chance.random() < 0.5:
        mysql_type = "tinyint(1)"
    edges = (low, high, 0, 1, high // 2, high // 2 + 1)
    return ColumnType(
        mysql_type,
        lambda: str(chance.choice(edges) if chance.random() < 0.4 else chance.randint(low, high)),
        str(chance.choice((0, 7, high))),
    )


def _decimal(chance: random.Random) -> ColumnType:
    precision = chance.choice((1, 5, 10, 20, 38, 39, 65, chance.randint(1, 65)))
    scale = chance.choice((0, min(2, precision), min(30, precision), chance.randint(0, min(30, precision))))
    unsigned = chance.random() < 0.3

    def value() -> str:
        share = chance.random()
        if share < 0.2:
            digits = "9" * precision
        elif share < 0.3:
            digits = "0"
        else:
            digits = "".join(chance.choices("0123456789", k=chance.randint(1, precision)))
        digits = digits.rjust(scale + 1, "0")
        whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
        text = (whole.lstrip("0") or "0") + (f".{fraction}" if scale else "")
        negative = not unsigned and chance.random() < 0.5 and bool(Decimal(text))
        return f"-{text}" if negative else text

    default = "0" + (f".{'0' * scale}" if scale else "")
    return ColumnType(f"decimal({precision},{scale}){' unsigned' if unsigned else ''}", value, default)


def _float(chance: random.Random) -> ColumnType:
    name = chance.choice(("float", "float unsigned", "float(10,3)"))

    def value() -> str:
        if name == "float(10,3)":
            return f"{chance.randint(-9999, 9999) / 1000:g}"
        text = chance.choice(
            ("0", "1", "0.1", "3.4028235e+38", "1e-38", f"{chance.random() * 10 ** chance.randint(-30, 30):.6g}")
        )
        return text if "unsigned" in name or chance.random() < 0.5 or text == "0" else f"-{text}"

    return ColumnType(name, value, "2.5", key=False)


def _double(chance: random.Random) -> ColumnType:
    name = chance.choice(("double", "double unsigned"))

    def value() -> str:
        (number,) = struct.unpack("d", chance.randbytes(8))
        usable = number == number and abs(number) != float("inf") and number != 0  # noqa: PLR0124 (not NaN)
        number = chance.choice((0.0, 1.0, 0.1, 1e21, 1e-7, 1.7976931348623157e308, number if usable else 2.5))
        return repr(abs(number) if "unsigned" in name else number)

    return ColumnType(name, value, "-0.25" if name == "double" else "0.5", key=False)


def _bit(chance: random.Random) -> ColumnType:
    length = chance.choice((1, 1, 2, 8, 9, 33, 63, 64, chance.randint(1, 64)))

    def value() -> dict[str, Any]:
        number = chance.choice((0, 1, 2**length - 1, 2 ** (length - 1), chance.getrandbits(length)))
        return {"hex": number.to_bytes((length + 7) // 8, "big").hex(), "number": number}

    return ColumnType(f"bit({length})", value, "b'1'", key=False)


def _year(chance: random.Random) -> ColumnType:
    return ColumnType(
        "year(4)", lambda: chance.choice(("0000", "1901", "2155", str(chance.randint(1902, 2154)))), "1999"
    )


def _day(chance: random.Random) -> str:
    edges = (
        "0001-01-01",
        "0069-12-31",
        "0099-12-31",
        "1000-01-01",
        "1582-10-10",
        "1969-12-31",
        "1970-01-01",
        "9999-12-31",
    )
    return chance.choice((*edges, (date(1000, 1, 1) + timedelta(chance.randint(0, 3_000_000))).isoformat()))


_ZERO_DAYS = ("0000-00-00", "2020-00-15", "2020-10-00")


def _date(chance: random.Random) -> ColumnType:
    return ColumnType("date", lambda: chance.choice(_ZERO_DAYS) if chance.random() < 0.1 else _day(chance))


def _fraction(chance: random.Random, digits: int) -> str:
    edges = ("0" * digits, "9" * digits, "".join(chance.choices("0123456789", k=digits)))
    return f".{chance.choice(edges)}" if digits else ""


def _clock(chance: random.Random) -> str:
    return chance.choice(
        ("00:00:00", "23:59:59", f"{chance.randint(0, 23):02d}:{chance.randint(0, 59):02d}:{chance.randint(0, 59):02d}")
    )


def _sized(name: str, digits: int) -> str:
    return f"{name}({digits})" if digits else name


def _datetime(chance: random.Random) -> ColumnType:
    digits = chance.choice((0, 0, 3, 6, chance.randint(0, 6)))

    def value() -> str:
        if chance.random() < 0.1:
            return f"{chance.choice(_ZERO_DAYS)} 00:00:00" + (f".{'0' * digits}" if digits else "")
        return f"{_day(chance)} {_clock(chance)}{_fraction(chance, digits)}"

    literal = "2001-02-03 04:05:06" + (f".{'5' * digits}" if digits else "")
    default = chance.choice(("CURRENT_TIMESTAMP" + (f"({digits})" if digits else ""), literal))
    return ColumnType(_sized("datetime", digits), value, default)


def _timestamp(chance: random.Random) -> ColumnType:
    digits = chance.choice((0, 0, 3, 6, chance.randint(0, 6)))

    def value() -> str:
        if chance.random() < 0.1:
            return "0000-00-00 00:00:00" + (f".{'0' * digits}" if digits else "")
        edges = ("1970-01-02 00:00:01", "2038-01-18 03:14:07", "2000-02-29 12:00:00")
        day = (date(1970, 1, 2) + timedelta(chance.randint(0, 24_800))).isoformat()
        return chance.choice((*edges, f"{day} {_clock(chance)}")) + _fraction(chance, digits)

    return ColumnType(_sized("timestamp", digits), value, "CURRENT_TIMESTAMP" + (f"({digits})" if digits else ""))


def _time(chance: random.Random) -> ColumnType:
    digits = chance.choice((0, 0, 3, 6, chance.randint(0, 6)))

    def value() -> str:
        hours = chance.choice((0, 1, 23, 24, 99, 100, 838, chance.randint(0, 838)))
        text = f"{hours:02d}:{chance.choice((0, 59))}:{chance.choice((0, 59))}".replace(":0", ":00")
        text += _fraction(chance, digits)
        return f"-{text}" if chance.random() < 0.5 and text.strip("0:.") else text

    return ColumnType(_sized("time", digits), value, "-01:02:03")


def _text(chance: random.Random, limit: int) -> str:
    if chance.random() < 0.6:
        return chance.choice(_TEXTS)[:limit]
    ranges = ((0, 127), (128, 0xD7FF), (0x10000, 0x10FFFF))
    letters = [chr(chance.randint(*chance.choice(ranges))) for _ in range(chance.randint(1, 12))]
    return "".join(letters)[:limit]


def _string(chance: random.Random) -> ColumnType:
    name = chance.choice(("char", "varchar", "varchar"))
    length = chance.choice((1, 5, 16, 200))
    trim = name == "char"  # MySQL strips trailing blanks
    return ColumnType(
        f"{name}({length})",
        lambda: _text(chance, length).rstrip(" ") if trim else _text(chance, length),
        chance.choice(("", "d")),
    )


def _long_text(chance: random.Random) -> ColumnType:
    return ColumnType(chance.choice(TEXTS), lambda: _text(chance, 200), key=False)


def _bytes(chance: random.Random, limit: int) -> bytes:
    share = chance.random()
    if share < 0.15:
        return bytes(range(256))[:limit]
    if share < 0.3:
        return _text(chance, limit).encode()[:limit]
    return chance.randbytes(chance.randint(0, min(limit, 24)))


def _binary(chance: random.Random) -> ColumnType:
    length = chance.choice((1, 4, 5, 16, 255))
    if chance.random() < 0.5:
        return ColumnType(f"varbinary({length})", lambda: {"hex": _bytes(chance, length).hex()}, "d")
    return ColumnType(f"binary({length})", lambda: {"hex": _bytes(chance, length).ljust(length, b"\0").hex()})


def _blob(chance: random.Random) -> ColumnType:
    return ColumnType(chance.choice(BLOBS), lambda: {"hex": _bytes(chance, 300).hex()}, key=False)


def _quoted(labels: list[str]) -> str:
    return ",".join("'" + label.replace("'", "''") + "'" for label in labels)


def _enum(chance: random.Random) -> ColumnType:
    labels = chance.sample(_LABELS, chance.randint(1, len(_LABELS)))

    def value() -> dict[str, Any]:
        number = chance.randint(0 if chance.random() < 0.1 else 1, len(labels))
        return {"label": labels[number - 1] if number else "", "number": number}

    return ColumnType(f"enum({_quoted(labels)})", value, chance.choice(labels), key=False)


def _set(chance: random.Random) -> ColumnType:
    if chance.random() < 0.3:
        labels = [f"m{index:02d}" for index in range(chance.choice((63, 64)))]
    else:
        usable = [label for label in _LABELS if label and "," not in label]
        labels = chance.sample(usable, chance.randint(1, len(usable)))

    def value() -> dict[str, Any]:
        limit = 2 ** len(labels) - 1
        number = chance.choice((0, 1, limit, 2 ** (len(labels) - 1), chance.randint(0, limit)))
        return {"label": ",".join(label for bit, label in enumerate(labels) if number >> bit & 1), "number": number}

    return ColumnType(f"set({_quoted(labels)})", value, labels[0], key=False)


def _json(chance: random.Random) -> ColumnType:
    return ColumnType("json", lambda: chance.choice(_JSON), key=False)


def _vector(chance: random.Random) -> ColumnType:
    return ColumnType(chance.choice(("vector", "vector(3)")), lambda: chance.choice(_VECTORS), key=False)


_MAKERS: dict[str, Callable[[random.Random], ColumnType]] = {
    "integer": _integer,
    "decimal": _decimal,
    "float": _float,
    "double": _double,
    "bit": _bit,
    "year": _year,
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": _time,
    "string": _string,
    "text": _long_text,
    "binary": _binary,
    "blob": _blob,
    "enum": _enum,
    "set": _set,
    "json": _json,
    "vector": _vector,
}
FAMILIES = tuple(_MAKERS)
