"""Connections to brokers: kafka-python's, with what its version 3.0.12 lacks.

- `allow_auto_create_topics=False` is not passed on to its metadata requests.
- What is received together with the end of a connection is thrown away: that is the broker's reason for
  refusing a login, which then looks like a network failure and is tried again until the time is over.
- A TLS handshake has no time-out, a socket that cannot connect is not closed, and why is only logged.
- At level DEBUG it logs what it sends: for SASL PLAIN, the password.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import tempfile
from collections.abc import Mapping
from typing import Any

import kafka.errors
from kafka import KafkaConsumer
from kafka.future import Future
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from ticdc_source.errors import OptionError
from ticdc_source.kafka.kafka_python.receiving import Memory, Receiver
from ticdc_source.options.credentials import Secret
from ticdc_source.options.kafka_client import OWN_SETTINGS

__all__ = ["AUTHENTICATION_ERRORS", "Connections", "connection_settings", "is_untrusted"]

AUTHENTICATION_ERRORS = (
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.UnsupportedSaslMechanismError,
    kafka.errors.IllegalSaslStateError,
)


def is_untrusted(error: BaseException) -> bool:
    """Tell whether a TLS handshake failed because of the broker's certificate.

    kafka-python keeps only the text of what went wrong.
    """
    return "CERTIFICATE_VERIFY_FAILED" in str(error)


class Connections(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's connections.

    Attributes:
        last_error: why the last connection failed, None as long as none has.
    """

    def __init__(self, net: Any, **settings: Any) -> None:
        super().__init__(net, **settings)
        self.last_error: BaseException | None = None
        self.cluster.config["allow_auto_create_topics"] = False
        self._given_up = Future()
        self._memory = Memory()

    def get_connection(self, node_id: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a connection, and look at what becomes of it."""
        connection = super().get_connection(node_id, *args, **kwargs)
        if not connection.init_future.is_done:
            connection.init_future.add_errback(self._remember)
        return connection

    def _remember(self, error: BaseException) -> None:
        self.last_error = error
        # Java's client gives up at once, too: neither gets better by trying again.
        if (is_untrusted(error) or isinstance(error, AUTHENTICATION_ERRORS)) and not self._given_up.is_done:
            self._given_up.failure(error)

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = True) -> None:  # noqa: FBT001, FBT002
        """Find the brokers, in `timeout_ms` at most whatever hangs.

        Raises:
            kafka.errors.KafkaError: none answered, or one refused.
        """

        async def find() -> None:
            outcome = Future()
            for end in (self.bootstrap_async(timeout_ms, refresh), self._given_up):
                end.add_callback(lambda value: None if outcome.is_done else outcome.success(value))
                end.add_errback(lambda error: None if outcome.is_done else outcome.failure(error))
            await self.wait_for(outcome, timeout_ms)

        self._net.run(find)

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        sock = await self._connected_socket(node, timeout_at)
        kind, tls = _Transport, {}
        if self.ssl_enabled:
            kind, tls = _TLSTransport, {"ssl_context": self.config["ssl_context"]}
        transport = None
        try:
            transport = kind(self._net, sock, host=node.host, **tls)
            transport.memory = self._memory
            await transport.handshake()
        except BaseException as error:  # also when this coroutine is closed, because the client is
            (transport or sock).close()
            if not isinstance(error, Exception):
                raise
            msg = f"Handshake failed: {error}"
            raise kafka.errors.KafkaConnectionError(msg) from error
        return transport

    async def _connected_socket(self, node: Any, timeout_at: float | None) -> Any:
        """Connect to one of the node's addresses; kafka-python's own leaves a socket open when that fails."""
        sockets = KafkaNetSocket(self.config["proxy_url"])
        failure = kafka.errors.KafkaConnectionError("DNS Resolution failure")
        for family, kind, protocol, _, address in sockets.dns_lookup(node.host, node.port):
            sock = sockets.socket(family, kind, protocol)
            try:
                sock.setblocking(False)  # noqa: FBT003 (its only argument)
                for option in self.config["socket_options"]:
                    sock.setsockopt(*option)
                return await sockets.sock_connect(self._net, sock, address, timeout_at=timeout_at)
            except (OSError, kafka.errors.KafkaError) as error:
                sock.close()
                failure = kafka.errors.KafkaConnectionError(f"unable to connect: {error}")
            except BaseException:
                sock.close()
                raise
        raise failure


class _Transport(KafkaTCPTransport):  # type: ignore[misc]
    memory: Memory
    _receiver: Receiver | None = None

    def _sock_recv(self) -> tuple[Any, Exception | None]:
        self._receiver = self._receiver or Receiver(self._protocol.parser, self.memory)
        return self._receiver.read(self._sock)


class _TLSTransport(KafkaSSLTransport):  # type: ignore[misc]
    memory: Memory
    _receiver: Receiver | None = None

    def _sock_recv(self) -> tuple[Any, Exception | None]:
        self._receiver = self._receiver or Receiver(self._protocol.parser, self.memory)
        return self._receiver.read(self._sock)


def connection_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings as kafka-python takes them: complete, secrets revealed, TLS as a context."""
    settings = {**KafkaConsumer.DEFAULT_CONFIG, **config}
    settings = {name: value.reveal() if isinstance(value, Secret) else value for name, value in settings.items()}
    if settings["security_protocol"].startswith("SASL"):
        for name in ("kafka.protocol.parser", "kafka.net.connection"):
            logging.getLogger(name).addFilter(_not_debug)
    if settings["security_protocol"].endswith("SSL"):
        settings["ssl_context"] = _ssl_context(settings)
    kept = KafkaConsumer.DEFAULT_CONFIG.keys() | OWN_SETTINGS
    return {name: value for name, value in settings.items() if name in kept and not name.endswith("_pem")}


def _ssl_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Build the TLS context; kafka-python would try a file that it cannot read until the time is over."""
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
                # Only a file can be loaded: one that nobody else may read (mode 0600), and only for this
                # moment.
                file = stack.enter_context(tempfile.NamedTemporaryFile("w", encoding="utf-8"))
                file.write(settings["ssl_keystore_key_pem"] + "\n" + settings["ssl_keystore_chain_pem"] + "\n")
                file.flush()
                own = file.name
            if own:
                # A password is always given, if an empty one: else OpenSSL asks on the terminal.
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
