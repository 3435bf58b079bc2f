"""Every benchmark runs at its smallest size; measuring is for `make bench`."""

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import islice
from typing import Any

import orjson
import pytest

from benchmarks import corpus
from benchmarks.__main__ import BENCHMARKS, PLANNED
from benchmarks.bench_stages import PATHS, STAGES
from benchmarks.bench_throughput import SIZES
from benchmarks.processes import PROC, cpu_seconds, memory_of, python_processes
from examples.local_kafka.broker import BOOTSTRAP_VARIABLE
from tests.fixtures import Kafka
from tests.support.captured import rows
from tests.support.paths import ROOT

QUICK_START = "-XX:TieredStopAtLevel=1"  # of Java: its optimising compiler does not pay off in a short run
TIMEOUT_SECONDS = 600  # it takes 100 on two idle cores
ON_LINUX = pytest.mark.skipif(not PROC.is_dir(), reason="memory and CPU time are read from Linux's /proc")


@pytest.fixture(scope="module")
def results(broker: Kafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Run all benchmarks at the smallest size as `make bench` does, on the session's broker; return their results."""
    folder = tmp_path_factory.mktemp("results")
    chosen = [word for name in BENCHMARKS for word in ("--only", name)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--size", "tiny", "--results", str(folder), *chosen],
        cwd=ROOT,
        env={**os.environ, BOOTSTRAP_VARIABLE: broker.bootstrap_servers, "SPARK_SUBMIT_OPTS": QUICK_START},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    assert set(found) == {f"{name}-tiny" for name in BENCHMARKS}
    assert all(result["command"] in done.stdout for result in found.values())
    return {name.removesuffix("-tiny"): result for name, result in found.items()}


@pytest.mark.long("every benchmark, in JVMs of their own")
@pytest.mark.broker
@pytest.mark.spark
@ON_LINUX
def test_each_benchmark_writes_its_figures(results: dict[str, dict[str, Any]]) -> None:
    """Each benchmark writes its figures, all samples, the environment and the load, and charts only figures."""
    for result in results.values():
        assert result["figures"].keys() == result["samples"].keys() != set()
        assert all(result["samples"].values())
        assert {"commit", "machine", "pyspark", "kafka-python"} <= result["environment"].keys()
        assert len(result["load"]["before"]) == len(result["load"]["after"]) == 3
        head, *lines = result["table"]
        assert {len(line) for line in lines} == {len(head)}
        assert all(bars.keys() <= result["figures"].keys() for bars in result["chart"]["series"].values())
    for figures in results["microbatch"]["figures"].values():
        assert {"ticdc", "kafka tuned", "ticdc / kafka tuned"} <= figures.keys()
        assert figures["ticdc"]["tasks"] == 1
    assert len(results["memory"]["figures"]) == 2
    for memory in results["memory"]["figures"].values():
        assert memory["records"] > 20
        assert memory["worker_peak_mib"] > 20


@pytest.mark.long("every benchmark, in JVMs of their own")
@pytest.mark.broker
@pytest.mark.spark
@ON_LINUX
def test_throughput_has_both_sides(results: dict[str, dict[str, Any]]) -> None:
    """Throughput has rows and CPU seconds of both sides for each protocol, and the stages have their CPU time."""
    throughput = results["throughput"]
    assert {name.rpartition(", ")[0] for name in throughput["figures"]} == {
        *SIZES["tiny"].records,
        "canal-json, native off",
    }
    for name, figures in throughput["figures"].items():
        assert figures["rows"] > figures["records"] >= 100
        ours = "ticdc, native off" if "native off" in name else "ticdc"
        assert [sample["side"] for sample in throughput["samples"][name]] == [ours, "kafka"] * 2  # all, and ten records
        assert all(sample["cpu_seconds"] > 0 for sample in throughput["samples"][name])
        assert figures["ratio_rows_per_cpu_second"] > 0
    stages = results["stages"]["figures"]
    assert set(stages) == {f"{work}, {path}" for work in corpus.WORKS for path in PATHS}
    for figures in stages.values():
        assert set(figures["microseconds_a_row"]) == {*STAGES, "orjson.loads"}
        assert figures["microseconds_a_row"]["decode"] > 0


@pytest.mark.parametrize(("size", "minutes"), [("full", 18), ("quick", 2)])
def test_the_plan_keeps_its_time(size: str, minutes: int) -> None:
    """The planned seconds of all benchmarks fit into what `make help` says."""
    assert PLANNED.keys() <= BENCHMARKS.keys()
    assert sum(planned[size] for planned in PLANNED.values()) <= 60 * minutes


@pytest.mark.parametrize("work", corpus.WORKS)
def test_the_corpus_is_what_ticdc_writes(work: str) -> None:
    """The generated messages decode to the rows that they declare, and are the same each time."""
    table = corpus.WORKS[work].table
    messages = list(islice(corpus.messages(work), 200))
    assert messages == list(islice(corpus.messages(work), 200))
    found = rows(*((message.key, message.value) for message in messages), **corpus.WORKS[work].options)
    assert len(found) == sum(message.rows for message in messages)
    assert {name for name in found[0] if not name.startswith("_")} == {column.name for column in table.columns}
    change_types = Counter(row["_change_type"] for row in found)
    assert change_types["update_preimage"] == change_types["update_postimage"]
    assert 0.2 < change_types["update_preimage"] / (len(found) - change_types["update_preimage"]) < 0.4
    assert change_types["delete"]


def test_canal_json_of_the_corpus_is_as_ticdc_writes_it() -> None:
    """canal-json messages have TiCDC's size, member order and type codes, and its watermarks are no rows."""
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


@pytest.mark.slow("a tool, no part of the package")
@ON_LINUX
def test_peak_memory_includes_freed_memory() -> None:
    """The peak memory of a process includes memory that it has returned."""
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


@ON_LINUX
def test_cpu_seconds_include_child_processes() -> None:
    """The CPU seconds of a process include those of its child processes, even ended ones."""
    burn = "import time; [None for _ in iter(lambda: time.process_time() < 0.3, False)]"
    code = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); {burn}; print(flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert cpu_seconds(child.pid) >= 0.5
        assert cpu_seconds(os.getpid()) >= cpu_seconds(child.pid)
        child.communicate(b"\n")
