"""`python -m examples.tour`: read a topic with Spark, and write build/tour/index.html with pictures of it.

Without a topic, it starts a broker and fills one with the demo's messages, in canal-json.
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.data import Message, read_messages
from examples.local_kafka import KafkaSetupError, KafkaStartError, Record, connect, create_topic, delete_topic, produce

PROTOCOL = "canal-json"
TABLE = "shop.orders"
ROW = "order_id = 1000656"  # of the demo: an order that is paid, sent, done, and deleted
COLUMNS = ("order_id", "status", "total", "currency")
REPLAYED = (
    "These messages were recorded without the times at which they came to Kafka. So the tour writes each message with "
    "the earliest time at which TiCDC can have sent it: the newest commit or watermark before it in the stream. The "
    "delays here are therefore lower bounds."
)
ENCODED = (
    " The time that TiCDC itself puts into a message (_build_ts) does not help: these messages were encoded at least "
    "{days:.0f} days after the commits."
)


def records(messages: list[Message]) -> list[Record]:
    """Give each message the earliest time at which TiCDC can have sent it."""
    found: list[Record] = []
    clock = 0
    for message in messages:
        clock = max(clock, json.loads(message.value or b"{}").get("es", 0))  # of a row, a DDL or a watermark
        found.append((*message, [], clock))
    return found


@contextmanager
def replayed() -> Iterator[tuple[str, str]]:
    """Yield the address of a broker and a topic with the demo's messages; delete it if the broker keeps running."""
    messages = read_messages(PROTOCOL)
    topic = f"ticdc-tour-{uuid.uuid4().hex[:8]}"
    with connect() as kafka:
        # The times are long ago: Kafka must not delete the messages for that.
        partitions = 1 + max(message.partition for message in messages)
        create_topic(kafka.bootstrap_servers, topic, partitions, {"retention.ms": -1})
        try:
            produce(kafka.bootstrap_servers, topic, records(messages))
            yield kafka.bootstrap_servers, topic
        finally:
            if not kafka.owned:
                delete_topic(kafka.bootstrap_servers, topic)


@contextmanager
def existing(kafka: str, topic: str) -> Iterator[tuple[str, str]]:
    """Yield a topic that is there."""
    yield kafka, topic


def main() -> int:
    """Run the tour."""
    parser = argparse.ArgumentParser(prog="python -m examples.tour", description=__doc__)
    parser.add_argument("--bootstrap-servers", help="brokers with a topic of your own, as HOST:PORT")
    parser.add_argument("--subscribe", dest="topic", metavar="TOPIC", help="the topic there")
    parser.add_argument("--table", default=TABLE, help="the table to look at more closely (default: %(default)s)")
    parser.add_argument("--where", help="which row of it, as SQL (default: the one that changed most often)")
    parser.add_argument("--output", type=Path, default=Path("build/tour"), help="folder (default: %(default)s)")
    parser.add_argument("--images", type=Path, help="folder for the pictures as files, such as docs/images/tour")
    arguments = parser.parse_args()
    if (arguments.bootstrap_servers is None) != (arguments.topic is None):
        parser.error("--bootstrap-servers and --subscribe go together")
    try:
        from examples.tour.pictures import draw  # noqa: PLC0415 (matplotlib is in the dependency group `tour`)
    except ImportError as error:
        print(f"{error}: pip install --group tour, in the clone (pip 25.1 or newer)", file=sys.stderr)
        return 2
    # They take seconds.
    from examples.demo.session import SparkStartError, spark_session  # noqa: PLC0415
    from examples.tour.page import page  # noqa: PLC0415
    from examples.tour.queries import answers  # noqa: PLC0415

    own = arguments.topic is not None
    where = arguments.where or (None if own or arguments.table != TABLE else ROW)
    place = existing(arguments.bootstrap_servers, arguments.topic) if own else replayed()
    try:
        with tempfile.TemporaryDirectory(prefix="ticdc-tour-", ignore_cleanup_errors=True) as folder:
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            with place as (kafka, topic), spark_session(Path(folder)) as spark:
                found = answers(spark, kafka, topic, arguments.table, where)
    except (KafkaSetupError, KafkaStartError, SparkStartError) as error:
        print(f"The tour cannot run: {error}", file=sys.stderr)
        return 2
    pictures = draw(found, COLUMNS if where == ROW else ())
    note = "" if own else REPLAYED + (ENCODED.format(days=found.build_days) if found.build_days else "")
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "index.html").write_text(page(found, pictures, note), encoding="utf-8")
    facts = json.dumps(dataclasses.asdict(found), default=str, indent=1)
    (arguments.output / "answers.json").write_text(facts + "\n", encoding="utf-8")
    if arguments.images:
        arguments.images.mkdir(parents=True, exist_ok=True)
        for name, svg in pictures.items():
            (arguments.images / f"{name}.svg").write_text(svg, encoding="utf-8")
    print(arguments.output / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
