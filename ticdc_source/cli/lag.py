"""Show the newest commit and watermark of each topic partition, and how far behind a reader is.

It reads a few records at the end of each partition. The watermark lag says how far TiCDC is behind. The age is that of
the last commit, and also rises while nothing changes. With --checkpoint or --group, the commit lag is the age of the
first event that the reader has not read.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from ticdc_source.cli.arguments import add_connection, argument, count, options_of, seconds_between, words
from ticdc_source.cli.screen import Line, Table, errors, moment, output, print_json, visible
from ticdc_source.errors import KafkaUnavailableError, OptionError, counted
from ticdc_source.inspection.topic_lag import LagReport, LagWatch, PartitionLag, SnapshotLag
from ticdc_source.schema.tso import duration

SUMMARY = "show the lag of topics, and how far behind a stream or a consumer group is"
_INTERVAL_S = 2.0
_MOST_LAG_S = 10**9  # 30 years


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    reader = parser.add_mutually_exclusive_group()
    reader.add_argument(
        "--checkpoint",
        type=argument(words),
        metavar="FOLDER",
        help="also show the lag of the stream with this checkpoint (path or URI)",
    )
    reader.add_argument(
        "--group",
        type=argument(words),
        help="also show the lag of this consumer group (for streams, set commitGroupOffsets)",
    )
    parser.add_argument("--watch", action="store_true", help="refresh until Ctrl-C")
    parser.add_argument(
        "--interval",
        type=argument(seconds_between(0, 86_400)),
        metavar="SECONDS",
        help=f"with --watch: time between refreshes (default: {_INTERVAL_S})",
    )
    parser.add_argument("--count", type=argument(count), metavar="N", help="with --watch: stop after N refreshes")
    parser.add_argument(
        "--max-lag",
        type=argument(seconds_between(0, _MOST_LAG_S)),
        metavar="SECONDS",
        help="exit with 1 if a partition's watermark lag or commit lag (or, if both are unknown, its age) is larger, "
        "or if no lag is known",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts: one line per refresh")


def run(arguments: argparse.Namespace) -> int:
    """Look once, or again and again.

    Returns:
        1 if the last look found no position of the reader, messages of another protocol, or a lag above `--max-lag`.
    """
    for name in ("interval", "count"):
        if getattr(arguments, name) is not None and not arguments.watch:
            raise OptionError(f"argument --{name} needs --watch: without it, lag looks once")
    looks = arguments.count if arguments.watch else 1
    interval = _INTERVAL_S if arguments.interval is None else arguments.interval
    show = output().show_alone if arguments.watch else output().show
    with LagWatch(options_of(arguments), checkpoint=arguments.checkpoint, group=arguments.group) as watch:
        code = 0
        for report in _looks(watch, looks, interval):
            if arguments.json:
                print_json(report.as_json(), indent=None)
            else:
                show(*shown(report))
            late = report.late_s
            is_late = arguments.max_lag is not None and (late is None or late > arguments.max_lag)
            code = 1 if is_late or report.no_position is not None or report.other_protocol is not None else 0
    return code


def _looks(watch: LagWatch, count: int | None, interval: float) -> Iterator[LagReport]:
    done = 0
    while True:
        try:
            yield watch.look()
        except KafkaUnavailableError as error:
            if done == 0:  # later on, brokers may come back
                raise
            errors().print(("warning:", "yellow"), f" {visible(str(error))}")
        done += 1
        if count is not None and done >= count:
            return
        time.sleep(interval)


def shown(report: LagReport) -> Iterator[Table | Line]:
    has_reader = any(each.position is not None for each in report.partitions)
    columns = ["topic partition", "end", "last commit", "age", "watermark", "watermark lag"]
    if has_reader:
        columns += ["behind", "read up to", "commit lag"]
    table = Table(*columns, right=("end", "age", "watermark lag", "behind", "commit lag"))
    for each in report.partitions:
        table.add_row(*_cells(each, report.time, has_reader=has_reader))
    late = "lag unknown" if report.late_s is None else f"late by {duration(report.late_s)} at most"
    head = f"{moment(report.time)}  {report.protocol or 'no messages'}, {late}"
    lost = sum(each.lost or 0 for each in report.partitions)
    yield [(head, "bold")]
    yield table
    if report.snapshot is not None:
        yield [(_snapshot(report.snapshot), "")]
    if lost:
        yield [(f"Lost: {counted(lost, 'record')} that the reader had not read", "bold red")]
    yield from ([(text, "yellow")] for text in (report.other_protocol, report.no_position) if text is not None)


def _snapshot(lag: SnapshotLag) -> str:
    left = "" if lag.left_s is None else f", about {duration(lag.left_s)} left"
    ranges = f"{lag.ranges:,} of about {lag.expected_ranges:,} ranges"
    return f"Snapshot as of {lag.tso}: {ranges}, {counted(lag.rows, 'row')}{left}"


def _cells(lag: PartitionLag, now: str, *, has_reader: bool) -> Iterator[str]:
    yield from (f"{lag.topic}-{lag.partition}", f"{lag.end:,}")
    yield from (_short(lag.last_time, now), _seconds(lag.age_s))
    yield from (_short(lag.watermark_time, now), _seconds(lag.watermark_lag_s))
    if has_reader:
        yield "" if lag.behind is None else f"{lag.behind:,}"
        yield from (_short(lag.read_time, now), _seconds(lag.commit_lag_s))


def _short(iso: str | None, now: str) -> str:
    """Return a time to the minute, with its date unless it is today's."""
    if iso is None:
        return ""
    return iso[11:19] if iso[:10] == now[:10] else iso[:16].replace("T", " ")


def _seconds(lag: float | None) -> str:
    return "" if lag is None else duration(lag)
