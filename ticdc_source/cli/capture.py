"""Write the exact bytes of records to a file, with topic, partition, offset, timestamp, key and headers.

The file is JSON Lines, compressed by gzip; `ticdc-source replay` writes it to a topic. It has the data of your tables.
With --redact, values of columns and of headers are nonsense of the same length and type, the same for the same value.
Names, DDL statements, schemas, years, commit times and offsets stay: look at the file before you send it.
"""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path

from ticdc_source.cli.arguments import add_connection, options_of
from ticdc_source.cli.screen import errors, progress_bar
from ticdc_source.inspection.capture import CaptureProgress, Selection, capture, redacted, write_capture

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY = "the exact bytes of records, in a file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the file to write, such as orders.jsonl.gz")
    add_connection(parser)
    parser.add_argument("--partition", type=_numbers, metavar="N[,…]", help="only these partitions")
    parser.add_argument(
        "--offsets", type=_offsets, metavar="FROM:TO", help="only these offsets of each partition, TO exclusive"
    )
    at_most = "at most so many records, from the start (%(default)s)"
    parser.add_argument("--max-records", type=int, default=10_000, metavar="N", help=at_most)
    parser.add_argument(
        "--redact", action="store_true", help="replace values of columns by nonsense of the same length and type"
    )


def _numbers(text: str) -> frozenset[int]:
    return frozenset(int(part) for part in text.split(","))


def _offsets(text: str) -> tuple[int | None, int | None]:
    start, colon, end = text.partition(":")
    if not colon:
        raise ValueError
    return (int(start) if start else None, int(end) if end else None)


def run(arguments: argparse.Namespace) -> int:
    """Write the file."""
    start, end = arguments.offsets or (None, None)
    selection = Selection(partitions=arguments.partition, start=start, end=end, most=arguments.max_records)
    left = 0
    with progress_bar() as bar:

        def on_progress(progress: CaptureProgress) -> None:
            nonlocal left
            left = progress.left
            bar("capture", progress.done, progress.total)

        records = capture(options_of(arguments), selection, on_progress)
        if arguments.redact:
            records = redacted(records, secrets.token_bytes(32))
        count = write_capture(arguments.file, records, is_redacted=arguments.redact)
    rest = f"; offsets behind them that are not in it: {left:,} (--max-records)" if left else ""
    errors().print(f"{count:,} records in {arguments.file}{rest}", markup=False)
    return 0
