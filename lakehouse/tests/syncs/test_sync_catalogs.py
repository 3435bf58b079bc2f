"""`ticdc-lakehouse sync` into a catalog of Iceberg: a JDBC catalog in SQLite."""

import json
from pathlib import Path

import pytest

from examples.local_kafka import produce
from lakehouse.tests.engines import engines
from lakehouse.tests.syncs.test_sync_database import LOG, SECONDS, SEED, TABLES, Sync, differences, rows_in
from lakehouse.tests.targets.feed import DatabaseFeed
from tests.fixtures import Kafka
from tests.spark.conftest import MakeTopic
from tests.support.messages import TSO, canal
from ticdc_source.schema.table_name import TableName

TRANSACTIONS = 150
TOKEN = "tok-en-of-the-catalog"
HOSTILE = [
    TableName("sh op", "my-table"), TableName("shop", "../../esc"), TableName("shop", "2024"),
    TableName("42", "a.b"), TableName("shop", "é`😀"), TableName("../up", "select"),
    TableName("${env:HOME}", "${spark.app.name}"), TableName("shop", "${env:PATH:-x}"),
]  # fmt: skip
CONFIG = """
checkpoint = "{folder}/checkpoint"

[source]
subscribe = "{topic}"
"kafka.bootstrap.servers" = "{servers}"
protocol = "canal-json"

[target]
format = "iceberg"
catalog = "lake.raw"

[spark]
"spark.sql.catalog.lake" = "org.apache.iceberg.spark.SparkCatalog"
"spark.sql.catalog.lake.type" = "jdbc"
"spark.sql.catalog.lake.uri" = "jdbc:sqlite:{folder}/warehouse/catalog.db"
"spark.sql.catalog.lake.jdbc.schema-version" = "V1"
"spark.sql.catalog.lake.token" = {{ env = "CATALOG_TOKEN" }}
"spark.sql.catalog.lake.warehouse" = "{folder}/warehouse"
"""

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.versions,
    pytest.mark.xdist_group("engines"),
    pytest.mark.timeout(1800),
]


@pytest.mark.long("a JVM for each run of the command")
def test_a_catalog_keeps_the_tables(broker: Kafka, topic: MakeTopic, tmp_path: Path) -> None:
    """The sync creates namespaces, hostile names too; the rows are TiDB's, a second run finds nothing new."""
    feed = DatabaseFeed(SEED, "canal-json")
    feed.run(TRANSACTIONS)
    sync = Sync(broker, topic(len(feed.records)), feed, "canal-json", tmp_path, "iceberg", "latest")
    sync.more_jars, sync.environment = engines.sqlite(), {"CATALOG_TOKEN": TOKEN}
    sync.write([1.0] * len(feed.records))
    types = {"id": "int", "v": "varchar(20)"}
    rows = [
        canal("INSERT", [{"id": str(number), "v": table.table}], None, types,
              database=table.database, table=table.table, _tidb={"commitTs": TSO + number})
        for number, table in enumerate(HOSTILE)
    ]  # fmt: skip
    produce(broker.bootstrap_servers, sync.topic, [(0, *message, [], None) for message in rows])
    (tmp_path / "warehouse").mkdir()
    sync.config.write_text(CONFIG.format(folder=tmp_path, topic=sync.topic, servers=sync.servers))
    try:
        first = sync.start()
        assert first.end(SECONDS) == 0, first.log
        assert TOKEN not in first.log
        again = sync.start("--json")
        assert again.end(SECONDS) == 0, again.log
        status = sync.start("--status", "--json")
        assert status.end(SECONDS) == 0, status.log
        versions = sync.versions([*TABLES, LOG, *map(str, HOSTILE)], all_versions=False)
    finally:
        sync.kill_all()
    changed = [json.loads(line)["changed"] for line in again.log.splitlines() if line.startswith("{")]
    assert not any(changed), changed
    report, _ = json.JSONDecoder().raw_decode(status.log, f"\n{status.log}".index("\n[\n"))
    targets = {each["table_name"]: each["target"] for each in report}
    assert len(targets) == len(TABLES) + 1 + len(HOSTILE)
    assert all(target.startswith("lake.raw.") for target in targets.values()), targets
    for table in [*TABLES, LOG]:
        stored = rows_in(versions[table][-1]["file"])
        wrong = list(differences(feed, table, stored, feed.truth.at()))
        assert not wrong, f"{table}: {len(wrong)} differences, {wrong[:5]}"
        print(table, len(stored), "rows")  # noqa: T201 (what was compared)
    for number, name in enumerate(HOSTILE):
        stored = rows_in(versions[str(name)][-1]["file"])
        assert [(row["id"], row["v"]) for row in stored] == [(number, name.table)], name
    outside = {path.name for path in tmp_path.iterdir()} - {"warehouse", "checkpoint", "versions", "sync.toml"}
    assert not {name for name in outside if "esc" in name or "up" in name}, outside
