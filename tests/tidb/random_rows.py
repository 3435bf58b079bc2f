"""Random values of MySQL's types as SQL literals, from a seed."""

import math
import random
import struct
from collections.abc import Callable

# Kinds of columns: the type, and a literal of a random value.
Literal = Callable[[random.Random], str]
_TEXTS = ("", " ", "a", "A", "é", "e\u0301", "ß", "ss", "中", "😀", "N", "1:N", ",", "\\", "'", "\t", "x ", "0")


def _text(most: int) -> Literal:
    def literal(rng: random.Random) -> str:
        value = "".join(rng.choice(_TEXTS) for _ in range(rng.randrange(most)))[:most]
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"

    return literal


def _number(low: int, high: int) -> Literal:
    return lambda rng: str(rng.choice((low, high, 0, 1, rng.randint(low, high))))


def _decimal(digits: int, scale: int) -> Literal:
    def literal(rng: random.Random) -> str:
        number = rng.choice((0, 1, 10**digits - 1, rng.randrange(10**digits))) * rng.choice((1, -1))
        return f"{'-' if number < 0 else ''}{abs(number) // 10**scale}.{abs(number) % 10**scale:0{scale}d}".rstrip(".")

    return literal


def _double(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return f"{rng.choice((-1, 1)) * rng.choice((0.0, 0.1, 1.5, 1e7, 12345678.9, 1e-3, 9.999e-4, 1e22, 5e-324))!r}"
    while True:
        (value,) = struct.unpack("<d", rng.randbytes(8))
        if math.isfinite(value):
            return repr(value)


def _single(rng: random.Random) -> str:
    while True:
        (value,) = struct.unpack("<f", rng.randbytes(4))
        if math.isfinite(value):
            return repr(value)


def _binary(most: int) -> Literal:
    return lambda rng: f"x'{rng.randbytes(rng.randrange(most + 1)).hex()}'"


def _date(rng: random.Random) -> str:
    days = ("0000-00-00", "2024-00-10", "2024-07-00", "0001-01-01", "9999-12-31", "2024-02-29", "1582-10-10")
    day = f"{rng.randrange(1000, 9999)}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"
    return f"'{rng.choice((*days, day))}'"


def _moment(digits: int, years: tuple[int, int]) -> Literal:
    def literal(rng: random.Random) -> str:
        day = f"{rng.randrange(*years):04d}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"
        clock = f"{rng.randrange(24):02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}"
        fraction = f"{rng.choice((0, 500_000, rng.randrange(10**6))):06d}"[:digits]
        return f"'{day} {clock}{'.' if digits else ''}{fraction}'"

    return literal


def _time(rng: random.Random) -> str:
    hours, fraction = rng.choice((0, 1, 25, 838)), rng.choice((0, 250, 999))
    return f"'{rng.choice(('', '-'))}{hours:02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}.{fraction:03d}'"


_DOCUMENTS = (
    *('{"b": 1, "a": [1, 2.5, null]}', "[]", '"x"', "null", "1e100", '{"é": "😀"}', "12345678901234567890", "0.1"),
    *('{"a": 1, "a": 2}', '"N"', "-0.0", "true"),
)


def _json(rng: random.Random) -> str:
    return f"'{rng.choice(_DOCUMENTS)}'"


KINDS: dict[str, Literal] = {
    "TINYINT": _number(-128, 127),
    "TINYINT(1)": _number(0, 1),
    "SMALLINT UNSIGNED": _number(0, 65535),
    "MEDIUMINT": _number(-8388608, 8388607),
    "INT UNSIGNED": _number(0, 2**32 - 1),
    "BIGINT": _number(-(2**63), 2**63 - 1),
    "BIGINT UNSIGNED": _number(0, 2**64 - 1),
    "DECIMAL(10,2)": _decimal(10, 2),
    "DECIMAL(5,5)": _decimal(5, 5),
    "DECIMAL(20,0)": _decimal(20, 0),
    "DECIMAL(38,18)": _decimal(38, 18),
    "DECIMAL(65,30)": _decimal(65, 30),
    "FLOAT": _single,
    "DOUBLE": _double,
    "YEAR": lambda rng: str(rng.choice((0, 1901, 2155, rng.randrange(1901, 2155)))),
    "BIT(1)": _number(0, 1),
    "BIT(64)": _number(0, 2**64 - 1),
    "DATE": _date,
    "DATETIME": _moment(0, (1, 9999)),
    "DATETIME(6)": _moment(6, (1, 9999)),
    "TIMESTAMP(3) NULL": _moment(3, (1971, 2037)),
    "TIME(3)": _time,
    "CHAR(20)": _text(20),
    "VARCHAR(40) COLLATE utf8mb4_general_ci": _text(20),
    "VARCHAR(40) CHARACTER SET latin1": lambda rng: f"'{rng.choice(('abc', 'a b', 'Z'))}'",
    "TEXT": _text(60),
    "BINARY(4)": _binary(4),
    "VARBINARY(20)": _binary(20),
    "BLOB": _binary(50),
    "ENUM('a','B','é','x,y')": lambda rng: str(rng.randrange(1, 5)),
    "SET('p','q','r')": lambda rng: str(rng.randrange(8)),
    "JSON": _json,
    "VECTOR(3)": lambda rng: f"'[{rng.choice((0, 1, -2.5, 1e-9))},{rng.choice((3, 1e10, 0.1))},{rng.randrange(9)}]'",
}
NULLS = 0.1  # of the values


def literal(kind: str, rng: random.Random) -> str:
    """Return a random value of a kind, or NULL."""
    return "NULL" if rng.random() < NULLS else KINDS[kind](rng)
