"""The messages of the benchmarks are what TiCDC writes, and memory is measured whole."""

import os
import subprocess
import sys
from collections import Counter
from itertools import islice

import orjson
import pytest

from benchmarks import corpus
from benchmarks.processes import PROC, memory_of, python_processes
from tests.support.captured import rows

ON_LINUX = pytest.mark.skipif(not PROC.is_dir(), reason="memory and CPU time are read from Linux's /proc")


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
