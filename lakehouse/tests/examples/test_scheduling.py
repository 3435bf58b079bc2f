"""The lines of cron and the DAGs of the page on scheduling are run."""

import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from examples.data import read_messages
from examples.local_kafka import produce
from lakehouse.tests.syncs.test_sync_database import python_of, spark_of
from tests.fixtures import Kafka
from tests.support.pages import blocks
from tests.support.paths import PACKAGES, ROOT
from tests.versions.environments import environment

PAGE = ROOT / "lakehouse/docs/scheduling.md"
AIRFLOW = re.findall(r"Airflow (\d+\.\d+\.\d+)", PAGE.read_text(encoding="utf-8"))
PLACES = ("/opt", "/etc/ticdc", "/var/lib/ticdc", "/var/log/ticdc", "/data")  # of the page
OVERLAPS = 75  # what flock is told to return
SECONDS = 900

SYNC = """
checkpoint = "{folder}/data/checkpoints/shop"

[source]
subscribe = "{topic}"
"kafka.bootstrap.servers" = "{servers}"
timeZone = "UTC"

[target]
format = "delta"
path = "{folder}/data/lake"
"""


def crontab() -> list[tuple[str, str]]:
    """Return the schedule and the command of each line for cron; the sixth word is the user."""
    lines = [line for block in blocks(PAGE) if block.language == "text" for line in block.text.splitlines()]
    matches = [re.fullmatch(r"((?:[\d*/]+ +){5})etl +(.+)", line) for line in lines]
    return [(match[1].strip(), match[2]) for match in matches if match]


def here(folder: Path, text: str) -> str:
    return re.sub("|".join(rf"{place}(?=/)" for place in PLACES), lambda match: f"{folder}{match[0]}", text)


def install(folder: Path, program: str, *command: str, **environment: str) -> None:
    """Write a program of the page that runs a command in an environment."""
    path = Path(here(folder, program))
    path.parent.mkdir(parents=True, exist_ok=True)
    words = " ".join(f"'{word}'" for word in command)
    settings = "".join(f"export {name}='{value}'\n" for name, value in environment.items())
    path.write_text(f'#!/bin/sh\n{settings}exec {words} "$@"\n')
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder with those of the page that a machine has."""
    for place in PLACES:
        Path(here(tmp_path, f"{place}/")).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def logged(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file into which `logger` writes its arguments, one line for each call."""
    file = machine / "logged"
    file.touch()
    program = machine / "bin" / "logger"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> "{file}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return file


def run(command: str) -> int:
    return subprocess.run(["/bin/sh", "-c", command], check=False).returncode


@pytest.mark.parametrize(("schedule", "command"), crontab())
def test_cron_starts_no_run_beside_another(machine: Path, logged: Path, schedule: str, command: str) -> None:
    """While another process holds the lock, the line of the page starts nothing, and logs say nothing."""
    lock = re.findall(r"/var/lib/ticdc/\S+", command)
    with Path(here(machine, lock[0])).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code = run(here(machine, command.partition(" || ")[0]))
        whole = run(here(machine, command))

    assert (code, whole) == (OVERLAPS, 0)
    assert [log.read_text() for log in (machine / "var/log/ticdc").iterdir()] == [""]
    assert logged.read_text() == ""
    assert len(schedule.split()) == len(("minute", "hour", "day", "month", "weekday"))
    assert "%" not in command  # cron takes it for the end of the line


def test_logs_get_the_error_of_a_run(machine: Path, logged: Path) -> None:
    """Without another run, the line of the page starts the command, and logs tell of its error."""
    install(machine, "/opt/ticdc/bin/ticdc-lakehouse", sys.executable, "-m", "ticdc_lakehouse.cli", PYTHONPATH=PACKAGES)
    (_, sync), _ = crontab()
    command = here(machine, sync)

    codes = [run(command), run(command.partition(" || ")[0])]

    assert codes == [0, 2]  # of `logger`, and of the command: the lock of the first run has ended with it
    log = (machine / "var/log/ticdc/shop.log").read_text()
    assert log.count("shop.toml cannot be read: No such file or directory") == len(codes)
    assert logged.read_text() == "-p user.err the sync of shop failed\n"


@pytest.mark.long("Airflow, which pip installs the first time, and a JVM for each DAG")
@pytest.mark.xdist_group("engines")
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.timeout(SECONDS * 3)
def test_airflow_runs_the_dags_of_the_page(broker: Kafka, topic: Callable[..., str], machine: Path) -> None:
    """Airflow runs both DAGs: the sync makes the tables, and the hourly job reads all changes and keeps its number."""
    name = topic(3)
    produce(broker.bootstrap_servers, name, [(*message, [], None) for message in read_messages("canal-json")])
    python = python_of("delta")
    with_spark = {"PYTHONPATH": PACKAGES, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    install(
        machine,
        "/opt/ticdc/bin/ticdc-lakehouse",
        python,
        "-m",
        "ticdc_lakehouse.cli",
        **with_spark,
        **spark_of("delta"),
    )
    local = ("--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1")
    submit = str(Path(python).with_name("spark-submit"))
    install(machine, "/opt/spark/bin/spark-submit", submit, *local, PYTHONPATH=PACKAGES)
    install(machine, "/opt/ticdc/bin/python", python)  # what the DAG names
    toml = SYNC.format(folder=machine, topic=name, servers=broker.bootstrap_servers)
    (machine / "etc" / "ticdc" / "shop.toml").write_text(toml)
    jobs = machine / "opt" / "jobs"
    jobs.mkdir()
    (jobs / "hourly_orders.py").write_text(hourly_job(machine, name, broker.bootstrap_servers))
    (machine / "dags").mkdir()
    (dags,) = (block.text for block in blocks(PAGE) if block.language == "python")
    (machine / "dags" / "shop.py").write_text(here(machine, dags))

    synced, read = (airflow(machine, "dags", "test", dag) for dag in ("shop_sync", "orders_hourly"))

    assert "micro-batch 0: 8,037 rows in 3 tables (3 new)" in synced
    assert "done: 3 tables, 0 set aside" in synced
    until = (machine / "data" / "orders_since").read_text()
    assert f"None {until} 7154" in read
    assert {"customers", "order_items", "orders"} == {path.name for path in (machine / "data/lake/shop").iterdir()}


def hourly_job(machine: Path, topic: str, servers: str) -> str:
    """Return the program of the page on batch jobs, with a session, and with a topic and folders of this machine."""
    page = blocks(ROOT / "docs/guides/repeated-batches.md")
    text = next(block.text for block in page if block.language == "python")
    session = "spark = SparkSession.builder.getOrCreate()"
    assert session in PAGE.read_text(encoding="utf-8")
    text = f"from pyspark.sql import SparkSession\n\n{session}\n{text}"
    return here(machine, text).replace("broker:9092", servers).replace("tidb-shop", topic)


def airflow(machine: Path, *arguments: str) -> str:
    """Run Airflow in an environment of its own with a new database, and return what it prints."""
    assert len(set(AIRFLOW)) == 1, "the page names the one version with which it was run"
    python = environment(f"airflow-{AIRFLOW[0]}", [f"apache-airflow=={AIRFLOW[0]}"])
    variables: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))},
        "AIRFLOW_HOME": str(machine / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(machine / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    printed = ""
    for each in (("db", "migrate"), arguments):
        done = subprocess.run(
            [str(python), "-m", "airflow", *each],
            cwd=machine,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stdout
        printed = done.stdout
    return printed
