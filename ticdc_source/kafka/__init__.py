"""Kafka: partitions, offset look-ups, and ranges → chunks. The only package that imports kafka-python."""

from ticdc_source.kafka.fetch import Fetcher, fetch
from ticdc_source.kafka.lookup import KafkaCluster, report_loss
from ticdc_source.kafka.pool import borrowed_fetcher

__all__ = ["Fetcher", "KafkaCluster", "borrowed_fetcher", "fetch", "report_loss"]
