"""Try every step of a read, from DNS to the first record, and say what to do about the first one that fails.

It also looks at what is installed: packages, the native path, Java, and the Python that Spark starts as a worker. With
`--spark`, each executor of a session takes the same steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from rich.console import Console

from ticdc_source.cli.arguments import add_connection, options_of
from ticdc_source.cli.screen import errors, output, plain, print_json
from ticdc_source.errors import OptionError
from ticdc_source.inspection.doctor import diagnose
from ticdc_source.inspection.report import Check, Diagnosis

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY = "each step of a read, its result, and what to do if it fails"
_MARKS = {"ok": "[green]ok     [/]", "warning": "[yellow]warning[/]", "failed": "[bold red]failed [/]"}
_SKIPPED = "[dim]skipped[/]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_connection(parser)
    parser.add_argument(
        "--spark",
        action="store_true",
        help="also take the steps on each executor of the Spark session, to which PYSPARK_SUBMIT_ARGS leads",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def run(arguments: argparse.Namespace) -> int:
    """Take all steps; return 1 if one has failed."""
    given = options_of(arguments)
    if arguments.json:
        diagnosis = diagnose(given)
        report, executors = diagnosis.as_json(), dict[str, Diagnosis]()
        if arguments.spark:
            executors = _executors(given)
            report["executors"] = {name: each.as_json() for name, each in executors.items()}
        print_json(report)
        return _code([diagnosis, *executors.values()])
    console = output()
    with errors().status("looking") as status:

        def show(check: Check) -> None:
            _show(check, console)
            status.update(f"after {check.step}")

        diagnosis = diagnose(given, show)
    diagnoses = [diagnosis]
    if arguments.spark:
        for executor, its in _executors(given).items():
            console.print(f"\n[bold]Executor {plain(executor)}[/]")
            for check in its.checks:
                _show(check, console)
            diagnoses.append(its)
    console.print(_summary([check.result for each in diagnoses for check in each.checks]))
    return _code(diagnoses)


def _summary(results: Sequence[str]) -> str:
    failed, warnings = results.count("failed"), results.count("warning")
    if failed:
        return f"[bold red]Failed: {failed}.[/]"
    return f"[yellow]Nothing failed. Warnings: {warnings}.[/]" if warnings else "[bold green]All is well.[/]"


def _executors(given: Mapping[str, str]) -> dict[str, Diagnosis]:
    """Return what the executors found.

    Raises:
        OptionError: PySpark is not installed here.
    """
    try:
        from ticdc_source.inspection.executors import diagnose_executors  # noqa: PLC0415 (it imports pyspark)
    except ImportError as error:
        msg = f"--spark needs PySpark here: {error}"
        raise OptionError(msg) from None
    return diagnose_executors(given)


def _code(diagnoses: Sequence[Diagnosis]) -> int:
    return 0 if all(each.is_well for each in diagnoses) else 1


def _show(check: Check, console: Console) -> None:
    name = f"{check.step} {check.subject}".strip()
    mark = _MARKS.get(check.result, _SKIPPED)
    took = f"{check.seconds * 1000:6.0f} ms"
    console.print(f"{mark} [bold]{plain(name)}[/] [dim]{took.strip()}[/]  {plain(check.message)}", soft_wrap=True)
    if check.mend:
        console.print(f"        [cyan]→ {plain(check.mend)}[/]", soft_wrap=True)
