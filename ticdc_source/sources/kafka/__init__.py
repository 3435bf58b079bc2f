"""Kafka: look-ups of partitions and offsets, and offset ranges → chunks."""

from ticdc_source.sources.kafka.fetch import KafkaFetcher
from ticdc_source.sources.kafka.lookup import KafkaCluster, report_loss
from ticdc_source.sources.kafka.source import FETCHERS

__all__ = ["FETCHERS", "KafkaCluster", "KafkaFetcher", "report_loss"]
