"""A token from a token endpoint, for a client's id and secret: the client credentials grant of OAuth 2.0.

Sources: RFC 6749, sections 4.4, 5.1 and 5.2; Kafka's `HttpJwtRetriever`, whose request this is, and which says after
which answers another try is in vain.
"""

from __future__ import annotations

import base64
import math
import ssl
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from ticdc_source.errors import AccessRefusedError
from ticdc_source.options.parsers import Secret
from ticdc_source.options.security import EndpointLogin
from ticdc_source.schema.json_text import loads
from ticdc_source.sources.kafka.logins.token_renewal import Token, TokenUnavailableError
from ticdc_source.sources.kafka.patience import Cause
from ticdc_source.sources.tls.requests import NotAnsweredError, Times, fetch

__all__ = ["ADVICE", "fetch_token", "shown"]

ADVICE = "kafka.sasl.oauthbearer.token.endpoint.url and the network"

_CREDENTIALS = (
    "the client's id, secret and scope (kafka.sasl.jaas.config, or kafka.sasl.oauthbearer.client.credentials.…)"
)
_SUCCESS = range(200, 300)
_REFUSALS = frozenset({400, 401, 403})
_MOST_SHOWN = 200  # letters of what the endpoint says
_UNKNOWN_LIFETIME = 300.0  # seconds, if neither the answer nor the token says


def shown(endpoint: str) -> str:
    """Return an endpoint's URL for messages, without what may be secret in it."""
    parsed = urlsplit(endpoint)
    return f"{parsed.scheme}://{parsed.netloc}{parsed.path}"


def fetch_token(login: EndpointLogin, context: Callable[[], ssl.SSLContext], seconds: float) -> Token:
    """Get a token.

    Args:
        login: where, and whose.
        context: makes the TLS context for the endpoint.
        seconds: how long it may take.

    Raises:
        AccessRefusedError: the endpoint refuses, or is none.
        TokenUnavailableError: the endpoint does not answer now.
    """
    if login.endpoint.startswith("file:"):
        return _read(login)
    name = shown(login.endpoint)
    connect, read = login.times.connect_timeout_ms / 1000, login.times.read_timeout_ms / 1000
    try:
        tls = context() if login.endpoint.startswith("https") else None
        answer = fetch(_request(login), Times(connect, read, max(seconds, 0.001)), tls)
    except NotAnsweredError as error:
        if error.is_untrusted:
            msg = (
                f"The certificate of the token endpoint {name} is not trusted: {error}. Check "
                "kafka.ssl.truststore.location"
            )
            raise AccessRefusedError(msg) from error
        raise TokenUnavailableError(Cause(str(error), error.is_permanent)) from error
    if answer.status in _SUCCESS:
        return _token(answer.body, name)
    what = answer.status_text + _said(answer.body, login)
    if answer.is_transient:
        raise TokenUnavailableError(Cause(what))
    if answer.status in _REFUSALS:
        msg = f"The token endpoint {name} refuses the login ({what}). Check {_CREDENTIALS}"
        raise AccessRefusedError(msg)
    msg = f"The token endpoint {name} does not answer as one ({what}). Check {ADVICE}"
    raise AccessRefusedError(msg)


def _request(login: EndpointLogin) -> urllib.request.Request:
    pair = [login.client_id, login.client_secret.reveal()]
    if login.encodes_header:
        pair = [quote_plus(part) for part in pair]
    form = {"grant_type": "client_credentials"} | ({"scope": login.scope} if login.scope else {})
    return urllib.request.Request(  # noqa: S310 (http or https: `parsers.token_endpoint`)
        login.endpoint,
        urlencode(form).encode(),
        {
            "Accept": "application/json",
            "Authorization": f"Basic {_basic(pair)}",
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        },
        method="POST",
    )


def _basic(pair: Sequence[str]) -> str:
    """Return a client's id and secret as a header has them."""
    return base64.b64encode(":".join(pair).encode()).decode()


def _token(answer: bytes, name: str) -> Token:
    try:
        content = loads(answer)
    except ValueError:
        content = None
    value = content.get("access_token") if isinstance(content, dict) else None
    if not isinstance(value, str) or not value.strip():
        what = "is not JSON" if content is None else "has no access_token"
        msg = f"The token endpoint {name} answers, but what it says {what}. Check {ADVICE}: is it the URL of tokens?"
        raise AccessRefusedError(msg)
    return Token(Secret(value.strip()), _lifetime(value.strip(), content.get("expires_in")))


def _lifetime(value: str, expires_in: object) -> float:
    """Return how many seconds a token is valid, by the answer and by itself if it is a JWT, without our clock."""
    lifetimes = [_number(expires_in)]
    try:
        part = value.split(".")[1]
        claims = loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        lifetimes.append(_number(claims["exp"]) - _number(claims["iat"]))
    except (IndexError, KeyError, TypeError, ValueError):
        pass  # it is opaque, or does not say when it was made
    return min((seconds for seconds in lifetimes if seconds > 0), default=_UNKNOWN_LIFETIME)


def _number(value: object) -> float:
    """Return a number that some endpoints write as text; NaN, which no comparison finds, if it is none."""
    try:
        return float(value) if isinstance(value, (int, float, str)) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _read(login: EndpointLogin) -> Token:
    """Read a token from a file that somebody else renews."""
    path = Path(unquote(urlsplit(login.endpoint).path))
    try:
        value = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not a token"
        msg = f"The token's file {path} cannot be read: {reason}. Check kafka.sasl.oauthbearer.token.endpoint.url"
        raise AccessRefusedError(msg) from None
    if not value:
        raise TokenUnavailableError(Cause("the file is empty"))
    return Token(Secret(value), min(_lifetime(value, None), _UNKNOWN_LIFETIME))


def _said(body: bytes, login: EndpointLogin) -> str:
    """Return what the endpoint says of an error: RFC 6749 gives it no secret, but some echo what they were sent."""
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
