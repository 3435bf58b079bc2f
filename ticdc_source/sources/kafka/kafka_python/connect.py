"""Connects with kafka-python: on its private names, if the installed version has them."""

from __future__ import annotations

from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.sources.kafka.client import Client, ClientFacts
from ticdc_source.sources.kafka.kafka_python.compatibility import CONNECTIONS, TESTED, differences, facts
from ticdc_source.sources.kafka.patience import Patience

__all__ = ["TESTED", "connect", "installed"]


def installed() -> ClientFacts:
    """Return which version of the library is installed, and what it lacks."""
    return facts()


def connect(settings: ClientSettings, patience: Patience) -> Client:
    """Connect to brokers.

    Args:
        settings: of the client.
        patience: how long to wait for a broker.

    Raises:
        KafkaUnavailableError: no broker answered in time.
        OptionError: a certificate file cannot be read, or the brokers refuse the login.
    """
    # Imported here: with another version of the library only one of the two may be importable.
    if CONNECTIONS in differences():
        from ticdc_source.sources.kafka.kafka_python.plain_client import PlainClient  # noqa: PLC0415

        return PlainClient(settings, patience)
    from ticdc_source.sources.kafka.kafka_python.network_client import NetworkClient  # noqa: PLC0415

    return NetworkClient(settings, patience)
