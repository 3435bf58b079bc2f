"""`ticdc-lakehouse sync` with Delta, where the tables and the checkpoint are in an S3-compatible store."""

from pathlib import Path
from urllib.parse import parse_qs

import pytest
from pyarrow import fs

from examples.local_kafka.jars import Release, kafka_jars
from lakehouse.tests.engines import engines
from lakehouse.tests.syncs.test_sync_database import LOG, SECONDS, SEED, TABLES, Sync, differences, rows_in
from lakehouse.tests.targets.feed import DATABASE, KEYED, DatabaseFeed
from tests.fixtures import Kafka
from tests.spark.conftest import MakeTopic
from tests.support.s3 import s3_server

TRANSACTIONS = 150
BUCKET = "lake"
KEY, SECRET = "key-of-the-store", "sec-ret-of-the-store"
CONFIG = """
checkpoint = "s3a://{bucket}/checkpoint"

[source]
subscribe = "{topic}"
"kafka.bootstrap.servers" = "{servers}"
protocol = "canal-json"

[target]
format = "delta"
path = "s3a://{bucket}/tables"

[spark]
"spark.hadoop.fs.s3a.access.key" = {{ env = "STORE_KEY" }}
"spark.hadoop.fs.s3a.secret.key" = {{ env = "STORE_SECRET" }}
"spark.hadoop.fs.s3a.endpoint" = "{endpoint}"
"spark.hadoop.fs.s3a.endpoint.region" = "us-east-1"
"spark.hadoop.fs.s3a.path.style.access" = "true"
"""


def hadoop_aws() -> list[Path]:
    pom = Path(engines.__file__).with_name("s3-pom.xml")
    return sorted(kafka_jars(Release("hadoop-3.5.0", pom, "S3")).glob("*.jar"))


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.xdist_group("engines")
@pytest.mark.long("a JVM for each run of the command, and a store in Python")
@pytest.mark.timeout(1800)
def test_tables_and_checkpoint_in_s3(broker: Kafka, topic: MakeTopic, tmp_path: Path) -> None:
    """A table is set aside and resumed, the rows are TiDB's, and the credentials are in no log and no file."""
    feed = DatabaseFeed(SEED, "canal-json")
    feed.run(TRANSACTIONS)
    sync = Sync(broker, topic(len(feed.records)), feed, "canal-json", tmp_path, "delta", "latest")
    sync.more_jars, sync.environment = hadoop_aws(), {"STORE_KEY": KEY, "STORE_SECRET": SECRET}
    aside = f"{DATABASE}.{KEYED[0]}"
    obstacle = f"{BUCKET}/tables/{DATABASE}/{KEYED[0]}/part-0.parquet"
    try:
        with s3_server(BUCKET) as query:
            store, _ = fs.FileSystem.from_uri(f"s3://key:secret@{BUCKET}?{query}")
            with store.open_output_stream(obstacle) as file:
                file.write(b"no table of Delta")
            endpoint = parse_qs(query)["endpoint_override"][0]
            names = {"bucket": BUCKET, "topic": sync.topic, "servers": sync.servers, "endpoint": endpoint}
            sync.config.write_text(CONFIG.format(**names))

            sync.write([0.5] * len(feed.records))
            first = sync.start()
            assert first.end(SECONDS) == 1, first.log
            assert f"{aside} is set aside: " in first.log
            sync.write([1.0] * len(feed.records))
            store.delete_file(obstacle)
            resumed = sync.start(f"--resume={aside}")
            assert resumed.end(SECONDS) == 0, resumed.log
            status = sync.start("--status", "--json")
            assert status.end(SECONDS) == 0, status.log
            versions = sync.versions([*TABLES, LOG], all_versions=False)
            files = store.get_file_info(fs.FileSelector(BUCKET, recursive=True))
            folders = {"/".join(one.path.split("/")[1:3]) for one in files}
            assert {"checkpoint/stream", "checkpoint/state", "checkpoint/aside", "tables/_ticdc_sync"} <= folders, (
                folders
            )
            logs = [first.log, resumed.log, status.log]
            texts = [store.open_input_stream(one.path).read().decode("latin-1") for one in files if one.is_file]
            assert not [text for text in [*logs, *texts] if SECRET in text or KEY in text]
    finally:
        sync.kill_all()
    assert '"state": "following"' in status.log
    for table in [*TABLES, LOG]:
        stored = rows_in(versions[table][-1]["file"])
        wrong = list(differences(feed, table, stored, feed.truth.at()))
        assert not wrong, f"{table}: {len(wrong)} differences, {wrong[:5]}"
        print("s3", table, len(stored), "rows")  # noqa: T201 (what was compared)
