"""What must hold at the end of a soak run: each function returns a line for everything that does not."""

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
from kafka import KafkaConsumer, TopicPartition

from tests.corpus.test_corpus import differences
from tests.soak.changes import DATABASE, PARTITIONS, READ, Truths
from tests.soak.sampler import JVM, WORKER, Sample
from tests.spark.streams import written_files
from tests.support.captured import Captured, Record
from tests.support.truth import expected, is_left, true_rows

Row = dict[str, Any]

_RESCUED = "_rescued_data"
_BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_MICROSECOND = timedelta(microseconds=1)

GROWTH = 1.2
# How much more than that a last third may be, so that small processes do not fail by chance.
SLACK = {"memory": 32 * 2**20, "heap": 32 * 2**20, "files": 16, "threads": 16, "processes": 3}
# Spark's block manager has two pools of up to 100 threads (block-manager-ask and -storage-async), which fill in
# bursts and empty after a minute.
JVM_POOLS = 200
SHORTEST_LIFE = 60.0  # seconds; in a shorter one Spark is still starting up


# --- what the streams have written ------------------------------------------------------------------------------------


def topic_of(servers: str, topic: str, truths: Truths) -> tuple[dict[int, list[Record]], list[str]]:
    """Read a topic with kafka-python's consumer; return its records with their truths, and what is wrong with it."""
    consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False, metrics_enabled=False)
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    records: dict[int, list[Record]] = {number: [] for number in range(PARTITIONS)}
    wrong: list[str] = []
    kinds: set[tuple[bytes | None, bytes]] = set()
    try:
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            for each, fetched in consumer.poll(timeout_ms=1000).items():
                for record in fetched:
                    truth = truths.of(record.key, record.value)
                    kinds.add((record.key, record.value))
                    if truth is None or record.offset != len(records[each.partition]):
                        wrong.append(f"{topic}: the record at {each.partition}/{record.offset} was not expected there")
                    records[each.partition].append(Record(record.key, record.value, truth or {"op": "unknown"}))
    finally:
        consumer.close()
    if len(kinds) != len(truths):
        wrong.append(f"{topic}: Kafka has {len(kinds):,} different messages, and {len(truths):,} were acknowledged")
    return records, wrong


def rows_of(output: Path) -> Iterator[Row]:
    """Yield the rows that committed micro-batches have written."""
    for path in sorted(written_files(output)):
        yield from pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read().to_pylist()


def completed(row: Row, types: Mapping[str, str]) -> Row:
    """Return a row with all columns, in Python's types: the rescued ones, and NULL for those that it lacks."""
    rescued = json.loads(row.pop(_RESCUED, None) or "{}", parse_int=str, parse_float=str)
    row |= {name: _unrescued(value, types[name].split("(")[0]) for name, value in rescued.items()}
    for name, mysql_type in types.items():
        value = row.setdefault(name, None)
        if mysql_type.split("(")[0] == "time" and isinstance(value, int):  # Parquet has no intervals
            row[name] = value * _MICROSECOND
    return row


def _unrescued(value: Any, type_name: str) -> Any:
    """Return a value of the rescued column as its own column would have it."""
    if value is not None and type_name in _BINARY:
        return base64.b64decode(value)
    if value is not None and type_name == "datetime":  # debezium does not have the number of digits of a second
        with suppress(ValueError):  # a date that only MySQL has
            return datetime.fromisoformat(value)
    return value


def row_faults(captured: Captured, rows: Iterable[Row]) -> Iterator[str]:
    """Compare rows with a topic: each of the topic's must be there once, with its values, and no other."""
    found: dict[tuple[int, int, int, str], Row] = {}
    for row in rows:
        sequence = row["_sequence"]
        place = (sequence["partition"], sequence["offset"], sequence["index"], row["_change_type"])
        if place in found:
            yield f"{place} was written twice"
        found[place] = row
    for truth in true_rows(captured, DATABASE, READ):
        place = (truth.partition, truth.offset, truth.index, truth.change_type)
        one = found.pop(place, None)
        if one is None:
            yield f"{place} was not written"
            continue
        wrong = differences(captured.header, truth, one, Counter())
        others = one.keys() - truth.values.keys()
        wrong += [f"{name} is {one[name]!r}" for name in others if not name.startswith("_") and one[name] is not None]
        if wrong:
            yield f"{place}: {'; '.join(wrong)}"
    yield from (f"{place} was written, and is not in the topic" for place in found)


def table_faults(header: Mapping[str, Any], rows: Iterable[Row], current: Mapping[str, Row]) -> Iterator[str]:
    """Reduce rows to the newest of each key by `_sequence`, and compare that table with the true one."""
    newest: dict[str, tuple[tuple[int, ...], Row]] = {}
    for row in rows:
        order = tuple(row["_sequence"][name] for name in ("commit_ts", "rank", "partition", "offset", "index"))
        key = str(row["id"])
        if key not in newest or newest[key][0] < order:
            newest[key] = (order, row)
    table = {key: row for key, (_, row) in newest.items() if row["_change_type"] != "delete"}
    yield from (f"the table lacks the row {key}" for key in current.keys() - table.keys())
    yield from (f"the table has the row {key}, which was deleted" for key in table.keys() - current.keys())
    version = [entry for entry in header["tables"] if entry["table"] == READ][-1]
    context = {"change_type": "insert", "large": False, "time_zone": header["time_zone"], "config": header["config"]}
    for key in current.keys() & table.keys():
        for column in version["columns"]:
            name = column["name"]
            about = {**column, **context, "handle_key": name in version["handle_key"]}
            left, _ = expected(header["protocol"], about, current[key][name])
            if not is_left(table[key][name], left, column["mysql_type"]):
                yield f"row {key} of the table: {name} is {table[key][name]!r}, not {left!r}"


def types_of(header: Mapping[str, Any]) -> dict[str, str]:
    """Return the newest type of every column that any version of the table has."""
    versions = (entry for entry in header["tables"] if entry["table"] == READ)
    return {column["name"]: column["mysql_type"] for entry in versions for column in entry["columns"]}


# --- what the processes have used -------------------------------------------------------------------------------------


def rising(points: Sequence[tuple[float, float]], slack: float) -> str | None:
    """Return how much a quantity has risen within a life, if it is not flat.

    It is flat if the median of the last third of the time is at most `GROWTH` times that of the middle third, plus
    `slack`. The first third does not count: it is the start. A life shorter than `SHORTEST_LIFE` is not judged.
    """
    if not points or points[-1][0] - points[0][0] < SHORTEST_LIFE:
        return None
    began, lasted = points[0][0], points[-1][0] - points[0][0]
    middle = median(value for second, value in points if lasted / 3 <= second - began < 2 * lasted / 3)
    last = median(value for second, value in points if second - began >= 2 * lasted / 3)
    if last <= GROWTH * middle + slack:
        return None
    return f"from {middle:,.0f} in the middle third of its life to {last:,.0f} in the last"


def flat_faults(samples: Sequence[Sample]) -> tuple[int, list[str]]:
    """Judge each life of each process; return how many series were judged, and what is not flat."""
    series: dict[tuple[int, str, str], list[tuple[float, float]]] = {}
    for sample in samples:
        for process in sample.processes:
            who = f"{process.kind} {process.pid}"
            for what, value in (("memory", process.memory), ("files", process.files), ("threads", process.threads)):
                series.setdefault((sample.life, who, what), []).append((sample.second, value))
        workers = sum(process.kind == WORKER for process in sample.processes)
        series.setdefault((sample.life, WORKER, "processes"), []).append((sample.second, workers))
        if sample.heap:
            series.setdefault((sample.life, JVM, "heap"), []).append((sample.second, sample.heap))
    judged = [(key, points) for key, points in series.items() if points[-1][0] - points[0][0] >= SHORTEST_LIFE]
    faults = [
        f"{what} of the {who} in life {life} is not flat: {rise}"
        for (life, who, what), points in judged
        if (rise := rising(points, SLACK[what] + JVM_POOLS * (what == "threads" and who.startswith(JVM)))) is not None
    ]
    return len(judged), faults
