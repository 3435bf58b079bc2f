"""Kafka: partitions, offset look-ups, and ranges → chunks. The only package that imports kafka-python."""

from ticdc_source.kafka.fetch import Fetcher, fetch
from ticdc_source.kafka.lookup import KafkaCluster

__all__ = ["Fetcher", "KafkaCluster", "fetch"]
