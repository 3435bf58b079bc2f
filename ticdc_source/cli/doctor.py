"""Try every step of a read, from DNS to the first record, and say what to do about the first one that fails.

It also checks what is installed: packages, the native path, Java, and the Python that Spark starts as a worker. With
`--spark`, each executor of a session tries the same steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from ticdc_source.cli.arguments import add_connection, options_of
from ticdc_source.cli.screen import Screen, output, print_json, visible
from ticdc_source.errors import OptionError
from ticdc_source.inspection.doctor import diagnose
from ticdc_source.inspection.report import Check, Diagnosis

SUMMARY = "try each step of a read, and say what to do if one fails"
_STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument(
        "--spark",
        action="store_true",
        help="also try the steps on each executor of the Spark session that PYSPARK_SUBMIT_ARGS configures",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def run(arguments: argparse.Namespace) -> int:
    given = options_of(arguments)
    if arguments.json:
        diagnosis = diagnose(given)
        report, executors = diagnosis.as_json(), dict[str, Diagnosis]()
        if arguments.spark:
            executors = _executors(given)
            report["executors"] = {name: each.as_json() for name, each in executors.items()}
        print_json(report)
        return _code([diagnosis, *executors.values()])
    screen = output()
    diagnoses = [diagnose(given, lambda check: _show(check, screen))]
    if arguments.spark:
        for executor, its in _executors(given).items():
            screen.print((f"\nExecutor {visible(executor)}", "bold"))
            for check in its.checks:
                _show(check, screen)
            diagnoses.append(its)
    screen.print(_summary([check.result for each in diagnoses for check in each.checks]))
    return _code(diagnoses)


def _summary(results: Sequence[str]) -> tuple[str, str]:
    failed, warnings = results.count("failed"), results.count("warning")
    if failed:
        return f"Failed: {failed}.", "bold red"
    if warnings:
        return f"Nothing failed. Warnings: {warnings}.", "yellow"
    return "All is well.", "bold green"


def _executors(given: Mapping[str, str]) -> dict[str, Diagnosis]:
    try:
        from ticdc_source.inspection.executors import diagnose_executors  # noqa: PLC0415 (it imports pyspark)
    except ImportError as error:
        raise OptionError(f'--spark needs PySpark here ({error}): pip install "ticdc-source[spark]"') from None
    return diagnose_executors(given)


def _code(diagnoses: Sequence[Diagnosis]) -> int:
    return 0 if all(each.is_well for each in diagnoses) else 1


def _show(check: Check, screen: Screen) -> None:
    name = f"{check.step} {check.subject}".strip()
    mark = (f"{check.result:7}", _STYLES.get(check.result, "dim"))
    took = f"{check.seconds * 1000:.0f} ms"
    screen.print(mark, " ", (visible(name), "bold"), " ", (took, "dim"), f"  {visible(check.message)}")
    if check.mend:
        screen.print("        ", (f"→ {visible(check.mend)}", "cyan"))
