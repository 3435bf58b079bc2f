"""An audit of a table in Delta, compared with reading the table from TiDB. It needs `make tidb`."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.results import ROOT, Result
from lakehouse.tests.engines.engines import ENGINES
from tests.support.paths import PACKAGES
from tests.tidb.server import missing, running
from tests.versions.environments import extras, interpreter

NAME = "audit"
TITLE = "An audit of a table in Delta that is equal, beside reading the table: seconds"
ENGINE = "delta-4.4"
MOST = 1 / 3  # of the time of reading the table


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rows: int  # the rows of the table, which has ten columns
    rounds: int  # how often each is measured, in turns


SIZES = {"full": Size(1_000_000, 3), "quick": Size(100_000, 2), "tiny": Size(1000, 1)}


def run(_bootstrap: str, size_name: str, command: str) -> Result:
    """Measure both, in turns, in one session."""
    why = missing()
    if why is not None:
        raise SystemExit(why)
    size = SIZES[size_name]
    result = Result(NAME, TITLE, command, asdict(size), pyspark=ENGINES[ENGINE].pyspark)
    python = str(interpreter(ENGINES[ENGINE].pyspark, *extras()["tidb"]))
    with tempfile.TemporaryDirectory(prefix="ticdc-bench-") as folder, running(Path(folder)) as tidb:
        arguments = [tidb.host, str(tidb.port), folder, str(size.rows), str(size.rounds)]
        done = subprocess.run(
            [python, "-m", "lakehouse.benchmarks.audit_side", ENGINE, *arguments],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": PACKAGES, "PYSPARK_PYTHON": python},
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    samples = json.loads(done.stdout.splitlines()[-1])
    result.samples = {"rounds": samples}
    names = {
        "audit": "audit",
        "of_tidb": "the checksum of TiDB alone",
        "of_spark": "the checksum of Spark alone",
        "read": "read, one task",
        "read_ranges": "read, two tasks",
    }
    figures = {name: round(median(one[name] for one in samples), 2) for name in names}
    ratios = {name: round(figures["audit"] / figures[name], 2) for name in names}
    result.figures = {**figures, "rows_read": samples[-1]["rows_read"], "ratios": ratios}
    result.columns = (f"{size.rows:,} rows, 10 columns", "s", "audit / this", "rows that TiDB sent")
    sent = dict.fromkeys(names, 0) | {"audit": samples[-1]["rows_read"], "read": size.rows, "read_ranges": size.rows}
    result.rows = [(names[name], f"{figures[name]:.2f}", f"{ratios[name]:.2f}", f"{sent[name]:,}") for name in names]
    for name in ("read", "read_ranges"):
        verdict = "met" if ratios[name] <= MOST else "missed"
        result.notes.append(f"target: audit, by {names[name]}: {ratios[name]:.2f}, at most {MOST:.2f}: {verdict}")
    return result
