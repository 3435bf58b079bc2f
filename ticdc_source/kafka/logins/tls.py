"""The TLS context of a connection to brokers, or to a token endpoint."""

from __future__ import annotations

import contextlib
import ssl
import tempfile

from ticdc_source.errors import OptionError
from ticdc_source.kafka.api import ClientConfig
from ticdc_source.kafka.logins.stores import StoreError, certificates_of, is_java, key_of
from ticdc_source.options.credentials import Secret

__all__ = ["endpoint_context", "tls_context"]


def tls_context(settings: ClientConfig) -> ssl.SSLContext:
    """Build a TLS context, once: kafka-python would retry a file that it cannot read until the time is over.

    Args:
        settings: those of `client_config` that begin with `ssl_`.

    Raises:
        OptionError: a certificate or key cannot be loaded, or a package is missing that reads its store.
    """
    context = _context(settings)
    if not _trusted(settings):
        context.load_default_certs()
    return context


def endpoint_context(settings: ClientConfig) -> ssl.SSLContext:
    """Build the TLS context for a token endpoint: a public authority may have signed its certificate, or the brokers'.

    Args:
        settings: as for `tls_context`; only the trusted certificates count.

    Raises:
        OptionError: as for `tls_context`.
    """
    context = _context({name: value for name, value in settings.items() if name.startswith("ssl_truststore")} | (
        {"ssl_cafile": settings["ssl_cafile"]} if settings.get("ssl_cafile") else {}
    ))  # fmt: skip
    context.load_default_certs()
    return context


def _trusted(settings: ClientConfig) -> bool:
    return bool(settings.get("ssl_cafile") or settings.get("ssl_truststore_pem"))


def _context(settings: ClientConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.get("ssl_check_hostname", True)
    option = "kafka.ssl.truststore.location (or .certificates)"
    try:
        _load_trusted(context, settings)
        option = "kafka.ssl.keystore.location (or .key), kafka.ssl.key.password"
        _load_key(context, settings)
        option = "kafka.ssl_crlfile"
        if settings.get("ssl_crlfile"):
            context.load_verify_locations(settings["ssl_crlfile"])
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        option = "kafka.ssl_ciphers"
        if settings.get("ssl_ciphers"):
            context.set_ciphers(settings["ssl_ciphers"])
    except OptionError:  # a ValueError
        raise
    except (OSError, ValueError, StoreError) as error:  # ssl.SSLError is an OSError
        reason = str(error) if isinstance(error, StoreError) else "not PEM"
        if isinstance(error, OSError):
            reason = error.strerror or type(error).__name__
        msg = f"{option}: the certificates or the key cannot be loaded: {reason}"
        raise OptionError(msg) from None
    return context


def _load_trusted(context: ssl.SSLContext, settings: ClientConfig) -> None:
    file: str | None = settings.get("ssl_cafile")
    text: str | None = settings.get("ssl_truststore_pem")
    if file and settings.get("ssl_truststore_type") != "PEM" and is_java(file):
        text = certificates_of(file, settings.get("ssl_truststore_password"))
        file = None
    if file or text:
        context.load_verify_locations(cafile=file, cadata=text)


def _load_key(context: ssl.SSLContext, settings: ClientConfig) -> None:
    own, password = settings.get("ssl_certfile"), settings.get("ssl_password")
    with contextlib.ExitStack() as stack:
        pem = None
        if "ssl_keystore_key_pem" in settings:
            pem = f"{_text(settings['ssl_keystore_key_pem'])}\n{settings['ssl_keystore_chain_pem']}\n".encode()
        elif own and settings.get("ssl_keystore_type") != "PEM" and is_java(own):
            pem, password = key_of(own, settings.get("ssl_keystore_password"), password)
        if pem is not None:
            # Only a file can be loaded: one that nobody else may read (mode 0600), and only for this moment. The key of
            # a store is encrypted in it, the one given as text is as it was given.
            file = stack.enter_context(tempfile.NamedTemporaryFile("wb"))
            file.write(pem)
            file.flush()
            own = file.name
        if own:
            # A password is always passed, if need be an empty one: else OpenSSL asks on the terminal.
            context.load_cert_chain(own, settings.get("ssl_keyfile"), _text(password))


def _text(value: Secret | str | None) -> str:
    return value.reveal() if isinstance(value, Secret) else value or ""
