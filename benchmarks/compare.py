"""`python -m benchmarks.compare A.json B.json`: compare two results of a benchmark, figure by figure, as B / A."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_DIFFERENT = ("command", "parameters")
_ENVIRONMENT = ("commit", "pyspark", "pyarrow", "kafka-python", "orjson", "python", "machine")


def main(arguments: list[str] | None = None) -> int:
    """Print the comparison."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=(__doc__ or "").partition(": ")[2]
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    given = parser.parse_args(arguments)
    try:
        before, after = (json.loads(path.read_text(encoding="utf-8")) for path in (given.before, given.after))
    except (OSError, ValueError) as error:
        parser.error(f"not a result: {error}")
    if before["benchmark"] != after["benchmark"]:
        print(f"{given.before} is of {before['benchmark']}, {given.after} of {after['benchmark']}", file=sys.stderr)
        return 1
    table = Table(title=before["title"], title_justify="left")
    for name in ("figure", "A", "B", "B / A"):
        table.add_column(name, justify="left" if name == "figure" else "right", overflow="fold")
    new = dict(leaves(after["figures"]))
    for name, old in leaves(before["figures"]):
        if name in new:
            table.add_row(name, f"{old:,}", f"{new[name]:,}", f"{new[name] / old:.2f}" if old else "")
    console = Console()
    for note in differences(before, after):
        console.print(f"  not the same: {note}", highlight=False, soft_wrap=True)
    console.print(table)
    return 0


def leaves(figures: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Yield all numbers in the figures of a result, each with its path."""
    if isinstance(figures, dict):
        for key, value in figures.items():
            yield from leaves(value, f"{name} > {key}" if name else key)
    elif isinstance(figures, int | float) and not isinstance(figures, bool):
        yield name, figures


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Return what else differs and may explain a difference."""
    pairs = [(name, before[name], after[name]) for name in _DIFFERENT]
    pairs += [(name, before["environment"][name], after["environment"][name]) for name in _ENVIRONMENT]
    for name, old, new in pairs:
        if old != new:
            yield f"{name}: {old} | {new}"


if __name__ == "__main__":
    sys.exit(main())
