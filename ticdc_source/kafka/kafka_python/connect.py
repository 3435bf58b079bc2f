"""Connects with kafka-python: on its private names, if the installed version has them."""

from __future__ import annotations

import ssl

from ticdc_source.kafka.api import ClientConfig, ClientFacts, Writer
from ticdc_source.kafka.client import Client
from ticdc_source.kafka.kafka_python.compatibility import CONNECTIONS, TESTED, differences, facts
from ticdc_source.kafka.kafka_python.settings import connection_settings
from ticdc_source.kafka.patience import Patience

__all__ = ["TESTED", "connect", "installed", "tls_of", "writer"]


def installed() -> ClientFacts:
    """Return which version of the library is installed, and what it lacks."""
    return facts()


def writer(config: ClientConfig) -> Writer:
    """Connect to brokers, to write.

    Args:
        config: what `client_config` returned.

    Raises:
        OptionError: the brokers refuse the login.
        KafkaUnavailableError: no broker answers in time.
    """
    from ticdc_source.kafka.kafka_python.writing import KafkaWriter  # noqa: PLC0415 (no read needs it)

    return KafkaWriter(config)


def tls_of(config: ClientConfig) -> ssl.SSLContext | None:
    """Return the TLS context with which brokers are connected to; None without TLS.

    Raises:
        OptionError: a certificate or key cannot be loaded.
    """
    context = connection_settings(config).get("ssl_context")
    return context if isinstance(context, ssl.SSLContext) else None


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
