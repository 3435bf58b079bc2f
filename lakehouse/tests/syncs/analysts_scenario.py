"""What analysts choose, with a real engine, a broker and a catalog with views; needs no pytest.

    python -m lakehouse.tests.syncs.analysts_scenario delta|iceberg FOLDER BROKER

It prints one line of JSON. Topics come while the sync runs; it then fails between a table and its log, and goes on.
"""

import json
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from examples.data import read_messages
from examples.local_kafka import create_topic, produce
from lakehouse.tests.engines.engines import ENGINES, sqlite
from ticdc_lakehouse import SyncConfig, TableConfig, sync
from ticdc_lakehouse.syncs import micro_batch
from ticdc_lakehouse.syncs.reports import BatchReport
from ticdc_lakehouse.syncs.status import statuses_of
from ticdc_source.errors import OptionError

NEWEST = {"delta": "delta-4.4", "iceberg": "iceberg-1.12"}
ORDERS, CUSTOMERS, ITEMS = "shop.orders", "shop.customers", "shop.order_items"
SECONDS = 600
MESSAGES = 300  # of each table


def main(engine: str, folder: str, servers: str) -> None:
    """Run the steps, and print what was found."""
    with ENGINES[NEWEST[engine]].session(Path(folder), sqlite() if engine == "iceberg" else ()) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        for name, value in catalog_settings(engine, folder).items():
            spark.conf.set(name, value)
        example = Example(spark, engine, folder, servers)
        found = {
            "refused": example.refused(),
            "batches": example.topics_that_come(),
            "stopped": example.stopped_between(),
            "again": example.again(),
            **example.tables(),
        }
        sys.stdout.write(f"{json.dumps(found, default=str)}\n")


def catalog_settings(engine: str, folder: str) -> dict[str, str]:
    """Return the settings of a catalog that has views."""
    if engine == "delta":
        return {}
    catalog = "spark.sql.catalog.views"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{folder}/catalog.db",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": f"{folder}/views",
        f"{catalog}.cache-enabled": "false",
    }


class Example:
    """A sync of topics that a pattern finds."""

    def __init__(self, spark: SparkSession, engine: str, folder: str, servers: str) -> None:
        self.spark, self.servers = spark, servers
        self.prefix = f"an{time.time_ns()}"
        self.config = SyncConfig(
            source={"kafka.bootstrap.servers": servers, "timeZone": "UTC"},
            topics=(f"{self.prefix}-.*",),
            format="delta" if engine == "delta" else "iceberg",
            catalog="spark_catalog" if engine == "delta" else "views",
            checkpoint=f"{folder}/checkpoint",
            commit_time=True,
            time_as="text",
            views=True,
            trigger="1 second",
            table_configs={ORDERS: TableConfig(history=True), CUSTOMERS: TableConfig(deletes="hard")},
        )
        self.messages: dict[str, list[Any]] = {table: [] for table in (ORDERS, CUSTOMERS, ITEMS)}
        for message in read_messages("canal-json"):
            event = json.loads(message.value or b"{}")
            name = f"{event.get('database')}.{event.get('table')}"
            if name in self.messages and len(self.messages[name]) < MESSAGES:
                self.messages[name].append(message)

    def refused(self) -> str:
        """Return what is said of a catalog without views."""
        if self.config.format == "delta":
            return ""
        try:
            sync(self.spark, replace(self.config, catalog="lake", trigger=None))
        except OptionError as error:
            return str(error)
        return "nothing"

    def write(self, table: str, messages: list[Any], *, new: bool = False) -> None:
        """Write messages to the topic of a table."""
        topic = f"{self.prefix}-{table}"
        if new:
            create_topic(self.servers, topic, 3)
        produce(self.servers, topic, [(one.partition, one.key, one.value, [], None) for one in messages])

    def topics_that_come(self) -> int:
        """Begin with one topic, and add two while the sync runs; return the number of micro-batches."""
        half = len(self.messages[ORDERS]) // 2
        self.write(ORDERS, self.messages[ORDERS][:half], new=True)
        reports: list[BatchReport] = []
        seen: set[str] = set()
        failed: list[BaseException] = []

        def heard(report: BatchReport) -> None:
            reports.append(report)
            seen.update(report.changed)

        def run() -> None:
            try:
                sync(self.spark, self.config, on_batch=heard)
            except BaseException as error:  # noqa: BLE001 (the query is stopped, or something is wrong)
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        self.wait(lambda: ORDERS in seen or bool(failed))
        for table in (CUSTOMERS, ITEMS):
            self.write(table, self.messages[table], new=True)
        self.wait(lambda: {CUSTOMERS, ITEMS} <= seen or bool(failed))
        for query in self.spark.streams.active:
            query.stop()
        thread.join(SECONDS)
        if not {CUSTOMERS, ITEMS} <= seen:
            raise failed[0] if failed else AssertionError(seen)
        return len(reports)

    def wait(self, condition: Any) -> None:
        """Wait until something is so."""
        end = time.monotonic() + SECONDS
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError
            time.sleep(0.2)

    def stopped_between(self) -> str:
        """Fail between a merge and the append to the log; the micro-batch is not committed."""
        half = len(self.messages[ORDERS]) // 2
        self.write(ORDERS, self.messages[ORDERS][half:])
        with patch.object(micro_batch, "append_changes", side_effect=KeyboardInterrupt):
            try:
                self.once()
            except BaseException as error:  # noqa: BLE001 (what Spark makes of it)
                return type(error).__name__
        return "nothing"

    def once(self) -> dict[str, str]:
        """Read the topics to their end."""
        return sync(self.spark, replace(self.config, trigger=None)).set_aside

    def again(self) -> dict[str, str]:
        """Go on, twice."""
        return {**self.once(), **self.once()}

    def tables(self) -> dict[str, Any]:
        """Return what is in the tables and in their views."""
        place = "spark_catalog.shop" if self.config.format == "delta" else "views.shop"
        changes = Counter[tuple[Any, ...]]()
        for row in self.spark.table(f"{place}.orders__log").select("_change", "_sequence").collect():
            changes[row["_change"], tuple(row["_sequence"])] += 1
        found: dict[str, Any] = {
            "set aside": {one.table_name: one.state for one in statuses_of(self.spark, self.config)},
            "log": sum(changes.values()),
            "twice": sum(number > 1 for number in changes.values()),
            "events": self.images(),
            "tables": {},
        }
        for table in ("orders", "customers", "order_items"):
            current = self.spark.table(f"{place}.{table}__current")
            whole = self.spark.table(f"{place}.{table}")
            alive = whole.where("NOT _is_deleted") if "_is_deleted" in whole.columns else whole
            same = alive.select(current.columns)
            wrong = "_committed_at IS NULL OR unix_millis(_committed_at) <> shiftright(_sequence.commit_ts, 18)"
            found["tables"][table] = {
                "rows": current.count(),
                "own": [name for name in current.columns if name.startswith("_")],
                "differences": same.exceptAll(current).count() + current.exceptAll(same).count(),
                "wrong times": whole.where(wrong).count(),
            }
        versions = self.spark.table(f"{place}.orders__history")
        shown = self.spark.table(f"{place}.orders__current").drop("_committed_at")
        now = versions.where("_is_current").select(shown.columns)
        found["current versions that differ"] = now.exceptAll(shown).count() + shown.exceptAll(now).count()
        return found

    def images(self) -> int:
        """Return how many changes of orders there are in the topic."""
        events = [json.loads(message.value) for message in self.messages[ORDERS]]
        return sum(len(event["data"]) for event in events if event["type"] in ("INSERT", "UPDATE", "DELETE"))


if __name__ == "__main__":
    main(*sys.argv[1:])
