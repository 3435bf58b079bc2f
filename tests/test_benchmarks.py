"""Every benchmark runs, on next to nothing: what it measures is for `make bench`, that it measures is for here."""

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import orjson
import pytest

from benchmarks import corpus
from benchmarks.__main__ import BENCHMARKS
from benchmarks.load import record_batch
from benchmarks.processes import PROC, memory_of, python_processes
from examples.local_kafka.broker import BOOTSTRAP_VARIABLE
from tests.conftest import ROOT, Kafka
from tests.support.captured import rows

QUICK_START = "-XX:TieredStopAtLevel=1"  # of Java: nothing runs so often that it is worth its optimising compiler
SECONDS = 300  # 30 on two cores that have nothing else to do


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.skipif(not PROC.is_dir(), reason="the memory of processes is read from Linux's /proc")
def test_each_benchmark_runs_and_writes_its_figures(broker: Kafka, tmp_path: Path) -> None:
    """As `make bench` starts them, with the session's broker; both sides of a comparison gave the same rows."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--size", "tiny", "--results", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, BOOTSTRAP_VARIABLE: broker.bootstrap_servers, "SPARK_SUBMIT_OPTS": QUICK_START},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = {path.stem: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert set(results) == {f"{name}-tiny" for name in BENCHMARKS}
    for result in results.values():
        assert result["figures"].keys() == result["samples"].keys() != set()
        assert all(result["samples"].values())
        assert result["command"] in done.stdout
        assert {"commit", "machine", "pyspark", "kafka-python"} <= result["environment"].keys()
        assert len(result["load"]["before"]) == len(result["load"]["after"]) == 3
    for figures in results["microbatch-tiny"]["figures"].values():
        assert {"ticdc", "kafka tuned", "ticdc / kafka tuned"} <= figures.keys()
        assert figures["ticdc"]["tasks"] == 1
    (memory,) = results["memory-tiny"]["figures"].values()
    assert memory["records"] > 20
    assert memory["worker_peak_mib"] > 20


def test_the_benchmarks_are_listed() -> None:
    """`--list` names them all and starts nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(BENCHMARKS)


@pytest.mark.parametrize("work", corpus.WORKS)
def test_the_corpus_is_what_ticdc_writes(work: str) -> None:
    """The generated messages are read by our decoder into the rows they say they hold, and come again."""
    table = corpus.WORKS[work].table
    messages = list(islice(corpus.messages(work), 200))
    assert messages == list(islice(corpus.messages(work), 200))
    found = rows(*((message.key, message.value) for message in messages), **corpus.WORKS[work].options)
    assert len(found) == sum(message.rows for message in messages)
    assert {name for name in found[0] if not name.startswith("_")} == {column.name for column in table.columns}
    kinds = Counter(row["_change_type"] for row in found)
    assert kinds["update_preimage"] == kinds["update_postimage"]
    assert 0.2 < kinds["update_preimage"] / (len(found) - kinds["update_preimage"]) < 0.4
    assert kinds["delete"]


def test_canal_json_of_the_corpus_is_as_ticdc_writes_it() -> None:
    """Some 0.9 kB; `mysqlType` in any order, `sqlType` of an unsigned column by its value; watermarks are no rows."""
    messages = list(islice(corpus.messages(), 1000))
    assert 700 < sum(len(message.value or b"") for message in messages) / len(messages) < 1000
    parsed = [orjson.loads(message.value or b"") for message in messages]
    assert len({tuple(message["mysqlType"]) for message in parsed}) > 500
    for message in parsed:
        big = message["data"][0]["visits"] is not None and int(message["data"][0]["visits"]) >= 2**63
        assert message["sqlType"]["visits"] == (3 if big else -5)
    assert {message["sqlType"]["visits"] for message in parsed} == {3, -5}
    table = corpus.ORDERS
    both = [messages[0], *islice(corpus.watermarks(), 3)]
    assert len(rows(*((message.key, message.value) for message in both), schemaHints=table.hints)) == 1


def test_a_record_batch_says_what_it_holds() -> None:
    """Its values' sizes and their number, also when it is compressed."""
    messages = [corpus.Message(None, b"x" * 1000, 2)] * 10
    plain, packed = record_batch(messages), record_batch(messages, "gzip")
    assert plain[1:] == packed[1:] == (10, 10_000, 20)
    assert len(packed.data) < 1_000
    assert len(plain.data) > 10_000


@pytest.mark.skipif(not PROC.is_dir(), reason="the memory of processes is read from Linux's /proc")
def test_memory_is_that_of_the_process() -> None:
    """A process that takes 64 MiB and gives them back is seen to have had them."""
    code = "data = b'x' * (64 << 20); del data; print('done', flush=True); input()"
    command = [sys.executable, "-c", code, "pyspark.daemon", "pyspark.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        memory = memory_of(child.pid)
        assert memory is not None
        assert memory.peak > memory.now + 60
        assert python_processes(os.getpid())[child.pid] == "worker daemon"  # a direct child only forks
        child.communicate(b"\n")
    assert memory_of(child.pid) is None
