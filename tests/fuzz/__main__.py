"""`make fuzz`: read damaged messages, and report faults."""

import argparse
import logging
import random
import sys
import time
import warnings
from collections import Counter

from rich.console import Console
from rich.progress import track

from tests.fuzz import damaged


def main() -> None:
    """Fuzz all scenarios; exit with 1 if something does not hold."""
    parser = argparse.ArgumentParser(description=damaged.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=20_000, help="how many, of all scenarios together")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    arguments = parser.parse_args()
    console = Console(soft_wrap=True)
    console.print(f"seed {arguments.seed}: --seed {arguments.seed} repeats this run")
    warnings.simplefilter("ignore")
    logging.getLogger("ticdc_source").setLevel(logging.ERROR)
    began, faults = time.monotonic(), 0
    share = -(-arguments.mutants // len(damaged.SCENARIOS))
    for scenario in damaged.SCENARIOS:
        outcomes: Counter[str] = Counter()
        native = 0
        rounds = track(
            damaged.fuzz(scenario, share, arguments.seed), scenario, -(-share // damaged.ROUND), console=console
        )
        for report in rounds:
            outcomes += report.outcomes
            native += report.native
            faults += len(report.faults)
            for fault in report.faults[:5]:
                console.print(fault, markup=False, highlight=False)
        shown = ", ".join(f"{count:,} {what}" for what, count in outcomes.most_common())
        console.print(f"  {scenario}: {shown}; the native path has read {native:,} row images")
    console.print(f"{arguments.mutants:,} mutants in {time.monotonic() - began:.0f} s, {faults} faults")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
