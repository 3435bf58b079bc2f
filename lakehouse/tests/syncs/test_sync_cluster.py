"""`spark-submit "$(ticdc-lakehouse sync --script)" sync.toml` on a Spark cluster of a master and two workers."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from lakehouse.tests.syncs.test_sync_database import LOG, NEWEST, SEED, TABLES, Sync, differences, python_of, rows_in
from lakehouse.tests.targets.feed import DatabaseFeed
from tests.fixtures import Kafka
from tests.spark.conftest import MakeTopic
from tests.spark.standalone import HOST, SECONDS, Cluster, cluster, environment
from tests.support.paths import PACKAGES

TRANSACTIONS = 150

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.versions,
    pytest.mark.xdist_group("engines"),
    pytest.mark.long("a cluster of five JVMs, and three runs of the command"),
    pytest.mark.timeout(1800),
]


def pyspark_of(engine: str) -> Path:
    question = "import pyspark; print(pyspark.__path__[0])"
    answer = subprocess.run([python_of(engine), "-c", question], capture_output=True, text=True, check=True)
    return Path(answer.stdout.strip())


def submit(running: Cluster, sync: Sync, *more: str, jars: bool = True) -> "subprocess.CompletedProcess[str]":
    """Submit the command as a user does, from a folder outside this checkout."""
    python, spark = python_of(sync.engine), pyspark_of(sync.engine)
    at_home = {**os.environ, "PYTHONPATH": PACKAGES}
    asked = [python, "-m", "ticdc_lakehouse.cli", "sync", "--script"]
    script = subprocess.run(asked, env=at_home, capture_output=True, text=True, check=True).stdout.strip()
    settings = {
        "spark.cores.max": "2",
        "spark.driver.bindAddress": HOST,
        "spark.driver.host": HOST,
        "spark.eventLog.dir": str(sync.folder),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{SECONDS}s",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.ui.enabled": "false",
    }
    options = [f"--conf={name}={value}" for name, value in settings.items()]
    options += [f"--jars={','.join(map(str, NEWEST[sync.engine].jars))}"] if jars else []
    command = [str(spark / "bin" / "spark-submit"), "--master", running.master, "--driver-memory", "1g"]
    installed = {"PYTHONPATH": PACKAGES, "SPARK_HOME": str(spark), "PYSPARK_DRIVER_PYTHON": python}
    given = environment(**installed)
    del given["PYSPARK_PYTHON"]  # the command itself says which Python workers need
    return subprocess.run(
        [*command, *options, script, str(sync.config), *more], cwd=sync.folder, env=given, capture_output=True,
        text=True, check=False, timeout=900,
    )  # fmt: skip


def executors(folder: Path) -> set[str]:
    (log,) = (path for path in folder.glob("app-*") if path.is_file())
    events = map(json.loads, log.read_text().splitlines())
    return {one["Task Info"]["Executor ID"] for one in events if one["Event"] == "SparkListenerTaskEnd"}


@pytest.mark.parametrize("engine", ["delta", "iceberg"])
def test_a_cluster_keeps_the_tables(broker: Kafka, topic: MakeTopic, tmp_path: Path, engine: str) -> None:
    """Both workers run tasks, the rows are TiDB's, and a second run finds nothing new."""
    feed = DatabaseFeed(SEED, "canal-json")
    feed.run(TRANSACTIONS)
    sync = Sync(broker, topic(len(feed.records)), feed, "canal-json", tmp_path, engine, "latest")
    sync.write([1.0] * len(feed.records))
    installed = {"PYTHONPATH": PACKAGES}
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster", spark=pyspark_of(engine), **installed) as running:
        first = submit(running, sync)
        assert first.returncode == 0, first.stdout + first.stderr
        assert executors(tmp_path) == {"0", "1"}, first.stderr
        again = submit(running, sync, "--json")
        assert again.returncode == 0, again.stdout + again.stderr
        bare = submit(running, sync, jars=False)
    assert "done: " in first.stdout
    changed = [json.loads(line)["changed"] for line in again.stdout.splitlines()]
    assert not any(changed), again.stdout
    assert bare.returncode == 2, bare.stdout + bare.stderr
    said = " ".join(bare.stdout.split())  # spark-submit has both outputs of its program in one
    assert "Add them: spark-submit --packages " in said, bare.stdout + bare.stderr
    for table, its in sync.versions([*TABLES, LOG], all_versions=False).items():
        rows = rows_in(its[-1]["file"])
        wrong = list(differences(feed, table, rows, feed.truth.at()))
        assert not wrong, f"{table}: {len(wrong)} differences, {wrong[:5]}"
        print(engine, table, len(rows), "rows")  # noqa: T201 (what was compared)
