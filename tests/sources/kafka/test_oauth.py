"""OAUTHBEARER at a real broker, which checks the tokens of a token endpoint on this machine."""

import itertools
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.local_kafka import create_topic, produce
from tests.sources.kafka.reading import DEADLINE, numbers_of
from tests.support.secure_kafka import OAuthKafka, oauth_kafka
from tests.support.token_server import AUDIENCE, CLIENT_SECRET, TokenServer
from ticdc_source.errors import KafkaUnavailableError, OptionError
from ticdc_source.options.kafka_client import client_settings
from ticdc_source.options.options import Options
from ticdc_source.sources.kafka import KafkaCluster

pytestmark = pytest.mark.broker

RECORDS, BATCH = 400, 40


@pytest.fixture(scope="module")
def server() -> Iterator[TokenServer]:
    with TokenServer().running() as running:
        yield running


@pytest.fixture(scope="module")
def kafka(server: TokenServer) -> Iterator[OAuthKafka]:
    with oauth_kafka(server.jwks_url, AUDIENCE) as kafka:
        create_topic(kafka.bootstrap_servers, "t")
        for start in range(0, RECORDS, BATCH):  # each is a record batch, and a fetch of its own
            numbers = range(start, start + BATCH)
            produce(kafka.bootstrap_servers, "t", [(0, None, b"%d" % number, [], None) for number in numbers])
        yield kafka


@pytest.fixture(autouse=True)
def fresh(server: TokenServer) -> Iterator[None]:
    """Each test has an endpoint that was not asked yet; after it none of its threads of clients and logins runs."""
    before = set(threading.enumerate())  # clients of other tests may have left some
    server.seconds, server.answer = 3600.0, None
    server.requests.clear()
    server.tokens.clear()
    yield
    deadline = time.monotonic() + DEADLINE
    names = ("kafka-io", "ticdc-login")
    while left := [one.name for one in set(threading.enumerate()) - before if one.name.startswith(names)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


_numbers = itertools.count()


def options(servers: str, server: TokenServer, secret: str = CLIENT_SECRET, **more: str) -> Options:
    """The options of a read with a login; each call has a token of its own, by an extension of its own."""
    letters = "".join(chr(ord("a") + int(digit)) for digit in str(next(_numbers)))
    given = server.options(sasl_jaas_config=server.jaas(secret, f' extension_test="{letters}"'), **more)
    kafka = {f"kafka.{name}": value for name, value in given.items()}
    return Options.of(
        {"kafka.bootstrap.servers": servers, "kafka.security.protocol": "SASL_PLAINTEXT", "subscribe": "t", **kafka}
    )


def chain(error: BaseException | None) -> str:
    texts = []
    while error is not None:
        texts.append(f"{error!r} {error}")
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


@pytest.mark.slow("waits until tokens expire")
def test_a_token_expires_during_a_read(
    kafka: OAuthKafka, server: TokenServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Tokens of four seconds, and a broker that wants a login every two, do not end a read; each row comes once."""
    server.seconds = 4.0
    caplog.set_level(logging.INFO, "kafka.net.connection")

    found = numbers_of(options(kafka.short, server, max_partition_fetch_bytes="100"), RECORDS, pause=0.25)

    assert found == list(range(RECORDS))
    assert len(server.tokens) > 2
    assert "(connected)>: Authenticated via SASL / OAuth" in caplog.text  # again, on a connection that lives
    assert not [token for token in server.tokens if token in caplog.text]


@pytest.mark.slow("waits until a token expires")
def test_a_token_that_expires_too_early(kafka: OAuthKafka, server: TokenServer) -> None:
    """A token that is refused before its time is over, as after a machine was asleep, is replaced."""
    now = int(time.time())
    early = server.token(iat=now - 600, exp=now + 3)
    server.answer = 200, b'{"access_token": "%s", "expires_in": 600}' % early.encode()
    given = options(kafka.short, server, max_partition_fetch_bytes="100")
    threading.Timer(1.5, lambda: setattr(server, "answer", None)).start()

    assert numbers_of(given, RECORDS, pause=0.2) == list(range(RECORDS))
    assert len(server.tokens) == 1


@pytest.mark.slow("a broker of its own")
def test_a_wrong_secret(kafka: OAuthKafka, server: TokenServer, caplog: pytest.LogCaptureFixture) -> None:
    """It is told at once, with what to check; the secret is nowhere, though the endpoint repeats it."""
    caplog.set_level(logging.DEBUG)
    began = time.monotonic()
    wrong = "wr0ng-s3cr3t"
    given = options(kafka.sasl, server, secret=wrong)
    message = rf"{server.url} refuses the login \(HTTP 401.*invalid_client.*Check the client's id, secret"
    with KafkaCluster(given) as cluster, pytest.raises(OptionError, match=message) as caught:
        cluster.partitions()

    assert time.monotonic() - began < DEADLINE
    assert wrong not in chain(caught.value) + caplog.text + repr(client_settings(given, driver=True))
    assert len(server.requests) == 1


@pytest.mark.slow("a broker of its own")
def test_a_token_that_the_broker_refuses(
    kafka: OAuthKafka, server: TokenServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker's reason is in the error; the token is not. The next read asks for another one."""
    caplog.set_level(logging.DEBUG)
    given = options(kafka.sasl, server)
    with TokenServer().running() as other:  # with another key
        bad = other.token()
    server.answer = 200, b'{"access_token": "%s", "expires_in": 600}' % bad.encode()
    with pytest.raises(OptionError, match="refuses the login") as caught:
        numbers_of(given, RECORDS)
    server.answer = None

    assert bad not in chain(caught.value) + caplog.text
    assert numbers_of(given, RECORDS) == list(range(RECORDS))


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, b'{"token": "x"}', "has no access_token"),
        (200, b"<html>Please log in</html>", "is not JSON"),
        (404, b"", "HTTP 404 Not Found.*token.endpoint.url"),
        (302, b"", "HTTP 302"),
    ],
)
def test_an_endpoint_that_is_none(server: TokenServer, status: int, body: bytes, message: str) -> None:
    """An answer without a token is an error at once, before any broker is asked."""
    server.answer = status, body
    with pytest.raises(OptionError, match=message), KafkaCluster(options("127.0.0.1:1", server)) as cluster:
        cluster.partitions()

    assert len(server.requests) == 1


@pytest.mark.slow("five seconds of tries")
def test_an_endpoint_that_is_down(server: TokenServer) -> None:
    """It is an error within seconds that names the endpoint and the option."""
    began = time.monotonic()
    given = options("127.0.0.1:1", server, sasl_oauthbearer_token_endpoint_url="http://127.0.0.1:1/token")
    with (
        KafkaCluster(given) as cluster,
        pytest.raises(
            KafkaUnavailableError,
            match=r"no token for the login.*http://127\.0\.0\.1:1/token: ECONNREFUSED.*token\.endpoint\.url",
        ),
    ):
        cluster.partitions()

    assert time.monotonic() - began < DEADLINE


@pytest.mark.slow("a broker of its own")
def test_a_token_in_a_file(kafka: OAuthKafka, server: TokenServer, tmp_path: Path) -> None:
    """`file:` names a file with a token, as in Java; nobody is asked for one."""
    file = tmp_path / "token"
    given = options(kafka.sasl, server, sasl_oauthbearer_token_endpoint_url=file.as_uri())
    with pytest.raises(OptionError, match="cannot be read: No such file"):
        numbers_of(given, RECORDS)
    file.write_text(server.token() + "\n")

    assert numbers_of(given, RECORDS) == list(range(RECORDS))
    assert server.requests == []
