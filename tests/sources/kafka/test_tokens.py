"""Tokens without a broker: what is asked of an endpoint, how long they are used, and when they are renewed."""

import base64
import json
import math
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which
from typing import Any, cast
from urllib.parse import quote_plus

import pytest
from kafka.net.sasl.oauth import SaslMechanismOAuth

from tests.support.pages import blocks
from tests.support.secure_kafka import certificates_in
from tests.support.token_server import CLIENT, CLIENT_SECRET, TokenServer
from ticdc_source.errors import KafkaUnavailableError, OptionError
from ticdc_source.options.kafka_client import ClientSettings, client_settings
from ticdc_source.options.logins import EndpointLogin, LoginTimes, TLSSettings
from ticdc_source.options.options import Options
from ticdc_source.options.parsers import Secret
from ticdc_source.sources.kafka.kafka_python.logins import login_settings
from ticdc_source.sources.kafka.patience import Cause, Limit, Patience
from ticdc_source.sources.kafka.tokens import RenewedToken, Token, TokenUnavailableError, fetch_token, token_of
from ticdc_source.sources.tls import tls_context

GUIDE = Path(__file__).parents[3] / "docs/guides/security.md"
DEADLINE = 20  # seconds that something may take which happens at once


@pytest.fixture(autouse=True)
def own_tokens() -> Iterator[None]:
    """Each test has tokens of its own, and leaves no thread that renews one."""
    token_of.cache_clear()
    yield
    eventually(lambda: not [one for one in threading.enumerate() if one.name == "ticdc-login"])


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with TokenServer().running() as running:
        yield running


def patience(ms: float = 3_000) -> Patience:
    return Patience("b:9092", "no broker answers", Limit(ms, "an option", ends_early=True))


def config(server: TokenServer, **more: str) -> ClientSettings:
    """The settings of a login at an endpoint; `a_b` is `kafka.a.b`."""
    given = {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", **server.options(**more)}
    return client_settings(
        Options.of({"subscribe": "t", **{f"kafka.{name}": value for name, value in given.items()}}), driver=False
    )


def session(settings: ClientSettings) -> dict[str, Any]:
    """Log in; return kafka-python's settings of it."""
    return login_settings(settings, patience())


def test_what_the_broker_is_sent(server: TokenServer) -> None:
    """The first message has the token and the extensions, as RFC 7628 writes them."""
    jaas = server.jaas(more=' extension_logicalCluster="lkc-1" extension_identityPoolId="pool-2"')
    message = SaslMechanismOAuth(**session(config(server, sasl_jaas_config=jaas))).auth_bytes()

    (token,) = server.tokens
    assert message == f"n,,\x01auth=Bearer {token}\x01logicalCluster=lkc-1\x01identityPoolId=pool-2\x01\x01".encode()


def test_one_token_for_each_login(server: TokenServer) -> None:
    """Clients of a process share the token of their login; another scope is another login."""
    for _ in range(3):
        session(config(server))
    session(config(server, sasl_oauthbearer_scope="other"))

    assert [request["scope"] for request in server.requests] == ["read write", "other"]


def test_the_header_can_be_url_encoded(server: TokenServer) -> None:
    """`sasl.oauthbearer.header.urlencode` writes id and secret as RFC 6749 wants them, which not all endpoints do."""
    encoded = f"{CLIENT}:{quote_plus(CLIENT_SECRET)}"
    with pytest.raises(OptionError, match="refuses the login"):  # this endpoint does not
        session(config(server, sasl_oauthbearer_header_urlencode="true"))

    assert [request["user"] for request in server.requests] == [encoded]


def test_a_proxy(server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint is asked through the proxy that the environment names."""
    monkeypatch.setenv("http_proxy", server.url.removesuffix("/oauth2/token"))
    monkeypatch.setenv("no_proxy", "")
    session(config(server, sasl_oauthbearer_token_endpoint_url="http://login.invalid/oauth2/token"))

    assert len(server.tokens) == 1


@pytest.mark.parametrize("form", ["{secret}", "bad Authorization: Basic {header}"])
def test_a_secret_that_is_repeated_is_not_shown(server: TokenServer, form: str) -> None:
    """What an endpoint says of an error is in ours, without the secret, and without the header that has it."""
    wrong = "wr0ng/s3cr3t"
    header = base64.b64encode(f"{CLIENT}:{wrong}".encode()).decode()
    said = form.format(secret=wrong, header=header)
    server.answer = 400, json.dumps({"error": "invalid_scope", "error_description": f"{said} may not"}).encode()
    with pytest.raises(OptionError, match=r"HTTP 400 Bad Request: invalid_scope - .*\*\*\* may not") as caught:
        session(config(server, sasl_jaas_config=server.jaas(wrong)))

    assert not {each for each in (wrong, header) if each in str(caught.value)}


def jwt(**claims: float) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.x"


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        ({"access_token": "opaque", "expires_in": 60}, 60),
        ({"access_token": "opaque", "expires_in": "60"}, 60),
        ({"access_token": jwt(iat=1000, exp=1040), "expires_in": 60}, 40),
        ({"access_token": jwt(iat=1000, exp=1090), "expires_in": 60}, 60),
        ({"access_token": jwt(iat=1000, exp=1090)}, 90),
        ({"access_token": jwt(exp=1090), "expires_in": -1}, 300),
        ({"access_token": "a.b.c", "expires_in": None}, 300),
        ({"access_token": "opaque", "expires_in": [1]}, 300),
    ],
)
def test_how_long_a_token_is_used(server: TokenServer, answer: dict[str, object], seconds: float) -> None:
    """As long as the endpoint and the token say, the shorter of both; our clock is not asked."""
    server.answer = 200, json.dumps(answer).encode()
    login = EndpointLogin(endpoint=server.url, client_id="a", client_secret=Secret("b"))

    assert fetch_token(login, ssl.create_default_context, 5.0) == Token(Secret(str(answer["access_token"])), seconds)


def renewed(fetch: Callable[[float], Token], **times: int) -> RenewedToken:
    return RenewedToken(fetch, "the endpoint", "the options", LoginTimes(**times))


def test_a_token_is_renewed_before_it_expires() -> None:
    """Who uses a token gets a new one when 80 to 85 percent of the old one's time are over."""
    asked: list[float] = []

    def fetch(_: float) -> Token:
        asked.append(time.monotonic())
        return Token(Secret(f"token {len(asked)}"), 2.0)

    token = renewed(fetch)
    token.wait(patience())
    values: set[str] = set()
    while len(values) < 2:
        values.add(token.value())  # never without one
        time.sleep(0.01)

    assert values == {"token 1", "token 2"}
    assert asked[1] - asked[0] >= 0.8 * 2.0


def test_a_token_that_expired_unused_is_replaced_at_once() -> None:
    """A client that connects after a long while gets a new token, and waits only for that."""
    tokens = [Token(Secret("a"), 0.01), Token(Secret("b"), float("inf"))]
    token = renewed(lambda _: tokens.pop(0))
    token.wait(patience())
    time.sleep(0.05)

    assert [token.value() for _ in range(3)] == ["b"] * 3


def test_an_endpoint_that_hangs_holds_nobody_up() -> None:
    """While the next token is asked for, the old one is used."""
    ended = threading.Event()
    tokens = [Token(Secret("a"), float("inf"))]

    def fetch(_: float) -> Token:
        if not tokens:
            ended.wait(2 * DEADLINE)
            raise TokenUnavailableError(Cause("no answer"))
        return tokens.pop()

    token = renewed(fetch)
    token.wait(patience())
    token._ask_at = 0.0  # as if most of its time were over
    began = time.monotonic()
    values = [token.value() for _ in range(3)]
    seconds = time.monotonic() - began
    ended.set()

    assert values == ["a"] * 3
    assert seconds < DEADLINE / 2


def test_a_new_token_that_brokers_refuse_is_dropped() -> None:
    """Another one would be refused too, so there is none for this client; the next use asks again."""
    tokens = [Token(Secret("a"), 60.0), Token(Secret("b"), 60.0)]
    token = renewed(lambda _: tokens.pop(0))
    token.wait(patience())

    assert not token.replace("a", patience())
    assert token.value() == "b"


def test_a_token_that_has_been_replaced_meanwhile_is_kept(server: TokenServer) -> None:
    """Clients that share a token are refused at once, or it was renewed after it was used: the new one is good."""
    settings = config(server)
    clients = [session(settings) for _ in range(3)]
    (old,) = server.tokens
    for client in clients:
        assert old.encode() in SaslMechanismOAuth(**client).auth_bytes()
    providers = [client["sasl_oauth_token_provider"] for client in clients]
    token = token_of(cast("EndpointLogin", settings.login), settings.bootstrap_servers, settings.tls)
    token._held = token._held._replace(asked_at=-math.inf)  # it is old

    assert [provider.replace(patience()) for provider in providers] == [True] * 3
    assert token.value() == server.tokens[-1] != old
    providers[0].token()
    assert not providers[0].replace(patience())  # the new one is refused too
    assert len(server.tokens) == 2


def test_whoever_waits_for_another_threads_token_waits_no_longer_than_it_may() -> None:
    """One thread asks an endpoint that hangs; those who wait for it give up in their own time, and say why."""
    ended = threading.Event()

    def fetch(_: float) -> Token:
        ended.wait(DEADLINE)
        raise TokenUnavailableError(Cause("no answer"))

    token, ends = renewed(fetch), []

    def give_up(ask: Callable[[Patience], object], ms: float) -> None:
        with pytest.raises(KafkaUnavailableError, match="no token for the login at Kafka: the endpoint") as caught:
            ask(patience(ms))
        ends.append(str(caught.value))

    waits = (token.wait, token.wait, lambda ms: token.replace("a", ms))
    waiting = [threading.Thread(target=give_up, args=(ask, 100.0)) for ask in waits]
    for each in waiting:
        each.start()
    for each in waiting:
        each.join(DEADLINE / 2)
    given_up = list(ends)
    ended.set()

    text = "There is no token for the login at Kafka: the endpoint has not answered. Check the options"
    assert given_up == [text] * 3


def test_an_outage_during_a_read() -> None:
    """The old token is used until it expires; then there is none, with the reason, and then there is a new one."""
    down = threading.Event()
    count = 0

    def fetch(_: float) -> Token:
        nonlocal count
        if down.is_set():
            raise TokenUnavailableError(Cause("ECONNREFUSED"))
        count += 1
        return Token(Secret(f"token {count}"), 1.0)

    def value() -> str:
        try:
            return token.value()
        except TokenUnavailableError as error:
            return str(error)

    token = renewed(fetch, retry_backoff_ms=10, retry_backoff_max_ms=50)
    token.wait(patience())
    first = value()
    down.set()
    eventually(lambda: value() == "no token from the endpoint: ECONNREFUSED")
    down.clear()
    eventually(lambda: value().startswith("token") and value() != first)

    assert first == "token 1"


def test_the_first_token_is_waited_for() -> None:
    """An endpoint that is busy is asked again, until the time is over; the error says how often and why."""

    def fetch(_: float) -> Token:
        raise TokenUnavailableError(Cause("HTTP 503 Service Unavailable"))

    message = r"no token for the login at Kafka: the endpoint: HTTP 503 .*tries\). Check the options"
    with pytest.raises(KafkaUnavailableError, match=message):
        renewed(fetch, retry_backoff_ms=10).wait(patience(300))


def test_an_endpoint_that_is_busy_is_asked_again(server: TokenServer) -> None:
    """Until it answers with a token."""
    server.answer = 503, b""
    threading.Timer(0.3, lambda: setattr(server, "answer", None)).start()
    session(config(server))

    assert len(server.requests) > 1
    assert len(server.tokens) == 1


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if which("openssl") is None:
        pytest.skip("openssl is not installed")
    return certificates_in(tmp_path_factory.mktemp("certificates"))


class TestTLS:
    """The endpoint's certificate."""

    @pytest.fixture
    def secure(self, certificates: Path) -> Iterator[TokenServer]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "broker.pem")
        with TokenServer(tls=context).running() as running:
            yield running

    def test_the_brokers_authority_is_trusted(self, secure: TokenServer, certificates: Path) -> None:
        """The certificate may be signed by an authority in Kafka's trust store."""
        session(config(secure, ssl_truststore_location=str(certificates / "ca.pem")))

        assert len(secure.tokens) == 1

    def test_an_authority_of_its_own(self, secure: TokenServer, certificates: Path) -> None:
        """`ssl.truststore.location` in the login module is the endpoint's."""
        jaas = secure.jaas(more=f' ssl.truststore.location="{certificates / "ca.pem"}"')
        session(config(secure, sasl_jaas_config=jaas))

        assert len(secure.tokens) == 1

    def test_an_authority_that_nobody_trusts(self, secure: TokenServer) -> None:
        """It is an error at once, and no secret is sent."""
        with pytest.raises(OptionError, match=r"certificate of the token endpoint https.*not trusted.*ssl\.truststore"):
            session(config(secure))
        assert secure.requests == []


@pytest.mark.parametrize("text", ["ünsinn", "", "no certificate", "-----BEGIN CERTIFICATE-----\nx\n"])
def test_a_text_that_is_no_certificate_is_an_error_of_the_option(text: str) -> None:
    """Whatever `ssl` raises."""
    with pytest.raises(OptionError, match=r"kafka\.ssl\.truststore\.certificates: .* cannot be loaded"):
        tls_context(TLSSettings(truststore_pem=text or " "))


@pytest.mark.parametrize(
    ("module", "given", "message"),
    [
        (
            "aws_msk_iam_sasl_signer",
            {
                "sasl_mechanism": "AWS_MSK_IAM",
                "sasl_jaas_config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
            },
            "pip install aws-msk-iam-sasl-signer-python",
        ),
        (
            "gssapi",
            {
                "sasl_mechanism": "GSSAPI",
                "sasl_jaas_config": "com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;",
            },
            "pip install gssapi",
        ),
    ],
)
def test_packages_that_are_missing(
    server: TokenServer, module: str, given: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login that needs a package says which, and how to install it."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(OptionError, match=message):
        session(config(server, **given))


def test_the_logins_of_the_guide_are_read() -> None:
    """Each login that the guide shows is a login, as it stands there."""
    mechanisms = []
    for block in blocks(GUIDE):
        if block.language == "python" and "login = {" in block.text:
            names: dict[str, Any] = {}
            exec(block.text, names)  # noqa: S102 (the guide is ours)
            given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", **names["login"]}
            login = client_settings(Options.of(given), driver=True).login
            mechanisms.append(login and login.mechanism)

    assert mechanisms == ["OAUTHBEARER", "OAUTHBEARER", "GSSAPI", "PLAIN"]


def value_of(token: RenewedToken) -> str:
    """Return the text of a token; empty while there is none."""
    try:
        return token.value()
    except TokenUnavailableError:
        return ""


@pytest.mark.parametrize(
    ("endpoint", "proxy", "message"),
    [
        ("http://127.0.0.1:1/tökén", None, "check the ports and characters in its URL"),
        (
            "http://a.invalid/t",
            "http://me:s3cr3t@127.0.0.1:port",
            "check the ports and characters in .*the proxy's URL",
        ),
    ],
)
def test_a_url_that_http_cannot_send_is_told(
    endpoint: str, proxy: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what to look at, and neither it nor what lies behind it has the proxy's password."""
    monkeypatch.setenv("no_proxy", "" if proxy else "*")
    monkeypatch.setenv("http_proxy", proxy or "")
    login = EndpointLogin(endpoint=endpoint, client_id="a", client_secret=Secret("b"))
    with pytest.raises(TokenUnavailableError, match=message) as caught:
        fetch_token(login, ssl.create_default_context, 5.0)

    error: BaseException | None = caught.value
    while error is not None:
        assert "s3cr3t" not in f"{error!r}"
        error = error.__cause__ or error.__context__


def test_an_unforeseen_error_does_not_end_the_renewal(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a request raises once, the next one is made; its text, which may hold a secret, is not logged."""
    answers: list[Token | Exception] = [Token(Secret("a"), 0.2), RuntimeError("hush"), Token(Secret("b"), 60.0)]

    def fetch(_: float) -> Token:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    token = renewed(fetch, retry_backoff_ms=1)
    token.wait(patience())
    eventually(lambda: value_of(token) == "b")

    assert "RuntimeError" in caplog.text
    assert "hush" not in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_renews_its_own_tokens() -> None:
    """A fork copies tokens without a thread that renews one: the child has none of them."""
    code = """
import os
from ticdc_source.options.logins import MSKLogin
from ticdc_source.sources.kafka.tokens import token_of
kept = token_of(MSKLogin(), (), None)
child = os.fork()
if child == 0:
    os._exit(0 if token_of(MSKLogin(), (), None) is not kept else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60).stdout == b"0\n"
