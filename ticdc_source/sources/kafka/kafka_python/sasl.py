"""Logins → kafka-python's settings, one branch for each kind of login in `options.security`.

kafka-python asks for a token in its IO thread, where nothing else goes on meanwhile. So the first token is there before
a client connects. kafka-python logs in again before the time that a broker gives a login is over (KIP-368,
`connections.max.reauth.ms`).
"""

from __future__ import annotations

import os
from functools import lru_cache

from kafka.net.sasl.oauth import AbstractTokenProvider

from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.options.security import EndpointLogin, KerberosLogin, MSKLogin, PasswordLogin, TLSSettings
from ticdc_source.sources.kafka.kafka_python import library
from ticdc_source.sources.kafka.kafka_python.library_errors import NoTokenError
from ticdc_source.sources.kafka.logins import msk, oauth
from ticdc_source.sources.kafka.logins.token_renewal import RenewedToken, Token, TokenUnavailableError
from ticdc_source.sources.kafka.patience import Patience
from ticdc_source.sources.tls.context import endpoint_context, tls_context

__all__ = ["LoginSession", "token_of"]


class LoginSession:
    """A client's login.

    Args:
        settings: of the client.
        patience: how long to wait for a token.

    Attributes:
        settings: what kafka-python needs of the login.

    Raises:
        OptionError: the login is refused, or a package is missing.
        KafkaUnavailableError: there is no token in time.
    """

    def __init__(self, settings: ClientSettings, patience: Patience) -> None:
        login = settings.login
        self._provider: _Provider | None = None
        self.settings: library.Settings = {}
        if login is None:
            return
        self.settings["sasl_mechanism"] = login.mechanism
        if isinstance(login, PasswordLogin):
            self.settings["sasl_plain_username"] = login.username
            self.settings["sasl_plain_password"] = login.password.reveal()
        elif isinstance(login, KerberosLogin):
            from ticdc_source.sources.kafka.kafka_python.kerberos import KerberosSession  # noqa: PLC0415 (only such a login needs it)

            self.settings["sasl_kerberos_name"] = KerberosSession(login, patience)
        else:
            token = token_of(login, settings.bootstrap_servers, settings.tls)
            token.wait(patience)
            extensions = dict(login.extensions) if isinstance(login, EndpointLogin) else {}
            self._provider = _Provider(token, extensions)
            self.settings["sasl_oauth_token_provider"] = self._provider

    def replace_token(self, patience: Patience) -> bool:
        """Get another token, as brokers refuse this one; return whether another try may help.

        Raises:
            OptionError: the login is refused.
            KafkaUnavailableError: there is no token in time.
        """
        return self._provider is not None and self._provider.replace(patience)


@lru_cache(maxsize=16)
def token_of(login: EndpointLogin | MSKLogin, servers: tuple[str, ...], tls: TLSSettings | None) -> RenewedToken:
    """Return the token of a login, one for all clients of a process: a worker makes many.

    Args:
        login: whose.
        servers: the bootstrap servers.
        tls: the settings of TLS at the brokers.
    """
    if isinstance(login, MSKLogin):
        return RenewedToken(lambda seconds: msk.sign_token(login, servers, seconds), "AWS", msk.ADVICE, login.times)

    def fetch(seconds: float) -> Token:
        return oauth.fetch_token(
            login, lambda: endpoint_context(tls) if login.tls is None else tls_context(login.tls), seconds
        )

    return RenewedToken(fetch, f"the token endpoint {oauth.shown(login.endpoint)}", oauth.ADVICE, login.times)


if hasattr(os, "register_at_fork"):  # a thread that renews a token stays in the parent
    os.register_at_fork(after_in_child=token_of.cache_clear)


class _Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """What kafka-python asks for the token there is, and for SASL extensions."""

    def __init__(self, token: RenewedToken, extensions: dict[str, str]) -> None:
        self._token = token
        self._extensions = extensions
        # Of the tokens that connections have used since the last refusal, the first: kafka-python does not say which of
        # them a broker refuses, and only the one that there is now may be replaced.
        self._used: str | None = None

    def token(self) -> str:
        """Return the token's text."""
        try:
            value = self._token.value()
        except TokenUnavailableError as error:
            raise NoTokenError(str(error)) from None
        self._used = self._used or value
        return value

    def extensions(self) -> dict[str, str]:
        """Return SASL extensions, by name."""
        return self._extensions

    def replace(self, patience: Patience) -> bool:
        """Get another token; see `LoginSession.replace_token`."""
        refused, self._used = self._used, None
        return self._token.replace(refused, patience)
