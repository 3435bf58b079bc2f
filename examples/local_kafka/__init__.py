"""A real Apache Kafka on this machine, for the demo, the tests and the benchmarks.

Needs Java 17 or newer, and Apache Maven the first time. `python -m examples.local_kafka` starts one by hand.
"""

from examples.local_kafka.broker import ExternalKafka, KafkaStartError, LocalKafka, connect
from examples.local_kafka.cluster import LocalKafkaCluster
from examples.local_kafka.jars import KafkaSetupError
from examples.local_kafka.oldest import OldestKafka
from examples.local_kafka.topics import Record, create_topic, delete_topic, produce

__all__ = [
    "ExternalKafka",
    "KafkaSetupError",
    "KafkaStartError",
    "LocalKafka",
    "LocalKafkaCluster",
    "OldestKafka",
    "Record",
    "connect",
    "create_topic",
    "delete_topic",
    "produce",
]
