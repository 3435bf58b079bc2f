"""How kafka-python logs in, and what else its consumers and connections are made with.

Which logins there are, and the settings of each, is in options/logins.py, and where tokens come from in tokens.py.
kafka-python asks for a token in its IO thread, where nothing else goes on meanwhile. So the first token is there before
a client connects. kafka-python logs in again before the time that a broker gives a login is over (KIP-368,
`connections.max.reauth.ms`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType

from kafka import KafkaConsumer
from kafka.net.sasl.oauth import AbstractTokenProvider

from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.options.logins import EndpointLogin, KerberosLogin, PasswordLogin
from ticdc_source.sources.kafka.kafka_python import library
from ticdc_source.sources.kafka.kafka_python.library_errors import NoTokenError
from ticdc_source.sources.kafka.patience import Patience
from ticdc_source.sources.kafka.tokens import RenewedToken, TokenUnavailableError, hide_debug, token_of
from ticdc_source.sources.tls import tls_context

# At level DEBUG these log what is sent: for SASL PLAIN, the password.
_TALKATIVE = ("kafka.protocol.parser", "kafka.net.connection")
# A consumer resets, commits and measures nothing on its own, and no topic is created.
_FIXED: Mapping[str, object] = MappingProxyType({
    "allow_auto_create_topics": False,
    "auto_offset_reset": "none",
    "enable_auto_commit": False,
    "metrics_enabled": False,
})  # fmt: skip


def consumer_settings(settings: ClientSettings) -> library.Settings:
    """Return what a `KafkaConsumer` takes beside the login: complete, secrets revealed, TLS as a context.

    Raises:
        OptionError: a certificate or key cannot be loaded.
    """
    if settings.login is not None:
        hide_debug(_TALKATIVE)
    defaults: library.Settings = dict(KafkaConsumer.DEFAULT_CONFIG)
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    given = {name: value for name, value in values.items() if name in defaults and value is not None}
    complete = {**defaults, **given, **_FIXED}
    complete["bootstrap_servers"] = list(settings.bootstrap_servers)
    if settings.proxy_url is not None:
        complete["proxy_url"] = settings.proxy_url.reveal()
    if settings.tls is not None:
        complete["ssl_context"] = tls_context(settings.tls)
    return complete


def login_settings(settings: ClientSettings, patience: Patience) -> library.Settings:
    """Return what kafka-python needs of a client's login; the first token is there then.

    Raises:
        OptionError: the login is refused, or a package is missing.
        KafkaUnavailableError: there is no token in time.
    """
    login = settings.login
    if login is None:
        return {}
    named: library.Settings = {"sasl_mechanism": login.mechanism}
    if isinstance(login, PasswordLogin):
        return {**named, "sasl_plain_username": login.username, "sasl_plain_password": login.password.reveal()}
    if isinstance(login, KerberosLogin):
        from ticdc_source.sources.kafka.kafka_python.kerberos import KerberosSession  # noqa: PLC0415 (for this login)

        return {**named, "sasl_kerberos_name": KerberosSession(login, patience)}
    token = token_of(login, settings.bootstrap_servers, settings.tls)
    token.wait(patience)
    extensions = dict(login.extensions) if isinstance(login, EndpointLogin) else {}
    return {**named, "sasl_oauth_token_provider": TokenProvider(token, extensions)}


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """What kafka-python asks for the token there is, and for SASL extensions."""

    def __init__(self, token: RenewedToken, extensions: dict[str, str]) -> None:
        self._token = token
        self._extensions = extensions
        # Of the tokens that connections have used since the last refusal, the first: kafka-python does not say which of
        # them a broker refuses, and only the one that there is now may be replaced.
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
        """Get another token, as brokers refuse this one; see `RenewedToken.replace`."""
        refused, self._used = self._used, None
        return self._token.replace(refused, patience)
