"""Every benchmark runs, on next to nothing: what it measures is for `make bench`, that it measures is for here."""

import json
import os
import subprocess
import sys
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


def test_the_corpus_is_what_ticdc_writes() -> None:
    """The generated messages are read by our decoder, are about as long as design.md says, and come again."""
    messages = list(islice(corpus.messages(), 500))
    assert messages == list(islice(corpus.messages(), 500))
    assert 700 < sum(map(len, messages)) / len(messages) < 1000
    found = rows(*((None, message) for message in messages), schemaHints="amount decimal(12,2)")
    kinds = [orjson.loads(message)["type"] for message in messages]
    assert len(found) == 500 + kinds.count("UPDATE")
    assert 0.2 < kinds.count("UPDATE") / 500 < 0.4
    watermarks = [(None, message) for message in islice(corpus.watermarks(), 3)]
    assert len(rows((None, messages[0]), *watermarks, schemaHints="amount decimal(12,2)")) == 1


def test_a_record_batch_says_what_it_holds() -> None:
    """Its values' sizes and their number, also when it is compressed."""
    values = [b"x" * 1000] * 10
    plain, packed = record_batch(values), record_batch(values, "gzip")
    assert (plain.records, plain.size) == (packed.records, packed.size) == (10, 10_000)
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
