"""`python -m examples.local_kafka`: a broker until you press Ctrl-C, on request with messages of TiCDC.

With `-- COMMAND …` it runs until the command ends; `{}` in the command stands for the address of the broker.
"""

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence

from examples.data import PROTOCOLS, read_messages
from examples.local_kafka.broker import KafkaStartError, LocalKafka
from examples.local_kafka.cluster import LocalKafkaCluster
from examples.local_kafka.jars import KafkaSetupError
from examples.local_kafka.topics import create_topic, produce

TOPIC = "tidb-shop"


def fill(bootstrap: str, protocol: str) -> None:
    """Write the demo's messages to a new topic."""
    messages = read_messages(protocol)
    create_topic(bootstrap, TOPIC, 1 + max(message.partition for message in messages))
    produce(bootstrap, TOPIC, [(*message, [], None) for message in messages])
    print(f"topic {TOPIC}: {len(messages)} messages of {protocol}", file=sys.stderr, flush=True)


def run(bootstrap: str, command: Sequence[str]) -> int:
    """Run a command with the address of the broker, and return its exit code."""
    try:
        return subprocess.run([part.replace("{}", bootstrap) for part in command], check=False).returncode
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127


def main() -> int:
    """Start a broker, say where it is, and wait; or run a command with it."""
    parser = argparse.ArgumentParser(prog="python -m examples.local_kafka", description="Start a local Kafka broker.")
    parser.add_argument("--sasl", action="store_true", help="also listen with SASL (SCRAM-SHA-256 and PLAIN)")
    parser.add_argument("--brokers", type=int, default=1, help="how many brokers (default: %(default)s)")
    parser.add_argument("--heap", default="512m", help="the maximum size of Java's heap (default: %(default)s)")
    parser.add_argument("--fill", choices=PROTOCOLS, help=f"write the demo's messages to the topic {TOPIC}")
    parser.add_argument(
        "command", nargs="*", metavar="COMMAND", help="after --: run it, and stop; {} in it is the broker's address"
    )
    arguments = parser.parse_args()
    if arguments.brokers > 1 and arguments.sasl:
        parser.error("--sasl is for a single broker")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        several = arguments.brokers > 1
        with (
            LocalKafkaCluster(arguments.brokers, heap=arguments.heap)
            if several
            else LocalKafka(sasl=arguments.sasl, heap=arguments.heap)
        ) as kafka:
            print(kafka.bootstrap_servers, file=sys.stderr if arguments.command else sys.stdout, flush=True)
            if isinstance(kafka, LocalKafka) and kafka.sasl_bootstrap_servers:
                print(f"SASL: {kafka.sasl_bootstrap_servers} user {kafka.user} password {kafka.password}", flush=True)
            if arguments.fill:
                fill(kafka.bootstrap_servers, arguments.fill)
            if arguments.command:
                return run(kafka.bootstrap_servers, arguments.command)
            print("Ctrl-C stops it", file=sys.stderr, flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except (KafkaSetupError, KafkaStartError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
