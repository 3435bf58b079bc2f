"""`python -m benchmarks`: measure, print, and write `benchmarks/results/`."""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.console import Console

from benchmarks import (
    bench_fetch,
    bench_files,
    bench_memory,
    bench_microbatch,
    bench_scale,
    bench_snapshot,
    bench_stages,
    bench_throughput,
)
from benchmarks.charts import NO_CHART, draw
from benchmarks.results import FOLDER
from examples.local_kafka import KafkaSetupError, KafkaStartError, connect
from lakehouse.benchmarks import bench_audit, bench_sync

BENCHMARKS = {
    module.NAME: module
    for module in (
        bench_throughput,
        bench_files,
        bench_snapshot,
        bench_stages,
        bench_fetch,
        bench_scale,
        bench_microbatch,
        bench_memory,
        bench_sync,
        bench_audit,
    )
}
# Seconds on two idle cores, by size. The others run only with --only: no page shows their figures; or, as sync, they
# take as long as all these together.
PLANNED = {
    "throughput": {"full": 660, "quick": 60},
    "stages": {"full": 40, "quick": 10},
    "scale": {"full": 60, "quick": 20},
    "microbatch": {"full": 180, "quick": 20},
    "memory": {"full": 100, "quick": 0},
}
WITHOUT_BROKER = {bench_stages.NAME, bench_audit.NAME, bench_files.NAME, bench_snapshot.NAME}

_WIDTH = 160  # of tables that are written to a file


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen benchmarks, on one broker."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, print, and write results.")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and run none")
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="run this one (may be repeated)")
    parser.add_argument(
        "--size",
        choices=("whole", "full", "quick", "tiny"),
        default="full",
        help="how much to measure; tiny only tests the code; whole is for sync alone, and takes an hour or two",
    )
    parser.add_argument("--quick", action="store_const", const="quick", dest="size", help="the same as --size quick")
    parser.add_argument("--results", type=Path, default=FOLDER, help="the folder for results (default: %(default)s)")
    given = parser.parse_args(arguments)
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    if given.list:
        for name, module in BENCHMARKS.items():
            about = f"{name:<12} {_planned(name, given.size):>12}  {(module.__doc__ or '').splitlines()[0]}"
            console.print(about, highlight=False, soft_wrap=True)
        return 0
    if given.size == "whole" and given.only != [bench_sync.NAME]:
        parser.error("--size whole: it is for --only sync")
    chosen = given.only or [name for name, planned in PLANNED.items() if planned.get(given.size, 1)]
    try:
        given.results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--results: {error}")
    try:
        with _broker() if set(chosen) - WITHOUT_BROKER else nullcontext("") as bootstrap:
            for name in chosen:
                begun = time.monotonic()
                command = f"python -m benchmarks --only {name} --size {given.size}"
                result = BENCHMARKS[name].run(bootstrap, given.size, command)
                result.show(console)
                path = result.write(given.results, given.size)
                for written in (path, draw(path)):
                    console.print(f"  {written or NO_CHART}", highlight=False, soft_wrap=True)
                took = f"  {name} took {time.monotonic() - begun:.0f} s ({_planned(name, given.size)})"
                console.print(took, highlight=False)
    except (KafkaSetupError, KafkaStartError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


@contextmanager
def _broker() -> Iterator[str]:
    with connect() as kafka:
        yield kafka.bootstrap_servers


def _planned(name: str, size: str) -> str:
    seconds = PLANNED.get(name, {}).get(size)
    return f"planned {seconds} s" if seconds else "not planned"


if __name__ == "__main__":
    sys.exit(main())
