"""Keep a copy of TiDB's tables in Delta or Iceberg.

Settings come from sync.toml; arguments override them. Without `trigger`, the command ends when it has read the topics,
and the next run continues from there. You may kill it at any time. A table that cannot be written is set aside while
the others go on; the exit code is then 1. The environment needs a PySpark that Delta or Iceberg supports.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ticdc_lakehouse.errors import TargetError
from ticdc_source.developer_api import (
    KafkaCluster,
    Options,
    Table,
    TableFilter,
    add_overrides,
    argument,
    check_java,
    counted,
    duration,
    errors,
    file_path,
    moment,
    of_ms,
    output,
    overrides_of,
    parse_table,
    print_json,
    table_patterns,
    utc,
    visible,
    words,
)
from ticdc_source.errors import OptionError

if TYPE_CHECKING:  # they import pyspark, and `--help` need not wait for it
    from ticdc_lakehouse.syncs.config import SyncConfig
    from ticdc_lakehouse.syncs.loading import LoadProgress
    from ticdc_lakehouse.syncs.reports import BatchReport, SyncReport
    from ticdc_lakehouse.syncs.status import TableStatus

SUMMARY = "keep a copy of TiDB's tables in Delta or Iceberg"
EXAMPLE = Path(__file__).resolve().with_name("example.toml")
_SET_ASIDE = 1
_TERMINATED = 128 + 15  # as a shell says it of SIGTERM
_SECONDS = 10.0  # between two lines of a table that is loading


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=argument(file_path), metavar="FILE", help="configuration file, such as sync.toml"
    )
    add_overrides(parser)
    parser.add_argument(
        "--tables", type=argument(checked_patterns), metavar="DB.TABLE[,…]", help="tables to copy, such as shop.*"
    )
    parser.add_argument("--format", type=argument(_any_case), metavar="FORMAT", help="delta or iceberg")
    parser.add_argument("--path", type=argument(words), metavar="FOLDER", help="folder of the tables (path or URI)")
    parser.add_argument(
        "--checkpoint", type=argument(words), metavar="FOLDER", help="folder of the checkpoint (path or URI)"
    )
    parser.add_argument(
        "--trigger", type=argument(words), metavar="INTERVAL", help="keep running, with a micro-batch at this interval"
    )
    parser.add_argument(
        "--resume",
        type=argument(words),
        action="append",
        default=[],
        metavar="TABLE",
        help="resume a table that was set aside, once you have fixed the cause; repeatable",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--status", action="store_true", help="show the status of the tables, and exit")
    what.add_argument("--example", action="store_true", help="print a sync.toml with every key, and exit")
    what.add_argument("--script", action="store_true", help="print the path of the program for spark-submit, and exit")
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts: one line per micro-batch")


def _any_case(word: str) -> str:
    return words(word).strip().lower()


def checked_patterns(text: str) -> str:
    """Check a list of table patterns, such as `shop.*,crm.*`, and return it."""
    table_patterns(words(text))
    return text


def run(arguments: argparse.Namespace) -> int:
    """Run a sync, or show the status of its tables; return 1 if a table is set aside."""
    if arguments.example:
        print(EXAMPLE.read_text(encoding="utf-8"), end="")  # noqa: T201 (it is made for a file)
        return 0
    if arguments.script:
        print(Path(__file__).resolve().with_name("submit") / "sync.py")  # noqa: T201 (it is made for a shell)
        return 0
    config = _config_of(arguments)
    return _show_status(config, arguments) if arguments.status else _sync(config, arguments)


def _config_of(arguments: argparse.Namespace) -> SyncConfig:
    given = overrides_of(arguments)
    given |= {f"target.{name}": value for name in ("format", "path") if (value := getattr(arguments, name)) is not None}
    given |= {name: value for name in ("checkpoint", "trigger") if (value := getattr(arguments, name)) is not None}
    if arguments.tables is not None:
        given["tables"] = [arguments.tables]
    return config_of(arguments.file, given)


def config_of(file: Path | None, given: dict[str, object]) -> SyncConfig:
    """Return the settings in a file, if one is given; `given` replaces them, by section and key."""
    from ticdc_lakehouse.syncs.sync_toml import read_toml  # noqa: PLC0415 (it imports pyspark)

    text, folder = "", Path()
    if file is not None:
        try:
            text, folder = file.read_text(encoding="utf-8"), file.parent
        except OSError as error:
            raise OptionError(
                f"{file} cannot be read: {error.strerror}; `ticdc-lakehouse sync --example` prints an example"
            ) from None
        except UnicodeDecodeError:
            raise OptionError(f"{file} is not UTF-8: save it in this encoding") from None
    return read_toml(text, given, folder)


def _sync(config: SyncConfig, arguments: argparse.Namespace) -> int:
    from ticdc_lakehouse.syncs.database_sync import sync  # noqa: PLC0415 (it imports pyspark)
    from ticdc_lakehouse.syncs.session_and_catalog import session_of  # noqa: PLC0415 (it imports pyspark)

    _check_before_spark(config)
    spark = session_of(config)
    # A container is stopped with SIGTERM. If the lease is released then, the next process need not wait for its end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    if not arguments.json:
        errors().print(f"reading {visible(', '.join(config.reads))}")
    report = sync(
        spark,
        config,
        resume=tuple(arguments.resume),
        on_batch=lambda one: print_json(one.as_json(), indent=None) if arguments.json else _show_batch(one),
        on_load=Loads(json=arguments.json).show,
    )
    _tell_what_is_not_there(config, report)
    if not arguments.json:
        set_aside = report.set_aside
        nothing = "" if report.batches else ", nothing new"
        output().print(f"done: {counted(len(report.tables), 'table')}, {len(set_aside):,} set aside{nothing}")
        for name, reason in set_aside.items():
            errors().print((f"{name} is set aside: ", "bold red"), reason)
        if report.loading:
            pending = visible(", ".join(report.loading))
            errors().print((f"not loaded yet, and not up to date: {pending}", "bold red"))
    nothing_read = bool(report.bad_records) and not report.tables
    return _SET_ASIDE if report.set_aside or report.loading or nothing_read else 0


def _tell_what_is_not_there(config: SyncConfig, report: SyncReport) -> None:
    found = [parse_table(name) for name in report.tables]
    for pattern in table_patterns(",".join(config.tables)) if config.tables else ():
        if not any(map(TableFilter((pattern,)).matches, found)):
            errors().print(visible(f"no table matches tables = {'.'.join(pattern)}"))
    if report.bad_records:
        place = config.layout.own("_ticdc_quarantine")
        count = counted(report.bad_records, "bad record")
        errors().print(visible(f"{count} in quarantine: see {place} for the offset and the reason of each"))


def _check_before_spark(config: SyncConfig) -> None:
    """Look for Java, the brokers and the topics before Spark starts, which takes longer and has poorer errors.

    A sync with a trigger waits for a topic that does not exist, and says so.
    """
    refuse_without_java()
    if config.folder is None:
        with KafkaCluster(Options.of(config.reader_options())) as cluster:
            cluster.brokers()
            try:
                cluster.partitions()
            except OptionError as error:
                if config.trigger is None:
                    raise
                errors().print(visible(f"waiting: {error}"))


def refuse_without_java() -> None:
    java = check_java()
    if java.result == "failed":
        raise TargetError(f"{java.message}: {java.mend}")


def _show_batch(report: BatchReport) -> None:
    screen = output()
    screen.print(_line(report))
    for name, reason in report.set_aside.items():
        screen.print((f"  {name} is set aside: ", "red"), reason)


def _line(report: BatchReport) -> str:
    """Return what a micro-batch did, in one line."""
    what = "resumed" if report.resumed else f"micro-batch {report.batch_id}"
    new = f" ({len(report.created):,} new)" if report.created else ""
    rows = counted(sum(report.changed.values()), "row")
    parts = [f"{what}: {rows} in {counted(len(report.changed), 'table')}{new}{_up_to(report)}"]
    if report.bad_records:
        parts.append(f"{counted(report.bad_records, 'bad record')} in quarantine")
    if report.maintained:
        parts.append(f"{counted(len(report.maintained), 'table')} maintained")
    return ", ".join([*parts, f"{report.seconds:.1f} s"])


def _up_to(report: BatchReport) -> str:
    """Return the time up to which tables have all changes, and how many of them have all rows."""
    if report.resolved_ts is None:
        return ""
    up_to = _time(report.resolved_ts)
    if report.tables and report.complete == report.tables:
        return f", complete up to {up_to}"
    return f", changes up to {up_to} ({report.complete:,} of {counted(report.tables, 'table')} complete)"


def _show_status(config: SyncConfig, arguments: argparse.Namespace) -> int:
    statuses, written, place = _statuses_of(config)
    now = time.time()
    if arguments.json:
        print_json([{**each.as_json(now), "as_of": written} for each in statuses])
    else:
        output().show(*shown(statuses, now, written, place))
    return _SET_ASIDE if any(each.state == "set aside" for each in statuses) else 0


def shown(statuses: Sequence[TableStatus], now: float, written: str, place: str) -> Iterator[Table | Sequence[str]]:
    """Yield the table of statuses and the lines below it, as a terminal shows them."""
    yield _table(statuses, now)
    for each in statuses:
        if each.reason is not None:
            at = "last error"
            if each.set_aside_since is not None:
                number = "" if each.kept_from is None else f", in micro-batch {each.kept_from}"
                at = f"set aside since {moment(each.set_aside_since)}{number}"
            yield [visible(f"{each.table_name}, {at}: {each.reason}")]
    ago = duration(max(0.0, now - datetime.fromisoformat(written).timestamp()))
    yield [visible(f"as of {moment(written)}, {ago} ago, by {place}")]


def _statuses_of(config: SyncConfig) -> tuple[list[TableStatus], str, str]:
    """Return the statuses, when they were written, and where: the file of the sync, or its table through Spark."""
    from ticdc_lakehouse.syncs.session_and_catalog import session_of  # noqa: PLC0415 (it imports pyspark)
    from ticdc_lakehouse.syncs.status import StatusFile, now_text, statuses_of  # noqa: PLC0415 (it imports pyspark)

    from_file = StatusFile(config).read()
    if from_file is not None:
        return from_file
    refuse_without_java()
    statuses = statuses_of(session_of(config), config)
    return statuses, now_text(), "the table _ticdc_sync"


def _table(statuses: Iterable[TableStatus], now: float) -> Table:
    head = ("table", "kind", "state", "complete since", "changes up to", "lag", "maintained", "rows")
    shown = Table(*head, right=("lag", "rows"))
    for each in statuses:
        lag = each.lag(now)
        cells = (
            each.table_name,
            each.kind or "",
            each.state,
            _time(each.complete_since),
            _time(each.resolved_ts),
            "" if lag is None else duration(lag),
            _time(None if each.maintained_ms is None else of_ms(each.maintained_ms)),
        )
        shown.add_row(*cells, f"{each.images:,}")
    return shown


def _time(commit_ts: int | None) -> str:
    return moment(utc(commit_ts))


class Loads:
    """Prints the progress of loads: at the start and end of each table, and every ten seconds; JSON for scripts."""

    def __init__(self, *, json: bool = False) -> None:
        self._json = json
        self._lock = threading.Lock()
        self._told: dict[str, float] = {}

    def show(self, progress: LoadProgress) -> None:
        name, now = str(progress.table), time.monotonic()
        with self._lock:
            ends = progress.complete or progress.failed
            if not ends and now - self._told.get(name, float("-inf")) < _SECONDS:
                return
            self._told[name] = now
            if self._json:
                print_json({**asdict(progress), "table": name}, indent=None)
            else:
                errors().print(visible(as_line(progress)))


def as_line(progress: LoadProgress) -> str:
    if progress.complete:
        return f"{progress.table}: loaded, {progress.rows:,} rows in {duration(progress.seconds)}"
    if progress.failed:
        return f"{progress.table}: the load failed"
    left = "" if progress.seconds_left is None else f", {duration(progress.seconds_left)} left"
    return f"{progress.table}: loading, {progress.rows:,} of about {progress.of:,} rows{left}"
