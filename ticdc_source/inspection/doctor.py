"""The steps of a read, from the options to the first recognised message, each with what to do if it fails.

A step is skipped if an earlier one that it needs has failed. No text holds a secret: texts come from sockets, brokers
and this package's errors.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from types import MappingProxyType

from ticdc_source.errors import (
    AccessRefusedError,
    OptionError,
    SchemaRegistryUnavailableError,
    TiCDCSourceError,
    counted,
)
from ticdc_source.inspection import environment
from ticdc_source.inspection.report import Check, Diagnosis, Outcome
from ticdc_source.options.kafka_client import client_settings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.planning.fetchers import driver_fetcher
from ticdc_source.planning.inference import find_protocol
from ticdc_source.planning.load import batch_options
from ticdc_source.protocols import decoder_of
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.kafka import KafkaCluster
from ticdc_source.sources.kafka.probe import Probe, Spoken, probe, speaks_tls
from ticdc_source.sources.tls import tls_context

OnCheck = Callable[[Check], object]
_Take = Callable[[str, str, Callable[[], Outcome], str], str]
_DAY_S = 86_400
_EXPIRES_SOON_S = 30 * _DAY_S
_CLOCK_S = 2.0  # a record's timestamp may be this far ahead of the clock
_AT_A_TIME = 16  # brokers to connect to
_PLAIN_OF = {"SSL": "PLAINTEXT", "SASL_SSL": "SASL_PLAINTEXT"}
_TLS_OF = {plain: tls for tls, plain in _PLAIN_OF.items()}
_WITH_LOGIN = {"PLAINTEXT": "SASL_PLAINTEXT", "SSL": "SASL_SSL"}
# Alerts of a broker that does not take the client's certificate, by OpenSSL's names.
_REFUSES_CERTIFICATE = frozenset({
    *(f"SSLV3_ALERT_{name}" for name in ("BAD_CERTIFICATE", "NO_CERTIFICATE", "UNSUPPORTED_CERTIFICATE")),
    *(f"SSLV3_ALERT_CERTIFICATE_{name}" for name in ("EXPIRED", "REVOKED", "UNKNOWN")),
    *("TLSV1_ALERT_UNKNOWN_CA", "TLSV13_ALERT_CERTIFICATE_REQUIRED"),
})  # fmt: skip
_IS_OF_ANOTHER_NAME = (62, 64)  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH


def diagnose(
    given: Mapping[str, str],
    on_check: OnCheck = lambda _: None,
    now: Callable[[], float] = time.time,
    *,
    in_worker: bool = False,
) -> Diagnosis:
    """Try every step from the options to the first record, and check what is installed.

    In a Spark worker, Java and the worker's Python are not checked. `now` is in seconds since the epoch.
    """
    diagnosis = Diagnosis()

    def take(name: str, subject: str, work: Callable[[], Outcome], blocked: str) -> str:
        """Take a step, or skip it if `blocked` names a failed one; return the name of the failed step, if any."""
        began = time.monotonic()
        try:
            outcome = Outcome("skipped", f"because the step {blocked} failed") if blocked else work()
        except TiCDCSourceError as error:
            outcome = Outcome("failed", str(error))
        took = round(time.monotonic() - began, 3)
        diagnosis.checks.append(Check(step=name, subject=subject, **outcome._asdict(), seconds=took))
        on_check(diagnosis.checks[-1])
        return name if outcome.result == "failed" else blocked

    _look_at_connection(given, take, now)
    native_code = next((text for name, text in given.items() if name.lower() == "nativecode"), "auto")
    for name, subject, look in environment.steps(native_code, in_worker=in_worker):
        take(name, subject, look, "")
    return diagnosis


def _look_at_connection(given: Mapping[str, str], take: _Take, now: Callable[[], float]) -> None:
    """Take the steps from the options to the first record. One answering bootstrap server is enough to go on."""
    connection: _Connection | None = None

    def parse() -> Outcome:
        nonlocal connection
        connection = _Connection(given, now)
        return Outcome("ok", f"{counted(len(given), 'option')}, kafka.security.protocol={connection.protocol}")

    blocked = take("options", "", parse, "")
    if connection is None:
        for name in (*_NETWORK, *_AFTER_NETWORK):
            take(name, "", partial(Outcome, "skipped", ""), blocked)
        return
    with connection:
        failed = []
        for server in connection.servers:
            blocked = ""
            for name, look in _NETWORK.items():
                blocked = take(name, server, partial(look, connection, server), blocked)
            failed.append(blocked)
        if not failed:
            take("network", "", lambda: Outcome("ok", "not checked: kafka.proxy_url is set"), "")
        blocked = "" if "" in failed or not failed else failed[0]
        for name, then in _AFTER_NETWORK.items():
            blocked = take(name, "", partial(then, connection), blocked)


class _Connection(AbstractContextManager["_Connection"]):
    """The state that network steps share.

    Raises:
        OptionError: an option is wrong, or a certificate cannot be loaded.
    """

    def __init__(self, given: Mapping[str, str], now: Callable[[], float]) -> None:
        self.options = batch_options(given)
        settings = client_settings(self.options, driver=False)
        self.protocol = settings.security_protocol
        self.mechanism = None if settings.login is None else settings.login.mechanism
        self.servers = () if settings.proxy_url else settings.bootstrap_servers
        self.context = None if settings.tls is None else tls_context(settings.tls)
        self.now = now
        self.cluster = KafkaCluster(self.options)
        self.ranges: list[OffsetRange] = []
        self.newest: Chunk | None = None

    def __exit__(self, *_: object) -> None:
        self.cluster.close()

    def to(self, server: str) -> Probe:
        host, port = _address(server)
        plain = probe(host, port)
        if self.context is None:
            return plain
        try:
            return plain.with_tls(self.context, host)
        except BaseException:
            plain.__exit__()
            raise


def _resolve(_: _Connection, server: str) -> Outcome:
    host, port = _address(server)
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        mend = "correct kafka.bootstrap.servers, or add the name to this machine's DNS or /etc/hosts"
        return Outcome("failed", f"{host} cannot be resolved: {error.strerror or error}", mend)
    return Outcome("ok", ", ".join(dict.fromkeys(str(address[0]) for *_, address in addresses)))


def _reach(_: _Connection, server: str) -> Outcome:
    try:
        with probe(*_address(server)):
            return Outcome("ok", "something listens")
    except ConnectionRefusedError:
        return Outcome("failed", "nothing listens there", "correct the host and port in kafka.bootstrap.servers")
    except OSError as error:
        mend = "open this port in the firewalls and security groups between this machine and the broker"
        return Outcome("failed", f"no connection: {_reason(error)}", mend)


def _shake_hands(connection: _Connection, server: str) -> Outcome:
    host, port = _address(server)
    if connection.context is None:
        with probe(host, port) as plain:
            spoken = plain.spoken()
        if spoken is Spoken.TLS or (spoken is Spoken.NOTHING and speaks_tls(host, port)):
            text = f"the port expects TLS, but kafka.security.protocol={connection.protocol} has none"
            return Outcome("failed", text, f"set kafka.security.protocol={_TLS_OF[connection.protocol]}")
        return Outcome("ok", f"none, as kafka.security.protocol={connection.protocol} says")
    try:
        with connection.to(server) as made:
            return _judged(made, connection.now())
    except ssl.SSLCertVerificationError as error:
        return _untrusted(error, host)
    except OSError as error:
        with probe(host, port) as plain:
            if plain.spoken() is Spoken.KAFKA:
                text = f"the port has no TLS, but kafka.security.protocol={connection.protocol} expects it"
                return Outcome("failed", text, f"set kafka.security.protocol={_PLAIN_OF[connection.protocol]}")
        if isinstance(error, ssl.SSLError) and error.reason in _REFUSES_CERTIFICATE:
            mend = "set kafka.ssl.keystore.location (or .key and .certificate.chain) to a certificate it accepts"
            return Outcome("failed", f"the broker refuses this client's certificate: {_reason(error)}", mend)
        mend = "correct kafka.bootstrap.servers: is this the port of a Kafka listener?"
        return Outcome("failed", f"no TLS: {_reason(error)}", mend)


def _judged(made: Probe, now: float) -> Outcome:
    names = _names_in_certificate(made)
    expires = str(made.certificate.get("notAfter", ""))
    text = f"{made.tls_version}, certificate for {', '.join(names) or 'no name'}, until {expires}"
    if expires and ssl.cert_time_to_seconds(expires) - now < _EXPIRES_SOON_S:
        return Outcome("warning", text, "renew the broker's certificate: it expires within 30 days")
    return Outcome("ok", text)


def _untrusted(error: ssl.SSLCertVerificationError, host: str) -> Outcome:
    if error.verify_code not in _IS_OF_ANOTHER_NAME:
        mend = "set kafka.ssl.truststore.location to the certificates of the authority that signed it, in PEM"
        return Outcome("failed", f"the broker's certificate is not trusted: {error.verify_message}", mend)
    text = f"the broker's certificate is not for {host}: {error.verify_message}"
    mend = "name the broker in kafka.bootstrap.servers as its certificate does; or, if the network is safe, set "
    return Outcome("failed", text, mend + "kafka.ssl.endpoint.identification.algorithm to nothing")


def _greet(connection: _Connection, server: str) -> Outcome:
    with connection.to(server) as made:
        spoken = made.spoken()
        mechanisms = made.mechanisms() if spoken is Spoken.KAFKA else None
    if spoken is not Spoken.KAFKA:
        mend = "correct kafka.bootstrap.servers: is this the port of a Kafka listener?"
        return Outcome("failed", f"{spoken.value} answers a Kafka request", mend)
    wants_login = connection.protocol.startswith("SASL")
    if mechanisms and not wants_login:
        text = f"the listener requires a login ({', '.join(mechanisms)}), but kafka.security.protocol has none"
        mend = f"set kafka.security.protocol={_WITH_LOGIN[connection.protocol]}, kafka.sasl.mechanism and "
        return Outcome("failed", text, mend + "kafka.sasl.jaas.config")
    if wants_login and mechanisms and connection.mechanism not in mechanisms:
        text = f"the listener accepts {', '.join(mechanisms)}, but kafka.sasl.mechanism={connection.mechanism}"
        return Outcome("failed", text, f"set kafka.sasl.mechanism={mechanisms[0]}, with a user of that mechanism")
    return Outcome("ok", f"Kafka answers{', and accepts logins by ' + ', '.join(mechanisms) if mechanisms else ''}")


def _log_in(connection: _Connection) -> Outcome:
    try:
        connection.cluster.brokers()
    except AccessRefusedError as error:
        return Outcome("failed", str(error), "correct the user, password and mechanism (kafka.sasl.*)")
    if connection.protocol.startswith("SASL"):
        return Outcome("ok", f"accepted, by {connection.mechanism}")
    return Outcome("ok", "none needed")


def _version(connection: _Connection) -> Outcome:
    version = connection.cluster.brokers().version
    return Outcome("ok", "not known" if version is None else f"Kafka {version}, or newer")


def _advertised(connection: _Connection) -> Outcome:
    """Connect to every broker at its advertised address: all records come from there."""
    addresses = connection.cluster.brokers().addresses
    if not connection.servers or not addresses:
        return Outcome("ok", "not checked")
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        failures = [failure for failure in pool.map(_failure_at, addresses) if failure]
    if not failures:
        return Outcome("ok", ", ".join(f"{host}:{port}" for host, port in addresses))
    text = f"the brokers advertise addresses that cannot be reached from here: {'; '.join(failures)}"
    mend = (
        "set the brokers' advertised.listeners to names and ports that this machine and all executors can reach, or "
        "connect to a listener that has them. Records come from these addresses: bootstrap servers, or a tunnel to "
        "one, are not enough"
    )
    return Outcome("failed", text, mend)


def _failure_at(address: tuple[str, int]) -> str | None:
    try:
        with probe(*address):
            return None
    except OSError as error:
        return f"{address[0]}:{address[1]} ({_reason(error)})"
    except UnicodeError:  # not a valid DNS name
        return f"{address[0]}:{address[1]} (not a host name)"


def _find(connection: _Connection) -> Outcome:
    try:
        connection.ranges = connection.cluster.everything()
    except OptionError as error:
        mend = "correct --subscribe, or allow the user to Describe it (kafka-acls --add --operation Describe --topic …)"
        return Outcome("failed", str(error), mend)
    records = sum(each.size for each in connection.ranges)
    return Outcome("ok", f"{counted(len(connection.ranges), 'partition')} with about {counted(records, 'record')}")


def _read(connection: _Connection) -> Outcome:
    waiting = [each for each in connection.ranges if each.size]
    if not waiting:
        return Outcome("warning", "not tried: the topic is empty", "wait for the first change")
    last = waiting[0]._replace(start=waiting[0].end - 1)
    try:
        with driver_fetcher(connection.options) as fetcher:
            for chunk in fetcher.fetch(last):
                connection.newest = chunk
    except OptionError as error:
        return Outcome(
            "failed", str(error), "allow the user to Read the topic (kafka-acls --add --operation Read --topic …)"
        )
    return Outcome("ok", f"offset {last.start} of {last.topic_partition}")


def _recognise(connection: _Connection) -> Outcome:
    """Detect the protocol, and look up the newest record's schema if a registry has it."""
    if connection.newest is None:
        return Outcome("skipped", "because there is no record")
    with driver_fetcher(connection.options) as fetcher:
        try:
            protocol = find_protocol(connection.ranges, fetcher.fetch, connection.options)
        except OptionError as error:
            mend = "check that TiCDC writes to this topic, in a supported protocol; ticdc-source inspect shows more"
            return Outcome("failed", str(error), mend)
    try:
        decoder_of(protocol or "", connection.options).split(connection.newest)
    except SchemaRegistryUnavailableError as error:
        mend = "make the registry reachable from the driver and all executors"
        return Outcome("failed", str(error), mend)
    return Outcome("ok", str(protocol))


def _compare_clocks(connection: _Connection) -> Outcome:
    """Compare this clock with the newest record's timestamp, which cannot be in the future."""
    stamps = [] if connection.newest is None else [stamp for stamp in connection.newest.timestamps if stamp >= 0]
    if not stamps:
        return Outcome("skipped", "because there is no record with a timestamp")
    ahead = max(stamps) / 1000 - connection.now()
    if ahead > _CLOCK_S:
        mend = "synchronize the clocks (NTP): lags in seconds are too small by this much"
        return Outcome("warning", f"a record's timestamp is {ahead:.1f} s ahead of this machine's clock", mend)
    return Outcome("ok", "no record is ahead of this machine's clock")


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


def _names_in_certificate(made: Probe) -> list[str]:
    pairs = made.certificate.get("subjectAltName")
    return [str(name) for _, name in pairs] if isinstance(pairs, tuple) else []


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror if not isinstance(error, ssl.SSLError) else error.reason) or str(error) or "closed"


_NETWORK: Mapping[str, Callable[[_Connection, str], Outcome]] = MappingProxyType(
    {"dns": _resolve, "tcp": _reach, "tls": _shake_hands, "listener": _greet}
)
_AFTER_NETWORK: Mapping[str, Callable[[_Connection], Outcome]] = MappingProxyType({
    "login": _log_in,
    "version": _version,
    "advertised": _advertised,
    "topic": _find,
    "read": _read,
    "messages": _recognise,
    "clock": _compare_clocks,
})  # fmt: skip
