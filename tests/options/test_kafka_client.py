"""`kafka.*` options → settings of the client: names, values, refusals, defaults, and no secret in any text."""

import json
import pickle
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields

import pytest
from kafka import KafkaConsumer

from ticdc_source.errors import OptionError
from ticdc_source.options.kafka_client import SETTINGS, ClientSettings, client_settings
from ticdc_source.options.logins import PasswordLogin, TLSSettings
from ticdc_source.options.options import Options
from ticdc_source.options.parsers import Secret
from ticdc_source.planning.load import batch_options, stream_options
from ticdc_source.sources.kafka.kafka_python.logins import consumer_settings

SECRET = "s3cr3t-that-must-not-show"


def config(given: dict[str, str] | None = None, *, driver: bool = True, **options: str) -> ClientSettings:
    """Return the settings for `kafka.<name>` options."""
    kafka = {"bootstrap.servers": "b:9092", **(given or {})}
    kafka_options = {f"kafka.{name}": value for name, value in kafka.items()}
    return client_settings(Options.of({**kafka_options, "subscribe": "t", **options}), driver=driver)


def test_every_name_is_one_of_kafka_pythons() -> None:
    """Each setting appears once, and those that are passed on are kafka-python's."""
    names = [row.field for row in SETTINGS]
    passed_on = {field.name for field in fields(ClientSettings)} - {"broker_timeout_ms", "login", "tls"}
    of_consumers = KafkaConsumer.DEFAULT_CONFIG.keys()
    assert len(names) == len(set(names))
    assert passed_on - of_consumers == {
        "default_api_timeout_ms",
        "socket_connection_setup_timeout_ms",
        "socket_connection_setup_timeout_max_ms",
    }


@pytest.mark.parametrize(
    ("name", "value", "setting", "expected"),
    [
        ("bootstrap.servers", " a:1 , b:2,", "bootstrap_servers", ("a:1", "b:2")),
        ("bootstrap.servers", "SSL://a:1,[::1]:2,例え.jp:3", "bootstrap_servers", ("a:1", "[::1]:2", "例え.jp:3")),
        ("metadata.max.age.ms", f"{(1 << 63) - 1}", "metadata_max_age_ms", (1 << 63) - 1),  # Java's Long.MAX_VALUE
        ("Client.Id", "me", "client_id", "me"),
        ("client_id", "me", "client_id", "me"),
        ("isolation.level", "read_committed", "isolation_level", "read_committed"),
        ("fetch.max.bytes", "1048576", "fetch_max_bytes", 1048576),
        ("check.crcs", "FALSE", "check_crcs", False),
        ("receive.buffer.bytes", "-1", "receive_buffer_bytes", None),
        ("receive.buffer.bytes", "65536", "receive_buffer_bytes", 65536),
        ("api_version", "3.9.0", "api_version", (3, 9, 0)),
        ("proxy_url", "socks5://me:pw@proxy:1080", "proxy_url", Secret("socks5://me:pw@proxy:1080")),
    ],
)
def test_names_and_values_are_mapped(name: str, value: str, setting: str, expected: object) -> None:
    """Java's names and kafka-python's, in any case, become kafka-python's settings with typed values."""
    assert getattr(config({name: value}), setting) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fetch.max.bytes", "many"),
        ("fetch.max.bytes", "0"),
        ("fetch.max.bytes", "1_0"),
        ("check.crcs", "yes"),
        ("isolation.level", "serializable"),
        ("security.protocol", "TLS"),
        ("bootstrap.servers", "broker"),
        ("bootstrap.servers", "broker:kafka"),
        ("bootstrap.servers", "broker:99999"),
        ("bootstrap.servers", "a:1,broker:0"),
        ("bootstrap.servers", "xn--ñ.例え:9092"),
        ("bootstrap.servers", "::1:9092"),
        ("request.timeout.ms", f"{1 << 31}"),
        ("metadata.max.age.ms", f"{1 << 63}"),
        ("fetch.max.bytes", "9" * 5000),
        ("api_version", "latest"),
        ("ssl.keystore.type", "BCFKS"),
        ("ssl.endpoint.identification.algorithm", "ldaps"),
    ],
)
def test_values_that_do_not_parse_name_the_option(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=rf"Option 'kafka\.{name}': expected"):
        config({name: value})


@pytest.mark.parametrize(
    "servers",
    [
        f"me:{SECRET}@b:9092",
        f"a:1, me:{SECRET}@b:9092",
        f"me:{SECRET},x@b:9092",
        f"SASL_SSL://me:{SECRET}@b:9092",
        SECRET,
    ],
)
@pytest.mark.parametrize("read", [batch_options, stream_options])
def test_a_password_among_the_servers_is_not_repeated(
    servers: str, read: Callable[[Mapping[str, str]], Options]
) -> None:
    """A password in kafka.bootstrap.servers is refused before DNS could see it, and no text of the error holds it."""
    options = read({"kafka.bootstrap.servers": servers, "subscribe": "t"})
    with pytest.raises(OptionError, match=r"'kafka\.bootstrap\.servers': expected host:port") as caught:
        client_settings(options, driver=True)

    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert ("kafka.sasl.jaas.config" in str(caught.value)) == ("@" in servers)


@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "key.deserializer",
        "value.deserializer",
        "enable.auto.commit",
        "interceptor.classes",
        "allow.auto.create.topics",
    ],
)
def test_settings_that_we_own_are_refused(name: str) -> None:
    """Settings that would change which records are read, or how, are refused under both names."""
    for written in (name, name.replace(".", "_"), name.upper()):
        with pytest.raises(OptionError, match=rf"Kafka option '{name}' is not supported"):
            config({written: "x"})


def test_what_we_own_is_set() -> None:
    """The client creates, resets, commits and measures nothing on its own, whatever kafka-python's defaults are."""
    settings = consumer_settings(config({"group.id": "g"}, driver=False))
    assert settings["allow_auto_create_topics"] is False
    assert settings["auto_offset_reset"] == "none"
    assert settings["enable_auto_commit"] is False
    assert settings["metrics_enabled"] is False
    assert settings["check_crcs"] is True
    assert settings["group_id"] == "g"
    assert settings["fetch_min_bytes"] == KafkaConsumer.DEFAULT_CONFIG["fetch_min_bytes"]
    assert settings.keys() == KafkaConsumer.DEFAULT_CONFIG.keys()


def test_one_setting_under_two_names_is_refused() -> None:
    with pytest.raises(OptionError, match=r"'kafka\.client\.id' and 'kafka\.client_id' are the same"):
        config({"client.id": "a", "client_id": "b"})


def test_group_id_is_allowed_with_sparks_warning() -> None:
    with pytest.warns(UserWarning, match="'kafka.group.id' has been set on this query, it is not recommended"):
        assert config({"group.id": "g"}).group_id == "g"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config({"group.id": "g"}, groupIdPrefix="p")
        assert "Option 'groupIdPrefix' will be ignored" in str(caught[-1].message)
        caught.clear()
        config({"group.id": "g"}, driver=False)
        assert not caught


def test_times_depend_on_one_another() -> None:
    assert config().bootstrap_timeout_ms == config().request_timeout_ms == 30_000
    shorter = config({"request.timeout.ms": "400"})
    assert shorter.bootstrap_timeout_ms == shorter.default_api_timeout_ms == 400
    assert shorter.fetch_max_wait_ms < 400
    longer = config({"request.timeout.ms": "900000", "default.api.timeout.ms": "7000"})
    assert longer.connections_max_idle_ms > 900_000
    assert longer.bootstrap_timeout_ms == 7000
    assert config({"bootstrap.timeout.ms": "5"}).bootstrap_timeout_ms == 5
    with pytest.raises(OptionError, match="must be smaller than"):
        config({"request.timeout.ms": "900", "fetch.max.wait.ms": "900"})


def jaas(module: str = "scram.ScramLoginModule", rest: str = f'username="me" password="{SECRET}";') -> str:
    return f"org.apache.kafka.common.security.{module} required {rest}"


def sasl(mechanism: str, text: str, protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    return {"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.jaas.config": text}


@pytest.mark.parametrize(
    ("mechanism", "text", "user", "password"),
    [
        ("SCRAM-SHA-256", jaas(), "me", SECRET),
        ("scram-sha-512", jaas(), "me", SECRET),
        ("PLAIN", jaas("plain.PlainLoginModule"), "me", SECRET),
        ("PLAIN", "kafkashaded." + jaas("plain.PlainLoginModule"), "me", SECRET),
        ("PLAIN", jaas("plain.PlainLoginModule", "username='me' password='a b';"), "me", "a b"),
        ("PLAIN", jaas("plain.PlainLoginModule", "username=me\n  password=pw ;\n"), "me", "pw"),
        ("PLAIN", jaas("plain.PlainLoginModule", r'username="me" password="a\"b\\c;=";'), "me", 'a"b\\c;='),
        ("PLAIN", jaas("plain.PlainLoginModule", 'password="" x=1 username="me";'), "me", ""),
        (
            "PLAIN",
            jaas("plain.PlainLoginModule", r"""username='me' password='it\'s \101\60\7 \a;\v\8';"""),
            "me",
            "it's A0\a \a;\v8",
        ),
        ("PLAIN", jaas("plain.PlainLoginModule", '"username"="me" password="a//b /* c";'), "me", "a//b /* c"),
        ("PLAIN", jaas("plain.PlainLoginModule", "// of me\n username=me /* ; */ password=pw; // end"), "me", "pw"),
        ("PLAIN", '"a.PlainLoginModule" "required" username="me"password="pw";', "me", "pw"),
        ("PLAIN", jaas("plain.PlainLoginModule", 'username="me" password="pässwörd";'), "me", "pässwörd"),
    ],
)
def test_jaas_logins(mechanism: str, text: str, user: str, password: str) -> None:
    """A JAAS text that Java's client accepts has a user and a password, whatever its quotes and package."""
    settings = config(sasl(mechanism, text))
    assert settings.login == PasswordLogin(mechanism=mechanism.upper(), username=user, password=Secret(password))


@pytest.mark.parametrize(
    ("mechanism", "text", "message"),
    [
        ("PLAIN", jaas("plain.PlainLoginModule").rstrip(";"), "is not of the form"),
        ("PLAIN", jaas("plain.PlainLoginModule", f'username="me" password="{SECRET};'), "is not of the form"),
        ("PLAIN", jaas("plain.PlainLoginModule", f'username="me" "{SECRET}";'), "is not of the form"),
        ("PLAIN", jaas("plain.PlainLoginModule", f'username="me" password=https://{SECRET};'), "is not of the form"),
        ("PLAIN", jaas("plain.PlainLoginModule", f'username=me password="{SECRET}"; more;'), "is not of the form"),
        ("PLAIN", f'PlainLoginModule username="me" password="{SECRET}";', "is not of the form"),
        ("PLAIN", SECRET, "is not of the form"),
        ("PLAIN", "", "is not of the form"),
        ("PLAIN", ";", "is not of the form"),
        ("PLAIN", jaas("plain.PlainLoginModule", f'password="{SECRET}";'), "lacks a username or a password"),
        ("PLAIN", jaas("plain.PlainLoginModule", 'username="me";'), "lacks a username or a password"),
        ("PLAIN", jaas(), "ScramLoginModule, which does not fit kafka.sasl.mechanism=PLAIN"),
        ("PLAIN", jaas("ssl.SslLoginModule", f'keyTab="{SECRET}";'), "only Java's client has"),
        ("SAML", jaas(), "must be one of PLAIN, SCRAM-SHA-256"),
        ("", jaas(), "must be one of PLAIN, SCRAM-SHA-256"),
    ],
)
def test_invalid_logins_never_show_the_password(mechanism: str, text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        config(sasl(mechanism, text))
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)
    assert caught.value.__context__ is None or SECRET not in str(caught.value.__context__)


def test_kafka_pythons_names_make_a_login_too() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl_plain_username": "me"}
    settings = config({**given, "sasl_plain_password": SECRET})
    assert settings.login == PasswordLogin(mechanism="PLAIN", username="me", password=Secret(SECRET))
    with pytest.raises(OptionError, match=r"PLAIN needs the option 'kafka\.sasl\.jaas\.config'"):
        config(given)


def test_without_a_sasl_protocol_logins_are_ignored() -> None:
    settings = config({**sasl("PLAIN", jaas(), "PLAINTEXT"), "ssl.keystore.type": "JKS"})
    assert (settings.login, settings.tls) == (None, None)


PEM_FILES = {
    "security.protocol": "SSL",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "/ca.pem",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/key.pem",
    "ssl.key.password": SECRET,
    "ssl.endpoint.identification.algorithm": "",
}
PEM_TEXTS = {
    "security.protocol": "SSL",
    "ssl.truststore.type": "pem",
    "ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
    "ssl.keystore.type": "pem",
    "ssl.keystore.key": f"-----BEGIN PRIVATE KEY----- {SECRET}",
    "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----",
}


def test_pem_stores() -> None:
    assert config(PEM_FILES).tls == TLSSettings(
        truststore_type="PEM",
        cafile="/ca.pem",
        keystore_type="PEM",
        certfile="/key.pem",
        password=Secret(SECRET),
        check_hostname=False,
    )
    assert config(PEM_TEXTS).tls == TLSSettings(
        truststore_type="PEM",
        truststore_pem="-----BEGIN CERTIFICATE-----",
        keystore_type="PEM",
        keystore_key_pem=Secret(f"-----BEGIN PRIVATE KEY----- {SECRET}"),
        keystore_chain_pem="-----BEGIN CERTIFICATE-----",
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ssl.keystore.key": SECRET}, "'kafka.ssl.keystore.key' and .* must be given together"),
        ({"ssl.truststore.certificates": "x", "ssl.truststore.location": "/ca.pem"}, "exclude each other"),
    ],
)
def test_stores_that_are_incomplete_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        config({"security.protocol": "SASL_SSL", **sasl("PLAIN", jaas("plain.PlainLoginModule"), "SSL"), **given})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "given", [sasl("SCRAM-SHA-256", jaas()), PEM_FILES, PEM_TEXTS, {"proxy_url": f"socks5://me:{SECRET}@p:1"}]
)
def test_settings_pickle_and_print_without_secrets(given: dict[str, str]) -> None:
    settings = config(given)
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 (made here)
    for text in (repr(settings), str(settings), f"{settings}", json.dumps(asdict(settings), default=str)):
        assert SECRET not in text


@pytest.mark.parametrize(
    "url",
    [
        f"me:{SECRET}@proxy:1080", f"//me:{SECRET}@proxy:1080", f"ftp://me:{SECRET}@proxy:1080",
        f"socks5://me:{SECRET}/x@proxy:1080", f"socks5://me:{SECRET}@proxy",
        f"socks5://me:{SECRET}@[proxy:1080", SECRET,
    ],
)  # fmt: skip
def test_a_malformed_proxy_is_refused_without_its_password(url: str) -> None:
    """kafka-python would put such a URL into its error."""
    with pytest.raises(OptionError, match=r"'kafka.proxy_url': expected a URL such as socks5") as raised:
        config({"proxy_url": url})

    assert SECRET not in str(raised.value)
