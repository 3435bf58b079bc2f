"""`kafka.*` options → the settings of kafka-python's KafkaConsumer, without I/O or an import of kafka.

The settings can be pickled, and print without secrets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ticdc_source.errors import OptionError
from ticdc_source.options import parsers
from ticdc_source.options.credentials import ClientSettings, Secret, proxy_url, tls
from ticdc_source.options.logins import sasl
from ticdc_source.options.options import Options
from ticdc_source.reports import warn

__all__ = ["BY_NAME", "OWN_SETTINGS", "REFUSED", "SETTINGS", "WITHOUT_EFFECT", "Setting", "client_config"]


class Setting(NamedTuple):
    """One setting of the client.

    Attributes:
        java: Java's name without `kafka.`; None if only kafka-python has the setting.
        name: kafka-python's name, or one of `OWN_SETTINGS`.
        parse: Turns text into a value; raises ValueError with a sentence that repeats no part of the text.
    """

    java: str | None
    name: str
    parse: Callable[[str], object]


SETTINGS: tuple[Setting, ...] = (
    Setting("bootstrap.servers", "bootstrap_servers", parsers.servers),
    Setting("client.id", "client_id", parsers.stripped),
    Setting("client.rack", "client_rack", parsers.stripped),
    Setting(
        "client.dns.lookup",
        "client_dns_lookup",
        parsers.one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    ),
    Setting("group.id", "group_id", parsers.stripped),
    Setting("isolation.level", "isolation_level", parsers.one_of("read_uncommitted", "read_committed")),
    Setting("check.crcs", "check_crcs", parsers.boolean),
    Setting("fetch.min.bytes", "fetch_min_bytes", parsers.whole_number(0)),
    Setting("fetch.max.wait.ms", "fetch_max_wait_ms", parsers.whole_number(0)),
    Setting("fetch.max.bytes", "fetch_max_bytes", parsers.whole_number(1)),
    Setting("max.partition.fetch.bytes", "max_partition_fetch_bytes", parsers.whole_number(1)),
    Setting("max.poll.records", "max_poll_records", parsers.whole_number(1)),
    Setting("request.timeout.ms", "request_timeout_ms", parsers.whole_number(1)),
    Setting("default.api.timeout.ms", "default_api_timeout_ms", parsers.whole_number(1)),
    Setting("bootstrap.timeout.ms", "bootstrap_timeout_ms", parsers.whole_number(1)),
    Setting("socket.connection.setup.timeout.ms", "socket_connection_setup_timeout_ms", parsers.whole_number(1)),
    Setting(
        "socket.connection.setup.timeout.max.ms", "socket_connection_setup_timeout_max_ms", parsers.whole_number(1)
    ),
    Setting("retry.backoff.ms", "retry_backoff_ms", parsers.whole_number(0)),
    Setting("reconnect.backoff.ms", "reconnect_backoff_ms", parsers.whole_number(0)),
    Setting("reconnect.backoff.max.ms", "reconnect_backoff_max_ms", parsers.whole_number(0)),
    Setting("connections.max.idle.ms", "connections_max_idle_ms", parsers.whole_number(1)),
    Setting("metadata.max.age.ms", "metadata_max_age_ms", parsers.whole_number(1)),
    Setting("receive.buffer.bytes", "receive_buffer_bytes", parsers.buffer_bytes),
    Setting("send.buffer.bytes", "send_buffer_bytes", parsers.buffer_bytes),
    Setting(None, "receive_message_max_bytes", parsers.whole_number(1)),
    Setting(None, "api_version", parsers.broker_version),
    Setting(None, "proxy_url", proxy_url),
    Setting("security.protocol", "security_protocol", parsers.one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    Setting("sasl.mechanism", "sasl_mechanism", parsers.upper_case),
    Setting("sasl.jaas.config", "sasl_jaas_config", Secret),
    Setting(None, "sasl_plain_username", parsers.stripped),
    Setting(None, "sasl_plain_password", Secret),
    Setting("sasl.login.callback.handler.class", "sasl_login_callback_handler_class", parsers.stripped),
    Setting("sasl.client.callback.handler.class", "sasl_client_callback_handler_class", parsers.stripped),
    Setting("sasl.login.connect.timeout.ms", "sasl_login_connect_timeout_ms", parsers.whole_number(1)),
    Setting("sasl.login.read.timeout.ms", "sasl_login_read_timeout_ms", parsers.whole_number(1)),
    Setting("sasl.login.retry.backoff.ms", "sasl_login_retry_backoff_ms", parsers.whole_number(0)),
    Setting("sasl.login.retry.backoff.max.ms", "sasl_login_retry_backoff_max_ms", parsers.whole_number(0)),
    Setting("sasl.oauthbearer.token.endpoint.url", "sasl_oauthbearer_token_endpoint_url", parsers.token_endpoint),
    Setting(
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl_oauthbearer_client_credentials_client_id",
        parsers.stripped,
    ),
    Setting(
        "sasl.oauthbearer.client.credentials.client.secret", "sasl_oauthbearer_client_credentials_client_secret", Secret
    ),
    Setting("sasl.oauthbearer.scope", "sasl_oauthbearer_scope", parsers.stripped),
    Setting("sasl.oauthbearer.header.urlencode", "sasl_oauthbearer_header_urlencode", parsers.boolean),
    Setting("sasl.oauthbearer.jwt.retriever.class", "sasl_oauthbearer_jwt_retriever_class", parsers.stripped),
    Setting("sasl.kerberos.service.name", "sasl_kerberos_service_name", parsers.stripped),
    Setting(None, "sasl_kerberos_domain_name", parsers.stripped),
    Setting("ssl.truststore.type", "ssl_truststore_type", parsers.one_of("JKS", "PKCS12", "PEM")),
    Setting("ssl.truststore.location", "ssl_cafile", parsers.stripped),
    Setting("ssl.truststore.password", "ssl_truststore_password", Secret),
    Setting("ssl.truststore.certificates", "ssl_truststore_pem", parsers.stripped),
    Setting("ssl.keystore.type", "ssl_keystore_type", parsers.one_of("JKS", "PKCS12", "PEM")),
    Setting("ssl.keystore.location", "ssl_certfile", parsers.stripped),
    Setting("ssl.keystore.password", "ssl_keystore_password", Secret),
    Setting("ssl.keystore.key", "ssl_keystore_key_pem", Secret),
    Setting("ssl.keystore.certificate.chain", "ssl_keystore_chain_pem", parsers.stripped),
    Setting("ssl.key.password", "ssl_password", Secret),
    Setting("ssl.endpoint.identification.algorithm", "ssl_check_hostname", parsers.host_check),
    Setting(None, "ssl_keyfile", parsers.stripped),
    Setting(None, "ssl_crlfile", parsers.stripped),
    Setting(None, "ssl_ciphers", parsers.stripped),
)

# Settings that KafkaConsumer does not have: the kafka package implements them, or `client_config` replaces them.
OWN_SETTINGS = frozenset({
    "broker_timeout_ms",
    "default_api_timeout_ms",
    "socket_connection_setup_timeout_ms",
    "socket_connection_setup_timeout_max_ms",
    "ssl_truststore_pem",
    "ssl_keystore_key_pem",
    "ssl_keystore_chain_pem",
    "ssl_truststore_type",
    "ssl_truststore_password",
    "ssl_keystore_type",
    "ssl_keystore_password",
    "sasl_jaas_config",
    "sasl_login",
    "sasl_login_callback_handler_class",
    "sasl_login_connect_timeout_ms",
    "sasl_login_read_timeout_ms",
    "sasl_login_retry_backoff_ms",
    "sasl_login_retry_backoff_max_ms",
    "sasl_client_callback_handler_class",
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_credentials_client_secret",
    "sasl_oauthbearer_scope",
    "sasl_oauthbearer_header_urlencode",
    "sasl_oauthbearer_jwt_retriever_class",
})  # fmt: skip

BY_NAME = {key: row for row in SETTINGS for key in (row.java, row.name) if key is not None}

# Java settings without effect on a reader that joins no group and names its partitions, or on Python's TLS.
WITHOUT_EFFECT = frozenset(
    {
        "auto.commit.interval.ms",
        "exclude.internal.topics",
        "group.instance.id",
        "group.protocol",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "security.providers",
        "session.timeout.ms",
        "ssl.enabled.protocols",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)

REFUSED = {
    "auto.offset.reset": (
        "Kafka option 'auto.offset.reset' is not supported. Instead set the source option 'startingoffsets' "
        "to 'earliest' or 'latest' to specify where to start. Structured Streaming manages which offsets "
        "are consumed internally, rather than relying on the kafkaConsumer to do it. This will ensure that "
        "no data is missed when new topics/partitions are dynamically subscribed. Note that "
        "'startingoffsets' only applies when a new Streaming query is started, and that resuming will "
        "always pick up from where the query left off. See the docs for more details."
    ),
    "key.deserializer": (
        "Kafka option 'key.deserializer' is not supported as keys are read as bytes; see the option 'includeMetadata'."
    ),
    "value.deserializer": (
        "Kafka option 'value.deserializer' is not supported as values are read as bytes and decoded by "
        "protocol; see the option 'protocol'."
    ),
    "enable.auto.commit": "Kafka option 'enable.auto.commit' is not supported",
    "sasl.login.class": "Kafka option 'sasl.login.class' is not supported: it names a class of Java",
    "sasl.oauthbearer.assertion.file": (
        "Kafka option 'sasl.oauthbearer.assertion.file' is not supported: a token is asked for with a client's id and "
        "secret"
    ),
    "sasl.oauthbearer.assertion.private.key.file": (
        "Kafka option 'sasl.oauthbearer.assertion.private.key.file' is not supported: a token is asked for with a "
        "client's id and secret"
    ),
    "interceptor.classes": "Kafka option 'interceptor.classes' is not supported",
    "allow.auto.create.topics": (
        "Kafka option 'allow.auto.create.topics' is not supported: reading never creates a topic"
    ),
}

_GROUP_ID_WARNING = (
    "Kafka option 'kafka.group.id' has been set on this query, it is not recommended to set this option. "
    "This option is unsafe to use since multiple concurrent queries or sources using the same group id will "
    "interfere with each other as they are part of the same consumer group. Restarted queries may also "
    "suffer interference from the previous run having the same group id. The user should have only one "
    "query per group id."
)

# Settings that the source owns: no reset, no commits, no metrics; nothing is created.
_FIXED: ClientSettings = {
    "allow_auto_create_topics": False,
    "auto_offset_reset": "none",
    "enable_auto_commit": False,
    "metrics_enabled": False,
}
_DEFAULTS: ClientSettings = {
    "isolation_level": "read_uncommitted",
    "check_crcs": True,
    "request_timeout_ms": 30_000,
    "fetch_max_wait_ms": 500,
    # A client reads one partition at a time. A response is a few chunks, and the client fetches the next one meanwhile.
    # Each response costs kafka-python about a millisecond, whatever its size; 4 MiB take 25 MiB more memory of a
    # worker than 2 or 3.
    "max_partition_fetch_bytes": 3 << 20,
    "reconnect_backoff_max_ms": 1_000,  # find a restarted broker again soon
}


def client_config(options: Options, *, driver: bool) -> ClientSettings:
    """Return the settings of a KafkaConsumer, and those of `OWN_SETTINGS` that were given.

    Args:
        options: The options of the read.
        driver: Whether the client runs on the driver, where it looks up offsets, or on an executor, where it fetches
            and does not repeat the driver's warnings.

    Raises:
        OptionError: A setting is refused or malformed. No message holds the value of a setting that may be secret.
    """
    given: ClientSettings = {}
    for name, text in options.kafka.items():
        _refuse(name)
        setting = BY_NAME.get(name)
        if setting is None:
            continue  # `options.names` reports it
        if setting.name in given:
            msg = f"Options 'kafka.{setting.java}' and 'kafka.{setting.name}' are the same: give one of them"
            raise OptionError(msg)
        given[setting.name] = _parsed(setting, text, f"kafka.{name}")
    if driver and "group_id" in given:
        warn(_GROUP_ID_WARNING)
        if options.is_given("groupIdPrefix"):
            msg = "Option 'groupIdPrefix' will be ignored as option 'kafka.group.id' has been set."
            warn(msg)
    config = {name: value for name, value in given.items() if not name.startswith(("sasl_", "ssl_"))}
    config = {
        **_DEFAULTS,
        "client_id": _client_id(options.group_id_prefix, driver=driver),
        **config,
        **sasl(given, _parse_in_login),
        **tls(given),
        **_FIXED,
    }
    _fit_times(config, given)
    if options.is_stream:
        config["broker_timeout_ms"] = options.broker_timeout_ms
    return config


def _parsed(setting: Setting, text: str, option: str) -> object:
    try:
        return setting.parse(text)
    except ValueError as error:
        msg = f"Option '{option}': {error}"
        raise OptionError(msg) from None


def _parse_in_login(name: str, text: str) -> tuple[str, object]:
    """Parse a setting among the entries of a login module."""
    setting = BY_NAME.get(name)
    if setting is None or not name.startswith("ssl."):
        msg = "Option 'kafka.sasl.jaas.config' has an unknown setting of TLS; one is ssl.truststore.location"
        raise OptionError(msg)
    return setting.name, _parsed(setting, text, f"kafka.sasl.jaas.config', entry '{name}")


def _client_id(prefix: str | None, *, driver: bool) -> str:
    # In Spark it is the prefix of a group id. This source joins no group, so brokers see it in the client id.
    return f"{prefix or 'ticdc-source'}-{'driver' if driver else 'executor'}"


def _refuse(name: str) -> None:
    reason = REFUSED.get(name.replace("_", "."))
    if reason is not None:
        raise OptionError(reason)


def _fit_times(config: ClientSettings, given: ClientSettings) -> None:
    """Set the times that depend on one another.

    kafka-python refuses a client unless fetch_max_wait_ms < request_timeout_ms < connections_max_idle_ms.
    """
    request = config["request_timeout_ms"]
    config.setdefault("default_api_timeout_ms", request)
    config.setdefault("bootstrap_timeout_ms", config["default_api_timeout_ms"])
    if "fetch_max_wait_ms" not in given:
        config["fetch_max_wait_ms"] = min(config["fetch_max_wait_ms"], request - 1)
    if "connections_max_idle_ms" not in given:
        config["connections_max_idle_ms"] = max(9 * 60_000, request + 1)
    if not config["fetch_max_wait_ms"] < request < config["connections_max_idle_ms"]:
        msg = (
            "kafka.fetch.max.wait.ms must be smaller than kafka.request.timeout.ms, and that smaller than "
            "kafka.connections.max.idle.ms"
        )
        raise OptionError(msg)
