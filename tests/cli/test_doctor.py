"""`ticdc-source doctor`: set-ups that are broken at one step each, and what it says of them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from shutil import which

import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType

from examples.local_kafka import create_topic, produce
from examples.local_kafka.broker import free_ports
from tests.cli.conftest import Command, Done
from tests.encoders.avro import Avro
from tests.encoders.tables import Column, Table
from tests.fixtures import Kafka
from tests.support.messages import TSO, canal
from tests.support.registry import registry_options
from tests.support.secure_kafka import SecureKafka, certificates_in, secure_kafka
from ticdc_source.inspection.doctor import diagnose
from ticdc_source.inspection.environment import check_java, check_worker

pytestmark = pytest.mark.broker

MESSAGE = canal("INSERT", [{"id": "1"}], None, {"id": "int"}, _tidb={"commitTs": TSO})
SECRET = "wr0ng-s3cr3t"
NETWORK = ("dns", "tcp", "tls", "listener")
AFTER = ("login", "version", "advertised", "topic", "read", "messages", "clock")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if which("openssl") is None:
        pytest.skip("openssl is not installed")
    return certificates_in(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure(certificates: Path) -> Iterator[SecureKafka]:
    """A broker with TLS and logins; its user may describe the topic `t`, read `readable`, and nothing else."""
    with secure_kafka(certificates, restricted=True) as kafka:
        for name in ("t", "readable"):
            create_topic(kafka.bootstrap_servers, name)
            produce(kafka.bootstrap_servers, name, [(0, *MESSAGE, [], None)])
        user = f"User:{kafka.user}"
        with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
            admin.create_acls([
                ACL(user, "*", operation, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, name))
                for operation, name in ((ACLOperation.DESCRIBE, "t"), (ACLOperation.READ, "readable"))
            ])  # fmt: skip
        yield kafka


@pytest.fixture
def doctor(ticdc_source: Command, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """A function that calls `ticdc-source doctor --json`."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)

    def run(servers: str, topic: str, **conf: str) -> Done:
        named = [f"kafka.{name.replace('_', '.')}={value}" for name, value in conf.items()]
        arguments = [word for each in named for word in ("--conf", each)]
        return ticdc_source("doctor", "--bootstrap-servers", servers, "--subscribe", topic, "--json", *arguments)

    return run


def results(done: Done) -> dict[str, str]:
    return {check["step"]: check["result"] for check in done.json["checks"] if check["step"] in (*NETWORK, *AFTER)}


def failed(done: Done) -> tuple[str, str, str]:
    """Return step, message and mend of the first step that failed; all steps before it are not failed."""
    check = next(check for check in done.json["checks"] if check["result"] == "failed")
    after = [results(done)[name] for name in AFTER[AFTER.index(check["step"]) + 1 :]] if check["step"] in AFTER else []
    assert set(after) <= {"skipped"}
    assert done.code == 1
    assert not done.json["ok"]
    return check["step"], check["message"], check["mend"]


def login(kafka: SecureKafka, password: str | None = None) -> dict[str, str]:
    return {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": kafka.jaas(password)}


def test_all_is_well(broker: Kafka, topic: Callable[..., str], doctor: Callable[..., Done]) -> None:
    name = topic()
    produce(broker.bootstrap_servers, name, [(0, *MESSAGE, [], 1_700_000_000_000)])

    done = doctor(broker.bootstrap_servers, name)

    assert results(done) == dict.fromkeys((*NETWORK, *AFTER), "ok")
    assert next(check["message"] for check in done.json["checks"] if check["step"] == "messages") == "canal-json"
    assert all(check["seconds"] >= 0 for check in done.json["checks"])


def test_for_people(
    broker: Kafka, topic: Callable[..., str], ticdc_source: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "no-such-python")

    done = ticdc_source("doctor", "--bootstrap-servers", broker.bootstrap_servers, "--subscribe", topic())

    assert done.code == 1
    assert "ok      tcp" in done.out
    assert "warning read" in done.out
    assert "failed  worker" in done.out
    assert "ok      java" in done.out
    assert done.out.endswith("Failed: 1.\n")
    assert f"→ install ticdc-source there, or set PYSPARK_PYTHON={sys.executable}" in done.out


def test_an_option_that_is_wrong(doctor: Callable[..., Done]) -> None:
    """The first step fails, and nothing is connected; what is installed is still looked at."""
    done = doctor("127.0.0.1:1", "t", security_protocol="TLS")

    step, message, _ = failed(done)
    assert (step, set(results(done).values())) == ("options", {"skipped"})
    assert "SASL_SSL" in message
    assert {check["result"] for check in done.json["checks"] if check["step"] == "package"} == {"ok"}


@pytest.mark.parametrize(
    ("servers", "subscribed", "written", "step", "says", "mends"),
    [
        ("no-such-host.invalid:9092", "t", None, "dns", "no-such-host.invalid cannot be resolved", "bootstrap.servers"),
        ("127.0.0.1:{free}", "t", None, "tcp", "nothing listens there", "port"),
        ("{broker}", "no-such-topic", None, "topic", "no-such-topic", "--subscribe"),
        ("{broker}", "{topic}", b"hello", "messages", "", "ticdc-source inspect"),
    ],
)
def test_the_first_step_that_fails(
    servers: str, subscribed: str, written: bytes | None, step: str, says: str, mends: str,
    broker: Kafka, topic: Callable[..., str], doctor: Callable[..., Done],
) -> None:  # fmt: skip
    """A name, a port, a topic or messages that are wrong: the step says what, and what to do."""
    name = topic()
    if written is not None:
        produce(broker.bootstrap_servers, name, [(0, None, written, [], None)])
    at = servers.format(free=free_ports(1)[0], broker=broker.bootstrap_servers)

    found, message, mend = failed(doctor(at, subscribed.format(topic=name)))

    assert (found, says in message, mends in mend) == (step, True, True), (message, mend)


def test_one_of_two_servers_is_enough(broker: Kafka, topic: Callable[..., str], doctor: Callable[..., Done]) -> None:
    """A bootstrap server that is away has failed, and the steps after it are taken with the other one."""
    done = doctor(f"127.0.0.1:{free_ports(1)[0]},{broker.bootstrap_servers}", topic())

    assert done.code == 1
    assert results(done)["topic"] == "ok"
    assert [check["result"] for check in done.json["checks"] if check["step"] == "tcp"] == ["failed", "ok"]


# What is wrong: the listener, the topic and the options, with a login and the authority's certificate if so; and the
# step that fails, with words of its message and of what to do.
TLS, LOGIN, TRUST = {"security_protocol": "SSL"}, "login", "trust"
WRONG: dict[str, tuple[str, dict[str, str], tuple[str, ...], str, str, str]] = {
    "TLS port without TLS": ("ssl", {}, (), "tls", "the port expects TLS", "set kafka.security.protocol=SSL"),
    "plain port with TLS": ("bootstrap_servers", TLS, (), "tls", "the port has no TLS", "security.protocol=PLAINTEXT"),
    "unknown authority": (
        "sasl_ssl", {"security_protocol": "SASL_SSL"}, (LOGIN,), "tls", "is not trusted", "ssl.truststore.location"
    ),
    "no client certificate": ("ssl", TLS, (TRUST,), "tls", "certificate", "kafka.ssl.keystore"),
    "no login": ("sasl", {}, (), "listener", "requires a login (", "SASL_PLAINTEXT"),
    "another mechanism": (
        "sasl_ssl", {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, (LOGIN, TRUST),
        "listener", "but kafka.sasl.mechanism=PLAIN", "kafka.sasl.mechanism=SCRAM",
    ),
    "wrong password": (
        "sasl", {"security_protocol": "SASL_PLAINTEXT", "password": SECRET}, (LOGIN,), "login", "refuses the login", ""
    ),
    "no permission to describe": (
        "sasl", {"security_protocol": "SASL_PLAINTEXT", "topic": "elsewhere"}, (LOGIN,), "topic", "", "Describe"
    ),
    "no permission to read": (
        "sasl", {"security_protocol": "SASL_PLAINTEXT"}, (LOGIN,), "read", "does not permit", "Read"
    ),
}  # fmt: skip


@pytest.mark.slow("a broker with TLS and logins")
@pytest.mark.parametrize("what", WRONG)
def test_tls_and_logins_that_are_wrong(
    what: str, secure: SecureKafka, certificates: Path, doctor: Callable[..., Done]
) -> None:
    """The step that fails says what is wrong and what to set; no text has a password."""
    listener, given, more, *expected = WRONG[what]
    conf = dict(given)
    topic, password = conf.pop("topic", "t"), conf.pop("password", None)
    if LOGIN in more:
        conf = {**login(secure, password), **conf}
        if conf["sasl_mechanism"] == "PLAIN":
            conf["sasl_jaas_config"] = conf["sasl_jaas_config"].replace("scram.ScramLogin", "plain.PlainLogin")
    if TRUST in more:
        conf |= trust(certificates)

    done = doctor(getattr(secure, listener), topic, **conf)

    step, message, mend = failed(done)
    assert (step, expected[1] in message, expected[2] in mend) == (expected[0], True, True), (message, mend)
    assert SECRET not in done.out + done.err
    assert secure.password not in done.out + done.err


def trust(certificates: Path) -> dict[str, str]:
    return {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(certificates / "ca.pem")}


@pytest.mark.slow("a broker with TLS and logins")
def test_a_certificate_of_another_name(secure: SecureKafka, certificates: Path, doctor: Callable[..., Done]) -> None:
    servers, given = secure.sasl_ssl.replace("127.0.0.1", "localhost"), {**login(secure), **trust(certificates)}

    step, message, _ = failed(doctor(servers, "t", security_protocol="SASL_SSL", **given))

    assert (step, "the broker's certificate is not for localhost: " in message) == ("tls", True)


@pytest.mark.slow("a broker with TLS and logins")
def test_an_address_that_cannot_be_reached(
    secure: SecureKafka, certificates: Path, doctor: Callable[..., Done]
) -> None:
    """The bootstrap server answers, and sends clients to a port where nothing listens. Its certificate expires."""
    done = doctor(secure.sasl_ssl, "t", security_protocol="SASL_SSL", **login(secure), **trust(certificates))

    step, message, mend = failed(done)
    assert step == "advertised"
    assert "cannot be reached from here" in message
    assert "advertised.listeners" in mend
    tls = next(check for check in done.json["checks"] if check["step"] == "tls")
    assert tls["result"] == "warning"
    assert "certificate for 127.0.0.1, until" in tls["message"]
    assert (results(done)["login"], results(done)["topic"]) == ("ok", "skipped")


@pytest.mark.slow("a broker with TLS and logins")
def test_permission_to_read(secure: SecureKafka, doctor: Callable[..., Done]) -> None:
    done = doctor(secure.sasl, "readable", security_protocol="SASL_PLAINTEXT", **login(secure))

    assert results(done)["read"] == "ok"


def test_a_schema_registry_that_does_not_answer(broker: Kafka, topic: Callable[..., str]) -> None:
    """Messages of avro whose schema cannot be looked up fail at `messages`, with what to set."""
    name, table = topic(), Table("shop", "t", (Column("id", "bigint", nullable=False),), ("id",), ("id",))
    event = {"op": "insert", "schema": "shop", "table": "t", "commit_ts": TSO,
             "columns": [{"name": "id", "mysql_type": "bigint", "after": "1"}]}  # fmt: skip
    produce(broker.bootstrap_servers, name, [(0, *Avro(extension=True).message([event], [table]), [], None)])
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name}
    dead = {"schema.registry.url": f"http://127.0.0.1:{free_ports(1)[0]}", "fetchOffset.numRetries": "0"}

    found = []
    for more in ({}, dead, {"schema.registry.url": registry_options({})["schema.registry.url"]}):
        checks = diagnose({**given, **more}).checks
        found += [(check.result, check.message) for check in checks if check.step == "messages"]

    (none, missing), (refused, why), works = found
    assert (none, refused, works) == ("failed", "failed", ("ok", "avro"))
    assert "set schema.registry.url" in missing
    assert "has not answered" in why


def test_a_clock_that_is_behind(broker: Kafka, topic: Callable[..., str]) -> None:
    name = topic()
    produce(broker.bootstrap_servers, name, [(0, *MESSAGE, [], 1_700_000_060_000)])
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name}

    checks = diagnose(given, now=lambda: 1_700_000_000.0).checks

    (clock,) = [check for check in checks if check.step == "clock"]
    assert (clock.result, "60.0 s ahead" in clock.message) == ("warning", True)


class TestWorker:
    def test_a_python_without_the_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        python.chmod(0o755)
        monkeypatch.setenv("PYSPARK_PYTHON", str(python))
        monkeypatch.delenv("PYTHONPATH", raising=False)

        found = check_worker()

        assert (found.result, "cannot import ticdc_source" in found.message) == ("failed", True)

    def test_another_version(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        python = tmp_path / "python"
        python.write_text("#!/bin/sh\necho 2.7\n")
        python.chmod(0o755)
        monkeypatch.setenv("PYSPARK_PYTHON", str(python))

        found = check_worker()

        assert (found.result, "is Python 2.7" in found.message) == ("failed", True)


class TestJava:
    @pytest.fixture(autouse=True)
    def _spark_starts_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"):
            monkeypatch.delenv(name, raising=False)

    def test_no_java(
        self, broker: Kafka, topic: Callable[..., str], ticdc_source: Command,
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
        monkeypatch.setenv("PATH", str(tmp_path))

        done = ticdc_source("doctor", "--bootstrap-servers", broker.bootstrap_servers, "--subscribe", topic())

        assert done.code == 1
        assert "failed  java" in done.out
        assert "there is no java on the PATH" in done.out
        assert "→ install Java 17 or newer" in done.out
        assert "All is well" not in done.out

    @pytest.mark.parametrize(
        ("said", "result", "message"),
        [
            ('openjdk version "17.0.15" 2025-04-15', "ok", "Java 17"),
            ('java version "21" 2023-09-19 LTS', "ok", "Java 21"),
            ('openjdk version "11.0.2" 2019-01-15', "failed", "is Java 11, but Spark 4 needs 17 or newer"),
            ('java version "1.8.0_202"', "failed", "is Java 8, but Spark 4 needs 17 or newer"),
            ("The operation could not be completed. Unable to locate a Java Runtime.", "failed", "Unable to locate"),
        ],
    )
    def test_its_version(
        self, said: str, result: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The Java of JAVA_HOME counts, as for Spark, and it must be 17 or newer."""
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))

        found = check_java()

        assert (found.result, message in found.message) == (result, True), found
