"""`python -m benchmarks`: measure, print, and write `benchmarks/results/`."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks import (
    bench_fetch,
    bench_frames,
    bench_memory,
    bench_microbatch,
    bench_scale,
    bench_stages,
    bench_throughput,
)
from benchmarks.charts import NO_CHART, draw
from benchmarks.results import FOLDER
from examples.local_kafka import KafkaSetupError, KafkaStartError, connect

BENCHMARKS = {
    module.NAME: module
    for module in (
        bench_throughput,
        bench_frames,
        bench_stages,
        bench_fetch,
        bench_scale,
        bench_microbatch,
        bench_memory,
    )
}


_WIDTH = 140  # of tables that are written to a file


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen benchmarks, on one broker."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, print, and write results.")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and run none")
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="run this one (may be repeated)")
    parser.add_argument(
        "--size",
        choices=("full", "quick", "tiny"),
        default="full",
        help="how much to measure; tiny only tests the code",
    )
    parser.add_argument("--quick", action="store_const", const="quick", dest="size", help="the same as --size quick")
    parser.add_argument("--results", type=Path, default=FOLDER, help="the folder for results (default: %(default)s)")
    given = parser.parse_args(arguments)
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    chosen = given.only or list(BENCHMARKS)
    if given.list:
        for name, module in BENCHMARKS.items():
            console.print(f"{name:<12} {(module.__doc__ or '').splitlines()[0]}", highlight=False, soft_wrap=True)
        return 0
    try:
        given.results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--results: {error}")
    try:
        with connect() as kafka:
            for name in chosen:
                command = f"python -m benchmarks --only {name} --size {given.size}"
                result = BENCHMARKS[name].run(kafka.bootstrap_servers, given.size, command)
                result.show(console)
                path = result.write(given.results, given.size)
                for written in (path, draw(path)):
                    console.print(f"  {written or NO_CHART}", highlight=False, soft_wrap=True)
    except (KafkaSetupError, KafkaStartError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
