"""`ticdc-lakehouse sync` on a topic that a test fills message by message, and its Delta tables, read without Spark."""

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from examples.local_kafka import produce
from lakehouse.tests.syncs.test_sync_database import SECONDS, python_of, spark_of
from tests.spark.restarts import Program, State, offset_of
from tests.support.messages import Message

CONFIG = """
checkpoint = "{folder}/checkpoint"

[source]
subscribe = "{topic}"
"kafka.bootstrap.servers" = "{servers}"
protocol = "canal-json"
{source}

[target]
format = "delta"
path = "{folder}/lake"
{more}
"""


class DeltaSync:
    """The command on one topic."""

    def __init__(self, servers: str, topic: str, folder: Path, source: str = "", more: str = "") -> None:
        self.servers, self.topic, self.folder = servers, topic, folder
        self.config, self.checkpoint = folder / "sync.toml", folder / "checkpoint" / "stream"
        self.config.write_text(CONFIG.format(folder=folder, topic=topic, servers=servers, source=source, more=more))
        self.environment: dict[str, str] = {}
        self.lives: list[Program] = []

    def write(self, *messages: Message, partition: int = 0, servers: str | None = None) -> None:
        produce(servers or self.servers, self.topic, [(partition, *message, [], None) for message in messages])

    def start(self, *more: str, module: str = "ticdc_lakehouse.cli") -> Program:
        spark = {**spark_of("delta"), **self.environment}
        life = Program(
            python_of("delta"),
            [module, "sync", str(self.config), *more],
            self.folder / f"life-{len(self.lives)}",
            spark,
        )
        self.lives.append(life)
        return life

    def offsets(self) -> Mapping[str, int]:
        """Return up to where the last micro-batch that has ended has read each partition."""
        committed = State.of(self.checkpoint).committed
        ends: Mapping[str, int] = {} if committed < 0 else offset_of(self.checkpoint, committed).get(self.topic, {})
        return ends

    def wait(self, life: Program, **ends: int) -> None:
        """Wait until a micro-batch has ended that has read partitions so far: `_0=5` is partition 0 up to offset 5."""
        wanted = {name[1:]: end for name, end in ends.items()}
        life.wait_for(partial(self._has_read, wanted), seconds=SECONDS)

    def _has_read(self, wanted: Mapping[str, int]) -> bool:
        ends = self.offsets()
        return all(ends.get(partition, 0) >= end for partition, end in wanted.items())

    def kill_all(self) -> None:
        for life in self.lives:
            life.kill()

    def rows(self, table: str, *columns: str, database: str = "shop") -> list[tuple[Any, ...]]:
        every = delta_rows(self.folder / "lake" / database / table)
        return sorted(tuple(row[name] for name in columns) for row in every if not row.get("_is_deleted"))

    def statuses(self) -> dict[str, dict[str, Any]]:
        return {row["table_name"]: row for row in delta_rows(self.folder / "lake" / "_ticdc_sync")}


def delta_commits(table: Path) -> list[list[dict[str, Any]]]:
    """Return the actions of each commit of a Delta table, oldest first."""
    logs = sorted((table / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]


def delta_rows(table: Path) -> list[dict[str, Any]]:
    """Return the rows of the newest version of a Delta table, with the names of its columns now."""
    files: dict[str, None] = {}
    fields: list[dict[str, Any]] = []
    for action in (one for commit in delta_commits(table) for one in commit):
        if "metaData" in action:
            fields = json.loads(action["metaData"]["schemaString"])["fields"]
        if "remove" in action:
            files.pop(action["remove"]["path"], None)
        if "add" in action:
            assert not action["add"].get("deletionVector"), "this reader knows no deletion vectors"
            files[action["add"]["path"]] = None
    stored = [row for path in files for row in pq.ParquetFile(table / unquote(path)).read().to_pylist()]
    return [_named(row, fields) for row in stored]


def _named(stored: dict[str, Any], fields: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a row, or a struct in it, with the names that its members have now."""
    named = {}
    for one in fields:
        value = stored.get(one["metadata"].get("delta.columnMapping.physicalName", one["name"]))
        members = one["type"].get("fields") if isinstance(one["type"], dict) else None
        named[one["name"]] = value if members is None or value is None else _named(value, members)
    return named


def log_of_spark(folder: Path, level: str = "INFO") -> dict[str, str]:
    """Return the environment in which Spark logs at a level, and writes its event log into a folder."""
    (folder / "events").mkdir(exist_ok=True)
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "log4j2.properties").write_text(
        f"rootLogger.level = {level.lower()}\nrootLogger.appenderRef.out.ref = out\nappender.out.type = Console\n"
        "appender.out.name = out\nappender.out.target = SYSTEM_ERR\nappender.out.layout.type = PatternLayout\n"
        "appender.out.layout.pattern = %p %c{1}: %m%n%ex\n"
    )
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{folder}/events",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.sql.ui.explainMode": "extended",
    }
    given = spark_of("delta")["PYSPARK_SUBMIT_ARGS"].removesuffix("pyspark-shell")
    more = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    return {"PYSPARK_SUBMIT_ARGS": f"{given}{more} pyspark-shell", "SPARK_CONF_DIR": os.fspath(conf)}
