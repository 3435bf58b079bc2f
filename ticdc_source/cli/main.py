"""`ticdc-source COMMAND …`: parse the arguments, run the command, and turn errors into exit codes.

0    done
1    done, and there is something that a person should know
2    the arguments, or the options of the source, are wrong; or the brokers refuse the login or the topic
3    the brokers do not answer in time
4    something else is wrong, such as records that are gone
130  stopped by Ctrl-C
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Sequence

from ticdc_source import __version__
from ticdc_source.cli import audit, capture, collect, doctor, inspect, lag, options, replay, sync, tail
from ticdc_source.cli.arguments import WRONG_ARGUMENTS, ArgumentParser
from ticdc_source.cli.screen import LogFormat, errors
from ticdc_source.errors import KafkaUnavailableError, OptionError, TiCDCSourceError, once_per_query
from ticdc_source.options.names import is_option

__all__ = ["COMMANDS", "main", "parser"]

# Each module has SUMMARY, `add_arguments(parser)` and `run(arguments)`, which returns the exit code.
COMMANDS = {
    "inspect": inspect,
    "tail": tail,
    "lag": lag,
    "doctor": doctor,
    "capture": capture,
    "replay": replay,
    "options": options,
    "sync": sync,
    "audit": audit,
    "collect": collect,
}

_UNAVAILABLE, _OTHER, _INTERRUPTED = 3, 4, 130
_VERBOSE = ("kafka", "ticdc_source")  # others log secrets at level DEBUG: Py4J each option that Spark is given


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code.

    Args:
        arguments: what follows `ticdc-source`; that of this process by default.
    """
    parsed = _parsed(arguments)
    # The Kafka client logs each attempt to connect; the error says what came of them.
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(LogFormat(logging.BASIC_FORMAT))
    logging.basicConfig(level=logging.WARNING if parsed.verbose else logging.CRITICAL, handlers=[log])
    for name in _VERBOSE if parsed.verbose else ():
        logging.getLogger(name).setLevel(logging.DEBUG)
    warnings.showwarning = _show_warning
    try:
        with once_per_query(set()):
            code: int = COMMANDS[parsed.command].run(parsed)
        sys.stdout.flush()
    except TiCDCSourceError as error:
        errors().print(("error:", "bold red"), f" {error}")
        if isinstance(error, OptionError):
            return WRONG_ARGUMENTS
        return _UNAVAILABLE if isinstance(error, KafkaUnavailableError) else _OTHER
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of the output has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments, or end with an error. Values of unknown ones may be secret: it does not repeat them."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parsed, unknown = parser().parse_known_args(given)
    if unknown:
        # Behind one hyphen there may be a letter with its value: -pVALUE.
        names = [_name_of(each) for each in unknown if each[:1] == "-"]
        parsed.refuse(f"unknown argument {names[0]}" if names else _too_many(unknown[0], given))
    return parsed


def _name_of(argument: str) -> str:
    return argument.partition("=")[0] if argument.startswith("--") else argument[:2]


def _too_many(word: str, given: Sequence[str]) -> str:
    """Return what to say of a word that no argument takes, which may be a password: its place, and never the word."""
    name, equals, _ = word.partition("=")
    if equals and is_option(name):
        return f"{name}=… is an option of the source, which needs --conf before it"
    before = given[: len(given) - 1 - list(reversed(given)).index(word)]
    named = [each for each in before if each[:1] == "-" or each in COMMANDS]
    after = _name_of(named[-1]) if named[-1][:1] == "-" else named[-1]
    return f"a word too many after {after}{'' if named[-1] == before[-1] else ' …'}"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    # A shortened name may come to mean another argument; and argparse's error about one repeats its value.
    whole = ArgumentParser(prog="ticdc-source", description="See into topics that TiCDC writes to.", allow_abbrev=False)
    whole.add_argument("--version", action="version", version=f"ticdc-source {__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.SUMMARY, description=module.__doc__, allow_abbrev=False)
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        command.add_argument("--verbose", action="store_true", help="log what the Kafka client does, to stderr")
        module.add_arguments(command)
        command.set_defaults(refuse=command.error)
    return whole


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    errors().print(("warning:", "yellow"), f" {message}")
