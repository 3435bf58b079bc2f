"""What analysts choose, with a real engine, a broker and a catalog with views; needs no pytest.

    python -m lakehouse.tests.syncs.analysts_scenario delta|iceberg FOLDER BROKER

It prints one line of JSON.
"""

import json
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from examples.data import read_messages
from examples.local_kafka import create_topic, produce
from lakehouse.tests.engines.engines import ENGINES, sqlite
from ticdc_lakehouse import SyncConfig, TableConfig, sync
from ticdc_source.errors import OptionError

NEWEST = {"delta": "delta-4.4", "iceberg": "iceberg-1.12"}
ORDERS, CUSTOMERS, ITEMS = "shop.orders", "shop.customers", "shop.order_items"
SECONDS = 600
MESSAGES = 300  # of each table


def main(engine: str, folder: str, servers: str) -> None:
    with ENGINES[NEWEST[engine]].session(Path(folder), sqlite() if engine == "iceberg" else ()) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        for name, value in catalog_settings(engine, folder).items():
            spark.conf.set(name, value)
        example = Example(spark, engine, folder, servers)
        found = {"refused": example.refused(), "set aside": example.run(), **example.tables()}
        sys.stdout.write(f"{json.dumps(found, default=str)}\n")


def catalog_settings(engine: str, folder: str) -> dict[str, str]:
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
            source={"kafka.bootstrap.servers": servers, "subscribePattern": f"{self.prefix}-.*", "timeZone": "UTC"},
            format="delta" if engine == "delta" else "iceberg",
            catalog="spark_catalog" if engine == "delta" else "views",
            checkpoint=f"{folder}/checkpoint",
            commit_time=True,
            time_as="text",
            views=True,
            table_configs={ORDERS: TableConfig(history=True), CUSTOMERS: TableConfig(deletes="hard")},
        )
        self.messages: dict[str, list[Any]] = {table: [] for table in (ORDERS, CUSTOMERS, ITEMS)}
        for message in read_messages("canal-json"):
            event = json.loads(message.value or b"{}")
            name = f"{event.get('database')}.{event.get('table')}"
            if name in self.messages and len(self.messages[name]) < MESSAGES:
                self.messages[name].append(message)

    def refused(self) -> str:
        if self.config.format == "delta":
            return ""
        try:
            sync(self.spark, replace(self.config, catalog="lake"))
        except OptionError as error:
            return str(error)
        return "nothing"

    def run(self) -> dict[str, str]:
        for table, messages in self.messages.items():
            topic = f"{self.prefix}-{table}"
            create_topic(self.servers, topic, 3)
            produce(self.servers, topic, [(one.partition, one.key, one.value, [], None) for one in messages])
        return sync(self.spark, self.config).set_aside

    def tables(self) -> dict[str, Any]:
        place = "spark_catalog.shop" if self.config.format == "delta" else "views.shop"
        changes = Counter[tuple[Any, ...]]()
        for row in self.spark.table(f"{place}.orders__log").select("_change", "_sequence").collect():
            changes[row["_change"], tuple(row["_sequence"])] += 1
        found: dict[str, Any] = {
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
        events = [json.loads(message.value) for message in self.messages[ORDERS]]
        return sum(len(event["data"]) for event in events if event["type"] in ("INSERT", "UPDATE", "DELETE"))


if __name__ == "__main__":
    main(*sys.argv[1:])
