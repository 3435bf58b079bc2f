"""Kafka: look-ups of partitions and offsets, and offset ranges → chunks. `api.py` says what others may use of it."""

from ticdc_source.sources.kafka.fetch import KafkaFetcher
from ticdc_source.sources.kafka.lookup import DATA_LOSS, KafkaCluster, report_loss
from ticdc_source.sources.kafka.source import FETCHERS, FetcherPool

__all__ = [
    "DATA_LOSS",
    "FETCHERS",
    "FetcherPool",
    "KafkaCluster",
    "KafkaFetcher",
    "report_loss",
]
