"""Consumers: their settings, and what consumer groups have committed. Nothing here joins a group."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import MappingProxyType

import kafka.errors
from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as KafkaTopicPartition

from ticdc_source.errors import KafkaUnavailableError
from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.options.topics import TopicPartition
from ticdc_source.sources.kafka.kafka_python import library
from ticdc_source.sources.tls.context import tls_context

__all__ = ["commit_offsets", "committed_offsets", "consumer_settings"]

# At level DEBUG these log what is sent: for SASL PLAIN, the password.
_TALKATIVE = ("kafka.protocol.parser", "kafka.net.connection")
# A consumer resets, commits and measures nothing on its own, and no topic is created.
_FIXED: Mapping[str, object] = MappingProxyType({
    "allow_auto_create_topics": False,
    "auto_offset_reset": "none",
    "enable_auto_commit": False,
    "metrics_enabled": False,
})  # fmt: skip


def consumer_settings(settings: ClientSettings) -> library.Settings:
    """Return what a `KafkaConsumer` takes: complete, secrets revealed, TLS as a context. `LoginSession` has the login.

    Raises:
        OptionError: a certificate or key cannot be loaded.
    """
    if settings.login is not None:
        for name in _TALKATIVE:
            logging.getLogger(name).addFilter(_not_debug)
    defaults: library.Settings = dict(KafkaConsumer.DEFAULT_CONFIG)
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    given = {name: value for name, value in values.items() if name in defaults and value is not None}
    complete = {**defaults, **given, **_FIXED}
    complete["bootstrap_servers"] = list(settings.bootstrap_servers)
    if settings.proxy_url is not None:
        complete["proxy_url"] = settings.proxy_url.reveal()
    if settings.tls is not None:
        complete["ssl_context"] = tls_context(settings.tls)
    return complete


def _not_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def commit_offsets(consumer: library.Consumer, offsets: Mapping[TopicPartition, int], timeout_ms: float) -> None:
    """Commit offsets for a consumer's group, which has no members.

    Raises:
        KafkaUnavailableError: the brokers refuse, or do not answer in time.
    """
    kafka_offsets = {KafkaTopicPartition(*key): OffsetAndMetadata(at, "", -1) for key, at in offsets.items()}
    try:
        consumer.commit(kafka_offsets, timeout_ms=timeout_ms)
    except kafka.errors.KafkaError as error:
        raise KafkaUnavailableError(str(error)) from error


def committed_offsets(
    consumer: library.Consumer, topic_partitions: Iterable[TopicPartition], timeout_ms: float
) -> dict[TopicPartition, int]:
    """Return the offsets that a consumer's group has committed, without partitions of which it has none.

    Args:
        consumer: a consumer with the group's id.
        topic_partitions: which ones.
        timeout_ms: how long all look-ups may take.

    Raises:
        kafka.errors.KafkaError: the brokers refuse, or do not answer in time.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    committed = {}
    for topic_partition in topic_partitions:
        left_ms = (deadline - time.monotonic()) * 1000
        if left_ms <= 0:
            msg = "no answer"
            raise kafka.errors.KafkaTimeoutError(msg)
        offset = consumer.committed(KafkaTopicPartition(*topic_partition), timeout_ms=left_ms)
        if offset is not None and offset >= 0:
            committed[topic_partition] = offset
    return committed
