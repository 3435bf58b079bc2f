"""The demo's sequence: Kafka and Spark start side by side, then each protocol's tables are read and shown."""

import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.markup import escape

from examples.data import Message, TableTruth, read_messages, read_truth
from examples.demo.added_columns import added_columns
from examples.demo.pipeline import current_rows, read_changes
from examples.demo.screen import Screen
from examples.demo.session import SparkStartError, spark_session
from examples.demo.story import Source, TableRead, show_chart, show_differences, show_protocol, show_table
from examples.local_kafka import (
    ExternalKafka,
    KafkaSetupError,
    KafkaStartError,
    LocalKafka,
    Record,
    connect,
    create_topic,
    delete_topic,
    produce,
)
from examples.local_kafka.__main__ import TOPIC
from examples.local_kafka.jars import find_java
from ticdc_source.kernels.native import why_general

PARTITIONS = 3
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # the demo ends before an optimising compiler would pay
FAILURES = (KafkaSetupError, KafkaStartError, SparkStartError)


def run(screen: Screen, protocols: Sequence[str], truth: Path, stack: ExitStack) -> int:
    """Start what is needed, leave it to the stack to stop, and run the demo for each protocol."""
    _require_java()
    truths = read_truth(truth)
    screen.expect(4 + len(protocols) * (1 + len(truths)))  # calls of `part` and `step`
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ticdc-demo-", ignore_cleanup_errors=True))
    os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JAVA)
    os.environ["TMPDIR"] = tempfile.tempdir = folder  # files that Kafka and Spark write are deleted with it
    kafka_stack = stack.enter_context(ExitStack())
    with ThreadPoolExecutor(1, "kafka") as pool:  # its end waits for the thread, also after Ctrl-C
        filled = pool.submit(_fill_kafka, screen, protocols, kafka_stack)
        with screen.part("starting Spark"):
            spark = stack.enter_context(spark_session(Path(folder)))
        bootstrap, streams, topics = filled.result()

    screen.title("The code")
    screen.say("This reads a table's changes. It finds protocol, columns and types in the messages:")
    screen.code(read_changes)
    screen.say("This rebuilds the table from them:")
    screen.code(current_rows)
    screen.say(about_the_path(why_general("auto")))

    reads: dict[str, list[TableRead]] = {}
    for protocol in protocols:
        screen.title(protocol)
        screen.say(f"{len(streams[protocol]):,} messages")
        added = added_columns(protocol, streams[protocol])
        reads[protocol] = []
        source = Source(spark, bootstrap, topics[protocol], added)
        with screen.part(f"reading {protocol}"):
            for read in _read_tables(screen, source.read_table, truths):
                reads[protocol].append(read)
                if protocol == protocols[0]:  # the other protocols have the same columns
                    show_table(screen, read)
                show_differences(screen, read)
        show_protocol(screen, protocol, reads[protocol])
    show_chart(screen, protocols[0], reads[protocols[0]])
    return conclude(screen, reads)


def conclude(screen: Screen, reads: Mapping[str, Sequence[TableRead]]) -> int:
    """Print where the time went, and the result; return the exit code."""
    screen.title("Seconds")
    screen.parts()
    screen.title("Spark's tables compared with SQL's")
    for protocol, tables in reads.items():
        rows, equal = sum(read.comparison.rows for read in tables), sum(read.comparison.equal for read in tables)
        screen.line(f"{protocol:<14} {rows:,} rows compared, {equal:,} rows equal")
    good = all(read.good for tables in reads.values() for read in tables)
    result = "[green]Everything is equal" if good else "[bold red]Not everything is equal"
    screen.line(f"{result}[/], {screen.seconds:.0f} s")
    screen.title("What to try next")
    python = Path(sys.executable)
    tools = python.parent.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else python.parent
    screen.line("Start a broker that keeps the messages. It prints its address and runs until Ctrl-C:")
    screen.line(f"  {tools / python.name} -m examples.local_kafka --fill {protocol_to_fill(reads)}")
    screen.line("In another terminal, see what is in the topic:")
    screen.line(f"  {tools / 'ticdc-source'} inspect --bootstrap-servers ADDRESS --subscribe {TOPIC}")
    return 0 if good else 1


def protocol_to_fill(protocols: Collection[str]) -> str:
    """Return the protocol of the broker to try next: README's, unless the demo was asked for others only."""
    return "canal-json" if "canal-json" in protocols else next(iter(protocols))


def about_the_path(reason: str | None) -> str:
    """Say which path reads take; `reason` is why not the native one."""
    if reason is None:
        return "Reads take the native path."
    return (
        "Reads take the general path, which is slower and returns the same rows. The native path is not there: "
        f"{escape(reason)}. `make native` builds it if there is cargo (Rust)."
    )


def _require_java() -> None:
    """Fail at once if there is no Java: Kafka and Spark both need it."""
    java = Path(find_java())
    home = os.environ.get("JAVA_HOME")
    if home and not java.is_relative_to(home):  # it holds no Java, but Spark would insist on it
        del os.environ["JAVA_HOME"]


def _fill_kafka(
    screen: Screen, protocols: Sequence[str], stack: ExitStack
) -> tuple[str, dict[str, list[Message]], dict[str, str]]:
    """Start a broker and replay the messages; return its address, and messages and topic of each protocol."""
    with screen.part("starting Kafka"):
        kafka = stack.enter_context(connect())
    with screen.part("replaying the messages into Kafka"):
        streams = {protocol: read_messages(protocol) for protocol in protocols}
        topics = stack.enter_context(replayed(streams, kafka))
    return kafka.bootstrap_servers, streams, topics


def _read_tables(
    screen: Screen, read: Callable[[TableTruth], TableRead], truths: Mapping[str, TableTruth]
) -> Iterator[TableRead]:
    """Read two tables at a time, and yield them in order: one alone leaves a core idle while Spark plans it."""
    with ThreadPoolExecutor(2, "table") as pool:
        tasks = [pool.submit(read, truth) for truth in truths.values()]
        try:
            for truth, task in zip(truths.values(), tasks, strict=True):
                with screen.step(f"Reading {truth.table}"):
                    result = task.result()
                yield result
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def replayed(streams: Mapping[str, list[Message]], kafka: LocalKafka | ExternalKafka) -> Iterator[dict[str, str]]:
    """Yield the topic of each protocol, filled with its messages; delete the topics if the broker keeps running."""
    run_id = uuid.uuid4().hex[:8]
    topics = {protocol: f"ticdc-demo-{run_id}-{protocol}" for protocol in streams}
    try:
        for protocol, messages in streams.items():
            create_topic(kafka.bootstrap_servers, topics[protocol], PARTITIONS)
            records: list[Record] = [(*message, [], None) for message in messages]
            produce(kafka.bootstrap_servers, topics[protocol], records)
        yield topics
    finally:
        if not kafka.owned:
            for topic in topics.values():
                delete_topic(kafka.bootstrap_servers, topic)
