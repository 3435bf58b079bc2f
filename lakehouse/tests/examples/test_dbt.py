"""The dbt project of the examples runs over tables that a sync writes, as the page says."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from examples.data import read_messages
from examples.local_kafka import Record, produce
from lakehouse.tests.syncs.test_sync_database import python_of, spark_of
from tests.fixtures import Kafka
from tests.support.paths import PACKAGES, ROOT
from tests.versions.environments import environment

PROJECT = ROOT / "lakehouse/examples/dbt"
PAGE = ROOT / "lakehouse/docs/dbt.md"
VERSIONS = dict(re.findall(r"(dbt-core|dbt-spark|pyspark)==([\d.]+)", PAGE.read_text(encoding="utf-8")))
PART = 0.6  # of the messages; it has the ADD COLUMN of shop.orders
SECONDS = 900

CONFIG = """
checkpoint = "{folder}/checkpoint"
consistency = "resolved"

[source]
subscribe = "{topic}"
"kafka.bootstrap.servers" = "{servers}"
timeZone = "UTC"

[target]
format = "delta"
path = "{folder}/lake"
"""


def run(folder: Path, python: str | Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module with Delta's jars, and return what became of it."""
    left_out = ("PYSPARK", "PYTHON")
    return subprocess.run(
        [str(python), "-m", *arguments],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(left_out)},
            **spark_of("delta"),
            "PYTHONPATH": PACKAGES,
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def sync(folder: Path) -> str:
    """Copy what is new in the topic, and return what the command prints."""
    done = run(folder, python_of("delta"), "ticdc_lakehouse.cli", "sync", "sync.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def dbt(folder: Path, *arguments: str, file: str) -> tuple[int, list[dict[str, Any]]]:
    """Run dbt in the copy of the project, and return its exit code and the results in a file."""
    python = environment(f"dbt-{VERSIONS['dbt-core']}", [f"{name}=={each}" for name, each in VERSIONS.items()])
    given = ("--profiles-dir", ".", "--vars", json.dumps({"lake": f"{folder}/lake"}))
    done = run(folder / "dbt", python, "dbt.cli.main", *arguments, *given)
    results = folder / "dbt" / "target" / file
    assert results.exists(), done.stdout + done.stderr
    steps: list[dict[str, Any]] = json.loads(results.read_text())["results"]
    return done.returncode, steps


@pytest.mark.long("dbt, which pip installs the first time, and a JVM for each command")
@pytest.mark.xdist_group("engines")
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.timeout(SECONDS * 5)
def test_dbt_follows_a_sync(broker: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
    """Models and their tests pass, the incremental model gets what is new, and freshness is the resolved ts."""
    shutil.copytree(PROJECT, tmp_path / "dbt")
    name, messages = topic(3), read_messages("canal-json")
    records: list[Record] = [(*message, [], None) for message in messages]
    half = int(len(records) * PART)
    toml = CONFIG.format(folder=tmp_path, topic=name, servers=broker.bootstrap_servers)
    (tmp_path / "sync.toml").write_text(toml)

    produce(broker.bootstrap_servers, name, records[:half])
    sync(tmp_path)
    first = dbt(tmp_path, "build", file="run_results.json")
    made = (tmp_path / "dbt/target/run/shop/models/order_changes.sql").read_text()
    produce(broker.bootstrap_servers, name, records[half:])
    printed = sync(tmp_path)
    stale = dbt(tmp_path, "test", file="run_results.json")
    second = dbt(tmp_path, "build", file="run_results.json")
    merged = (tmp_path / "dbt/target/run/shop/models/order_changes.sql").read_text()
    freshness = dbt(tmp_path, "source", "freshness", file="sources.json")

    for code, results in (first, second):
        assert {result["status"] for result in results} == {"success", "pass"}
        assert (code, len(results)) == (0, 8)
    assert "create or replace table" in made.lower()
    assert "merge into" in merged.lower()
    failed = {result["unique_id"].split(".")[2] for result in stale[1] if result["status"] == "fail"}
    assert failed == {"order_changes_have_all_orders"}  # before the model has run again
    code, (orders,) = freshness
    assert (code, orders["status"]) == (1, "error")  # the demo's messages are old
    moment = datetime.fromisoformat(orders["max_loaded_at"])
    assert f"complete up to {moment:%Y-%m-%d %H:%M:%S} UTC" in printed
