"""The TLS context of a connection to brokers, to a token endpoint, or to a schema registry."""

from __future__ import annotations

import contextlib
import ssl
import tempfile

from ticdc_source.errors import AccessRefusedError
from ticdc_source.options.security import TLSSettings
from ticdc_source.sources.tls.stores import StoreError, certificates_of, is_java, key_of

__all__ = ["endpoint_context", "tls_context"]


def tls_context(tls: TLSSettings, prefix: str = "kafka.") -> ssl.SSLContext:
    """Build a TLS context, once: kafka-python would retry a file that it cannot read until the time is over.

    Args:
        tls: the settings.
        prefix: begins the names of the options that they come from, for errors.

    Raises:
        AccessRefusedError: a certificate or key cannot be loaded, or a package is missing that reads its store.
    """
    context = _context(tls, prefix)
    if not (tls.cafile or tls.truststore_pem):
        context.load_default_certs()
    return context


def endpoint_context(tls: TLSSettings | None) -> ssl.SSLContext:
    """Build the TLS context for a token endpoint: a public authority may have signed its certificate, or the brokers'.

    Args:
        tls: as for `tls_context`; only the trusted certificates count.

    Raises:
        AccessRefusedError: as for `tls_context`.
    """
    brokers = tls or TLSSettings()
    context = _context(
        TLSSettings(
            truststore_type=brokers.truststore_type,
            cafile=brokers.cafile,
            truststore_password=brokers.truststore_password,
            truststore_pem=brokers.truststore_pem,
        )
    )
    context.load_default_certs()
    return context


def _context(tls: TLSSettings, prefix: str = "kafka.") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.check_hostname
    option = f"{prefix}ssl.truststore.location (or .certificates)"
    try:
        _load_trusted(context, tls)
        option = f"{prefix}ssl.keystore.location (or .key), {prefix}ssl.key.password"
        _load_key(context, tls)
        option = "kafka.ssl_crlfile"
        if tls.crlfile:
            context.load_verify_locations(tls.crlfile)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        option = "kafka.ssl_ciphers"
        if tls.ciphers:
            context.set_ciphers(tls.ciphers)
    except AccessRefusedError:  # a ValueError
        raise
    except (OSError, ValueError, StoreError) as error:  # ssl.SSLError is an OSError
        reason = str(error) if isinstance(error, StoreError) else "not PEM"
        if isinstance(error, OSError):
            reason = error.strerror or type(error).__name__
        msg = f"{option}: the certificates or the key cannot be loaded: {reason}"
        raise AccessRefusedError(msg) from None
    return context


def _load_trusted(context: ssl.SSLContext, tls: TLSSettings) -> None:
    file, text = tls.cafile, tls.truststore_pem
    if file and tls.truststore_type != "PEM" and is_java(file):
        text = certificates_of(file, tls.truststore_password)
        file = None
    if file or text:
        context.load_verify_locations(cafile=file, cadata=text)


def _load_key(context: ssl.SSLContext, tls: TLSSettings) -> None:
    own, password = tls.certfile, tls.password
    with contextlib.ExitStack() as stack:
        pem = None
        if tls.keystore_key_pem is not None:
            pem = f"{tls.keystore_key_pem.reveal()}\n{tls.keystore_chain_pem}\n".encode()
        elif own and tls.keystore_type != "PEM" and is_java(own):
            pem, password = key_of(own, tls.keystore_password, password)
        if pem is not None:
            # Only a file can be loaded: one that nobody else may read (mode 0600), and only for this moment. The key of
            # a store is encrypted in it, the one given as text is as it was given.
            file = stack.enter_context(tempfile.NamedTemporaryFile("wb"))
            file.write(pem)
            file.flush()
            own = file.name
        if own:
            # A password is always passed, if need be an empty one: else OpenSSL asks on the terminal.
            context.load_cert_chain(own, tls.keyfile, "" if password is None else password.reveal())
