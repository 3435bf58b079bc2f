"""kafka-python's logins, and the other settings of its consumers and connections.

The kinds of logins and their settings are in options/logins.py, the sources of tokens in tokens.py. kafka-python gets
tokens in its IO thread, which blocks meanwhile, so the first token is fetched before a client connects. kafka-python
logs in again before a login expires (KIP-368, `connections.max.reauth.ms`).
"""

from __future__ import annotations

import hashlib
import importlib
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Protocol

import kafka.errors
from kafka import KafkaConsumer
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.oauth import AbstractTokenProvider

from ticdc_source.errors import AccessRefusedError
from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.options.logins import EndpointLogin, KerberosLogin, PasswordLogin
from ticdc_source.sources.kafka.kafka_python.library_errors import NoTokenError
from ticdc_source.sources.kafka.patience import Cause, Patience
from ticdc_source.sources.kafka.tokens import RenewedToken, TokenUnavailableError, hide_debug, token_of
from ticdc_source.sources.tls import tls_context

# At level DEBUG these log what is sent, such as SASL PLAIN's password.
_TALKATIVE = ("kafka.protocol.parser", "kafka.net.connection")
# A consumer resets, commits and measures nothing on its own, and no topic is created.
_FIXED: Mapping[str, object] = MappingProxyType({
    "allow_auto_create_topics": False,
    "auto_offset_reset": "none",
    "enable_auto_commit": False,
    "metrics_enabled": False,
})  # fmt: skip

_PAUSE_SECONDS = 0.5
_UNREACHABLE = frozenset({2529639068, 2529639132})  # KRB5_KDC_UNREACH, KRB5_REALM_CANT_RESOLVE: negative, in 32 bits
_ADVICE = "Check kafka.sasl.jaas.config, kafka.sasl.kerberos.service.name, krb5.conf and the clocks"


def consumer_settings(settings: ClientSettings) -> dict[str, object]:
    """The settings of a `KafkaConsumer` except the login, with secrets revealed, and TLS as a context.

    Raises:
        OptionError: a certificate or key cannot be loaded.
    """
    if settings.login is not None:
        hide_debug(_TALKATIVE)
    defaults: dict[str, object] = dict(KafkaConsumer.DEFAULT_CONFIG)
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    given = {name: value for name, value in values.items() if name in defaults and value is not None}
    complete = {**defaults, **given, **_FIXED}
    complete["bootstrap_servers"] = list(settings.bootstrap_servers)
    if settings.proxy_url is not None:
        complete["proxy_url"] = settings.proxy_url.reveal()
    if settings.tls is not None:
        complete["ssl_context"] = tls_context(settings.tls)
    return complete


def login_settings(settings: ClientSettings, patience: Patience) -> dict[str, object]:
    """kafka-python's settings of a login, after fetching the first token if one is needed.

    Raises:
        OptionError: the login is refused, or a package is missing.
        KafkaUnavailableError: there is no token in time.
    """
    login = settings.login
    if login is None:
        return {}
    named: dict[str, object] = {"sasl_mechanism": login.mechanism}
    if isinstance(login, PasswordLogin):
        return {**named, "sasl_plain_username": login.username, "sasl_plain_password": login.password.reveal()}
    if isinstance(login, KerberosLogin):
        return {**named, "sasl_kerberos_name": KerberosSession(login, patience)}
    token = token_of(login, settings.bootstrap_servers, settings.tls)
    token.wait(patience)
    extensions = dict(login.extensions) if isinstance(login, EndpointLogin) else {}
    return {**named, "sasl_oauth_token_provider": TokenProvider(token, extensions)}


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """Gives kafka-python the current token, and SASL extensions."""

    def __init__(self, token: RenewedToken, extensions: dict[str, str]) -> None:
        self._token = token
        self._extensions = extensions
        # The first token used since the last refusal: kafka-python does not say which one a broker refuses, and only
        # the current one may be replaced.
        self._used: str | None = None

    def token(self) -> str:
        try:
            value = self._token.value()
        except TokenUnavailableError as error:
            raise NoTokenError(str(error)) from None
        self._used = self._used or value
        return value

    def extensions(self) -> dict[str, str]:
        return self._extensions

    def replace(self, patience: Patience) -> bool:
        refused, self._used = self._used, None
        return self._token.replace(refused, patience)


# Kerberos. kafka-python's own mechanism uses the environment (`KRB5CCNAME`, `KRB5_CLIENT_KTNAME`), which a process
# shares. Here the optional package `gssapi` gets credentials for each login (RFC 4752; MIT's credential stores). The
# ticket is in memory, and Kerberos' library renews it from the keytab.


class _Credentials(Protocol):
    """The used part of `gssapi.Credentials`."""

    lifetime: int | None


class KerberosSession:
    """The Kerberos login of a client's connections.

    Raises:
        AccessRefusedError: `gssapi` is missing, or Kerberos gives no ticket.
        KafkaUnavailableError: Kerberos does not answer in time.
    """

    def __init__(self, login: KerberosLogin, patience: Patience) -> None:
        self.gssapi = _gssapi()
        self.login = login
        if login.keytab is not None and not Path(login.keytab).is_file():
            raise AccessRefusedError(
                f"Option 'kafka.sasl.jaas.config': there is no keytab {login.keytab} on this machine"
            )
        self._await_ticket(patience.apart("there is no ticket for the login"))
        register_sasl_mechanism("GSSAPI", _mechanism, overwrite=True)

    def _await_ticket(self, patience: Patience) -> None:
        while True:
            try:
                _ = self.credentials().lifetime  # asks for the ticket
            except self.gssapi.exceptions.GSSError as error:
                if not _is_unreachable(error):
                    raise AccessRefusedError(f"Kerberos gives no ticket for the login: {error}. {_ADVICE}") from None
                patience.failed("Kerberos", Cause(str(error), is_permanent=True))
            else:
                patience.answered()
                return
            patience.check("There is no ticket for the login at Kafka", _ADVICE)
            time.sleep(min(_PAUSE_SECONDS, patience.left_ms / 1000))

    def credentials(self) -> _Credentials:
        """Return credentials with a valid ticket, or raise GSSError; without a login module, the default ones."""
        login, gssapi = self.login, self.gssapi
        name = login.principal and gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
        store = {}
        if login.keytab is not None:
            cache = hashlib.sha256(f"{login.keytab}\0{login.principal}".encode()).hexdigest()
            store = {"client_keytab": f"FILE:{login.keytab}", "ccache": f"MEMORY:ticdc-{cache}"}
        elif login.ticket_cache is not None:
            store = {"ccache": login.ticket_cache}
        credentials: _Credentials = gssapi.Credentials(name=name or None, usage="initiate", store=store or None)
        return credentials


def _gssapi() -> ModuleType:
    try:
        return importlib.import_module("gssapi")
    except (ImportError, OSError):
        raise AccessRefusedError(
            "kafka.sasl.mechanism=GSSAPI needs the package gssapi where the driver and the executors run (pip install "
            "gssapi, which needs the development files of Kerberos)"
        ) from None


def _mechanism(**config: object) -> SaslMechanismGSSAPI:
    """Return a connection's mechanism; other users of kafka-python in this process get the original one."""
    session = config.get("sasl_kerberos_name")
    if not isinstance(session, KerberosSession):
        return SaslMechanismGSSAPI(**config)
    return _Kerberos(session, str(config.get("host", "")))


class _Kerberos(SaslMechanismGSSAPI):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's mechanism, with the credentials of a session."""

    def __init__(self, session: KerberosSession, host: str) -> None:
        gssapi, login = session.gssapi, session.login
        self.auth_id = ""  # whoever has the ticket, and nobody else
        self._is_done = self._is_authenticated = False
        self._errors: type[Exception] = gssapi.exceptions.GSSError
        try:
            name = gssapi.Name(f"{login.service}@{login.domain or host}", gssapi.NameType.hostbased_service)
            self._client_ctx = gssapi.SecurityContext(
                name=name, creds=session.credentials(), mech=gssapi.MechType.kerberos, usage="initiate"
            )
            self._next_token = self._client_ctx.step(None)
        except self._errors as error:
            raise _failed(error) from None

    def receive(self, auth_bytes: bytes) -> None:
        try:
            super().receive(bytes(auth_bytes))
        except self._errors as error:
            raise _failed(error) from None


def _is_unreachable(error: Exception) -> bool:
    return getattr(error, "min_code", 0) % (1 << 32) in _UNREACHABLE


def _failed(error: Exception) -> kafka.errors.KafkaError:
    if _is_unreachable(error):
        return kafka.errors.KafkaConnectionError(f"Kerberos does not answer: {error}")
    return kafka.errors.SaslAuthenticationFailedError(f"Kerberos: {error}. {_ADVICE}")
