"""Schemas from a registry with Confluent's API: what is asked, and what each answer means."""

import base64
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.captured import load, make_options
from ticdc_source.errors import DecodeError, SchemaRegistryUnavailableError, TiCDCSourceError
from ticdc_source.options.logins import RegistrySettings
from ticdc_source.sources.http_requests import NotAnsweredError, Times, fetch
from ticdc_source.sources.schema_registry import schema_text

SCHEMA = '{"type":"record","name":"t","namespace":"default.d","fields":[]}'
FOUND = 200, json.dumps({"schema": SCHEMA}).encode()
SECRET = "hush-hush"
BASIC = f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}"
Answer = tuple[int, bytes]


class Registry(ThreadingHTTPServer):
    """Gives the answers that a test wants, in order; the last one again and again."""

    daemon_threads = True

    def __init__(self, answers: list[Answer], wait: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers, self.wait = answers, wait
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        answers = self.server.answers
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        time.sleep(self.server.wait)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status in (301, 302):
            self.send_header("Location", f"{self.server.url}/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def answering(*answers: Answer, wait: float = 0.0) -> Iterator[Registry]:
    with Registry(list(answers), wait) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def settings(urls: str, **given: str) -> RegistrySettings:
    tries = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "10", "http.read.timeout.ms": "300"}
    return RegistrySettings.of(make_options(**{"schema.registry.url": urls, **tries, **given}))


def test_a_schema_is_asked_for_once() -> None:
    """An id never changes its meaning: a process asks for it once, whoever wants it."""
    with answering(FOUND) as registry:
        given = settings(registry.url + "/")

        found = [schema_text(given, 7) for _ in range(3)]

        assert found == [SCHEMA] * 3
        assert registry.asked == [("/schemas/ids/7", None)]


@pytest.mark.parametrize(
    ("user", "given", "header"),
    [
        ("", {"basic.auth.user.info": f"me:{SECRET}"}, BASIC),
        ("", {"bearer.auth.token": SECRET}, f"Bearer {SECRET}"),
        (f"me:{SECRET}@", {}, BASIC),  # as in Confluent's clients
    ],
)
def test_the_login_is_sent(user: str, given: Mapping[str, str], header: str) -> None:
    """A user and a password, which may be in the URL, or a token, are in the header that the registry expects."""
    with answering(FOUND) as registry:
        schema_text(settings(registry.url.replace("://", f"://{user}"), **given), 7)

        assert registry.asked == [("/schemas/ids/7", header)]


def nobody() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{one.getsockname()[1]}"


def test_another_url_is_asked_if_one_does_not_answer() -> None:
    """Several URLs are one registry: the first that answers counts."""
    with answering((503, b"")) as broken, answering(FOUND) as sound:
        assert schema_text(settings(f"{nobody()}, {broken.url}, {sound.url}"), 7) == SCHEMA


@pytest.mark.parametrize("answer", [(503, b""), (429, b"")])
def test_a_registry_that_is_busy_is_asked_again(answer: Answer) -> None:
    """As often as Kafka's offsets are looked up."""
    with answering(answer, FOUND) as registry:
        assert schema_text(settings(registry.url), 7) == SCHEMA
        assert len(registry.asked) == 2


MISSING = 404, b'{"error_code":40403,"message":"Schema not found"}'


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (MISSING, DecodeError, "schema 7 is not in the schema registry http://127"),
        ((404, b"<html>"), SchemaRegistryUnavailableError, "does not answer as a schema registry (HTTP 404 Not Found)"),
        (
            (404, b'{"error_code":404,"message":"HTTP 404 Not Found"}'),
            SchemaRegistryUnavailableError,
            "does not answer as a schema registry (HTTP 404 Not Found)",
        ),
        ((401, b"{}"), SchemaRegistryUnavailableError, "refuses the login (HTTP 401 Unauthorized), asked for schema 7"),
        ((403, b"{}"), SchemaRegistryUnavailableError, "Check basic.auth.user.info or bearer.auth.token"),
        ((301, b""), SchemaRegistryUnavailableError, "does not answer as a schema registry (HTTP 301"),
        ((500, b""), SchemaRegistryUnavailableError, "2 tries (fetchOffset.numRetries), asked for schema 7"),
        ((200, b"<html>"), SchemaRegistryUnavailableError, "answers, but not as a schema registry"),
        ((200, b'{"schema":"x","schemaType":"PROTOBUF"}'), DecodeError, "is PROTOBUF, not Avro"),
        ((200, b'{"schema":"\\"a\\"","references":[{"name":"b"}]}'), DecodeError, "has references"),
        ((200, b'{"schema":"{"}'), DecodeError, "is not an Avro schema"),
        ((200, b"{}"), DecodeError, "is not an Avro schema"),
    ],
)
def test_each_answer_that_is_no_schema_says_what_to_do(answer: Answer, kind: type[TiCDCSourceError], says: str) -> None:
    """A schema that is not there concerns its record, all else concerns every one; no error shows a secret."""
    with answering(answer) as registry:
        given = settings(registry.url.replace("://", f"://me:{SECRET}@"))

        with pytest.raises(kind) as raised:
            schema_text(given, 7)

        assert says in str(raised.value)
        assert SECRET not in str(raised.value)
        assert SECRET not in repr(given)


def test_a_schema_that_is_missing_is_not_asked_for_each_record() -> None:
    """A topic of records with a deleted schema asks once in a while."""
    with answering(MISSING) as registry:
        given = settings(registry.url)
        for _ in range(100):
            with pytest.raises(DecodeError):
                schema_text(given, 7)

        assert len(registry.asked) == 1


@pytest.mark.parametrize(
    ("url", "says"),
    [(nobody, "ECONNREFUSED (nothing listens there)"), (lambda: "http://no-such-host.invalid", "no such host")],
)
def test_a_registry_that_is_not_there_is_an_error_in_time(url: Callable[[], str], says: str) -> None:
    """The error has the id and the reason, and comes after the tries."""
    began = time.monotonic()

    with pytest.raises(SchemaRegistryUnavailableError, match="asked for schema 7") as raised:
        schema_text(settings(url()), 7)

    assert says in str(raised.value)
    assert time.monotonic() - began < 60


def test_a_registry_that_is_slow_is_an_error_in_time() -> None:
    """An answer that does not come is not waited for."""
    with answering(FOUND, wait=5) as registry, pytest.raises(SchemaRegistryUnavailableError, match="no answer"):
        schema_text(settings(registry.url), 7)


def test_without_a_registry_the_error_names_the_option() -> None:
    """Messages that need one are told from others by their first bytes, so this is the first error of a new user."""
    with pytest.raises(SchemaRegistryUnavailableError, match=r"set schema\.registry\.url to the registry"):
        schema_text(RegistrySettings(), 7)


def test_a_missing_schema_is_a_bad_record() -> None:
    """`mode` decides about records whose schema is gone; the others are read."""
    captured = load("avro.default.invalid-utf8")
    good = [record for records in captured.partitions.values() for record in records]
    bad = type(good[0])(good[0].key, b"\x00\x00\x00\x99\x99" + (good[0].value or b"")[5:])
    both = type(captured)(captured.header, {0: [bad, *good]})

    rows = both.read(mode="PERMISSIVE").to_pylist()

    assert [row["_corrupt_record"] is None for row in rows] == [False, True, True, True]
    assert "schema 39321 is not in the schema registry" in rows[0]["_corrupt_record"]


def test_addresses_that_do_not_answer_share_the_time_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with many dead addresses is an error in time: each attempt to connect gets what is left."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{number}", 80)) for number in range(1, 9)]
    waits: list[float] = []

    def dead(_address: object, timeout: float, _source: object) -> socket.socket:
        waits.append(timeout)
        time.sleep(timeout)
        raise TimeoutError

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_arguments, **_named: found)
    monkeypatch.setattr(socket, "create_connection", dead)
    with pytest.raises(NotAnsweredError, match="no answer"):
        fetch(urllib.request.Request("http://registry/schemas"), Times(0.2, 1, 0.5), proxies={})

    assert len(waits) == 3
