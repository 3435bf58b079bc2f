"""Compare the tables of a sync with TiDB, and repair them.

Each table is compared as of a TSO up to which its copy is complete. TiDB computes checksums, and sends rows only where
the checksums differ. The sync can keep running. The exit code is 0 if all tables are equal, 1 if one differs, and
otherwise 2 if one could not be compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from ticdc_lakehouse.cli.sync import checked_patterns, config_of, refuse_without_java
from ticdc_source.developer_api import (
    Table,
    argument,
    count,
    errors,
    file_path,
    moment,
    output,
    print_json,
    utc,
    visible,
)
from ticdc_source.errors import OptionError, TiCDCSourceError

if TYPE_CHECKING:  # they import pyspark, and `--help` need not wait for it
    from ticdc_lakehouse.audits.sides import Difference
    from ticdc_lakehouse.audits.table_audit import AuditReport, TableAudit
    from ticdc_lakehouse.syncs.config import SyncConfig
    from ticdc_lakehouse.syncs.status import TableStatus

SUMMARY = "compare the tables of a sync with TiDB, and repair them"
_LONGEST = 60  # characters of a value that is shown
_DEFAULT_SAMPLE = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=argument(file_path), metavar="FILE", help="configuration file, such as sync.toml")
    parser.add_argument(
        "--tables",
        type=argument(checked_patterns),
        metavar="DB.TABLE[,…]",
        help="tables, such as shop.* (default: all)",
    )
    parser.add_argument(
        "--at",
        type=argument(count),
        metavar="TSO",
        help="compare as of this TSO (default: the newest possible per table)",
    )
    parser.add_argument("--repair", action="store_true", help="correct the rows that differ")
    parser.add_argument(
        "--sample", type=argument(count), default=_DEFAULT_SAMPLE, metavar="ROWS",
        help="how many differing rows to show per table (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def run(arguments: argparse.Namespace) -> int:
    tables = [] if arguments.tables is None else [arguments.tables]
    config = config_of(arguments.file, {})
    refuse_without_java()
    try:
        report = audit_sync(
            config,
            tables=tables,
            at=arguments.at,
            repair=arguments.repair,
            sample=arguments.sample,
            on_table=lambda found: None if arguments.json else errors().print(visible(f"{found.table}: {found.state}")),
        )
    except TiCDCSourceError:
        raise
    except Exception as error:  # Python would exit with 1, which says that a table is different
        raise TiCDCSourceError(str(error).partition("\n")[0]) from error
    if arguments.json:
        print_json([each.as_json() for each in report.tables])
        return report.exit_code
    shown = Table("table", "state", "as of", "rows", "values", "missing", "extra", "changed", "repaired", "seconds",
                  right=("rows", "values", "missing", "extra", "changed", "repaired", "seconds"))  # fmt: skip
    for each in report.tables:
        numbers = (each.rows, each.cells, each.missing, each.extra, each.changed, each.repaired)
        shown.add_row(
            *(each.table or each.target, each.state, "" if each.at is None else moment(utc(each.at))),
            *(f"{number:,}" for number in numbers),
            f"{each.seconds:.1f}",
        )
    output().show(shown)
    for each in report.tables:
        for line in _lines(each):
            output().print(visible(line))
    return report.exit_code


def audit_sync(
    config: SyncConfig,
    *,
    tables: Sequence[str] = (),
    at: int | None = None,
    repair: bool = False,
    sample: int = _DEFAULT_SAMPLE,
    on_table: Callable[[TableAudit], None] = lambda _: None,
) -> AuditReport:
    """Compare the targets of a sync with their tables in TiDB, each at the newest TSO up to which it is complete.

    `tables` are patterns, such as `shop.*`; if empty, all tables are compared. `at` is one TSO for all of them.
    """
    from ticdc_lakehouse.audits.table_audit import AuditReport, audit  # noqa: PLC0415 (they import pyspark)
    from ticdc_lakehouse.syncs.session_and_catalog import session_of  # noqa: PLC0415
    from ticdc_lakehouse.syncs.status import statuses_of  # noqa: PLC0415
    from ticdc_lakehouse.syncs.time_travel import selected  # noqa: PLC0415
    from ticdc_lakehouse.targets.sessions import in_thread  # noqa: PLC0415

    tidb = config.tidb
    if tidb is None:
        raise OptionError("An audit reads TiDB: add [tidb] with its url to sync.toml")

    spark = session_of(config)

    def one(status: TableStatus) -> TableAudit:
        complete = status.resolved_ts
        report = audit(spark, status.target, tidb=tidb, at=at, complete=complete, repair=repair, sample=sample)
        found = report.tables[0]
        reason = None if found.reason is None else config.redact(found.reason)
        found = replace(found, table=found.table or status.table_name, reason=reason)
        on_table(found)
        return found

    chosen = selected(statuses_of(spark, config), tables, with_left_out=True)
    with ThreadPoolExecutor(config.parallel, thread_name_prefix="audit") as threads:
        return AuditReport(tables=tuple(threads.map(in_thread(spark, one), chosen)))


def _lines(found: TableAudit) -> list[str]:
    name = found.table or found.target
    lines = [] if found.reason is None else [f"{name}: {found.reason}"]
    if found.newer:
        lines.append(f"{name}: {found.newer:,} rows changed after the TSO, and were not compared")
    lines += [f"{name}: the target has no column {column}" for column in found.missing_columns]
    lines += [f"{name} {_shown(one)}" for one in found.differences]
    return lines


def _shown(one: Difference) -> str:
    key = ", ".join(f"{column} = {_value(value)}" for column, value in one.key.items())
    cells = "; ".join(
        f"{column} is {_value(theirs)} in TiDB, {_value(ours)} in the target"
        for column, (theirs, ours) in one.cells.items()
    )
    what = {"missing": "missing in the target", "extra": "not in TiDB", "changed": cells}[one.kind]
    return f"({key}): {what}"


def _value(text: str | None) -> str:
    if text is None:
        return "NULL"
    return f"'{text}'" if len(text) <= _LONGEST else f"'{text[:_LONGEST]}…' ({len(text):,} characters)"
