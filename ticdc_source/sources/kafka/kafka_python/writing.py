"""Writing records, for `ticdc-source replay` alone: reads never write, and never create a topic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

import kafka.errors
from kafka import KafkaAdminClient, KafkaProducer, Serializer
from kafka.admin import ConfigResource

from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.sources.kafka.api import WrittenRecord
from ticdc_source.sources.kafka.kafka_python.consumers import consumer_settings
from ticdc_source.sources.kafka.kafka_python.library_errors import our_errors
from ticdc_source.sources.kafka.kafka_python.sasl import LoginSession
from ticdc_source.sources.kafka.patience import Limit, Patience

__all__ = ["KafkaWriter"]

_AT_A_TIME = 2_000  # records that wait for their acknowledgement
_LARGEST = 128 << 20  # bytes of a request: as large as the broker lets it be
_NULL = object()


class _NullSerializer(Serializer):  # type: ignore[misc]  # kafka-python has no types
    """Turns a stand-in into None: `send()` refuses a record without key and value, which Kafka accepts."""

    def serialize(self, _topic: str, _headers: Sequence[tuple[str, bytes]], data: object) -> bytes | None:
        return data if isinstance(data, bytes) else None


class KafkaWriter(AbstractContextManager["KafkaWriter"]):
    """Writes records in their order, and can create a topic.

    Args:
        settings: of the client.

    Raises:
        OptionError: the brokers refuse the login.
        KafkaUnavailableError: no broker answers in time.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._servers = ",".join(settings.bootstrap_servers)
        limit = Limit(settings.default_api_timeout_ms, "kafka.default.api.timeout.ms")
        self._login = LoginSession(settings, Patience(self._servers, "a login is pending", limit))
        shared = {**consumer_settings(settings), **self._login.settings}
        self._admin_settings = {name: shared[name] for name in KafkaAdminClient.DEFAULT_CONFIG if name in shared}
        try:
            with our_errors(self._servers):
                self._producer = KafkaProducer(
                    **{
                        **{name: shared[name] for name in KafkaProducer.DEFAULT_CONFIG if name in shared},
                        "key_serializer": _NullSerializer(),
                        "value_serializer": _NullSerializer(),
                        "allow_auto_create_topics": False,
                        "enable_idempotence": False,  # which asks for a permission of its own
                        "max_in_flight_requests_per_connection": 1,  # or a repeated request would change the order
                        "acks": "all",
                        "max_request_size": _LARGEST,
                        "linger_ms": 50,
                        "metrics_enabled": False,
                    }
                )
        except BaseException:
            self._login.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._producer.close()
        self._login.close()

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic, with the brokers' default settings and without replicas of its own.

        Raises:
            OptionError: the user may not do so.
            KafkaUnavailableError: the brokers refuse it, or do not answer.
        """
        with our_errors(self._servers):
            admin = KafkaAdminClient(**self._admin_settings)
            try:
                admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": -1}})
                admin.wait_for_topics([topic])
            finally:
                admin.close()

    def retention_ms(self, topic: str) -> int | None:
        """Return after how many milliseconds the topic loses a record, by the record's own timestamp.

        Returns:
            `retention.ms`; None if it keeps all, if the brokers set the timestamps, or if the user may not see it.

        Raises:
            KafkaUnavailableError: the brokers do not answer.
        """
        names = ["retention.ms", "cleanup.policy", "message.timestamp.type"]
        with our_errors(self._servers):
            admin = KafkaAdminClient(**self._admin_settings)
            try:
                found = admin.describe_configs([ConfigResource("TOPIC", topic, names)], config_filter="all")
            finally:
                admin.close()
        settings = found.get("topic", {}).get(topic, {})  # empty without the permission DescribeConfigs
        retention, policy, stamps = (settings.get(name, {}).get("value") or "" for name in names)
        if not retention.isdecimal() or "delete" not in policy or stamps != "CreateTime":
            return None
        return int(retention)

    def write(self, topic: str, records: Iterable[WrittenRecord]) -> int:
        """Write records, and return their number when the brokers have all of them.

        Raises:
            OptionError: the user may not write to the topic.
            KafkaUnavailableError: the brokers refuse a record, or do not answer.
        """
        count = 0
        waiting = []
        with our_errors(self._servers):
            for record in records:
                key, value = (_NULL if data is None else data for data in (record.key, record.value))
                stamp = record.timestamp if record.timestamp >= 0 else None
                waiting.append(self._producer.send(topic, value, key, list(record.headers), record.partition, stamp))
                count += 1
                if len(waiting) == _AT_A_TIME:
                    self._wait(waiting)
            self._wait(waiting)
        return count

    def _wait(self, waiting: list[object]) -> None:
        """Wait until the brokers have all records."""
        self._producer.flush()
        for future in waiting:
            error = getattr(future, "exception", None)
            if isinstance(error, kafka.errors.KafkaError):
                raise error
        waiting.clear()
