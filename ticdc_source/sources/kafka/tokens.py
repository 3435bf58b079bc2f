"""Tokens for logins: where they come from, and how they are renewed before they expire.

A token comes from a token endpoint, from a file, or from AWS. The endpoint is asked for the client credentials grant
(RFC 6749, sections 4.4, 5.1 and 5.2) like Kafka's `HttpJwtRetriever` does, with its rules for retries. For AWS,
`aws-msk-iam-sasl-signer-python` signs a request to connect. The credentials of profiles and roles come from `botocore`:
the package has no region for STS, and no role together with a profile.

The first use of a token after 80 to 85 percent of its lifetime starts its renewal. That is early enough: clients log in
again at 85 percent of a session.
"""

from __future__ import annotations

import base64
import logging
import math
import os
import random
import re
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from ticdc_source.errors import AccessRefusedError, OptionError
from ticdc_source.options.logins import EndpointLogin, LoginTimes, MSKLogin, TLSSettings
from ticdc_source.options.parsers import Secret
from ticdc_source.schema.json_text import loads
from ticdc_source.sources.http_requests import NotAnsweredError, Times, fetch
from ticdc_source.sources.kafka.patience import Cause, Patience
from ticdc_source.sources.tls import endpoint_context, tls_context

_log = logging.getLogger(__name__)

_RENEW_AT, _JITTER = 0.8, 0.05  # Java's sasl.login.refresh.window.factor and .jitter
_NEW_SECONDS = 1.0
# How long a client's IO thread waits for a renewal, which takes less, and blocks its other requests meanwhile.
_MOMENT_SECONDS = 1.0
_NO_TOKEN = "there is no token for the login"  # noqa: S105 (for log lines)

_ENDPOINT = "kafka.sasl.oauthbearer.token.endpoint.url"
_ADVICE = f"{_ENDPOINT} and the network"
_CREDENTIALS = (
    "the client's id, secret and scope (kafka.sasl.jaas.config, or kafka.sasl.oauthbearer.client.credentials.…)"
)
_SUCCESS = range(200, 300)
_REFUSALS = frozenset({400, 401, 403})
_MOST_SHOWN = 200  # letters of what the endpoint says
_UNKNOWN_LIFETIME = 300.0  # seconds, if neither the answer nor the token says

_AWS_ADVICE = "kafka.sasl.jaas.config and AWS's configuration"
_AWS_PACKAGE = "aws-msk-iam-sasl-signer-python"
# At level DEBUG, botocore logs the keys of a role, as AWS's answer has them, and the token of a session.
_TALKATIVE = ("botocore.auth", "botocore.endpoint", "botocore.parsers")
_AWS_SECONDS = 900.0  # the package's DEFAULT_TOKEN_EXPIRY_SECONDS
# b-1.shop.abc123.c2.kafka.eu-west-1.amazonaws.com, boot-abc.c1.kafka-serverless.eu-west-1.amazonaws.com
_BROKER = re.compile(r"\.kafka(?:-serverless)?\.([a-z]{2}(?:-[a-z]+)+-\d+)\.amazonaws\.com(?:\.cn)?(?::\d+)?$")


class Token(NamedTuple):
    """A token, and its lifetime in seconds from the request on."""

    value: Secret
    seconds: float


class TokenUnavailableError(Exception):
    """There is no token now; `cause` says whether a retry may help."""

    def __init__(self, cause: Cause, /) -> None:
        super().__init__(cause.text)
        self.cause = cause


# Gets a token within some seconds; raises TokenUnavailableError, or OptionError if a retry would not help.
FetchToken: TypeAlias = Callable[[float], Token]


class _Held(NamedTuple):
    value: Secret
    asked_at: float
    valid_until: float


_NONE = _Held(Secret(""), -math.inf, -math.inf)


class RenewedToken:
    """A token that is renewed while in use. Thread-safe. Errors name the source and the advice."""

    def __init__(self, fetch: FetchToken, source: str, advice: str, times: LoginTimes) -> None:
        self._fetch = fetch
        self._source = source
        self._advice = advice
        self._times = times
        self._lock = threading.Lock()
        self._asking: threading.Thread | None = None
        self._held = _NONE
        self._ask_at = -math.inf
        self._failure: Cause | OptionError | None = None  # of the last time that a token was asked for
        self._pause_ms = float(times.retry_backoff_ms)

    def wait(self, patience: Patience) -> None:
        """Wait until there is a valid token.

        Raises:
            OptionError: the login is refused.
            KafkaUnavailableError: there is no token in time.
        """
        patience = patience.apart(_NO_TOKEN)
        while not self._is_valid:
            pause_s = 0.0
            has_answered = self._has_asked(patience.pause_ms / 1000)
            patience.set_missing(None if has_answered else f"{self._source} has not answered")
            failure = self._failure
            if not has_answered:
                patience.log_if_due()
            elif failure is None:  # there is a token, if only for a moment
                break
            elif isinstance(failure, OptionError):
                raise failure
            else:
                patience.failed(self._source, failure)
                pause_s = min(max(0.0, self._ask_at - time.monotonic()), patience.left_ms / 1000)
            patience.check("There is no token for the login at Kafka", f"Check {self._advice}")
            time.sleep(pause_s)
        patience.answered()

    def replace(self, refused: str | None, patience: Patience) -> bool:
        """Get another token after brokers refused one; return whether there is another one to try.

        An old token may have expired early, because a sleeping machine does not count the time. A new one is only
        dropped, as the next would be refused, too.

        Args:
            refused: the token's text; None if the client has used none since the last refusal.

        Raises:
            OptionError, KafkaUnavailableError: as `wait`.
        """
        with self._lock:
            if self._is_valid and self._held.value.reveal() != refused:  # it has been replaced since it was used
                return True
            is_new = time.monotonic() - self._held.asked_at < _NEW_SECONDS
            self._held, self._ask_at = _NONE, -math.inf
        if not is_new:
            self.wait(patience)
        return not is_new

    def value(self) -> str:
        """The token's text. If the next one is due, request it and wait briefly.

        Raises:
            TokenUnavailableError: it has expired, and could not be renewed.
        """
        if time.monotonic() >= self._ask_at and not self._is_asking:
            self._has_asked(_MOMENT_SECONDS)
        if not self._is_valid:
            raise TokenUnavailableError(Cause(f"no token from {self._source}: {_text(self._failure)}"))
        return self._held.value.reveal()

    @property
    def _is_valid(self) -> bool:
        return time.monotonic() < self._held.valid_until

    @property
    def _is_asking(self) -> bool:
        return self._asking is not None and self._asking.is_alive()

    def _has_asked(self, seconds: float) -> bool:
        """Wait for the one thread that requests tokens; return whether it has ended."""
        with self._lock:
            if self._asking is None or not self._is_asking:
                asking = threading.Thread(target=self._ask, name="ticdc-login", daemon=True)
                try:
                    asking.start()
                except RuntimeError as error:  # the system gives no more threads
                    self._not_renewed(Cause(str(error)))
                    return True
                self._asking = asking
            asking = self._asking
        asking.join(seconds)
        return not asking.is_alive()

    def _ask(self) -> None:
        asked_at = time.monotonic()
        try:
            token = self._fetch((self._times.connect_timeout_ms + self._times.read_timeout_ms) / 1000)
        except OptionError as error:
            self._not_renewed(error)
        except TokenUnavailableError as error:
            self._not_renewed(error.cause)
        except Exception as error:  # noqa: BLE001 (whatever an endpoint or a package does, there will be another try)
            self._not_renewed(Cause(type(error).__name__))  # what others raise may hold a secret
        else:
            share = random.uniform(_RENEW_AT, _RENEW_AT + _JITTER)  # noqa: S311 (so that workers do not ask all at once)
            self._ask_at = asked_at + token.seconds * share
            self._held = _Held(token.value, asked_at, asked_at + token.seconds)
            if self._failure is not None:
                _log.warning("The login token is renewed")
            self._failure, self._pause_ms = None, float(self._times.retry_backoff_ms)

    def _not_renewed(self, failure: Cause | OptionError) -> None:
        if self._failure is None and self._held is not _NONE:
            _log.warning("The login token could not be renewed; it will be tried again: %s", _text(failure))
        self._failure = failure
        self._ask_at = time.monotonic() + self._pause_ms / 1000
        self._pause_ms = min(max(2 * self._pause_ms, 1.0), float(self._times.retry_backoff_max_ms))


def _text(failure: Cause | OptionError | None) -> str:
    if failure is None:
        return "it has expired"
    return failure.text if isinstance(failure, Cause) else str(failure)


@lru_cache(maxsize=16)
def token_of(login: EndpointLogin | MSKLogin, servers: tuple[str, ...], tls: TLSSettings | None) -> RenewedToken:
    """The token of a login, shared by all clients of a process.

    `tls` has the brokers' settings, for an endpoint without its own.
    """
    if isinstance(login, MSKLogin):
        return RenewedToken(lambda seconds: _sign_token(login, servers, seconds), "AWS", _AWS_ADVICE, login.times)

    def context() -> ssl.SSLContext:
        return endpoint_context(tls) if login.tls is None else tls_context(login.tls)

    source = f"the token endpoint {_shown(login.endpoint)}"
    return RenewedToken(lambda seconds: fetch_token(login, context, seconds), source, _ADVICE, login.times)


if hasattr(os, "register_at_fork"):  # a thread that renews a token stays in the parent
    os.register_at_fork(after_in_child=token_of.cache_clear)


def hide_debug(loggers: Iterable[str]) -> None:
    """Drop DEBUG messages of some loggers: they show secrets."""
    for name in loggers:
        logging.getLogger(name).addFilter(_not_debug)


def _not_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def _shown(endpoint: str) -> str:
    """An endpoint's URL without possible secrets."""
    parsed = urlsplit(endpoint)
    return f"{parsed.scheme}://{parsed.netloc}{parsed.path}"


def fetch_token(login: EndpointLogin, context: Callable[[], ssl.SSLContext], seconds: float) -> Token:
    """Get a token from the login's endpoint, within some seconds, or from its file.

    Raises:
        AccessRefusedError: the endpoint refuses, or is not a token endpoint.
        TokenUnavailableError: it does not answer now.
    """
    if login.endpoint.startswith("file:"):
        return _read(login)
    name = _shown(login.endpoint)
    connect, read = login.times.connect_timeout_ms / 1000, login.times.read_timeout_ms / 1000
    try:
        tls = context() if login.endpoint.startswith("https") else None
        answer = fetch(_request(login), Times(connect, read, max(seconds, 0.001)), tls)
    except NotAnsweredError as error:
        if not error.is_untrusted:
            raise TokenUnavailableError(Cause(str(error), error.is_permanent)) from error
        untrusted = f"The certificate of the token endpoint {name} is not trusted: {error}"
        raise AccessRefusedError(f"{untrusted}. Check kafka.ssl.truststore.location") from error
    if answer.status in _SUCCESS:
        return _token(answer.body, name)
    what = answer.status_text + _said(answer.body, login)
    if answer.is_transient:
        raise TokenUnavailableError(Cause(what))
    msg = f"{name} does not answer as a token endpoint ({what}). Check {_ADVICE}"
    if answer.status in _REFUSALS:
        msg = f"The token endpoint {name} refuses the login ({what}). Check {_CREDENTIALS}"
    raise AccessRefusedError(msg)


def _request(login: EndpointLogin) -> urllib.request.Request:
    pair = [login.client_id, login.client_secret.reveal()]
    if login.encodes_header:
        pair = [quote_plus(part) for part in pair]
    form = {"grant_type": "client_credentials"} | ({"scope": login.scope} if login.scope else {})
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {_basic(pair)}",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return urllib.request.Request(  # noqa: S310 (http or https: `parsers.token_endpoint`)
        login.endpoint, urlencode(form).encode(), headers, method="POST"
    )


def _basic(pair: Sequence[str]) -> str:
    return base64.b64encode(":".join(pair).encode()).decode()


def _token(answer: bytes, name: str) -> Token:
    try:
        content = loads(answer)
    except ValueError:
        content = None
    value = content.get("access_token") if isinstance(content, dict) else None
    if not isinstance(value, str) or not value.strip():
        what = "is not JSON" if content is None else "has no access_token"
        raise AccessRefusedError(
            f"The token endpoint {name} answers, but the answer {what}. Check {_ADVICE}: is it the URL of tokens?"
        )
    return Token(Secret(value.strip()), _lifetime(value.strip(), content.get("expires_in")))


def _lifetime(value: str, expires_in: object) -> float:
    """A token's lifetime in seconds, from the answer and, if it is a JWT, from the token; without our clock."""
    lifetimes = [_number(expires_in)]
    try:
        part = value.split(".")[1]
        claims = loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        lifetimes.append(_number(claims["exp"]) - _number(claims["iat"]))
    except (IndexError, KeyError, TypeError, ValueError):
        pass  # opaque, or without its time of issue
    return min((seconds for seconds in lifetimes if seconds > 0), default=_UNKNOWN_LIFETIME)


def _number(value: object) -> float:
    """Parse a number, which some endpoints write as text; NaN, for which comparisons are false, if invalid."""
    try:
        return float(value) if isinstance(value, (int, float, str)) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _read(login: EndpointLogin) -> Token:
    path = Path(unquote(urlsplit(login.endpoint).path))
    try:
        value = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not a token"
        raise AccessRefusedError(f"The token file {path} cannot be read: {reason}. Check {_ENDPOINT}") from None
    if not value:
        raise TokenUnavailableError(Cause("the file is empty"))
    return Token(Secret(value), min(_lifetime(value, None), _UNKNOWN_LIFETIME))


def _said(body: bytes, login: EndpointLogin) -> str:
    """The endpoint's error message without secrets, as some endpoints echo requests."""
    try:
        content = loads(body)
        parts = [str(content[name]) for name in ("error", "error_description") if content.get(name)]
    except (ValueError, AttributeError):
        return ""
    said = " - ".join(parts)
    secret = login.client_secret.reveal()
    pair = [login.client_id, secret]
    headers = {_basic(pair), _basic([quote_plus(part) for part in pair])}
    for form in {secret, quote_plus(secret), *headers}:
        said = said.replace(form, "***") if form else said
    return f": {said[:_MOST_SHOWN]}" if said else ""


def _sign_token(login: MSKLogin, servers: Iterable[str], seconds: float) -> Token:
    """Sign a token for Amazon MSK; the region is in the bootstrap servers' names."""
    try:
        import botocore.session  # noqa: PLC0415 (optional packages)
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415
        from botocore import exceptions as failures  # noqa: PLC0415
        from botocore.config import Config  # noqa: PLC0415
        from botocore.credentials import CredentialProvider, Credentials  # noqa: PLC0415
    except ImportError:
        raise AccessRefusedError(
            f"An AWS IAM login needs the package {_AWS_PACKAGE} on the driver and all executors (pip install "
            f"{_AWS_PACKAGE})"
        ) from None
    hide_debug(_TALKATIVE)
    try:
        session = botocore.session.Session(profile=login.profile)
        in_name = next((match[1] for server in servers if (match := _BROKER.search(server.lower()))), None)
        region = in_name or session.get_config_variable("region")
        if region is None:
            raise AccessRefusedError(
                "The brokers' names lack AWS's region: set kafka.bootstrap.servers to the names that MSK gives, "
                "or set AWS_REGION or a profile with a region"
            )
        if login.role_arn is None:
            credentials = session.get_credentials()
        else:
            wait = max(seconds, 1.0)
            config = Config(connect_timeout=wait, read_timeout=wait, retries={"total_max_attempts": 1})
            sts = session.create_client("sts", region_name=login.sts_region or region, config=config)
            named = {} if login.external_id is None else {"ExternalId": login.external_id}
            role = sts.assume_role(RoleArn=login.role_arn, RoleSessionName=login.role_session, **named)["Credentials"]
            credentials = Credentials(role["AccessKeyId"], role["SecretAccessKey"], role["SessionToken"])
        if credentials is None:
            raise AccessRefusedError(f"AWS's configuration has no credentials. Check {_AWS_ADVICE}")

        class Provider(CredentialProvider):  # type: ignore[misc]  # botocore has no types
            def load(self) -> object:
                return credentials.get_frozen_credentials()

        signed, _ = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(region, Provider())
    except (failures.ConnectionError, failures.HTTPClientError) as error:
        raise TokenUnavailableError(Cause(f"AWS does not answer ({type(error).__name__})")) from None
    except (failures.BotoCoreError, failures.ClientError, ValueError) as error:
        if isinstance(error, AccessRefusedError):
            raise
        code = error.response.get("Error", {}).get("Code") if isinstance(error, failures.ClientError) else None
        raise AccessRefusedError(
            f"AWS gives no credentials for the login ({code or type(error).__name__}). Check {_AWS_ADVICE}"
        ) from None
    return Token(Secret(signed), _AWS_SECONDS)
