"""The parsers of option values: text → value.

A parser raises `ParseError` without the option's name. The caller adds it, and the text unless it may be secret.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Literal, TypeAlias, TypeVar
from urllib.parse import SplitResult, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ticdc_source.errors import nearest
from ticdc_source.schema import tso
from ticdc_source.schema.json_text import loads

Word = TypeVar("Word", bound=str)

PartitionNumbers: TypeAlias = Mapping[str, Mapping[int, int]]  # offsets or times by topic and partition
PartitionLists: TypeAlias = Mapping[str, Sequence[int]]  # partitions by topic

LARGEST_INT = (1 << 31) - 1  # of Java, Kafka's messages and Arrow alike
LARGEST_LONG = (1 << 63) - 1

_INTEGER = re.compile(r"-?[0-9]{1,1000}")  # Python converts no more digits than 4300
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DURATION = re.compile(r"([0-9]{1,19})\s*(ms|s|m|min|h|d)?")
_LONGEST_MS = LARGEST_LONG // 1_000_000  # 292 years: clocks count nanoseconds
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1}
_SIZE = re.compile(r"([0-9]{1,19})\s*(b|k|kb|m|mb|g|gb)?")
_SIZE_BYTES = {None: 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_SERVER = re.compile(r"(?:[0-9A-Za-z%._-]*://)?(\[[^\]]*\]|[0-9A-Za-z._\x80-\U0010ffff-]+):([0-9]{1,5})")
_SERVERS = "expected host:port, several separated by commas"
_LARGEST_PORT = 65_535
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([0-9A-Za-z._\x80-\U0010ffff-]+))(?::([0-9]{1,5}))?")
_TIDB_PORT = 4000
_FIRST_TSO = tso.of_ms(1_420_070_400_000)  # 2015, when TiDB began
_MILLISECONDS = range(10**12, 10**14)
_HTTP = ("http", "https")
_PROXIES = ("socks5", "socks5h", "http")  # of kafka-python
_FIXED_OFFSET = re.compile(r"^[+-](0\d|1[0-4]):[0-5]\d$")

_ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[0,1]}'
_OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMES_EXAMPLE = '{"topicA":{"0":1700000000000},"topicB":{"0":1700000000000}}'


class Secret:
    """A text that `repr`, `str` and formats never show; not a dataclass, which `dataclasses.asdict` would show."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return "Secret(***)"


class ParseError(ValueError):
    """A text is not a value of its option; its text says what was expected.

    Args:
        part: the part of the text that `expected` repeats, if any.
        meant: the word that was probably meant, if any.
    """

    def __init__(self, expected: str, *, part: str | None = None, meant: str | None = None) -> None:
        super().__init__(expected)
        self.expected = expected
        self.part = part
        self.meant = meant

    def __str__(self) -> str:
        return self.expected + self._hint()

    def of(self, option: str, text: str | None) -> str:
        """Return the sentence for the user; `text` is what was given, None if it may be secret."""
        return f"Option '{option}': {self.sentence(text)}"

    def sentence(self, text: str | None) -> str:
        got = "" if text is None or text == self.part else f", got '{text}'"
        return self.expected + got + self._hint()

    def _hint(self) -> str:
        return "" if self.meant is None else f"; did you mean {self.meant}?"


def _refuse_if(is_wrong: bool, expected: str) -> None:  # noqa: FBT001 (the condition of an `if`)
    if is_wrong:
        raise ParseError(expected)


# Words


def stripped(value: str) -> str:
    return value.strip()


def lower_case(value: str) -> str:
    return value.strip().lower()


def upper_case(value: str) -> str:
    return value.strip().upper()


def boolean(value: str) -> bool:
    lowered = value.strip().lower()
    _refuse_if(lowered not in ("true", "false"), "expected true or false")
    return lowered == "true"


def one_of(*choices: Word) -> Callable[[str], Word]:
    by_lower = {choice.lower(): choice for choice in choices}

    def parse(value: str) -> Word:
        choice = by_lower.get(value.strip().lower())
        if choice is None:
            near = nearest(value, by_lower)
            raise ParseError(f"expected one of {', '.join(choices)}", meant=by_lower[near[0]] if near else None)
        return choice

    return parse


def subset_of(*choices: Word) -> Callable[[str], frozenset[Word]]:
    parse_word = one_of(*choices)

    def parse(value: str) -> frozenset[Word]:
        chosen = set()
        for part in filter(str.strip, value.split(",")):
            try:
                chosen.add(parse_word(part))
            except ParseError as error:
                raise ParseError(f"'{part.strip()}': {error.expected}", part=part.strip(), meant=error.meant) from None
        _refuse_if(not chosen, f"expected one or more of {', '.join(choices)}")
        return frozenset(chosen)

    return parse


# Numbers


def whole_number(minimum: int, maximum: int = LARGEST_LONG) -> Callable[[str], int]:
    def parse(value: str) -> int:
        is_number = _INTEGER.fullmatch(value.strip()) is not None
        _refuse_if(not is_number or int(value) < minimum, f"expected a whole number, at least {minimum}")
        _refuse_if(int(value) > maximum, f"expected a whole number, at most {maximum}")
        return int(value)

    return parse


def resolved_or_number(value: str) -> int | Literal["resolved"]:
    if value.strip().lower() == "resolved":
        return "resolved"
    _refuse_if(not _INTEGER.fullmatch(value.strip()), "expected a whole number, or 'resolved'")
    return whole_number(1)(value)


def time_ms(value: str) -> int:
    """Parse milliseconds since the epoch; the error for a time in ISO 8601 suggests the number."""
    if re.fullmatch(r"-?[0-9]+", value.strip()):
        return whole_number(0)(value)
    raise ParseError("expected a whole number: milliseconds since the epoch", meant=_ms_of_iso(value.strip()))


def _time_of_iso(value: str) -> datetime | None:
    try:
        return datetime.fromisoformat(re.sub("[Zz]$", "+00:00", value))  # Python 3.10 takes no Z
    except ValueError:
        return None


def _ms_of(time: datetime) -> int:
    zoned = time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)
    return (zoned - _EPOCH) // timedelta(milliseconds=1)


def _ms_of_iso(value: str) -> str | None:
    time = _time_of_iso(value)
    ms = -1 if time is None else _ms_of(time)
    if time is None or ms < 0:
        return None
    return f"{ms}" if time.tzinfo is not None else f"{ms} (in UTC)"


def moment(value: str) -> int | Literal["now"]:
    """Parse `now`, a TSO, or a time in ISO 8601, in UTC unless it has an offset; return `now` or a TSO."""
    text = value.strip()
    if text.lower() == "now":
        return "now"
    expected = "expected now, a TSO, or a time such as 2026-11-27 10:00:00"
    if _INTEGER.fullmatch(text):
        number = int(text)
        meant = str(tso.of_ms(number)) if number in _MILLISECONDS else None
        if not _FIRST_TSO <= number <= LARGEST_LONG:
            raise ParseError(expected, meant=meant)
        return number
    time = _time_of_iso(text)
    if time is None:
        raise ParseError(expected)
    return tso.of_ms(_ms_of(time))


def host_and_port(value: str) -> tuple[str, int]:
    """Parse `host:port`; the default port is 4000. A user or a password is refused, and errors do not repeat it."""
    match = _HOST.fullmatch(value.strip())
    expected = "expected host:port, such as tidb:4000; the user and the password are 'tidb.user' and 'tidb.password'"
    if match is None or int(match[3] or _TIDB_PORT) > _LARGEST_PORT:
        raise ParseError(expected)
    return match[1] or match[2], int(match[3] or _TIDB_PORT)


def duration_ms(value: str) -> int:
    """Parse a duration such as 500ms, 30s or 15m; return milliseconds. A bare number is milliseconds."""
    match = _DURATION.fullmatch(value.strip().lower())
    milliseconds = -1 if match is None else int(match[1]) * _DURATION_MS[match[2]]
    _refuse_if(not 0 <= milliseconds <= _LONGEST_MS, "expected a duration such as 500ms, 30s or 15m")
    return milliseconds


def size_bytes(value: str) -> int:
    """Parse a size such as 512k, 32m or 1g; return bytes. A bare number is bytes."""
    match = _SIZE.fullmatch(value.strip().lower())
    size = 0 if match is None else int(match[1]) * _SIZE_BYTES[match[2]]
    _refuse_if(not 0 < size <= LARGEST_LONG, "expected a size such as 512k, 32m or 1g")
    return size


# Names


def split_names(value: str, separators: str = ",", *, keep_brackets: bool = False) -> list[str]:
    """Split a list of names; a name in backticks may contain separators, and a doubled backtick stands for one.

    With `keep_brackets`, separators in brackets are ignored, too. Names keep their backticks, are stripped, and are
    dropped if empty.

    Raises:
        ParseError: a backtick is not closed.
    """
    items, start, quoted, depth = [], 0, False, 0
    for index, char in enumerate(value):
        if char == "`":
            quoted = not quoted
        elif char in "()" and keep_brackets and not quoted:
            depth += 1 if char == "(" else -1
        elif char in separators and not quoted and not depth:
            items.append(value[start:index])
            start = index + 1
    if quoted:
        raise ParseError(f"a backtick is not closed in '{value}'", part=value)
    items.append(value[start:])
    return [item.strip() for item in items if item.strip()]


def unquote_name(name: str) -> str:
    if len(name) >= 2 and name[0] == name[-1] == "`":  # noqa: PLR2004 (a pair)
        return name[1:-1].replace("``", "`")
    return name


def names(value: str) -> tuple[str, ...]:
    columns = tuple(unquote_name(part) for part in split_names(value))
    _refuse_if(not columns, "expected at least one name")
    return columns


def table_patterns(value: str) -> tuple[tuple[str, str], ...]:
    patterns = []
    for item in split_names(value):
        parts = [unquote_name(part) for part in split_names(item, separators=".")]
        if len(parts) != 2:  # noqa: PLR2004 (database and table)
            raise ParseError(
                f"expected database.table for '{item}'; put names with dots, commas or spaces in backticks", part=item
            )
        patterns.append((parts[0], parts[1]))
    _refuse_if(not patterns, "expected database.table, or database.*")
    return tuple(patterns)


def time_zone(value: str) -> str:
    zone = value.strip()
    if zone == "UTC" or _FIXED_OFFSET.match(zone):  # UTC needs no time-zone data, which slim images lack
        return zone
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ParseError(
            "expected the --tz of the TiCDC server, a name such as Asia/Shanghai or an offset such as +08:00"
        ) from None
    return zone


_STORES = ("file", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")  # of pyarrow.fs, and Spark's `s3a`


def metrics_folder(value: str) -> str:
    """Check a folder's path or URI. The error does not repeat it: a URI may hold credentials."""
    location = value.strip()
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", location)
    got = "nothing" if scheme is None else f"a URI of '{scheme[1]}:'"
    _refuse_if(
        not location or (scheme is not None and scheme[1].lower() not in _STORES),
        f"expected a path, or a URI of {', '.join(f'{each}:' for each in _STORES)}; got {got}",
    )
    return location


def folder(value: str) -> str:
    """Check a folder's path or URL. A URL with a query, where TiCDC's have credentials, is refused and not repeated."""
    location = value.strip()
    scheme, _, rest = location.rpartition("://")
    if not location or (scheme and "?" in rest and not scheme.endswith(("http", "https", "file", "local", "memory"))):
        raise ParseError(
            "expected a path, or a URL without query (fsspec takes credentials and endpoints from its own "
            f"configuration, not from a URL as TiCDC does), got {'one with a query' if location else 'nothing'}"
        )
    return location


def escaped(value: str) -> str:
    r"""Replace `\\r`, `\\n`, `\\t` and `\\\\` by the characters that they stand for, as in TOML."""
    return re.sub(r"\\([rnt\\])", lambda found: {"r": "\r", "n": "\n", "t": "\t"}.get(found[1], found[1]), value)


def delimiter(value: str) -> str:
    _refuse_if(not value, "expected a non-empty string")
    return escaped(value)


def quote(value: str) -> str:
    """Return one character, or none, as `escaped` does."""
    text = escaped(value)
    _refuse_if(len(text) > 1, "expected one character, or none")
    return text


# JSON by topic and partition, as Spark's Kafka source has it


def offsets(value: str) -> Literal["earliest", "latest"] | PartitionNumbers:
    """Parse `earliest`, `latest`, or JSON with an offset for each partition: -2 is the earliest, -1 the latest.

    The JSON may be a checkpoint's offset: its other members (`$ids`) are ignored.
    """
    match value.strip().lower():
        case "earliest":
            return "earliest"
        case "latest":
            return "latest"
    if not value.strip().startswith("{"):
        near = nearest(value, ("earliest", "latest"))
        raise ParseError(
            f"expected earliest | latest | JSON such as {_OFFSETS_EXAMPLE}", meant=near[0] if near else None
        )
    return _partition_numbers(value, -2, "-2 (earliest)", _OFFSETS_EXAMPLE)


def times(value: str) -> PartitionNumbers:
    return _partition_numbers(value, 0, "0", _TIMES_EXAMPLE)


def partition_lists(value: str) -> PartitionLists:
    by_topic: dict[str, list[int]] = {}
    for topic, partitions in _json_object(value, _ASSIGN_EXAMPLE).items():
        if not isinstance(partitions, list) or not all(
            type(number) is int and 0 <= number <= LARGEST_INT for number in partitions
        ):
            raise _unexpected_json(_ASSIGN_EXAMPLE)
        by_topic[topic] = partitions
    return by_topic


def _partition_numbers(value: str, minimum: int, minimum_name: str, example: str) -> PartitionNumbers:
    by_topic: dict[str, dict[int, int]] = {}
    for topic, partitions in _json_object(value, example).items():
        if topic.startswith("$"):  # no topic: a member of a checkpoint's offset
            continue
        if not isinstance(partitions, dict):
            raise _unexpected_json(example)
        numbers = by_topic.setdefault(topic, {})
        for partition, number in partitions.items():
            # "00" would be a second name of partition 0; to Python, a bool is an int.
            if not re.fullmatch(r"0|[1-9][0-9]{0,9}", partition) or type(number) is not int:
                raise _unexpected_json(example)
            if int(partition) > LARGEST_INT or number > LARGEST_LONG:
                raise ParseError(f"{number} for {topic}-{partition} is too large for Kafka")
            if number < minimum:
                raise ParseError(f"{number} for {topic}-{partition} is below {minimum_name}")
            numbers[int(partition)] = number
    return by_topic


def _json_object(value: str, example: str) -> dict[str, object]:
    try:
        parsed = loads(value)
    except ValueError:  # no JSON, or a number of thousands of digits, or as many brackets
        raise _unexpected_json(example) from None
    if not isinstance(parsed, dict):
        raise _unexpected_json(example)
    return parsed


def _unexpected_json(example: str) -> ParseError:
    return ParseError(f"Expected e.g. {example}")


# Settings of the Kafka client


def int32(minimum: int) -> Callable[[str], int]:
    return whole_number(minimum, LARGEST_INT)


def buffer_bytes(value: str) -> int | None:
    """Parse a socket buffer's size; None for Java's -1, which leaves it to the system."""
    number = int32(-1)(value)
    return None if number == -1 else number


def servers(value: str) -> tuple[str, ...]:
    """Parse a comma-separated list of `host:port`, or Java's form `SSL://host:port`.

    Errors repeat no part of it: some users write a password there.
    """
    addresses = [server.strip() for server in value.split(",") if server.strip()]
    _refuse_if(not addresses, _SERVERS)
    try:
        return tuple(map(_server, addresses))
    except ParseError as error:
        if "@" not in value:
            raise
        raise ParseError(
            f"{error.expected}. A user and a password belong in kafka.sasl.jaas.config (of a command: in --properties)"
        ) from None


def _server(address: str) -> str:
    match = _SERVER.fullmatch(address)
    if match is None:
        raise ParseError(_SERVERS)
    host, port = match[1], int(match[2])
    _refuse_if(not 0 < port <= _LARGEST_PORT, f"{_SERVERS}, and each port from 1 to {_LARGEST_PORT}")
    try:
        if host.startswith("["):
            ipaddress.IPv6Address(host[1:-1])
        else:
            host.encode("idna")  # as DNS takes it
    except ValueError:
        raise ParseError(f"{_SERVERS}, and each host a name of DNS, or an address: 10.0.0.1, [2001:db8::1]") from None
    return f"{host}:{port}"


def _url(text: str, schemes: Collection[str]) -> SplitResult | None:
    """Split a URL with one of these schemes and a host; None if it is anything else."""
    try:
        parts = urlsplit(text)
        is_whole = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if is_whole else None


def proxy_url(value: str) -> Secret:
    """Parse a proxy's URL, which may hold a password: kafka-python's error for a malformed one would show it."""
    parts = _url(value.strip(), _PROXIES)
    expected = "expected a URL such as socks5://user:password@host:1080 (or socks5h://…, http://…), with a port"
    _refuse_if(parts is None or parts.port is None, expected)
    return Secret(value.strip())


def token_endpoint(value: str) -> str:
    """Parse the URL of a token endpoint or of a file with a token; errors repeat no part of it."""
    url = value.strip()
    parts = _url(url, _HTTP)
    _refuse_if(
        (parts is None or parts.username is not None) and not re.match(r"file:(//)?/(?!/)", url),
        "expected a URL such as https://login.example.com/oauth2/token, without a user, or file:///path/of/token",
    )
    return url


def registry_urls(value: str) -> tuple[str, ...]:
    """Parse a schema registry's URLs, comma-separated; errors repeat no part, as they may hold a password."""
    urls = tuple(url.strip().rstrip("/") for url in value.split(",") if url.strip())
    are_known = all(_url(url, _HTTP) is not None and "?" not in url and "#" not in url for url in urls)
    _refuse_if(not urls or not are_known, "expected URLs such as http://registry:8081")
    return urls


def user_info(value: str) -> Secret:
    _refuse_if(":" not in value, "expected user:password")
    return Secret(value)


def secret(value: str) -> Secret:
    return Secret(value.strip())


def host_check(value: str) -> bool:
    """Parse Java's algorithm for checking host names; return whether to check them."""
    algorithm = value.strip().lower()
    _refuse_if(algorithm not in ("", "https"), "expected https, or an empty value to turn off host name verification")
    return algorithm == "https"


def broker_version(value: str) -> tuple[int, ...]:
    _refuse_if(re.fullmatch(r"\d+(\.\d+){1,2}", value.strip()) is None, "expected a broker version such as 3.9")
    return tuple(int(part) for part in value.strip().split("."))
