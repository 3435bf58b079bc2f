"""`make fuzz`: read damaged messages, or with `--native` mutants that the native path accepts, and report faults."""

import argparse
import logging
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable

from rich.console import Console
from rich.progress import track

from tests.fuzz import damaged, native
from ticdc_source.kernels.native import native as module
from ticdc_source.kernels.native import why_general


def main() -> None:
    """Fuzz all scenarios, or the native path of each protocol; exit with 1 if something does not hold."""
    parser = argparse.ArgumentParser(
        description=f"{damaged.__doc__}\n\n{native.__doc__}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutants", type=int, default=20_000, help="how many, of all scenarios together")
    parser.add_argument("--native", type=int, metavar="MUTANTS", help="fuzz the native path, with so many a protocol")
    parser.add_argument("--protocol", choices=native.SCENARIOS, action="append", help="for --native: this one only")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    arguments = parser.parse_args()
    console = Console(soft_wrap=True)
    console.print(f"seed {arguments.seed}: --seed {arguments.seed} repeats this run")
    warnings.simplefilter("ignore")
    logging.getLogger("ticdc_source").setLevel(logging.ERROR)

    def show(fault: str) -> None:
        console.print(fault, markup=False, highlight=False)

    if arguments.native is None:
        faults = _damaged(arguments.mutants, arguments.seed, console, show)
    elif module is None:
        sys.exit(f"the native path is not there: {why_general('auto')}")
    else:
        faults = _native(arguments.protocol or list(native.SCENARIOS), arguments.native, arguments.seed, console, show)
    sys.exit(faults > 0)


def _damaged(mutants: int, seed: int, console: Console, show: Callable[[str], None]) -> int:
    began, faults = time.monotonic(), 0
    share = -(-mutants // len(damaged.SCENARIOS))
    for scenario in damaged.SCENARIOS:
        outcomes: Counter[str] = Counter()
        rounds = track(damaged.fuzz(scenario, share, seed), scenario, -(-share // damaged.ROUND), console=console)
        for report in rounds:
            outcomes += report.outcomes
            faults += len(report.faults)
            for fault in report.faults[:5]:
                show(fault)
        console.print(f"  {scenario}: " + ", ".join(f"{count:,} {what}" for what, count in outcomes.most_common()))
    console.print(f"{mutants:,} mutants in {time.monotonic() - began:.0f} s, {faults} faults")
    return faults


def _native(protocols: list[str], mutants: int, seed: int, console: Console, show: Callable[[str], None]) -> int:
    faults = 0
    for protocol in protocols:
        began, made, accepted, wrong = time.monotonic(), 0, 0, 0
        rounds = track(native.fuzz(protocol, mutants, seed), protocol, -(-mutants // native.ROUND), console=console)
        for report in rounds:
            made, accepted, wrong = made + report.mutants, accepted + report.accepted, wrong + len(report.faults)
            for fault in report.faults:
                show(fault)
        seconds = time.monotonic() - began
        console.print(
            f"  {protocol}: {made:,} mutants in {seconds:.0f} s ({made / seconds:,.0f} a second), of which native code "
            f"accepted {accepted:,} ({accepted / made:.0%}); {wrong} faults"
        )
        faults += wrong
    return faults


if __name__ == "__main__":
    main()
