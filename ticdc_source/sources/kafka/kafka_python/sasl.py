"""Logins → kafka-python's settings, one branch for each kind of login in `options.security`.

kafka-python asks for a token in its IO thread, where nothing else goes on meanwhile. So the token is there before it is
needed (`logins.token_renewal`). kafka-python logs in again before the time that a broker gives a login is over
(KIP-368, `connections.max.reauth.ms`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.options.security import EndpointLogin, KerberosLogin, MSKLogin, PasswordLogin
from ticdc_source.sources.kafka.kafka_python import library
from ticdc_source.sources.kafka.kafka_python.library_errors import NoTokenError
from ticdc_source.sources.kafka.logins import msk, oauth
from ticdc_source.sources.kafka.logins.token_renewal import TOKENS, RenewedToken, Token, TokenUnavailableError
from ticdc_source.sources.kafka.patience import Patience
from ticdc_source.sources.tls.context import endpoint_context, tls_context

__all__ = ["LoginSession"]


class LoginSession:
    """A client's login, for as long as the client lives.

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
        self._token: RenewedToken | None = None
        self.settings: library.Settings = {}
        if login is None:
            return
        self.settings["sasl_mechanism"] = login.mechanism
        if isinstance(login, PasswordLogin):
            self.settings["sasl_plain_username"] = login.username
            self.settings["sasl_plain_password"] = login.password.reveal()
        elif isinstance(login, KerberosLogin):
            from ticdc_source.sources.kafka.kafka_python.kerberos import KerberosSession  # noqa: PLC0415 (as in `_provider`)

            self.settings["sasl_kerberos_name"] = KerberosSession(login, patience)
        else:
            # All that the token depends on, also what the certificate of the endpoint is checked with.
            token = TOKENS.of((login, settings.bootstrap_servers, settings.tls), lambda: _renewed(login, settings))
            token.open(patience)
            self._token = token
            extensions = dict(login.extensions) if isinstance(login, EndpointLogin) else {}
            self.settings["sasl_oauth_token_provider"] = _provider(token, extensions)

    def replace_token(self, patience: Patience) -> bool:
        """Get another token if brokers refuse one that is not new; return whether there is another one.

        Raises:
            OptionError: the login is refused.
            KafkaUnavailableError: there is no token in time.
        """
        return self._token is not None and self._token.replace(patience)

    def forget(self) -> None:
        """Get a new token next time: brokers refused this one."""
        if self._token is not None:
            self._token.forget()

    def close(self) -> None:
        """End the renewal of the token; safe to repeat."""
        token, self._token = self._token, None
        if token is not None:
            token.close()


def _renewed(login: EndpointLogin | MSKLogin, settings: ClientSettings) -> RenewedToken:
    if isinstance(login, MSKLogin):
        servers = settings.bootstrap_servers
        return RenewedToken(lambda seconds: msk.sign_token(login, servers, seconds), "AWS", msk.ADVICE, login.times)

    def fetch(seconds: float) -> Token:
        return oauth.fetch_token(
            login, lambda: endpoint_context(settings.tls) if login.tls is None else tls_context(login.tls), seconds
        )

    return RenewedToken(fetch, f"the token endpoint {oauth.shown(login.endpoint)}", oauth.ADVICE, login.times)


def _provider(token: RenewedToken, extensions: Mapping[str, str]) -> object:
    """Return what kafka-python asks for the token there is, and for SASL extensions."""
    # Imported here: only such a login needs it.
    from kafka.net.sasl.oauth import AbstractTokenProvider  # noqa: PLC0415

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
        def token(self) -> str:
            try:
                return token.value()
            except TokenUnavailableError as error:
                raise NoTokenError(str(error)) from None

        def extensions(self) -> dict[str, str]:
            return dict(extensions)

    return Provider()
