"""Show the options of the source, with defaults and meanings, and the known settings of the Kafka client.

With NAME, show only those whose names contain it, in upper or lower case.
"""

from __future__ import annotations

import argparse

from ticdc_source.cli.arguments import argument, words
from ticdc_source.cli.screen import Table, output
from ticdc_source.errors import OptionError, nearest
from ticdc_source.options.kafka_client import SETTINGS
from ticdc_source.options.option import ALL_OUTPUTS, Option
from ticdc_source.options.options import OPTIONS

SUMMARY = "show the options of the source, with defaults and meanings"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", type=argument(words), metavar="NAME", help="an option name, or part of one")


def run(arguments: argparse.Namespace) -> int:
    wanted = (arguments.name or "").lower()
    known = (*OPTIONS, *SETTINGS)
    table = Table("option", "default", "meaning")
    for option in known:
        if wanted in option.name.lower():
            table.add_row((option.name, "cyan"), option.default, _meaning(option))
    if not table:
        near = nearest(arguments.name, [option.name for option in known], 3)
        raise OptionError(
            f"No option has '{arguments.name}' in its name" + (f"; did you mean {', '.join(near)}?" if near else "")
        )
    output().show(table)
    return 0


def _meaning(option: Option) -> str:
    if not option.meaning:
        return "a property of the Kafka client"
    scope = {"batch": " (batch reads only)", "stream": " (streams only)", None: ""}[option.only]
    others = [each for each in ALL_OUTPUTS if each not in option.scope.outputs]
    return option.meaning + scope + (f" (not with outputFormat {' or '.join(others)})" if others else "")
