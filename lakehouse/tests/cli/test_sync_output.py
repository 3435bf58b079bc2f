"""What `ticdc-lakehouse sync` prints of micro-batches and tables; without Spark."""

import argparse
import json
import re
import signal
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from tests.cli.conftest import Command
from ticdc_lakehouse.cli import sync as command
from ticdc_lakehouse.cli.sync import EXAMPLE
from ticdc_lakehouse.syncs import database_sync, session_and_catalog, status
from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.reports import SyncReport
from ticdc_lakehouse.syncs.status import Pause, SetAside, StatusFile, TableStatus
from ticdc_lakehouse.syncs.sync_toml import read_toml
from ticdc_source.errors import OptionError
from ticdc_source.pipeline.metric_files import MetricFiles
from ticdc_source.schema.tso import of_ms

AT = of_ms(1_790_000_107_000)
MOMENT = "2026-09-21 14:15:07 UTC"
ASIDE = SetAside(reason="x" * 200, since="2026-09-21T14:15:07+00:00", kept_from=4)
TABLES = [
    TableStatus(table_name="shop.orders", target="t", kind="table", resolved_ts=AT, complete_since=AT, images=2273),
    TableStatus(table_name="shop.events", target="l", kind="log"),
    TableStatus(table_name="shop.items", target="i", kind="table", phase=ASIDE),
    TableStatus(table_name="shop.notes", target="n", kind="table", last_error="it was full"),
]


def config_of(folder: Path, **other: str) -> SyncConfig:
    """A sync whose tables are in a folder, with its file."""
    place = {"path": str(folder / "lake"), "checkpoint": str(folder / "checkpoint"), **other}
    (folder / "sync.toml").write_text(
        f'checkpoint = "{place["checkpoint"]}"\n[source]\nsubscribe = "t"\n"kafka.bootstrap.servers" = "127.0.0.1:1"\n'
        f'[target]\nformat = "delta"\npath = "{place["path"]}"\n'
    )
    return read_toml((folder / "sync.toml").read_text())


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of a sync, which no Spark reads."""
    monkeypatch.setattr(session_and_catalog, "session_of", lambda _: None)
    monkeypatch.setattr(status, "statuses_of", lambda *_: TABLES)
    monkeypatch.setattr(status, "StatusFile", lambda _: MagicMock(read=lambda: None))


@pytest.mark.usefixtures("statuses")
def test_the_status_is_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Both have the lag, times, rows, since when a table is set aside, and its last error."""
    code = command._show_status(None, argparse.Namespace(json=False))  # type: ignore[arg-type]
    text = capsys.readouterr().out
    command._show_status(None, argparse.Namespace(json=True))  # type: ignore[arg-type]
    orders, events, items, notes = json.loads(capsys.readouterr().out)

    assert code == 1
    head, *lines = text.splitlines()
    assert head.split("  ")[0] == "table"
    assert "2026-09-21 14:15:07 UTC" in lines[0]
    assert lines[0].endswith("2,273")
    assert f"shop.items, set aside since {MOMENT}, in micro-batch 4: {'x' * 200}" in lines
    assert "shop.notes, last error: it was full" in lines
    assert orders["resolved_time"].startswith("2026-09-21T14:15:07")
    assert (orders["images"], events["lag_seconds"]) == (2273, None)
    lag = orders["lag_seconds"]
    assert f"  {lag // 86400:,.0f} d {lag % 86400 // 3600:.0f} h  " in lines[0]
    assert (items["state"], notes["state"], notes["reason"]) == ("set aside", "following", "it was full")


@pytest.mark.parametrize("command", [("sync",), ("audit",)])
def test_without_java_it_says_so_before_it_starts(
    command: tuple[str, ...], ticdc_lakehouse: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where Spark finds no Java, the command ends with one line that says what to do."""
    for name in ("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    file = tmp_path / "sync.toml"
    file.write_text(
        re.sub(r"^# (\[tidb\]|url = \"tidb|user = )", r"\1", EXAMPLE.read_text("utf-8"), flags=re.MULTILINE)
    )

    done = ticdc_lakehouse(*command, str(file))

    assert (done.code, done.out, done.err.count("\n")) == (4, "", 1)
    assert done.err.startswith("error: Spark needs Java, but JAVA_HOME is not set")
    assert "install Java 17 or newer" in done.err


def test_a_wrong_port_is_told_before_spark_starts(
    ticdc_lakehouse: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sync looks for its brokers first: five seconds are less than Spark needs to start."""
    monkeypatch.setattr(session_and_catalog, "session_of", lambda _: pytest.fail("Spark was started"))
    place = ["--format", "delta", "--path", str(tmp_path / "lake"), "--checkpoint", str(tmp_path / "checkpoint")]
    began = time.monotonic()

    done = ticdc_lakehouse("sync", "--bootstrap-servers", "127.0.0.1:1", "--subscribe", "t", *place)

    assert (done.code, done.out, done.err.count("\n")) == (3, "", 1)
    assert "127.0.0.1:1: ECONNREFUSED (nothing listens there)" in done.err
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("trigger", [None, "1 second"])
def test_a_topic_that_does_not_exist(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trigger: str | None
) -> None:
    """It is an error before Spark starts; with a trigger, a line that says what is waited for."""
    cluster = MagicMock()
    cluster.return_value.__enter__.return_value.partitions.side_effect = OptionError("Topic 't' does not exist")
    monkeypatch.setattr(command, "KafkaCluster", cluster)
    monkeypatch.setattr(command, "refuse_without_java", lambda: None)
    config = replace(config_of(tmp_path), trigger=trigger)

    if trigger is None:
        with pytest.raises(OptionError, match="does not exist"):
            command._check_before_spark(config)
    else:
        command._check_before_spark(config)
        assert capsys.readouterr().err == "waiting: Topic 't' does not exist\n"


@pytest.mark.usefixtures("statuses")
def test_what_was_not_read_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Patterns without a table, and bad records; if these are all that there was, by the exit code too."""
    monkeypatch.setattr(command, "_check_before_spark", lambda _: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    config = replace(config_of(tmp_path), tables=("shop.*, shop.order",))
    reports = [SyncReport(tables={}, bad_records=40), SyncReport(tables={"shop.a": TABLES[0]}, bad_records=1)]
    monkeypatch.setattr(database_sync, "sync", lambda *_, **__: reports.pop(0))
    arguments = argparse.Namespace(json=False, resume=[])

    assert [command._sync(config, arguments), command._sync(config, arguments)] == [1, 0]

    _, nothing, all_, bad, _, one, last = capsys.readouterr().err.splitlines()
    assert [nothing, all_, one] == [
        f"no table matches tables = {pattern}" for pattern in ("shop.*", "shop.order", "shop.order")
    ]
    assert bad.startswith("40 bad records in quarantine: ")
    assert last.startswith("1 bad record in quarantine: ")
    assert "_ticdc_quarantine" in last


def test_the_status_needs_no_spark(ticdc_lakehouse: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file that a sync keeps beside its tables has all that the table has; the output says as of when it is."""
    monkeypatch.setattr(session_and_catalog, "session_of", lambda _: pytest.fail("Spark was started"))
    config = config_of(tmp_path)
    StatusFile(config).write([each.as_row() for each in TABLES])
    file = tmp_path / "lake" / "_ticdc_sync.json"
    file.write_text(re.sub(r'(?<="written": ")[^"]*', "2026-09-21T14:15:30+00:00", file.read_text()))
    began = time.monotonic()

    shown = ticdc_lakehouse("sync", str(tmp_path / "sync.toml"), "--status")
    as_json = ticdc_lakehouse("sync", str(tmp_path / "sync.toml"), "--status", "--json")

    assert time.monotonic() - began < 3
    assert (shown.code, as_json.code) == (1, 1)
    assert shown.out.splitlines()[-1].startswith("as of 2026-09-21 14:15:30 UTC, ")
    assert shown.out.splitlines()[-1].endswith(f" ago, by {file}")
    assert "shop.notes, last error: it was full" in shown.out
    now = [{**each.as_json(0), "as_of": "2026-09-21T14:15:30+00:00"} for each in TABLES]
    assert [{**each, "lag_seconds": None} for each in as_json.json] == [
        {**each, "lag_seconds": None} for each in json.loads(json.dumps(now))
    ]


def test_each_write_of_the_table_writes_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file follows the table; what it says comes back as it was, pauses and columns too.

    A file that is damaged, or of another sync or release, is as none: the table is asked.
    """
    monkeypatch.setattr(status.StatusTable, "opened", lambda _: MagicMock())
    config = config_of(tmp_path)
    pause = Pause(reason="it stopped", ended="2026-09-21T14:15:30+00:00", complete_since=AT, from_ts=AT, to_ts=AT + 1)
    orders = replace(TABLES[0], columns=("id", "\U0001f600"), pauses=(pause,))

    for each in (TABLES[0], orders):
        status.StatusTable(MagicMock(), config).write({"shop.orders": each})

        assert StatusFile(config).read()[0] == [each]  # type: ignore[index]
    for text in ("", "{", "[]", '{"version": 2}', '{"version": 1, "table": "x", "written": "", "statuses": []}'):
        (tmp_path / "lake" / "_ticdc_sync.json").write_text(text)
        assert StatusFile(config).read() is None


def test_no_secret_is_in_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials in the place of the tables are not in the file, nor in what is logged if it cannot be written."""
    written: list[bytes] = []
    monkeypatch.setattr(MetricFiles, "put", lambda _, __, data: written.append(data))
    config = config_of(tmp_path, path="s3://key:hunter2@bucket/lake", checkpoint="s3://key:hunter2@bucket/c")
    file = StatusFile(config)

    row = replace(TABLES[0], target="delta.`s3://key:hunter2@bucket/lake/shop/orders`")
    file.write([replace(row, phase=replace(ASIDE, reason="s3://key:hunter2@bucket/lake is full")).as_row()])

    assert b"bucket/lake is full" in written[0]
    assert b"hunter2" not in written[0]
    assert "hunter2" not in file.place


def test_a_store_that_cannot_be_written_ends_no_sync(tmp_path: Path) -> None:
    """The file is a convenience: a failure is logged once, and not tried again."""
    (tmp_path / "lake").write_text("a file, and no folder")
    file = StatusFile(config_of(tmp_path))

    file.write([each.as_row() for each in TABLES])
    (tmp_path / "lake").unlink()
    file.write([each.as_row() for each in TABLES])

    assert not (tmp_path / "lake").exists()
