"""The frame of a command line: parse the arguments, run the command, and turn errors into exit codes.

0    done
1    done, with something that a person should know
2    the arguments, or the options of the source, are wrong; or the brokers refuse the login or the topic
3    the brokers do not answer in time
4    another error, such as lost records
130  stopped by Ctrl-C
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType

from ticdc_source.cli.arguments import WRONG_ARGUMENTS, ArgumentParser
from ticdc_source.cli.screen import LogFormat, errors
from ticdc_source.errors import KafkaUnavailableError, OptionError, TiCDCSourceError, once_per_query
from ticdc_source.options.names import is_option

_UNAVAILABLE, _OTHER, _INTERRUPTED = 3, 4, 130
_KAFKA = "kafka"  # beside this package and those that build on it. Others log secrets: Py4J each option of Spark


def command_line(
    name: str, version: str, description: str, commands: Mapping[str, ModuleType]
) -> argparse.ArgumentParser:
    """Return the parser of a command line.

    A command is a module with SUMMARY, `add_arguments(parser)` and `run(arguments)`, which returns the exit code.
    """
    # A shortened name may later mean another argument, and argparse's error about one repeats its value.
    whole = ArgumentParser(prog=name, description=description, allow_abbrev=False)
    whole.add_argument("--version", action="version", version=f"{name} {version}")
    parsers = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for each, module in commands.items():
        command = parsers.add_parser(each, help=module.SUMMARY, description=module.__doc__, allow_abbrev=False)
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        command.add_argument("--verbose", action="store_true", help="log the Kafka client's activity to stderr")
        module.add_arguments(command)
        command.set_defaults(refuse=command.error, run=module.run)
    return whole


def run(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> int:
    parsed = _parsed(parser, arguments)
    # The Kafka client logs each attempt to connect; the error sums them up.
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(LogFormat(logging.BASIC_FORMAT))
    logging.basicConfig(level=logging.WARNING if parsed.verbose else logging.CRITICAL, handlers=[log])
    packages = {_KAFKA, "ticdc_source", parser.prog.replace("-", "_")}
    for name in packages if parsed.verbose else ():
        logging.getLogger(name).setLevel(logging.DEBUG)
    warnings.showwarning = _show_warning
    try:
        with once_per_query(set()):
            code: int = parsed.run(parsed)
        sys.stdout.flush()
    except TiCDCSourceError as error:
        errors().print(("error:", "bold red"), f" {error}")
        if isinstance(error, OptionError):
            return WRONG_ARGUMENTS
        return _UNAVAILABLE if isinstance(error, KafkaUnavailableError) else _OTHER
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        needs = f"{parser.prog} {parsed.command} needs PySpark, which is not installed here"
        errors().print(("error:", "bold red"), f' {needs}: pip install "ticdc-source[spark]"')
        return _OTHER
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of the output has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments, or exit with an error without values of unknown arguments: they may be secret."""
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        # Behind one hyphen there may be a letter with its value: -pVALUE.
        names = [_name_of(each) for each in unknown if each[:1] == "-"]
        parsed.refuse(f"unknown argument {names[0]}" if names else _too_many(unknown[0]))
    return parsed


def _name_of(argument: str) -> str:
    return argument.partition("=")[0] if argument.startswith("--") else argument[:2]


def _too_many(word: str) -> str:
    """Describe a word that no argument takes, without repeating it: it may be a password."""
    name, equals, _ = word.partition("=")
    if equals and is_option(name):
        return f"{name}=… is an option of the source: put --conf before it"
    return "unexpected word; put quotes around a value with spaces"


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    errors().print(("warning:", "yellow"), f" {message}")
