"""Brokers that do not answer, without a broker: what the log and the error say, and how long is waited."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.connection import KafkaConnection
from kafka.net.selector import NetworkSelector

from tests.sources.kafka.reading import DEADLINE, fetch
from ticdc_source.errors import KafkaUnavailableError
from ticdc_source.options.kafka_client import client_settings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.sources.kafka import KafkaCluster
from ticdc_source.sources.kafka.kafka_python.connections import Connections
from ticdc_source.sources.kafka.kafka_python.logins import consumer_settings
from ticdc_source.sources.kafka.kafka_python.network_client import NetworkClient
from ticdc_source.sources.kafka.patience import Cause, Limit, Patience

TLS_ALERT = bytes.fromhex("15 03 03 00 02 02 46")  # fatal: protocol version


@contextmanager
def listener(serve: Callable[[socket.socket], object]) -> Iterator[str]:
    """A server on 127.0.0.1 that treats each connection in one way and then closes it; yields its address."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def run() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # closed
                    return
                with connection:
                    serve(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@contextmanager
def closes_at_once() -> Iterator[str]:
    with listener(lambda connection: connection.recv(1000)) as address:
        yield address


@contextmanager
def answers_with_a_tls_alert() -> Iterator[str]:
    """A listener that takes Kafka's request for a broken TLS handshake."""

    def serve(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(TLS_ALERT)
        connection.recv(1000)  # the end: the client closes it

    with listener(serve) as address:
        yield address


@contextmanager
def is_silent() -> Iterator[str]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def sends_a_part() -> Iterator[str]:
    def serve(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(bytes.fromhex("00 00 01 00 00"))  # the length of an answer, and its first byte
        connection.recv(1000)  # the end: the client closes it

    with listener(serve) as address:
        yield address


@contextmanager
def is_closed() -> Iterator[str]:
    with closing(socket.socket()) as bound:  # nobody else can take it meanwhile
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def is_unknown() -> Iterator[str]:
    yield "no-such-host.invalid:9092"


def options(servers: str, timeout_ms: int = 600, **kafka: str) -> Options:
    named = {f"kafka.{name.replace('__', '.')}": value for name, value in kafka.items()}
    timeout = {"kafka.default.api.timeout.ms": str(timeout_ms)}
    return Options.of({"kafka.bootstrap.servers": servers, "subscribe": "t", **timeout, **named})


SAID: dict[Callable[[], AbstractContextManager[str]], str] = {
    closes_at_once: r"closes the connection: does it want SASL or TLS\? \(kafka\.security\.protocol\)",
    answers_with_a_tls_alert: r"answers with a TLS alert: does it want SASL or TLS\? \(kafka\.security\.protocol\)",
    is_silent: "no answer",
    sends_a_part: r"part of an answer has arrived \(on a slow link, lower kafka\.max\.partition\.fetch\.bytes\)",
    is_closed: r"ECONNREFUSED \(nothing listens there\)",
    is_unknown: "(no such host|the host name cannot be resolved)",
}


@pytest.mark.parametrize("server", SAID, ids=lambda server: server.__name__)
def test_the_error_names_the_cause(
    server: Callable[[], AbstractContextManager[str]], caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is wrong, the error has each server's address, what it did, the time and the option that limits it.

    Nothing of it comes from the library's log, which is off.
    """
    caplog.set_level(logging.CRITICAL + 1, "kafka")
    with server() as address, KafkaCluster(options(address)) as cluster, pytest.raises(KafkaUnavailableError) as caught:
        cluster.partitions()
    assert caught.match(
        rf"Kafka at {address} did not answer in \d\.\d s \(kafka\.default\.api\.timeout\.ms = 600 ms\): "
    )
    assert caught.match(rf": ({address}: )?{SAID[server]}")


def test_a_silent_server_ends_a_tls_handshake_in_time() -> None:
    """A handshake has no time-out of its own."""
    began = time.monotonic()
    with (
        is_silent() as address,
        KafkaCluster(options(address, security__protocol="SSL")) as cluster,
        pytest.raises(KafkaUnavailableError, match=rf"{address} did not answer in [\d.]+ s .*no answer"),
    ):
        cluster.partitions()
    assert time.monotonic() - began < DEADLINE


def test_a_name_that_dns_cannot_have_is_a_cause() -> None:
    """A broker that tells its clients such a name is not reached, and the error says why."""
    server = "xn--ñ.例え:9092"
    settings = replace(client_settings(options("a:1"), driver=True), bootstrap_servers=(server,))
    with pytest.raises(KafkaUnavailableError, match="DNS lookup failed: not a host name"):
        NetworkClient(settings, Patience(server, "a test", Limit(200, "kafka.default.api.timeout.ms")))


def test_a_refused_login_is_suspected_without_a_reason() -> None:
    """A connection that closes during a login, without a broker's last words, points to the login."""
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    with closes_at_once() as address:
        given = options(
            address, 600, security__protocol="SASL_PLAINTEXT", sasl__mechanism="PLAIN", sasl__jaas__config=login
        )
        with (
            KafkaCluster(given) as cluster,
            pytest.raises(KafkaUnavailableError, match=r"or refuse the login\? .*kafka\.sasl\.jaas\.config"),
        ):
            cluster.partitions()


def test_each_server_is_named_and_gets_its_share() -> None:
    """A silent server does not take the time of the others, and the error has what each of them did."""
    with is_silent() as silent, is_closed() as closed, closes_at_once() as closing_one:
        servers = [silent, closed, closing_one]
        with KafkaCluster(options(",".join(servers), 600)) as cluster, pytest.raises(KafkaUnavailableError) as caught:
            cluster.partitions()
    for server, said in zip(servers, [is_silent, is_closed, closes_at_once], strict=True):
        assert caught.match(f"{server}: {SAID[said]}")


class Clock:
    """A clock that is set by hand, in seconds."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def patience(clock: Clock, limit: Limit = Limit(30_000, "an.option")) -> Patience:  # noqa: B008 (it is immutable)
    return Patience("a:1,b:1", "no broker answers", limit, clock=clock)


def test_nothing_waits_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """After 3 s a warning says what is tried, what failed and how long it goes on; then one every 10 s."""
    clock = Clock()
    wait = patience(clock)
    told = []
    for second in range(30):
        clock.now = 1000.0 + second
        wait.limited_to(500).failed("a:1", Cause("ECONNREFUSED"))
        if caplog.records:
            told.append(second)
            assert caplog.records[0].levelno == logging.WARNING
            waited = f"no broker answers; waited {second} s of at most 30 s (an.option)"
            assert caplog.messages == [f"Kafka at a:1,b:1: {waited}: a:1: ECONNREFUSED ({second + 1} tries)"]
            caplog.clear()
    assert told == [3, 13, 23]
    wait.answered()
    assert caplog.messages == ["Kafka at a:1,b:1 answers after 29 s"]


def test_what_is_answered_soon_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A wait of less than 3 s leaves no line."""
    clock = Clock()
    wait = patience(clock)
    clock.now += 2.9
    wait.failed("a:1", Cause("ECONNREFUSED"))
    wait.answered()
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("is_permanent", "ends_early", "seconds"), [(True, True, 5), (False, True, 30), (True, False, 30)]
)
def test_a_permanent_cause_ends_the_wait_early(is_permanent: bool, ends_early: bool, seconds: int) -> None:
    """If all servers fail permanently, the wait ends after 5 s, unless the brokers have answered before."""
    clock = Clock()
    wait = patience(clock, Limit(30_000, "an.option", ends_early))
    wait.failed("a:1", Cause("no such host", is_permanent=True))
    wait.failed("b:1", Cause("a reason", is_permanent))
    clock.now = 1000.0 + seconds - 0.1
    wait.check()
    clock.now = 1000.0 + seconds
    with pytest.raises(KafkaUnavailableError, match=rf"did not answer in {seconds}\.0 s .*no such host.*a reason"):
        wait.check()


@pytest.mark.parametrize(
    ("causes", "ends_if_refused", "seconds"),
    [
        ({"a:1": Cause("x", is_refused=True), "b:1": Cause("y", is_refused=True)}, True, 2),
        ({"a:1": Cause("x", is_refused=True), "b:1": Cause("y", is_refused=True)}, False, 30),
        ({"a:1": Cause("x", is_refused=True), "b:1": Cause("no answer")}, True, 30),
        ({"a:1": Cause("x", is_refused=True)}, True, 30),  # b:1 has not been tried
    ],
)
def test_only_servers_that_all_refuse_end_the_wait_soon(
    causes: dict[str, Cause], ends_if_refused: bool, seconds: int
) -> None:
    """The wait ends after 2 s if every server refuses at the first contact, and otherwise at its limit."""
    clock = Clock()
    wait = patience(clock, Limit(30_000, "an.option", ends_early=True, ends_if_refused=ends_if_refused))
    for server, cause in causes.items():
        wait.failed(server, cause)
    clock.now = 1000.0 + seconds - 0.1
    wait.check()
    clock.now = 1000.0 + seconds
    with pytest.raises(KafkaUnavailableError, match=rf"did not answer in {seconds}\.0 s"):
        wait.check()


def test_a_wrong_port_is_told_within_five_seconds() -> None:
    """The first contact does not wait for the time of a request where nothing listens, and says what would."""
    with is_closed() as address, KafkaCluster(options(address, 30_000)) as cluster:
        began = time.monotonic()
        with pytest.raises(
            KafkaUnavailableError, match=r"brokers that are starting, set kafka\.bootstrap\.timeout\.ms"
        ):
            cluster.partitions()

        assert time.monotonic() - began < 5


def test_brokers_that_start_are_waited_for_if_somebody_says_so() -> None:
    """With `kafka.bootstrap.timeout.ms` a server that refuses is waited for so long: its brokers may be starting."""
    with (
        is_closed() as address,
        KafkaCluster(options(address, bootstrap__timeout__ms="2700")) as cluster,
        pytest.raises(KafkaUnavailableError, match=r"in \d\.\d s \(kafka\.bootstrap\.timeout\.ms = 2700 ms\)"),
    ):
        cluster.partitions()


def test_a_worker_waits_for_brokers_that_refuse() -> None:
    """The driver has reached the brokers before a task, so the port is right, and they are restarting."""
    with is_closed() as address:
        settings = client_settings(options(address, 2700), driver=False)
        with pytest.raises(KafkaUnavailableError, match=rf"api\.timeout\.ms = 2700 ms\): {address}: ECONNREFUSED"):
            next(fetch(OffsetRange("t", 0, 0, 1), settings, max_records=1, max_bytes=1))


def test_the_end_of_the_time_does_not_hide_a_cause() -> None:
    """A try that the deadline ends soon says less than what the same server did before; a long silence says more."""
    now = [0.0]
    wait = Patience("a:1", "a request is pending", Limit(1000, "an.option"), clock=lambda: now[0])
    wait.failed("a:1", Cause("answers with a TLS alert"))
    now[0] = 1.0

    assert wait.is_cut_short("a:1", 0.4)
    assert not wait.is_cut_short("a:1", 0.6)
    assert not wait.is_cut_short("b:1", 0.4)


def test_a_request_times_out_only_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection whose bytes arrive is kept, and closed when none has come for as long as a request may take."""
    settings = consumer_settings(client_settings(options("a:1"), driver=True))
    net = NetworkSelector(**settings)
    manager = Connections(net, **settings)
    again: list[Callable[[], None]] = []
    monkeypatch.setattr(net, "call_at", lambda _when, task: again.append(task))
    connection = KafkaConnection(net)
    now = time.monotonic()
    closed: list[str] = []
    transport = SimpleNamespace(last_read=now, abort=lambda error: closed.append(str(error)), host_port=lambda: "a:1")
    connection.transport = transport

    manager._timed_out(connection, Future(), now - 30, now - 0.1)
    assert len(again) == 1
    assert not closed

    transport.last_read = now - 30
    again[0]()
    assert len(again) == 1
    assert "Request timed out after" in closed[0]
    monkeypatch.undo()
    KafkaNetClient(net=net, manager=manager).close()


def test_a_node_that_failed_is_tried_last() -> None:
    """Of the nodes there are, the one that failed most recently comes last; an answer makes it equal again."""
    config = client_settings(options("a:1,b:1,c:1,d:1"), driver=True)
    settings = consumer_settings(config)
    net = NetworkSelector(**settings)
    manager = Connections(net, **settings)
    for server in (2, 0):
        manager.failed(f"bootstrap-{server}")

    assert manager.nodes()[2:] == ["bootstrap-2", "bootstrap-0"]
    assert manager.least_loaded_node() in {"bootstrap-1", "bootstrap-3"}

    manager.answered("bootstrap-2")

    assert manager.nodes()[3] == "bootstrap-0"
    KafkaNetClient(net=net, manager=manager).close()
