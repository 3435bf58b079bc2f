"""The demo runs as a newcomer starts it: in its own process, with the broker of the tests."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from examples.data import PROTOCOLS, read_truth
from examples.local_kafka.broker import BOOTSTRAP_VARIABLE
from tests.fixtures import Kafka
from tests.support.paths import ROOT
from ticdc_source.kernels.native import native

pytestmark = [pytest.mark.broker, pytest.mark.spark]
OWN_JVM = pytest.mark.slow("a JVM of its own")
SPARK_LEAVES = {"artifacts", "derby.log", "metastore_db", "spark-warehouse"}  # in the folder that it runs in
SECONDS = 300  # 45 on two idle cores


def start(broker: Kafka, folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "examples.demo", *arguments],
        cwd=ROOT,
        env={**os.environ, BOOTSTRAP_VARIABLE: broker.bootstrap_servers, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def topics(broker: Kafka) -> set[str]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as admin:
        return {name for name in admin.list_topics() if name.startswith("ticdc-demo-")}


@OWN_JVM
@pytest.mark.parametrize("given", [
    ("--protocol", "canal-json"), pytest.param((), marks=pytest.mark.long("all protocols"))
])  # fmt: skip
def test_all_protocols_give_the_tables_of_sql(broker: Kafka, tmp_path: Path, given: tuple[str, ...]) -> None:
    """The demo finds all rows equal for each protocol, says so in its last lines, and leaves nothing behind."""
    before, files = topics(broker), {path.name for path in ROOT.iterdir()}
    demo = start(broker, tmp_path, *given)
    out, err = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 0, out + err
    assert "WARN" not in err
    rows = sum(len(truth.rows) for truth in read_truth().values())
    shown, _, following = out.partition("What to try next")
    *found, last, _ = shown.splitlines()
    lines = [f"{protocol:<14} {rows:,} rows compared, {rows:,} rows equal" for protocol in given[1:] or PROTOCOLS]
    assert found[-len(lines) :] == lines
    assert last.startswith("Everything is equal")
    assert ("Reads take the native path." in out) == (native is not None)
    assert "-m examples.local_kafka --fill canal-json\n" in following
    assert "ticdc-source inspect --bootstrap-servers ADDRESS --subscribe tidb-shop\n" in following
    assert '.option("tables", table)' in out
    assert "default 'web'" in out
    assert "\x1b" not in out + err, "control codes in a plain log"
    assert "DECIMAL columns (balance, total, price) have in Spark the precision" in out
    assert "░░░   8,400" in out
    assert "14:14:32 to 14:14:35 arrived twice" in out
    assert topics(broker) == before
    assert list(tmp_path.iterdir()) == []
    assert not SPARK_LEAVES & ({path.name for path in ROOT.iterdir()} - files)


@pytest.mark.long("a JVM of its own")
@OWN_JVM
def test_ctrl_c_leaves_nothing_behind(broker: Kafka, tmp_path: Path) -> None:
    before = topics(broker)
    demo = start(broker, tmp_path, "--protocol", "canal-json")
    assert demo.stdout is not None
    for line in demo.stdout:
        if "Reading shop.customers" in line:
            break
    demo.send_signal(signal.SIGINT)
    out, err = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 130, out + err
    assert err.endswith("stopped\n")
    assert "Traceback" not in err
    assert topics(broker) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow("a process of its own")
def test_without_java_it_says_so(tmp_path: Path) -> None:
    demo = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert demo.returncode == 2
    assert "install Java 17" in demo.stderr
    assert "Traceback" not in demo.stderr
