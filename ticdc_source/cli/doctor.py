"""Try every step of a read, from DNS to the first record, and say what to do about the first one that fails.

It also looks at what is installed: packages, the native path, and the Python that Spark starts as a worker.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from ticdc_source.cli.arguments import add_connection, options_of
from ticdc_source.cli.screen import errors, output, plain, print_json
from ticdc_source.inspection.doctor import diagnose
from ticdc_source.inspection.report import Check

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY = "each step of a read, its result, and what to do if it fails"
_MARKS = {"ok": "[green]ok     [/]", "warning": "[yellow]warning[/]", "failed": "[bold red]failed [/]"}
_SKIPPED = "[dim]skipped[/]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_connection(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def run(arguments: argparse.Namespace) -> int:
    """Take all steps; return 1 if one has failed."""
    given = options_of(arguments)
    if arguments.json:
        diagnosis = diagnose(given)
        print_json(diagnosis.as_json())
        return 0 if diagnosis.is_well else 1
    console = output()
    with errors().status("looking") as status:

        def show(check: Check) -> None:
            _show(check, console)
            status.update(f"after {check.step}")

        diagnosis = diagnose(given, show)
    failed = sum(check.result == "failed" for check in diagnosis.checks)
    console.print("[bold green]All is well.[/]" if not failed else f"[bold red]Failed: {failed}.[/]")
    return 0 if diagnosis.is_well else 1


def _show(check: Check, console: Console) -> None:
    name = f"{check.step} {check.subject}".strip()
    mark = _MARKS.get(check.result, _SKIPPED)
    took = f"{check.seconds * 1000:6.0f} ms"
    console.print(f"{mark} [bold]{plain(name)}[/] [dim]{took.strip()}[/]  {plain(check.message)}", soft_wrap=True)
    if check.mend:
        console.print(f"        [cyan]→ {plain(check.mend)}[/]", soft_wrap=True)
