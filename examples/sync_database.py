"""Keep all tables of a topic in Delta or Iceberg, equal to TiDB's.

    python -m examples.sync_database --bootstrap localhost:9092 --topic tidb-shop \
        --target delta --output /data/lake --checkpoint /data/checkpoints/shop

Each run applies the changes since the last one and ends; with --continuous it goes on. Stop it, or kill it, whenever
you like, and start it again with the same folders. A table that is new in TiDB is new in the lake with its first row.
"""

import argparse
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from examples.lakehouse import lakehouse_session, table_in
from ticdc_source import SyncState, tables
from ticdc_source.lakehouse import append_log, merge_into

parser = argparse.ArgumentParser(prog="python -m examples.sync_database")
parser.add_argument("--bootstrap", required=True, help="Kafka's address, host:port")
topics = parser.add_mutually_exclusive_group(required=True)
topics.add_argument("--topic", help="the topic that TiCDC writes to; several are separated by commas")
topics.add_argument("--topic-pattern", help="a regular expression of topics, such as those of a topic per table")
parser.add_argument("--target", required=True, choices=("delta", "iceberg"), help="the format of the tables")
parser.add_argument("--output", required=True, help="folder of the tables")
parser.add_argument("--checkpoint", required=True, help="folder where the stream stores its progress")
parser.add_argument("--continuous", action="store_true", help="go on for ever")
parser.add_argument("--time-zone", default="UTC", help="the TiCDC server's --tz")
parser.add_argument("--mode", choices=("latest", "resolved"), default="latest", help="see docs/guides/lakehouse.md")
parser.add_argument(
    "--option", action="append", default=[], help="an option of the source, such as kafka.security.protocol=SSL"
)


def time_of(commit_ts: int | None) -> str:
    """Return when a commit-ts was."""
    return "?" if commit_ts is None else f"{datetime.fromtimestamp((commit_ts >> 18) / 1000, timezone.utc):%F %T} UTC"


def absolute(folder: str) -> str:
    """Return a folder as Spark needs it: a URL as it is, a local path from the root on."""
    return folder if "://" in folder else str(Path(folder).resolve())


def main() -> None:
    """Apply the changes."""
    arguments = parser.parse_args()
    output, checkpoint = absolute(arguments.output), absolute(arguments.checkpoint)
    chosen = arguments.topic or arguments.topic_pattern
    spark = lakehouse_session(arguments.target, output, f"sync {chosen}")

    # One stream, of records that are not decoded yet: they may belong to any table.
    records = (
        spark.readStream.format("ticdc")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe" if arguments.topic else "subscribePattern", chosen)
        .option("startingOffsets", "earliest")
        .option("outputFormat", "record")
        .options(**dict(option.split("=", 1) for option in arguments.option))
        .load()
    )
    zone = arguments.time_zone
    state = SyncState(f"{checkpoint}/state")

    def apply(batch: DataFrame, batch_id: int) -> None:
        """Apply a micro-batch. Spark repeats the one in which it was killed; what is done already is not done again."""
        began = time.monotonic()
        writer = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")  # kept in the checkpoint
        changes = tables(batch, state=state, batch_id=batch_id, consistency=arguments.mode, timeZone=zone)
        for name, frame in changes.items():
            for event in changes.ddl.get(name, ()):
                print(f"  {name}: {event.query}", flush=True)
            common: dict[str, Any] = {"format": arguments.target, "app_id": writer, "batch_id": batch_id}
            common |= {"resolved_ts": changes.resolved_ts, "ddl": changes.ddl.get(name, ())}
            has_key = any(field.metadata.get("ticdc.key") for field in frame.schema)
            # Without a key nothing says which row changes, so the table is a log. (DDL alone comes without columns.)
            log = None if has_key else append_log(frame, place(f"{name}__log"), **common)
            if log is None or log.missing:
                report = merge_into(frame, place(name), on_destructive_ddl="apply", time_zone=zone, **common)
                print(f"  {name}: {report.images:,} rows{', created' if report.created else ''}", flush=True)
            else:
                print(f"  {name}: has no key; its changes are appended to {name}__log", flush=True)
        print(f"micro-batch {batch_id}: {len(changes)} tables, complete up to {time_of(changes.resolved_ts)}, "
              f"{time.monotonic() - began:.1f} s", flush=True)  # fmt: skip

    def place(table: str) -> str:
        return table_in(arguments.target, output, table)

    trigger = {"processingTime": "10 seconds"} if arguments.continuous else {"availableNow": True}
    query = (
        records.writeStream.foreachBatch(apply).option("checkpointLocation", f"{checkpoint}/stream").trigger(**trigger)
    )
    print(f"reading {chosen}", flush=True)
    query.start().awaitTermination()
    print("done; run it again for what is new", flush=True)


if __name__ == "__main__":
    main()
