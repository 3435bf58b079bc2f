"""Write the records of a capture to a topic: to the same partitions, in their order, with timestamps and headers.

It is the only command that writes. It refuses a topic that has records unless --append is given, and one that does not
exist unless --create is given.
"""

from __future__ import annotations

import argparse

from ticdc_source.cli.arguments import add_connection, argument, file_path, options_of
from ticdc_source.cli.screen import errors
from ticdc_source.errors import counted
from ticdc_source.inspection.capture import replay

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY = "the records of a capture, written to a topic"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "file", type=argument(file_path), metavar="FILE", help="what `ticdc-source capture` has written"
    )
    add_connection(parser, is_one_topic=True)
    parser.add_argument("--create", action="store_true", help="create the topic if it does not exist")
    parser.add_argument("--append", action="store_true", help="also write to a topic that has records")


def run(arguments: argparse.Namespace) -> int:
    """Write the records."""
    source, topic = arguments.file, arguments.topic
    count = replay(options_of(arguments), source, topic=topic, create=arguments.create, append=arguments.append)
    errors().print(f"{counted(count, 'record')} written to {arguments.topic}")
    return 0
