"""The settings of a `KafkaConsumer`: complete, secrets revealed, TLS as a context."""

from __future__ import annotations

import contextlib
import logging
import ssl
import tempfile
from collections.abc import Iterable

from kafka import KafkaConsumer

from ticdc_source.errors import OptionError
from ticdc_source.kafka.api import ClientConfig
from ticdc_source.kafka.kafka_python import library
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
    settings = {name: value.reveal() if isinstance(value, Secret) else value for name, value in settings.items()}
    if settings["security_protocol"].startswith("SASL"):
        silence(_TALKATIVE)
    if settings["security_protocol"].endswith("SSL"):
        settings["ssl_context"] = _ssl_context(settings)
    kept = KafkaConsumer.DEFAULT_CONFIG.keys() | OWN_SETTINGS
    return {name: value for name, value in settings.items() if name in kept and not name.endswith("_pem")}


def consumer_settings(settings: library.Settings) -> library.Settings:
    """Return those of `connection_settings` that a `KafkaConsumer` takes."""
    return {name: value for name, value in settings.items() if name in KafkaConsumer.DEFAULT_CONFIG}


def silence(loggers: Iterable[str]) -> None:
    """Keep records of level DEBUG out of some loggers."""
    for name in loggers:
        logging.getLogger(name).addFilter(_not_debug)


def _ssl_context(settings: ClientConfig) -> ssl.SSLContext:
    """Build the TLS context; kafka-python would retry a file that it cannot read until the time is over."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings["ssl_check_hostname"]
    option = "kafka.ssl.truststore.location (or .certificates)"
    try:
        trusted, trusted_text = settings["ssl_cafile"], settings.get("ssl_truststore_pem")
        if trusted or trusted_text:
            context.load_verify_locations(cafile=trusted, cadata=trusted_text)
        else:
            context.load_default_certs()
        option = "kafka.ssl.keystore.location (or .key), kafka.ssl.key.password"
        with contextlib.ExitStack() as stack:
            own = settings["ssl_certfile"]
            if "ssl_keystore_key_pem" in settings:
                # Only a file can be loaded: one that nobody else may read (mode 0600), and only for this moment.
                file = stack.enter_context(tempfile.NamedTemporaryFile("w", encoding="utf-8"))
                file.write(settings["ssl_keystore_key_pem"] + "\n" + settings["ssl_keystore_chain_pem"] + "\n")
                file.flush()
                own = file.name
            if own:
                # A password is always passed, if need be an empty one: else OpenSSL asks on the terminal.
                context.load_cert_chain(own, settings["ssl_keyfile"], settings["ssl_password"] or "")
        option = "kafka.ssl_crlfile"
        if settings["ssl_crlfile"]:
            context.load_verify_locations(settings["ssl_crlfile"])
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        option = "kafka.ssl_ciphers"
        if settings["ssl_ciphers"]:
            context.set_ciphers(settings["ssl_ciphers"])
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = error.strerror or type(error).__name__ if isinstance(error, OSError) else "not PEM"
        msg = f"{option}: the certificates or the key cannot be loaded: {reason}"
        raise OptionError(msg) from None
    return context


def _not_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG
