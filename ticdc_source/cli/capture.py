"""Write the exact bytes of records to a file, with topic, partition, offset, timestamp, key and headers.

The file is JSON Lines, compressed by gzip; `ticdc-source replay` writes it to a topic. It has the data of your tables.
With --redact, values of columns and of headers are nonsense of the same length and type, the same for the same value.
Names, DDL statements, schemas, years, commit times and offsets stay: look at the file before you send it.
"""

from __future__ import annotations

import argparse
import secrets

from ticdc_source.cli.arguments import add_connection, argument, count, file_path, offset_range, options_of, partitions
from ticdc_source.cli.screen import errors, progress_bar
from ticdc_source.errors import counted
from ticdc_source.inspection.capture import CaptureProgress, Selection, capture, redacted, write_capture
from ticdc_source.options.options import Options
from ticdc_source.options.registry import RegistrySettings

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY = "the exact bytes of records, in a file"
_MOST_NAMES = 8  # of topic partitions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "file", type=argument(file_path), metavar="FILE", help="the file to write, such as orders.jsonl.gz"
    )
    add_connection(parser)
    parser.add_argument("--partition", type=argument(partitions), metavar="N[,…]", help="only these partitions")
    parser.add_argument(
        "--offsets",
        type=argument(offset_range),
        metavar="FROM:TO",
        help="only these offsets of each partition, TO exclusive",
    )
    at_most = "at most so many records, the first of each partition, in even shares (%(default)s)"
    parser.add_argument("--max-records", type=argument(count), default=10_000, metavar="N", help=at_most)
    parser.add_argument(
        "--redact", action="store_true", help="replace values of columns by nonsense of the same length and type"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the file."""
    start, end = arguments.offsets or (None, None)
    selection = Selection(partitions=arguments.partition, start=start, end=end, most=arguments.max_records)
    last = CaptureProgress(0, 0)
    with progress_bar() as bar:

        def on_progress(progress: CaptureProgress) -> None:
            nonlocal last
            last = progress
            bar("capture", progress.done, progress.total)

        options = options_of(arguments)
        records = capture(options, selection, on_progress)
        if arguments.redact:
            records = redacted(records, secrets.token_bytes(32), RegistrySettings.of(Options.of(options)))
        written = write_capture(arguments.file, records, is_redacted=arguments.redact)
    rest = f"; later offsets that are left out: {last.left:,} (--max-records)" if last.left else ""
    none = ", ".join(map(str, last.without[:_MOST_NAMES])) + (", …" if len(last.without) > _MOST_NAMES else "")
    errors().print(
        f"{counted(written, 'record')} in {arguments.file}{rest}{f', among them all of {none}' if none else ''}"
    )
    return 0
