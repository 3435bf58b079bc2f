"""Results: figures, environment and versions; as JSON and on the screen."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.local_kafka.jars import NEWEST, find_java
from ticdc_source.kernels.native import native

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(__file__).parent / "results"
_PACKAGES = ("pyspark", "pyarrow", "kafka-python", "orjson", "crc32c")


@dataclass(frozen=True)
class Chart:
    """A bar chart."""

    unit: str
    series: Mapping[str, Mapping[str, float]]
    stacked: bool = False


@dataclass
class Result:
    """The result of one benchmark."""

    name: str
    title: str
    command: str
    parameters: Mapping[str, Any]
    columns: Sequence[str] = ()
    rows: list[Sequence[str]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    chart: Chart | None = None
    pyspark: str = version("pyspark")  # that was measured
    before: tuple[float, float, float] = field(default_factory=os.getloadavg)
    begun: float = field(default_factory=time.time)

    def write(self, folder: Path, size: str) -> Path:
        """Write the result as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / (f"{self.name}.json" if size == "full" else f"{self.name}-{size}.json")
        content = {
            "benchmark": self.name,
            "command": self.command,
            "begun": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.begun)),
            "seconds": round(time.time() - self.begun, 1),
            "environment": {**environment(), "pyspark": self.pyspark},
            "load": {"before": self.before, "after": os.getloadavg()},
            "parameters": self.parameters,
            "figures": self.figures,
            "title": self.title,
            "table": [list(self.columns), *map(list, self.rows)],
            "notes": self.notes,
            "chart": asdict(self.chart) if self.chart else None,
        }
        samples = ",\n".join(  # one line each
            f"  {json.dumps(name)}: [\n   " + ",\n   ".join(map(json.dumps, samples)) + "\n  ]"
            for name, samples in self.samples.items()
        )
        path.write_text(f'{json.dumps(content, indent=1)[:-2]},\n "samples": {{\n{samples}\n }}\n}}\n')
        return path

    def show(self, console: Console) -> None:
        """Print the table and the command."""
        table = Table(title=self.title, caption=self.command, title_justify="left", caption_justify="left")
        for number, name in enumerate(self.columns):
            table.add_column(name, justify="right" if number else "left")
        for row in self.rows:
            table.add_row(*row)
        console.print(table)
        load = os.getloadavg()
        tried = (
            ["tiny: only a test of the code, its figures mean nothing"] if self.command.endswith("tiny") else self.notes
        )
        notes = [*tried, f"load before {self.before[0]:.1f}, after {load[0]:.1f}, on {cores()} cores"]
        for note in notes:
            console.print(f"  {note}", highlight=False)


def markdown(path: Path, without: Collection[str] = ()) -> str:
    """Write a result's table for the documentation, without some of its columns."""
    head, *rows = json.loads(path.read_text(encoding="utf-8"))["table"]
    shown = [number for number, name in enumerate(head) if name not in without]
    lines = [[row[number] for number in shown] for row in (head, ["---", *["--:"] * (len(head) - 1)], *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def judged(path: Path) -> str:
    """Return a result's notes about targets and about the measurement itself, as a list for the documentation."""
    notes = json.loads(path.read_text(encoding="utf-8"))["notes"]
    return "".join(f"* {note}\n" for note in notes if note.startswith(("target", "Java", "CPU")))


def provenance(path: Path) -> str:
    """Return a line about the environment of a result."""
    result = json.loads(path.read_text(encoding="utf-8"))
    there, before, after = result["environment"], result["load"]["before"][0], result["load"]["after"][0]
    load = f"load {before:.1f} before and {after:.1f} after"
    machine = f"{there['machine']['cores']} cores ({there['machine']['cpu']}, {load})"
    versions = f"PySpark {there['pyspark']}, PyArrow {there['pyarrow']}, Python {there['python']}, Java {_java(there)}"
    versions += "" if there.get("native path", True) else ", without the native path"
    return f"*{result['begun'][:10]}, commit {there['commit'][:9]}, {machine}, {versions}: `{result['command']}`*"


def caption(path: Path) -> str:
    """Return what a result's chart shows, and the commit that was measured."""
    result = json.loads(path.read_text(encoding="utf-8"))
    what = result["title"].partition(":")[0]
    return f"{what}: {result['chart']['unit']}. Commit {result['environment']['commit'][:9]}"


def _java(environment_: Mapping[str, Any]) -> str:
    return str(environment_["java"]).partition('"')[2].partition('"')[0]


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def environment() -> dict[str, Any]:
    """Return commit, versions and machine."""
    status = _said("git", "status", "--porcelain", "--", "ticdc_source", "native")
    java = subprocess.run([find_java(), "-version"], check=False, capture_output=True, text=True).stderr
    return {
        "commit": _said("git", "rev-parse", "HEAD"),
        "uncommitted": status.splitlines(),
        "python": platform.python_version(),
        "java": java.splitlines()[0] if java else "",
        "kafka": NEWEST.version,
        "native path": native is not None,
        **{name: version(name) for name in _PACKAGES},
        "machine": {"cores": cores(), "cpu": _cpu(), "system": platform.platform()},
    }


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True).stdout.rstrip()
    except FileNotFoundError:
        return ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())
