"""`python -m examples.demo`: replay TiCDC's messages into Kafka, and rebuild SQL's tables with Spark."""

import argparse
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from examples.data import PROTOCOLS, TRUTH, Message, TableTruth, read_messages, read_truth
from examples.demo.added_columns import added_columns
from examples.demo.pipeline import current_rows, read_changes
from examples.demo.screen import Screen
from examples.demo.session import SparkStartError, spark_session
from examples.demo.story import WIRE, Verdict, show_table
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
from examples.local_kafka.jars import find_java

PARTITIONS = 3

INTRODUCTION = """\
TiCDC, TiDB's change feed, wrote these messages: the same transactions of a web shop, in three protocols. The
demo replays them into Kafka, reads them with Spark, rebuilds the shop's tables from the changes, and compares
every column of every row with the result of SQL."""


def main() -> int:
    """Run the demo; return 0 if everything is equal, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--protocol", choices=PROTOCOLS, help="only this one (default: all)")
    parser.add_argument("--truth", type=Path, default=TRUTH, help="what to compare with (default: the bundled truth)")
    arguments = parser.parse_args()
    if not arguments.truth.is_file():
        parser.error(f"there is no file {arguments.truth}")
    protocols = [arguments.protocol] if arguments.protocol else list(PROTOCOLS)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        require_java()
        with ExitStack() as stack:
            try:
                return run(protocols, read_truth(arguments.truth), stack)
            finally:  # a second Ctrl-C must not stop the stack from cleaning up
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)
    except (KafkaSetupError, KafkaStartError, SparkStartError) as error:
        print(f"The demo cannot run: {error}", file=sys.stderr)
        return 2
    except BaseException as error:
        if not interrupted(error):
            raise
        print("stopped", file=sys.stderr)
        return 130


def interrupted(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error: PySpark may raise another one while it stops."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def require_java() -> None:
    """Fail at once if there is no Java: Kafka and Spark both need it."""
    java = Path(find_java())
    home = os.environ.get("JAVA_HOME")
    if home and not java.is_relative_to(home):  # it holds no Java, but Spark would insist on it
        del os.environ["JAVA_HOME"]


def run(protocols: Sequence[str], truths: Mapping[str, TableTruth], stack: ExitStack) -> int:
    """Start what is needed, leave it to the stack to stop, and run the demo for each protocol."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ticdc-demo-", ignore_cleanup_errors=True))
    os.environ["TMPDIR"] = tempfile.tempdir = folder  # files that Kafka and Spark write are deleted with it
    with Screen(steps=3 + len(protocols) * len(truths)) as screen:
        screen.title("TiDB → TiCDC → Kafka → Spark")
        screen.say(INTRODUCTION)
        with screen.step("Starting Kafka"):
            kafka = stack.enter_context(connect())
        with screen.step("Replaying the messages into Kafka"):
            streams = {protocol: read_messages(protocol) for protocol in protocols}
            topics = stack.enter_context(replayed(streams, kafka))
        with screen.step("Starting Spark"):
            spark = stack.enter_context(spark_session(Path(folder)))

        screen.title("The code")
        screen.say("This reads a table's changes. It finds protocol, columns and types in the messages:")
        screen.code(read_changes)
        screen.say("This rebuilds the table from them:")
        screen.code(current_rows)

        verdicts: dict[str, list[Verdict]] = {}
        for protocol, messages in streams.items():
            screen.title(protocol)
            screen.say(f"{len(messages):,} messages. {WIRE[protocol]}")
            added = added_columns(protocol, messages)
            verdicts[protocol] = []
            for table, truth in truths.items():
                with screen.step(f"Reading {table} from {protocol}"):
                    changes = read_changes(spark, kafka.bootstrap_servers, topics[protocol], table)
                    verdicts[protocol].append(show_table(screen, changes, truth, added))
        return conclude(screen, verdicts)


def conclude(screen: Screen, verdicts: Mapping[str, Sequence[Verdict]]) -> int:
    """Print the result; return the exit code."""
    screen.title("Spark's tables compared with SQL's")
    for protocol, tables in verdicts.items():
        rows, equal = sum(table.rows for table in tables), sum(table.equal for table in tables)
        screen.line(f"{protocol:<14} {rows:,} rows compared, {equal:,} rows equal")
    good = all(table.good for tables in verdicts.values() for table in tables)
    screen.line(
        f"{'[green]Everything is equal' if good else '[bold red]Not everything is equal'}[/], {screen.seconds:.0f} s"
    )
    return 0 if good else 1


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


if __name__ == "__main__":
    sys.exit(main())
