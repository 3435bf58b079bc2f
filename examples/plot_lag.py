"""Draw how late a stream was, from its metric files.

    python -m examples.plot_lag --metrics /data/metrics --output lag.png [--query ID]

`--metrics` is the stream's option `metricsPath`, a path or a URI such as s3://bucket/metrics. It needs matplotlib
(`pip install matplotlib`), and neither Spark nor a broker. The upper panel has the age of the newest change and of the
resolved ts when each micro-batch had been read, the lower one the records that were left in Kafka then.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any, NamedTuple

from pyarrow import fs

parser = argparse.ArgumentParser(prog="python -m examples.plot_lag")
parser.add_argument("--metrics", required=True, help="the option metricsPath of the stream")
parser.add_argument("--output", required=True, help="the picture: a name that ends in .png or .svg")
parser.add_argument("--query", help="the id of the streaming query, if the folder has lines of several")

Line = dict[str, Any]


class Moment(NamedTuple):
    """A micro-batch when it had been read; None where its lines do not tell.

    Attributes:
        time: in seconds since 1970.
        commit_age: how many seconds ago the newest change that it has was committed.
        watermark_age: how many seconds ago the resolved ts was: all changes up to it have been read.
        left: how many records were left in Kafka.
    """

    time: float
    commit_age: float | None
    watermark_age: float | None
    left: int


def read_lines(metrics: str) -> Iterator[Line]:
    """Read the lines of all metric files."""
    system, folder = fs.FileSystem.from_uri(metrics) if ":/" in metrics else (fs.LocalFileSystem(), metrics)
    for file in system.get_file_info(fs.FileSelector(folder)):
        if file.path.endswith(".jsonl"):
            with system.open_input_stream(file.path) as stream:
                yield from map(json.loads, stream.read().splitlines())


def moments(lines: Iterator[Line], query: str | None = None) -> list[Moment]:
    """Return the micro-batches of a query in order, each once, however often Spark has repeated it."""
    batches: dict[int, dict[tuple[str, int, int], Line]] = defaultdict(dict)
    queries = set()
    for line in lines:
        if line["query"] is not None and query in {None, line["query"]}:
            queries.add(line["query"])
            batches[line["batch"]][line["topic"], line["partition"], line["start"]] = line
    if len(queries) != 1:
        raise SystemExit(
            f"the folder has lines of {len(queries)} queries: choose one by --query: {', '.join(sorted(queries))}"
        )
    watermarks: dict[tuple[str, int], int] = {}
    left: dict[tuple[str, int], int] = {}
    partitions = {(topic, partition) for batch in batches.values() for topic, partition, _ in batch}
    found = []
    for _, batch in sorted(batches.items()):
        time = max(line["time"] for line in batch.values())
        for (topic, partition, _), line in batch.items():
            left[topic, partition] = line["lag"] or 0
            if line["watermark"] is not None:
                # TiCDC sends some again after a restart: the largest counts.
                watermarks[topic, partition] = max(line["watermark"], watermarks.get((topic, partition), 0))
        commits = [line["max_commit_ts"] for line in batch.values() if line["max_commit_ts"] is not None]
        resolved = min(watermarks.values()) if watermarks.keys() == partitions else None
        found.append(Moment(time, age(max(commits, default=None), time), age(resolved, time), sum(left.values())))
    return found


def age(ts: int | None, time: float) -> float | None:
    """Return how many seconds before a time a TSO was; not less than 0, as clocks differ."""
    return None if ts is None else max(0.0, time - (ts >> 18) / 1000)


def draw(found: list[Moment], output: str) -> None:
    """Draw the picture."""
    import matplotlib as mpl  # noqa: PLC0415 (the rest of this script runs without)

    mpl.use("Agg")
    from matplotlib import dates, pyplot  # noqa: PLC0415

    figure, (ages, records) = pyplot.subplots(
        2, sharex=True, figsize=(9, 5), height_ratios=(3, 2), layout="constrained"
    )
    times = [datetime.fromtimestamp(each.time, timezone.utc) for each in found]
    for label, color, values in (
        ("newest change that was read", "#c2410c", [each.commit_age for each in found]),
        ("resolved ts: all changes up to it were read", "#1d4ed8", [each.watermark_age for each in found]),
    ):
        known = [(time, value) for time, value in zip(times, values, strict=True) if value is not None]
        if known:
            ages.plot(*zip(*known, strict=True), label=label, color=color, marker=".", markersize=4, linewidth=1.2)
    ages.set_ylabel("age in seconds")
    ages.set_ylim(bottom=0)
    ages.legend(frameon=False)
    records.fill_between(times, [each.left for each in found], step="post", color="#94a3b8", linewidth=0)
    records.set_ylabel("records left in Kafka")
    records.set_ylim(bottom=0)
    short: Any = dates.ConciseDateFormatter
    records.xaxis.set_major_formatter(short(records.xaxis.get_major_locator()))
    records.set_xlabel("time (UTC)")
    for panel in (ages, records):
        panel.grid(color="#e5e7eb", linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)


def main() -> None:
    """Read the lines, draw the picture, and print the worst."""
    arguments = parser.parse_args()
    found = moments(read_lines(arguments.metrics), arguments.query)
    draw(found, arguments.output)
    worst = max((each.commit_age for each in found if each.commit_age is not None), default=None)
    late = "no commit-ts" if worst is None else f"the newest change was up to {worst:.0f} s old"
    print(f"{arguments.output}: {len(found)} micro-batches, {late}")


if __name__ == "__main__":
    main()
