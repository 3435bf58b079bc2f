"""Connects with kafka-python: on its private names, if the installed version has them."""

from __future__ import annotations

from ticdc_source.kafka.api import ClientConfig
from ticdc_source.kafka.client import Client
from ticdc_source.kafka.kafka_python.compatibility import CONNECTIONS, differences
from ticdc_source.kafka.patience import Patience

__all__ = ["connect"]


def connect(config: ClientConfig, patience: Patience) -> Client:
    """Connect to brokers.

    Args:
        config: what `client_config` returned.
        patience: how long to wait for a broker.

    Raises:
        KafkaUnavailableError: no broker answered in time.
        OptionError: a certificate file cannot be read, or the brokers refuse the login.
    """
    # Imported here: with another version of the library only one of the two may be importable.
    if CONNECTIONS in differences():
        from ticdc_source.kafka.kafka_python.plain_client import PlainClient  # noqa: PLC0415

        return PlainClient(config, patience)
    from ticdc_source.kafka.kafka_python.network_client import NetworkClient  # noqa: PLC0415

    return NetworkClient(config, patience)
