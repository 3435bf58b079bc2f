"""README's way from an empty machine to tables in Delta, and what its commands print."""

import os
import re
import shlex
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from lakehouse.tests.engines.engines import ENGINES, SESSION
from tests.support.pages import Block, blocks
from tests.support.paths import PACKAGES, ROOT
from tests.versions.environments import interpreter
from ticdc_lakehouse import MaintainConfig, SyncConfig, TableConfig, TiDBConfig

README = ROOT / "lakehouse/README.md"
GUIDE = ROOT / "lakehouse/docs/sync.md"
KEYS = ROOT / "lakehouse/docs/configuration.md"
ENGINE = ENGINES["delta-4.4"]
SECONDS = 900


def block_with(path: Path, text: str) -> Block:
    """Return the first block of a page with a text, and with output."""
    return next(block for block in blocks(path) if text in block.text and block.output is not None)


def masked(text: str) -> str:
    """Return an output without what differs from run to run: how long it took, and the age of old commits."""
    text = re.sub(r"\nas of .*, by .*/", "\nas of …/", re.sub(r" [\d,.]+ (d \d+ h|s\b)", " …", text))
    return re.sub(r" +", " ", text.replace(" … s", " …")).strip()


def run(command: str, folder: Path) -> str:
    """Run a command of a page with the newest PySpark that Delta has, and return what it prints."""
    python = str(interpreter(ENGINE.pyspark))
    ours = {
        "python": [python],
        "ticdc-source": [python, "-m", "ticdc_source.cli"],
        "ticdc-lakehouse": [python, "-m", "ticdc_lakehouse.cli"],
    }
    given = shlex.split(command.replace("\\\n", " "), comments=True)
    words = [word for each in given for word in ours.get(each, [each])]
    settings = {**SESSION, "spark.driver.memory": "1g", "spark.master": "local[2]"}
    conf = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    submitted = f"--jars {','.join(map(str, ENGINE.jars))} {conf} pyspark-shell"
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": PACKAGES, "PYSPARK_SUBMIT_ARGS": submitted,
             "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long("a broker, and a JVM for each command")
@pytest.mark.xdist_group("engines")
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.timeout(SECONDS * 3)
def test_one_command_leads_from_readme_to_tables(tmp_path: Path) -> None:
    """README's command copies the demo's database into Delta, and prints with `--status` what the pages show."""
    copies = block_with(README, "ticdc-lakehouse sync")
    shows = block_with(GUIDE, "--status")
    arguments = copies.text.partition("ticdc-lakehouse sync")[2].replace("{}", "127.0.0.1:1")

    printed = run(copies.text, tmp_path)
    status = run(f"ticdc-lakehouse sync {arguments} --status", tmp_path)

    assert (tmp_path / "build/lake/shop/orders/_delta_log").is_dir()
    assert masked(printed) == masked(str(copies.output))
    assert masked(printed) == masked(str(block_with(GUIDE, "ticdc-lakehouse sync sync.toml").output))
    assert masked(status) == masked(str(shows.output))


def test_the_page_of_sync_toml_has_every_key() -> None:
    """Each field of the configuration is a key on its page; a section is written with brackets."""
    sections = {"secret_settings", "table_configs", "options", "source", "spark", "maintain", "tidb"}
    keys = {each.name for kind in (SyncConfig, TableConfig, MaintainConfig, TiDBConfig) for each in fields(kind)}
    page = KEYS.read_text(encoding="utf-8")

    assert not [key for key in keys - sections if not re.search(rf"(`|^|# ){key}(`| =)", page, re.MULTILINE)]
