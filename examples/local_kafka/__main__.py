"""`python -m examples.local_kafka`: a broker for as long as you do not press Ctrl-C."""

import argparse
import signal
import sys

from examples.local_kafka.broker import KafkaStartError, LocalKafka
from examples.local_kafka.jars import KafkaSetupError


def main() -> int:
    """Start a broker, say where it is, and wait."""
    parser = argparse.ArgumentParser(prog="python -m examples.local_kafka", description="Start a local Kafka broker.")
    parser.add_argument("--sasl", action="store_true", help="also listen with SASL (SCRAM-SHA-256 and PLAIN)")
    parser.add_argument("--heap", default="512m", help="the most memory for Java's heap (default: %(default)s)")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with LocalKafka(sasl=arguments.sasl, heap=arguments.heap) as kafka:
            print(kafka.bootstrap_servers, flush=True)
            if arguments.sasl:
                print(
                    f"SASL: {kafka.sasl_bootstrap_servers} user {kafka.user} password {kafka.password}",
                    flush=True,
                )
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
