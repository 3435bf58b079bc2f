"""The arguments that several commands have: how to reach the brokers, and which topics."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ticdc_source.errors import OptionError

__all__ = ["add_connection", "add_limits", "given_by_user", "options_of"]

_KAFKA = "kafka."
# A person waits: by default a third of what a job waits for the brokers.
_DEFAULTS = {"kafka.default.api.timeout.ms": "10000"}
_PROPERTY = re.compile(r"\s*((?:\\.|[^\\\s=:])+)\s*[=:\s]?\s*(.*)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def add_connection(parser: argparse.ArgumentParser, *, topics: bool = True) -> None:
    """Add the arguments that say which brokers and, unless a command has none, which topics."""
    group = parser.add_argument_group("connection")
    group.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT[,…]", help="Kafka's brokers")
    if topics:
        group.add_argument("--topic", required=True, metavar="TOPIC[,…]", help="the topics")
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the source, such as kafka.security.protocol=SSL, timeZone=UTC or tables=shop.*; any number",
    )
    group.add_argument(
        "--properties",
        type=Path,
        metavar="FILE",
        help="a file of Kafka client properties (client.properties): the place for passwords, as other users of this "
        "machine see the arguments of a command",
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how far to look."""
    parser.add_argument(
        "--max-records",
        type=_positive,
        default=100_000,
        metavar="N",
        help="read at most about so many records (%(default)s)",
    )
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS", help="read for at most so long (%(default)s)"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def options_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of the source. Arguments replace what the file of properties says.

    Raises:
        OptionError: the file cannot be read, or `--conf` is not of the form NAME=VALUE.
    """
    options = dict(_DEFAULTS)
    if arguments.properties is not None:
        try:
            text = arguments.properties.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            msg = f"--properties {arguments.properties}: {reason}"
            raise OptionError(msg) from None
        for name, value in _properties(text):
            options[name if name.startswith(_KAFKA) else _KAFKA + name] = value
    for item in arguments.conf:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            msg = "--conf takes NAME=VALUE, such as --conf kafka.security.protocol=SSL"
            raise OptionError(msg)
        options[name.strip()] = value
    options["kafka.bootstrap.servers"] = arguments.bootstrap_servers
    if getattr(arguments, "topic", None):
        options["subscribe"] = arguments.topic
    return options


def given_by_user(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without those that only commands need."""
    return {name: value for name, value in options.items() if _DEFAULTS.get(name) != value}


def _properties(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a Java properties file (java.util.Properties, load)."""
    logical = ""
    for line in text.splitlines():
        logical += line.lstrip() if logical else line
        if not logical.strip() or logical.lstrip()[0] in "#!":
            logical = ""
            continue
        slashes = len(logical) - len(logical.rstrip("\\"))
        if slashes % 2:
            logical = logical[:-1]
            continue
        match = _PROPERTY.fullmatch(logical)
        if match:
            yield _unescaped(match[1]), _unescaped(match[2])
        logical = ""


def _unescaped(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replaced, text)
