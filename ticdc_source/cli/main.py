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

from rich.text import Text

from ticdc_source import __version__
from ticdc_source.cli import capture, doctor, inspect, lag, options, replay, tail
from ticdc_source.cli.screen import errors
from ticdc_source.errors import KafkaUnavailableError, OptionError, TiCDCSourceError

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
}

_USAGE, _UNAVAILABLE, _OTHER, _INTERRUPTED = 2, 3, 4, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code.

    Args:
        arguments: what follows `ticdc-source`; that of this process by default.
    """
    parsed = parser().parse_args(arguments)
    # The Kafka client logs each attempt to connect; the error says what came of them.
    logging.basicConfig(level=logging.DEBUG if parsed.verbose else logging.CRITICAL, stream=sys.stderr)
    warnings.showwarning = _show_warning
    try:
        code: int = COMMANDS[parsed.command].run(parsed)
        sys.stdout.flush()
    except TiCDCSourceError as error:
        errors().print(Text.assemble(("error:", "bold red"), f" {error}"))
        if isinstance(error, OptionError):
            return _USAGE
        return _UNAVAILABLE if isinstance(error, KafkaUnavailableError) else _OTHER
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of the output has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    whole = argparse.ArgumentParser(prog="ticdc-source", description="See into topics that TiCDC writes to.")
    whole.add_argument("--version", action="version", version=f"ticdc-source {__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.SUMMARY, description=module.__doc__)
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        command.add_argument("--verbose", action="store_true", help="log what the Kafka client does, to stderr")
        module.add_arguments(command)
    return whole


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    errors().print(Text.assemble(("warning:", "yellow"), f" {message}"))
