"""Files of a storage sink: `path` beside what you would write with Spark's own readers of text and CSV.

Both read the same files in turns into the `noop` sink, with the same rows, which is checked first: canal-json with
`spark.read.text` and `from_json`, csv with `spark.read.csv` and a schema by hand. CPU seconds are those of Spark's Java
and of the Python workers. All schemas are known beforehand.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import unbase64

from benchmarks.bench_throughput import consumed
from benchmarks.corpus import COLUMN_TYPES, DATABASE, LABELS, WORKS, Table, messages
from benchmarks.opponents import canal_json
from benchmarks.results import Chart, Result
from benchmarks.session import session

NAME = "files"
TITLE = "Storage sink files: rows per CPU second"
OURS, THEIRS = "ticdc", "spark"
VERSION = 447_984_074_911_121_426
_FILE_BYTES = 32 << 20


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    records: int
    rounds: int
    warm_up: int


SIZES = {"full": Size(400_000, 3, 4), "quick": Size(60_000, 2, 2), "tiny": Size(200, 1, 0)}


def run(bootstrap: str, size_name: str, command: str) -> Result:  # noqa: ARG001 (no broker)
    """Measure both formats."""
    size = SIZES[size_name]
    result = Result(NAME, TITLE, command, asdict(size))
    result.columns = ("format", *(f"{side}: rows / CPU s" for side in (OURS, THEIRS)), "per CPU second (rounds)")
    with session(1, []) as live, tempfile.TemporaryDirectory() as folder:
        for name, write, sides in (("canal-json", write_json, sides_of_json), ("csv", write_csv, sides_of_csv)):
            place = Path(folder) / name
            write(place, size.records)
            frames = sides(live.spark, place)
            rows = {side: frame.count() for side, frame in frames.items()}
            assert rows[OURS] == rows[THEIRS], rows
            samples: list[dict[str, Any]] = [
                {"side": side, "round": number, "counts": number >= size.warm_up, **consumed(live, frame)}
                for number in range(size.rounds + size.warm_up)
                for side, frame in frames.items()
            ]
            result.samples[name] = samples
            result.figures[name] = figures_of(samples, rows[OURS])
            figures = result.figures[name]
            rounds = figures["ratio_rounds"]
            ratio = f"{figures['ratio']:.2f} ({min(rounds):.2f} to {max(rounds):.2f})"
            result.rows.append([name, *(f"{figures[side]:,}" for side in (OURS, THEIRS)), ratio])
            print(" ", " | ".join(result.rows[-1]), file=sys.stderr, flush=True)
    series = {side: {name: each[side] / 1000 for name, each in result.figures.items()} for side in (OURS, THEIRS)}
    result.chart = Chart("thousand rows per CPU second", series)
    return result


def figures_of(samples: list[dict[str, Any]], rows: int) -> dict[str, Any]:
    """Return the medians of the rounds that count: rows per CPU second, and ratios of two reads of one round."""
    costs = {side: [s["cpu_seconds"] for s in samples if s["counts"] and s["side"] == side] for side in (OURS, THEIRS)}
    ratios = [round(theirs / max(ours, 0.01), 2) for ours, theirs in zip(costs[OURS], costs[THEIRS], strict=True)]
    rates = {side: round(median(rows / max(cost, 0.01) for cost in each)) for side, each in costs.items()}
    peak = max(s["worker_peak_mib"] for s in samples if s["side"] == OURS)
    return {**rates, "ratio": median(ratios), "ratio_rounds": ratios, "worker_peak_mib": peak}


def write_json(folder: Path, records: int) -> None:
    """Write messages of canal-json, 10 columns."""
    lines = (message.value or b"" for message in islice(messages("canal-json"), records))
    _write(folder, WORKS["canal-json"].table, ".json", lambda: iter(lines))


def write_csv(folder: Path, records: int) -> None:
    """Write the new rows of the same changes as CSV."""
    table = WORKS["canal-json"].table

    def lines() -> Any:
        for message in islice(messages("canal-json"), records):
            change = json.loads(message.value or b"")
            own = [change["type"][0], table.name, DATABASE, change["_tidb"]["commitTs"]]
            yield _csv_line([*own, *(_cell(table, name, value) for name, value in change["data"][0].items())])

    _write(folder, table, ".csv", lines)


def _cell(table: Table, name: str, value: str | None) -> str | int | float | None:
    type_name = dict(table.columns)[name]
    spark = COLUMN_TYPES[type_name].spark
    if value is None:
        return None
    if spark == "binary":
        return base64.b64encode(value.encode("latin-1")).decode()
    if type_name == "enum":
        return LABELS[int(value) - 1]
    return int(value) if "int" in type_name else float(value) if spark in ("double", "float") else value


def _csv_line(cells: list[Any]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="")
    writer.writerow(["\x00" if cell is None else cell for cell in cells])
    return text.getvalue().replace('"\x00"', "\\N").encode()


def _write(folder: Path, table: Table, extension: str, lines: Callable[[], Any]) -> None:
    directory = folder / DATABASE / table.name / str(VERSION)
    (directory / "meta").mkdir(parents=True)
    number, part = 0, bytearray()

    def flush() -> None:
        nonlocal number
        if part:
            number += 1
            (directory / f"CDC{number:06d}{extension}").write_bytes(part)
            part.clear()

    for line in lines():
        part.extend(line + b"\r\n")
        if len(part) >= _FILE_BYTES:
            flush()
    flush()
    (directory / "meta" / "CDC.index").write_text(f"CDC{number:06d}{extension}\n")
    columns = [_column(name, COLUMN_TYPES[type_name].ddl) for name, type_name in table.columns]
    schema = {"Table": table.name, "Schema": DATABASE, "TableVersion": VERSION, "Query": "", "TableColumns": columns}
    (folder / DATABASE / table.name / "meta").mkdir()
    name = f"schema_{VERSION}_0000000001.json"
    (folder / DATABASE / table.name / "meta" / name).write_text(
        json.dumps({**schema, "TableColumnsTotal": len(columns)})
    )


def _column(name: str, ddl: str) -> dict[str, Any]:
    """Return a column as a file with a version of a table has it."""
    kind, _, inner = ddl.partition("(")
    column: dict[str, Any] = {"ColumnName": name, "ColumnType": kind.upper()}
    if kind == "enum":
        return {**column, "ColumnElems": list(LABELS)}
    numbers = inner.strip(")").split(",")
    if kind == "decimal":
        return {**column, "ColumnPrecision": numbers[0], "ColumnScale": numbers[1]}
    return {**column, "ColumnScale": numbers[0]} if kind in ("datetime", "timestamp") and inner else column


def sides_of_json(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """Return both reads of canal-json."""
    work = WORKS["canal-json"]
    texts = spark.read.text(f"{folder}/{DATABASE}/*/*/*.json")
    records = texts.selectExpr("value", "0 as partition", "monotonically_increasing_id() as offset")
    ours = spark.read.format("ticdc").options(**work.options).load(str(folder))
    return {OURS: ours, THEIRS: canal_json.changes(records, work.table)}


def sides_of_csv(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """Return both reads of CSV."""
    columns = [(name, COLUMN_TYPES[type_name].spark) for name, type_name in WORKS["canal-json"].table.columns]
    schema = ", ".join(
        f"{name} {'string' if type_ == 'binary' else type_}"
        for name, type_ in [("op", "string"), ("t", "string"), ("db", "string"), ("ts", "bigint"), *columns]
    )
    rows = spark.read.csv(f"{folder}/{DATABASE}/*/*/*.csv", schema=schema, nullValue="\\N", escape='"', lineSep="\r\n")
    return {OURS: spark.read.format("ticdc").load(str(folder)), THEIRS: rows.withColumn("token", unbase64(rows.token))}
