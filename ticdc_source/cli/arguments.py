"""Arguments shared by several commands, and the parsers of all arguments.

Each argument with a value has a parser that rejects values out of range: `argument(parser of options)`.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn, TypeVar

from ticdc_source.cli.screen import errors, visible
from ticdc_source.errors import OptionError, warn
from ticdc_source.options import parsers
from ticdc_source.options.names import HIDDEN, applies_to, is_option, refuse_unknown, without_secrets
from ticdc_source.options.option import Use
from ticdc_source.options.parsers import ParseError

Value = TypeVar("Value")

WRONG_ARGUMENTS = 2  # the exit code
# Where argparse's errors begin to repeat the given value, and what replaces it here.
_REPEATED = {": ignored explicit argument": ": it takes no value", ": invalid choice:": ": there is no such command"}
_SHOWN = 60  # characters of a value in an error
_LONGEST_WORDS = 32_767  # bytes of a text in a message to Kafka
_LARGEST_PROPERTIES = 1 << 20  # bytes

_KAFKA = "kafka."
# A person waits: by default a third of what a job waits for the brokers.
_DEFAULTS = {"kafka.default.api.timeout.ms": "10000"}
_PROPERTY = re.compile(r"\s*((?:\\.|[^\\\s=:])+)\s*[=:\s]?\s*(.*)", re.DOTALL)
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")  # Kafka's org.apache.kafka.common.internals.Topic
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12}")
# Options that an argument replaces.
_ARGUMENTS = {"subscribe": "--subscribe", "kafka.bootstrap.servers": "--bootstrap-servers"}
# Commands that use only some options. `inspect` repeats all of them in the code that it prints; `doctor` checks all.
_SELECTIVE: Mapping[str, Use] = {"tail": "tail", "lag": "lag"}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class ArgumentParser(argparse.ArgumentParser):
    """Reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit, without values that argparse repeats: they may be secret."""
        for theirs, ours in _REPEATED.items():
            begin, found, _ = message.partition(theirs)
            message = begin + ours if found else message
        errors().print(("error:", "bold red"), f" {visible(message)}; see {self.prog} --help")
        raise SystemExit(WRONG_ARGUMENTS)


def argument(parse: Callable[[str], Value], *, secret: bool = False) -> Callable[[str], Value]:
    """Return a parser for argparse; its errors do not repeat a `secret` text."""

    def parsed(text: str) -> Value:
        try:
            return parse(text)
        except ParseError as error:
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            raise argparse.ArgumentTypeError(error.sentence(None if secret or error.part else shown)) from None

    return parsed


def words(text: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # bytes on the command line that are not UTF-8
        size = 0
    if not 0 < size <= _LONGEST_WORDS or not text.strip():
        raise ParseError(f"expected 1 to {_LONGEST_WORDS} bytes of UTF-8")
    return text


def _topics(text: str) -> str:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or not all(map(_TOPIC.fullmatch, names)):
        raise ParseError(
            "expected names of topics, separated by commas: up to 249 letters, digits, dots, underscores and hyphens"
        )
    return ",".join(names)


def file_path(text: str) -> Path:
    """Parse the path of a file. Its name need not be UTF-8."""
    try:
        is_path = 0 not in os.fsencode(text) and bool(text)
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise ParseError("expected a file path")
    return Path(text)


def seconds_between(minimum: float, maximum: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        if not _DECIMAL.fullmatch(text.strip()) or not minimum <= float(text) <= maximum:
            raise ParseError(f"expected seconds, from {minimum:g} to {maximum:.0f}")
        return float(text)

    return parse


count = parsers.whole_number(1)


def _name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ParseError("expected NAME=VALUE, such as --conf kafka.security.protocol=SSL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ParseError(f"expected UTF-8 as the value of {name.strip()}") from None
    return name.strip(), value


def add_connection(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the arguments that say what to read; without `required`, options may name files or TiDB instead."""
    _add_source(
        parser.add_argument_group("connection"),
        "an option of the source, such as kafka.security.protocol=SSL, timeZone=UTC or tables=shop.*; repeatable",
        "a file of Kafka client properties (client.properties); put passwords there, because other users can "
        "see a command's arguments",
        required=required,
    )


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that override brokers, topics and source options of `sync.toml`."""
    _add_source(
        parser.add_argument_group("overrides of the file"),
        "an option of the source, such as timeZone=Asia/Shanghai; not for secrets; repeatable",
        "a file of Kafka client properties",
        required=False,
    )


def _add_source(
    group: argparse._ArgumentGroup,  # argparse has no public name
    conf: str,
    properties: str,
    *,
    required: bool,
) -> None:
    group.add_argument(
        "--bootstrap-servers",
        "--bootstrap-server",  # of Kafka's own commands
        type=argument(lambda text: ",".join(parsers.servers(text)), secret=True),
        required=required,
        metavar="HOST:PORT[,…]",
        help="Kafka brokers",
    )
    group.add_argument("--subscribe", type=argument(_topics), required=required, metavar="TOPIC[,…]", help="topics")
    group.add_argument(
        "--conf",
        type=argument(_name_and_value, secret=True),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=conf,
    )
    group.add_argument("--properties", type=argument(file_path), metavar="FILE", help=properties)


def overrides_of(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the overrides of `sync.toml`, by its section and key.

    Raises:
        OptionError: an option does not exist, an argument may be a secret, or the file of properties cannot be read.
    """
    given: dict[str, object] = {}
    if arguments.properties is not None:
        for name, value in _properties(_text_of(arguments.properties)):
            given["source." + _full(name)] = value
    refuse_unknown(name for name, _ in arguments.conf)
    for name, value in arguments.conf:
        if without_secrets({name: value})[name] == HIDDEN:
            raise OptionError(
                f"--conf {name}: it may be a secret, and other users of this machine can see a command's arguments. "
                f'Set it in sync.toml, as "{name}" = {{ env = "NAME" }} under [source], or in a file for --properties'
            )
        given[f"source.{name}"] = value
    if arguments.bootstrap_servers is not None:
        given["source.kafka.bootstrap.servers"] = arguments.bootstrap_servers
    if arguments.subscribe is not None:
        given["source.subscribe"] = arguments.subscribe
    return given


def add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-records",
        type=argument(count),
        default=100_000,
        metavar="N",
        help="read at most about N records (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=argument(seconds_between(0.001, 86_400)),
        default=30.0,
        metavar="SECONDS",
        help="maximum time to read (default: %(default)s)",
    )


def options_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the source options; arguments override the properties file.

    Raises:
        OptionError: the file cannot be read, or is not a properties file.
    """
    options = dict(_DEFAULTS) if arguments.bootstrap_servers is not None else {}
    if arguments.properties is not None:
        for name, value in _properties(_text_of(arguments.properties)):
            options[_full(name)] = value
    options.update((name, value) for name, value in arguments.conf if _has_effect(name, arguments.command))
    named = {"kafka.bootstrap.servers": arguments.bootstrap_servers, "subscribe": arguments.subscribe}
    return options | {name: value for name, value in named.items() if value is not None}


def _full(name: str) -> str:
    """Return an option's name; in a properties file, Kafka client names need no `kafka.`."""
    return name if name.startswith(_KAFKA) or is_option(name) else _KAFKA + name


def _has_effect(name: str, command: str) -> bool:
    says = _ARGUMENTS.get(name.lower())
    if says is None and (command not in _SELECTIVE or applies_to(_SELECTIVE[command], name)):
        return True
    reason = "" if says is None else f"; {says} sets it"
    warn(f"Option '{name}' has no effect in ticdc-source {command} and is ignored{reason}")
    return False


def _text_of(path: Path) -> str:
    """Return the text of a properties file, which may be a pipe; endless devices are rejected."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_PROPERTIES + 1)
        text = data.decode()
    except OSError as error:
        reason = error.strerror
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    else:
        if len(data) <= _LARGEST_PROPERTIES:
            return text
        reason = "it is larger than 1 MiB, so it is not a properties file"
    raise OptionError(f"--properties {path}: {reason}")


def given_by_user(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without the defaults of commands."""
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
