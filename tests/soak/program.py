"""The Spark program of a soak run: `python -m tests.soak.program queries.json`, until its input is closed.

It does what a user does about a stream that has ended: it starts it again from its checkpoint. It prints JSON lines:
`{"ended": folder, "error": text}` for a stream that has ended, and `{"heap": bytes}` after each full collection, for
which it asks the JVM.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.restarts import STARTED, Query, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIGGER = "2 seconds"
# A heap that never grows: what grows then is outside of it, or is what collections leave.
JAVA = "-Xms512m -XX:+AlwaysPreTouch -XX:+UseSerialGC"
COLLECT = 20.0  # seconds between two full collections; one takes a fifth of a second
PATIENCE = 30.0  # seconds
TASK_TRIES = 4  # as on a cluster: a task whose worker was killed runs again


def say(**what: Any) -> None:
    """Print a JSON line."""
    print(json.dumps({"at": time.time(), **what}), flush=True)  # noqa: T201 (to the parent)


def started(spark: "SparkSession", query: Query) -> "StreamingQuery | None":
    """Start a query, or say why not; return when it plans micro-batches, because several that start take long."""
    try:
        current = query.start(spark, processingTime=TRIGGER)
        deadline = time.monotonic() + PATIENCE
        while current.isActive and not current.recentProgress and time.monotonic() < deadline:
            time.sleep(0.1)
    except Exception as error:  # noqa: BLE001 (whatever it is, the parent judges it)
        say(ended=query.folder, error=f"not started: {error}")
        return None
    return current


def main(path: str) -> None:
    """Run the queries of a file until the input is closed."""
    spark = session(f"local[2,{TASK_TRIES}]", JAVA)
    java = spark._jvm.java.lang  # type: ignore[union-attr]
    memory, collected = java.management.ManagementFactory.getMemoryMXBean(), time.monotonic()
    queries = [Query(**entry) for entry in json.loads(Path(path).read_text())]
    running = {query.folder: started(spark, query) for query in queries}
    print(STARTED, flush=True)  # noqa: T201 (to the parent)
    closed = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        closed.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    while not closed.wait(1.0):
        if time.monotonic() - collected > COLLECT:
            collected = time.monotonic()
            memory.gc()
            say(heap=memory.getHeapMemoryUsage().getUsed())
        for query in queries:
            current = running[query.folder]
            if current is not None and current.isActive:
                continue
            if current is not None:
                say(ended=query.folder, error=str(current.exception()))
            running[query.folder] = started(spark, query)
    for current in running.values():
        if current is not None:
            current.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
