"""The settings of a `KafkaConsumer`: complete, secrets revealed, TLS as a context."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kafka import KafkaConsumer

from ticdc_source.kafka.api import ClientConfig
from ticdc_source.kafka.kafka_python import library
from ticdc_source.kafka.logins.tls import tls_context
from ticdc_source.options.credentials import Secret
from ticdc_source.options.kafka_client import OWN_SETTINGS

__all__ = ["connection_settings", "consumer_settings", "silence"]


# At level DEBUG these log what is sent: for SASL PLAIN, the password.
_TALKATIVE = ("kafka.protocol.parser", "kafka.net.connection")


def connection_settings(config: ClientConfig) -> library.Settings:
    """Return the settings as kafka-python's connections take them: complete, secrets revealed, TLS as a context.

    Raises:
        OptionError: a certificate or key cannot be loaded.
    """
    settings = {**KafkaConsumer.DEFAULT_CONFIG, **config}
    if settings["security_protocol"].startswith("SASL"):
        silence(_TALKATIVE)
    if settings["security_protocol"].endswith("SSL"):
        settings["ssl_context"] = tls_context(settings)
    settings = {name: value.reveal() if isinstance(value, Secret) else value for name, value in settings.items()}
    kept = KafkaConsumer.DEFAULT_CONFIG.keys() | OWN_SETTINGS
    # The context has what the settings of TLS say, and `logins` what the login says.
    return {
        name: value
        for name, value in settings.items()
        if name in kept and not name.startswith(("ssl_keystore_", "ssl_truststore_", "sasl_login"))
    }


def consumer_settings(settings: library.Settings) -> library.Settings:
    """Return those of `connection_settings` that a `KafkaConsumer` takes."""
    return {name: value for name, value in settings.items() if name in KafkaConsumer.DEFAULT_CONFIG}


def silence(loggers: Iterable[str]) -> None:
    """Keep records of level DEBUG out of some loggers."""
    for name in loggers:
        logging.getLogger(name).addFilter(_not_debug)


def _not_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG
