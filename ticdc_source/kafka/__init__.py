"""Kafka: look-ups of partitions and offsets, and offset ranges → chunks. `api.py` says what others may use of it."""

from ticdc_source.kafka.api import Fetcher
from ticdc_source.kafka.fetch import KafkaFetcher
from ticdc_source.kafka.lookup import DATA_LOSS, KafkaCluster, report_loss
from ticdc_source.kafka.pool import FETCHERS, FetcherPool

__all__ = [
    "DATA_LOSS",
    "FETCHERS",
    "Fetcher",
    "FetcherPool",
    "KafkaCluster",
    "KafkaFetcher",
    "report_loss",
]
