"""Parsers of option values: text to value; each raises ValueError with a sentence that does not name the option."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

__all__ = [
    "TIMES_EXAMPLE",
    "boolean",
    "duration_ms",
    "folder",
    "integer",
    "integer_or",
    "json_object",
    "names",
    "offsets_or",
    "one_of",
    "size_bytes",
    "split_names",
    "subset_of",
    "tables",
    "text",
    "time_zone",
    "unquote_name",
]

_DURATION = re.compile(r"^(\d+)\s*(ms|s|m|min|h|d)?$")
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1}
_SIZE = re.compile(r"^(\d+)\s*(b|k|kb|m|mb|g|gb)?$")
_SIZE_BYTES = {None: 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_FIXED_OFFSET = re.compile(r"^[+-](0\d|1[0-4]):[0-5]\d$")


def text(value: str) -> str:
    """Take the value as it is."""
    return value


def boolean(value: str) -> bool:
    """Read true or false."""
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        msg = "expected true or false"
        raise ValueError(msg)
    return lowered == "true"


def integer(minimum: int) -> Callable[[str], int]:
    """Make the parser of whole numbers from `minimum` on."""

    def parse(value: str) -> int:
        if not re.fullmatch(r"-?[0-9]+", value.strip()):
            msg = "Expected a single long value"
            raise ValueError(msg)
        number = int(value)
        if number < minimum:
            msg = "must be positive" if minimum == 1 else f"must be at least {minimum}"
            raise ValueError(msg)
        return number

    return parse


def integer_or(word: str, *, at_least: int) -> Callable[[str], int | str]:
    """Make the parser of whole numbers from `at_least` on, or of one word."""
    number = integer(at_least)

    def parse(value: str) -> int | str:
        if value.strip().lower() == word:
            return word
        try:
            return number(value)
        except ValueError as error:
            msg = f"{error}, or '{word}'" if str(error).startswith("Expected") else str(error)
            raise ValueError(msg) from None

    return parse


def duration_ms(value: str) -> int:
    """Read a duration as milliseconds: 500ms, 30s, 15m; a bare number is milliseconds."""
    match = _DURATION.match(value.strip().lower())
    if match is None:
        msg = "expected a duration such as 500ms, 30s or 15m"
        raise ValueError(msg)
    return int(match[1]) * _DURATION_MS[match[2]]


def size_bytes(value: str) -> int:
    """Read a size as bytes: 512k, 32m, 1g."""
    match = _SIZE.match(value.strip().lower())
    if match is None or int(match[1]) == 0:
        msg = "expected a size such as 512k, 32m or 1g"
        raise ValueError(msg)
    return int(match[1]) * _SIZE_BYTES[match[2]]


def one_of(*choices: str) -> Callable[[str], str]:
    """Make the parser of one word of several, in any case."""
    by_lower = {choice.lower(): choice for choice in choices}

    def parse(value: str) -> str:
        choice = by_lower.get(value.strip().lower())
        if choice is None:
            near = difflib.get_close_matches(value.strip().lower(), by_lower, n=1)
            hint = f"; did you mean {by_lower[near[0]]}?" if near else ""
            msg = f"expected one of {', '.join(choices)}{hint}"
            raise ValueError(msg)
        return choice

    return parse


def subset_of(*choices: str) -> Callable[[str], frozenset[str]]:
    """Make the parser of a list of such words."""
    one = one_of(*choices)

    def parse(value: str) -> frozenset[str]:
        chosen = frozenset(one(part) for part in value.split(",") if part.strip())
        if not chosen:
            msg = f"expected some of {', '.join(choices)}"
            raise ValueError(msg)
        return chosen

    return parse


def split_names(value: str, separators: str = ",") -> list[str]:
    """Split a list of names; a name in backticks may hold commas, dots and blanks (`` doubles a backtick).

    With `separators=","` each returned item keeps its backticks; blanks around items are dropped.

    Raises:
        ValueError: a backtick is not closed.
    """
    items, start, quoted = [], 0, False
    for place, char in enumerate(value):
        if char == "`":
            quoted = not quoted
        elif char in separators and not quoted:
            items.append(value[start:place])
            start = place + 1
    if quoted:
        msg = f"a backtick is not closed in {value!r}"
        raise ValueError(msg)
    items.append(value[start:])
    return [item.strip() for item in items if item.strip()]


def unquote_name(name: str) -> str:
    """Take a name out of its backticks."""
    if len(name) >= 2 and name[0] == name[-1] == "`":  # noqa: PLR2004 (a pair)
        return name[1:-1].replace("``", "`")
    return name


def names(value: str) -> tuple[str, ...]:
    """Read a list of column names."""
    found = tuple(unquote_name(part) for part in split_names(value))
    if not found:
        msg = "expected at least one name"
        raise ValueError(msg)
    return found


def tables(value: str) -> tuple[tuple[str, str], ...]:
    """Read a list of database.table, with `*` for anything."""
    patterns = []
    for item in split_names(value):
        parts = [unquote_name(part) for part in split_names(item, separators=".")]
        if len(parts) != 2:  # noqa: PLR2004 (database and table)
            msg = f"{item!r} is not of the form database.table; put names with dots, commas or blanks in backticks"
            raise ValueError(msg)
        patterns.append((parts[0], parts[1]))
    if not patterns:
        msg = "expected database.table, or database.*"
        raise ValueError(msg)
    return tuple(patterns)


def time_zone(value: str) -> str:
    """Read a zone's name, or an offset such as +08:00."""
    zone = value.strip()
    if zone == "UTC" or _FIXED_OFFSET.match(zone):  # UTC needs no time-zone data, which slim images do not have
        return zone
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        msg = "expected the --tz of the TiCDC server, a name such as Asia/Shanghai or an offset such as +08:00"
        raise ValueError(msg) from None
    return zone


def folder(value: str) -> str:
    """Read a folder's path, or its URL.

    The value is not repeated in the error: TiCDC's own URLs have credentials in their query.
    """
    location = value.strip()
    scheme, _, rest = location.rpartition("://")
    if not location or (scheme and "?" in rest and not scheme.endswith(("http", "https", "file", "local", "memory"))):
        msg = (
            "expected a path, or a URL without query (fsspec takes credentials and endpoints from its own "
            f"configuration, not from a URL as TiCDC does), got {'one with' if location else 'none'}"
        )
        raise ValueError(msg)
    return location


def json_object(example: str) -> Callable[[str], dict[str, Any]]:
    """Make the parser of a JSON object; `example` is for its error."""

    def parse(value: str) -> dict[str, Any]:
        try:
            parsed = json.loads(value)
        except json.JSONDecodeError:
            parsed = None
        if not isinstance(parsed, dict):
            msg = f"Expected e.g. {example}, got {value}"
            raise ValueError(msg)  # noqa: TRY004 (every parser of this table raises ValueError)
        return parsed

    return parse


OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
TIMES_EXAMPLE = '{"topicA":{"0":1700000000000},"topicB":{"0":1700000000000}}'


def offsets_or(*words: str) -> Callable[[str], Any]:
    """Parse `earliest`, `latest` or JSON; the text is checked here, its partitions against the brokers later."""

    def parse(value: str) -> Any:
        word = value.strip().lower()
        if word in words:
            return word
        return json_object(OFFSETS_EXAMPLE)(value)

    return parse
