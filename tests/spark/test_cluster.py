"""A job runs on a Spark cluster of a master and two workers, and brings the package along."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.local_kafka import produce
from tests.fixtures import Kafka
from tests.spark.standalone import HOST, SECONDS, SPARK, WORKERS, Cluster, cluster, descendants, environment, processes
from tests.support.messages import TSO, canal
from tests.support.paths import ROOT

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long("a wheel, and a cluster of five JVMs")]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as a pure wheel with the name of a `.zip`: Spark does not put a `.whl` on the path of Python."""
    folder = tmp_path_factory.mktemp("package")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    pure = {**os.environ, "TICDC_BUILD_NATIVE": "0"}  # Python imports no extension module from a zip file
    done = subprocess.run(command, cwd=folder, env=pure, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel.rename(folder / "ticdc_source.zip")


def submit(cluster: Cluster, package: Path, folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Submit the job from a folder outside this checkout.

    The executors get the package by `--py-files`. The driver's process that plans a stream looks for such packages in a
    folder that does not exist, so it gets the package by PYTHONPATH.
    """
    (folder / "driver").mkdir()
    job = shutil.copy(Path(__file__).with_name("cluster_job.py"), folder / "driver" / "job.py")
    settings = {
        "spark.cores.max": "2",
        "spark.driver.bindAddress": HOST,
        "spark.driver.host": HOST,
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{SECONDS}s",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    options = [f"--conf={name}={value}" for name, value in settings.items()]
    command = [str(SPARK / "bin" / "spark-submit"), "--master", cluster.master, "--driver-memory", "512m"]
    return subprocess.Popen(
        [*command, "--py-files", str(package), *options, str(job), *arguments],
        cwd=folder / "driver",
        env=environment(PYTHONPATH=str(package)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_job_brings_the_package_along(
    broker: Kafka, topic: Callable[..., str], package: Path, tmp_path: Path
) -> None:
    """Both workers read all rows of a batch and a stream with the package of the wheel; no process is left."""
    name = topic(4)
    rows = [
        canal("INSERT", [{"id": str(number)}], None, {"id": "int"}, _tidb={"commitTs": TSO + number})
        for number in range(200)
    ]
    produce(broker.bootstrap_servers, name, [(n % 4, *message, [], None) for n, message in enumerate(rows)])

    with cluster(tmp_path) as running:
        job = submit(running, package, tmp_path, broker.bootstrap_servers, name, str(tmp_path / "stream"))
        try:
            out, err = job.communicate(timeout=4 * SECONDS)
        finally:
            job.kill()
        started = descendants(running.processes)

    assert job.returncode == 0, out + err
    report = json.loads(out.splitlines()[-1])
    assert report["batch"] == report["stream"] == list(range(200))
    assert report["driver"] == str(package / "ticdc_source" / "__init__.py")
    found = [Path(folder).relative_to(tmp_path).parts for folder in report["workers"]]
    assert [parts[0] for parts in found] == list(WORKERS), found
    assert {parts[-3:] for parts in found} == {(package.name, "ticdc_source", "__init__.py")}
    assert [process.poll() is not None for process in running.processes] == [True] * 3
    assert not started & processes().keys()
