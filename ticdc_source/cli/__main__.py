"""The command `ticdc-source`, also `python -m ticdc_source.cli`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ticdc_source import __version__
from ticdc_source.cli import doctor, export, inspect, lag, options, tail
from ticdc_source.cli.program import command_line, run

COMMANDS = {"inspect": inspect, "tail": tail, "lag": lag, "export": export, "doctor": doctor, "options": options}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code.

    Args:
        arguments: what follows `ticdc-source`; that of this process by default.
    """
    return run(parser(), arguments)


def parser() -> argparse.ArgumentParser:
    return command_line("ticdc-source", __version__, "Inspect the topics that TiCDC writes to.", COMMANDS)


if __name__ == "__main__":
    sys.exit(main())
