"""Compare the targets of a sync with TiDB, each as of a TSO up to which it is complete, and optionally repair them.

TiDB computes checksums, and sends rows only where they differ. The sync need not stop. The exit code is 0 if all tables
are equal, 1 if one differs, and 2 if one could not be compared.
"""

from __future__ import annotations

import argparse
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
from ticdc_source.errors import TiCDCSourceError

if TYPE_CHECKING:  # it imports pyspark, and `--help` need not wait for it
    from ticdc_lakehouse.audits.report import Difference, TableAudit

SUMMARY = "compare the tables of a sync with TiDB, and repair them"
_LONGEST = 60  # characters of a value that is shown
_DEFAULT_SAMPLE = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=argument(file_path), metavar="FILE", help="settings of a sync, such as sync.toml")
    parser.add_argument(
        "--tables", type=argument(checked_patterns), metavar="DB.TABLE[,…]", help="tables, such as shop.*; default: all"
    )
    parser.add_argument(
        "--at", type=argument(count), metavar="TSO", help="a TSO (default: the newest one of each table)"
    )
    parser.add_argument("--repair", action="store_true", help="replace the rows that differ with TiDB's as of the TSO")
    parser.add_argument(
        "--sample", type=argument(count), default=_DEFAULT_SAMPLE, metavar="ROWS",
        help="maximum number of differing rows to show per table (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def run(arguments: argparse.Namespace) -> int:
    """Audit the tables; return 1 if one is different, 2 if it cannot be told."""
    from ticdc_lakehouse.syncs.auditing import audit_sync  # noqa: PLC0415 (it imports pyspark)
    from ticdc_lakehouse.syncs.session_and_catalog import session_of  # noqa: PLC0415 (it imports pyspark)

    tables = [] if arguments.tables is None else [arguments.tables]
    config = config_of(arguments.file, {})
    refuse_without_java()
    try:
        report = audit_sync(
            session_of(config),
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


def _lines(found: TableAudit) -> list[str]:
    name = found.table or found.target
    lines = [] if found.reason is None else [f"{name}: {found.reason}"]
    if found.newer:
        lines.append(f"{name}: {found.newer:,} rows changed after the TSO, and are not compared")
    lines += [f"{name}: the target has no column {column}" for column in found.missing_columns]
    lines += [f"{name} {_shown(one)}" for one in found.differences]
    return lines


def _shown(one: Difference) -> str:
    key = ", ".join(f"{column} = {_value(value)}" for column, value in one.key.items())
    cells = "; ".join(
        f"{column} is {_value(theirs)} in TiDB, {_value(ours)} in the target"
        for column, (theirs, ours) in one.cells.items()
    )
    what = {"missing": "is missing in the target", "extra": "is not in TiDB", "changed": cells}[one.kind]
    return f"({key}): {what}"


def _value(text: str | None) -> str:
    if text is None:
        return "NULL"
    return f"'{text}'" if len(text) <= _LONGEST else f"'{text[:_LONGEST]}…' ({len(text):,} characters)"
