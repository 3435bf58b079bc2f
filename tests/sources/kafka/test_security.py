"""Brokers that cannot be reached, refuse a login, or are not who they should be; and those that let us in."""

import logging
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from examples.local_kafka import ExternalKafka, LocalKafka, create_topic, produce
from tests.sources.kafka.reading import DEADLINE, fetch
from tests.support.secure_kafka import KEY_PASSWORD, STORE_PASSWORD, certificates_in, secure_kafka, stores_in
from ticdc_source.errors import KafkaUnavailableError, OptionError
from ticdc_source.options.kafka_client import client_settings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.sources.kafka import KafkaCluster
from ticdc_source.sources.tls import tls_context

pytestmark = pytest.mark.broker

Kafka = LocalKafka | ExternalKafka


def options(servers: str, **kafka: str) -> Options:
    """Options for a broker with `kafka.*` options."""
    named = {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}
    return Options.of({"kafka.bootstrap.servers": servers, "subscribe": "t", **named})


def ranges(given: Options) -> list[OffsetRange]:
    with KafkaCluster(given) as cluster:
        return cluster.resolve_ranges()


class TestSASL:
    @pytest.fixture
    def login(self, broker: Kafka) -> dict[str, str]:
        if not broker.sasl_bootstrap_servers:
            pytest.skip("the broker has no SASL listener")
        return {
            "bootstrap_servers": broker.sasl_bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "user": str(broker.user),
            "password": str(broker.password),
        }

    def options(self, login: dict[str, str], mechanism: str, **other: str) -> Options:
        login = {"timeout": "30000", **login, **other}
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        return options(
            login["bootstrap_servers"],
            security_protocol=login["security_protocol"],
            default_api_timeout_ms=login["timeout"],
            sasl_mechanism=mechanism,
            sasl_jaas_config=(
                f"org.apache.kafka.common.security.{module} required "
                f'username="{login["user"]}" password="{login["password"]}";'
            ),
        )

    @pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
    def test_a_login_lets_us_in(self, broker: Kafka, login: dict[str, str], mechanism: str) -> None:
        """Look-ups and fetches work with what `kafka.sasl.jaas.config` says."""
        produce(broker.bootstrap_servers, "t", [(0, None, b"x", [], None)])
        given = self.options(login, mechanism)
        (offset_range,) = ranges(given)
        config = client_settings(given, driver=False)
        (chunk,) = fetch(offset_range._replace(start=offset_range.end - 1), config, max_records=10, max_bytes=10)
        assert chunk.values == [b"x"]

    @pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
    def test_a_wrong_password_is_told_at_once_and_not_shown(
        self, login: dict[str, str], mechanism: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A refused login is an error with the broker's reason, without waiting; the password is nowhere."""
        caplog.set_level(logging.DEBUG)
        began = time.monotonic()
        wrong = "wr0ng-s3cr3t"
        with pytest.raises(OptionError, match=r"refuses the login: .*[Ii]nvalid.*sasl\.jaas\.config") as caught:
            ranges(self.options(login, mechanism, password=wrong))
        assert time.monotonic() - began < DEADLINE
        chain: BaseException | None = caught.value
        while chain is not None:
            assert wrong not in f"{chain!r} {chain}"
            chain = chain.__cause__ or chain.__context__
        assert wrong not in caplog.text

    def test_a_mechanism_that_the_broker_does_not_have(self, login: dict[str, str]) -> None:
        """A mechanism that is not enabled is an error at once, too."""
        with pytest.raises(OptionError, match=r"refuses the login: .*UnsupportedSaslMechanism"):
            ranges(self.options(login, "SCRAM-SHA-512"))

    def test_a_plain_client_at_a_sasl_listener(self, login: dict[str, str]) -> None:
        """Without a login the broker hangs up; the error points to the security protocol."""
        with pytest.raises(
            KafkaUnavailableError, match=r"in (0\.9|1\.\d) s.*closes the connection: does it want SASL or TLS"
        ):
            ranges(options(login["bootstrap_servers"], bootstrap_timeout_ms="900"))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = certificates_in(tmp_path_factory.mktemp("certificates"))
    stores_in(folder)
    return folder


@pytest.fixture(scope="module")
def tls_broker(certificates: Path) -> Iterator[str]:
    """A broker with a TLS listener that wants certificates of its clients."""
    with secure_kafka(certificates) as kafka:
        create_topic(kafka.bootstrap_servers, "t")
        produce(kafka.bootstrap_servers, "t", [(0, None, b"secret?", [], None)])
        yield kafka.ssl


class TestTLS:
    def files(self, folder: Path, **other: Any) -> dict[str, str]:
        return {
            "security_protocol": "SSL",
            "ssl_truststore_type": "PEM",
            "ssl_truststore_location": str(folder / "ca.pem"),
            "ssl_keystore_type": "PEM",
            "ssl_keystore_location": str(folder / "client.pem"),
            **other,
        }

    @pytest.mark.slow("a broker of its own")
    def test_stores_in_files(self, tls_broker: str, certificates: Path) -> None:
        """Look-ups and fetches work with PEM files, over several reads of a socket."""
        given = options(tls_broker, **self.files(certificates))
        (offset_range,) = ranges(given)
        (chunk,) = fetch(offset_range, client_settings(given, driver=False), max_records=10, max_bytes=10)
        assert chunk.values == [b"secret?"]

    @pytest.mark.slow("a broker of its own")
    def test_stores_in_texts(self, tls_broker: str, certificates: Path) -> None:
        """Certificates and an encrypted key can be given as text."""
        given = {
            "security_protocol": "SSL",
            "ssl_truststore_type": "PEM",
            "ssl_truststore_certificates": (certificates / "ca.pem").read_text(),
            "ssl_keystore_type": "PEM",
            "ssl_keystore_key": (certificates / "encrypted.key").read_text(),
            "ssl_keystore_certificate_chain": (certificates / "client.crt").read_text(),
            "ssl_key_password": "k3y-s3cr3t",
        }
        assert ranges(options(tls_broker, **given)) == [OffsetRange("t", 0, 0, 1)]
        with pytest.raises(OptionError, match="the key cannot be loaded") as caught:
            ranges(options(tls_broker, **{**given, "ssl_key_password": "wr0ng"}))
        assert "wr0ng" not in str(caught.value)
        del given["ssl_key_password"]
        with pytest.raises(OptionError, match="the key cannot be loaded"):  # and nobody is asked for it
            ranges(options(tls_broker, **given))

    def stores(self, folder: Path, **other: Any) -> dict[str, str]:
        return {
            "security_protocol": "SSL",
            "ssl_truststore_location": str(folder / "trust.p12"),
            "ssl_truststore_password": STORE_PASSWORD,
            "ssl_keystore_location": str(folder / "client.p12"),
            "ssl_keystore_password": STORE_PASSWORD,
            **other,
        }

    @pytest.mark.parametrize("other", [{}, {"ssl_keystore_type": "JKS"}])
    @pytest.mark.slow("a broker of its own")
    def test_pkcs12_stores(
        self, tls_broker: str, certificates: Path, other: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """PKCS12 stores let us in; the key is on disk only encrypted, only for us, and not for long."""
        seen: list[Path] = []
        load = ssl.SSLContext.load_cert_chain

        def load_cert_chain(context: ssl.SSLContext, file: str, *more: Any) -> None:
            seen.append(Path(file))
            assert "BEGIN ENCRYPTED PRIVATE KEY" in seen[-1].read_text()
            assert "BEGIN PRIVATE KEY" not in seen[-1].read_text()
            assert seen[-1].stat().st_mode & 0o777 == 0o600
            load(context, file, *more)

        monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load_cert_chain)

        assert ranges(options(tls_broker, **self.stores(certificates, **other))) == [OffsetRange("t", 0, 0, 1)]
        assert seen
        assert not [file for file in seen if file.exists()]

    @pytest.mark.parametrize("store", ["trust", "client"])
    def test_a_jks_store_has_the_line_that_converts_it(self, certificates: Path, store: str, tmp_path: Path) -> None:
        """The error names the option and the file, and no password; its `keytool` line makes a store that is read."""
        option = "keystore" if store == "client" else "truststore"
        jks = str(certificates / f"{store}.jks")
        with pytest.raises(OptionError, match=rf"kafka\.ssl\.{option}\.location.*{jks} is a JKS store") as caught:
            ranges(options("127.0.0.1:1", **self.stores(certificates, **{f"ssl_{option}_location": jks})))
        assert STORE_PASSWORD not in repr(caught.value)

        line = str(caught.value).partition("(keytool ")[2].partition(")")[0]
        passwords = ["-srcstorepass", STORE_PASSWORD, "-deststorepass", STORE_PASSWORD]
        command = ["keytool", *line.split(), *passwords]
        subprocess.run(command, input=KEY_PASSWORD.encode(), cwd=tmp_path, check=True, capture_output=True, timeout=60)

        made = self.stores(certificates, **{f"ssl_{option}_location": str(tmp_path / f"{store}.p12")})
        tls = client_settings(options("127.0.0.1:1", **made), driver=True).tls
        assert tls is not None
        assert tls_context(tls).get_ca_certs()

    @pytest.mark.parametrize("store", ["truststore", "keystore"])
    def test_stores_with_a_wrong_password(self, certificates: Path, store: str) -> None:
        """It is an error that names the option, before anything is connected; no password is in it."""
        given = self.stores(certificates, **{f"ssl_{store}_password": "wr0ng"})
        with pytest.raises(OptionError, match=rf"ssl\.{store}\.location.*the password of .* is wrong") as caught:
            ranges(options("127.0.0.1:1", **given))
        assert not {word for word in ("wr0ng", STORE_PASSWORD) if word in repr(caught.value)}

    def test_stores_that_lack_something(self, certificates: Path) -> None:
        """A key store without a key and a damaged store are errors."""
        (certificates / "damaged.p12").write_bytes((certificates / "trust.p12").read_bytes()[:-30])
        for other, message in (
            ({"ssl_keystore_location": str(certificates / "trust.p12")}, "has no key with a certificate"),
            ({"ssl_truststore_location": str(certificates / "damaged.p12")}, "or the file is damaged"),
        ):
            with pytest.raises(OptionError, match=message):
                ranges(options("127.0.0.1:1", **self.stores(certificates, **other)))

    def test_stores_without_the_package(self, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without `cryptography`, the error says how to install it and how to convert."""
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
        message = r"ssl\.truststore\.location.*is a PKCS12 store.*pip install cryptography.*openssl pkcs12 -in"
        with pytest.raises(OptionError, match=message):
            ranges(options("127.0.0.1:1", **self.stores(certificates)))

    @pytest.mark.slow("a broker of its own")
    def test_an_untrusted_broker_is_told_at_once(self, tls_broker: str, certificates: Path) -> None:
        """A certificate that nobody we trust has signed is not tried again and again."""
        given = self.files(certificates)
        del given["ssl_truststore_location"], given["ssl_truststore_type"]
        began = time.monotonic()
        with pytest.raises(OptionError, match=r"certificate of Kafka at .* is not trusted.*ssl\.truststore"):
            ranges(options(tls_broker, **given))
        assert time.monotonic() - began < DEADLINE

    @pytest.mark.slow("a broker of its own")
    def test_a_name_that_is_not_the_brokers(self, tls_broker: str, certificates: Path) -> None:
        """The certificate must be for the host that is asked for, unless that check is turned off."""
        localhost = tls_broker.replace("127.0.0.1", "localhost")
        with pytest.raises(OptionError, match=r"is not trusted.*localhost"):
            ranges(options(localhost, **self.files(certificates)))
        unchecked = self.files(certificates, ssl_endpoint_identification_algorithm="")
        assert ranges(options(localhost, **unchecked))

    def test_files_that_cannot_be_read(self, certificates: Path) -> None:
        """A missing file and a file that is no PEM are errors before anything is connected."""
        for name in ("missing.pem", "names"):
            given = self.files(certificates, ssl_truststore_location=str(certificates / name))
            with pytest.raises(OptionError, match=r"ssl\.truststore"):
                ranges(options("127.0.0.1:1", **given))
            given = self.files(certificates, ssl_keystore_location=str(certificates / name))
            with pytest.raises(OptionError, match=r"ssl\.keystore"):
                ranges(options("127.0.0.1:1", **given))

    @pytest.mark.slow("a broker of its own")
    def test_a_client_without_a_certificate(self, tls_broker: str, certificates: Path) -> None:
        """A broker that wants a certificate and gets none is an error in time."""
        given = self.files(certificates, bootstrap_timeout_ms="1500")
        del given["ssl_keystore_location"], given["ssl_keystore_type"]
        with pytest.raises(KafkaUnavailableError, match=r"did not answer in [\d.]+ s .*certificate"):
            ranges(options(tls_broker, **given))
