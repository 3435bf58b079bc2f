"""`kafka.*` options → the settings of kafka-python's KafkaConsumer. No I/O, and no import of kafka.

The result pickles, and prints without secrets.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from ticdc_source.errors import OptionError
from ticdc_source.options.credentials import Secret, sasl, store_type, tls

__all__ = ["BY_NAME", "OWN_SETTINGS", "SETTINGS", "Setting", "client_config"]


# Java settings that mean nothing to a reader of named partitions without a group, or to Python's TLS.
_WITHOUT_EFFECT = frozenset(
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
        "security.providers",
        "session.timeout.ms",
        "ssl.enabled.protocols",
        "ssl.keymanager.algorithm",
        "ssl.keystore.password",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.password",
    }
)

_REFUSED = {
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

# What is ours is set against Kafka's reset, commits, interceptors and metrics; the rest are sizes and times.
_FIXED = {
    "allow_auto_create_topics": False,
    "auto_offset_reset": "none",
    "enable_auto_commit": False,
    "metrics_enabled": False,
}
_DEFAULTS = {
    "isolation_level": "read_uncommitted",
    "check_crcs": True,
    "request_timeout_ms": 30_000,
    "fetch_max_wait_ms": 500,
    # One partition is read at a time: one answer is a few chunks, and the next is on its way meanwhile. An answer costs
    # kafka-python about a millisecond, however little it brings; 4 MiB take 25 MiB more of a worker than 2 or 3.
    "max_partition_fetch_bytes": 3 << 20,
    "reconnect_backoff_max_ms": 1_000,  # a restarted broker should be found again soon
}


def client_config(options: Any, *, driver: bool) -> dict[str, Any]:
    """Return the settings for a KafkaConsumer, and those of `OWN_SETTINGS` that were given.

    Args:
        options: the read's `Options`.
        driver: whether the client looks offsets up (and warns), or fetches on an executor (and does not
            repeat it).

    Raises:
        OptionError: a setting is refused, malformed, or (with `strictOptions`) unknown. No message holds the
            value of a setting that may be secret.
    """
    given: dict[str, Any] = {}
    for name, text in options.kafka.items():
        _refuse(name)
        row = BY_NAME.get(name)
        if row is None:
            _report_unknown(name, strict=options.strict_options, quiet=not driver)
            continue
        if row.name in given:
            msg = f"Options 'kafka.{row.java}' and 'kafka.{row.name}' are the same: give one of them"
            raise OptionError(msg)
        try:
            given[row.name] = row.parse(text)
        except ValueError as error:
            msg = f"Option 'kafka.{name}': {error}"
            raise OptionError(msg) from None
    if driver and "group_id" in given:
        warnings.warn(_GROUP_ID_WARNING, stacklevel=2)
        if options.is_given("groupIdPrefix"):
            msg = "Option 'groupIdPrefix' will be ignored as option 'kafka.group.id' has been set."
            warnings.warn(msg, stacklevel=2)
    config = {name: value for name, value in given.items() if not name.startswith(("sasl_", "ssl_"))}
    config = {
        **_DEFAULTS,
        "client_id": _client_id(options.group_id_prefix, driver=driver),
        **config,
        **sasl(given),
        **tls(given),
        **_FIXED,
    }
    _fit_times(config, given)
    return config


def _client_id(prefix: str | None, *, driver: bool) -> str:
    # No group is joined: what a prefix of its name is for, to know the query on the brokers, the client's id does.
    return f"{prefix or 'ticdc-source'}-{'driver' if driver else 'executor'}"


def _refuse(name: str) -> None:
    reason = _REFUSED.get(name.replace("_", "."))
    if reason is not None:
        raise OptionError(reason)


def _report_unknown(name: str, *, strict: bool, quiet: bool) -> None:
    if name in _WITHOUT_EFFECT:
        message = f"Kafka option '{name}' has no effect here and is ignored"
    else:
        near = difflib.get_close_matches(name, BY_NAME, n=1)
        hint = f"; did you mean 'kafka.{near[0]}'?" if near else ""
        message = f"Unknown Kafka option 'kafka.{name}' is ignored{hint}"
        if strict:
            raise OptionError(message)
    if not quiet:
        warnings.warn(message, stacklevel=3)


def _fit_times(config: dict[str, Any], given: dict[str, Any]) -> None:
    """Settle the times that depend on one another.

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


def _text(value: str) -> str:
    return value.strip()


def _integer(minimum: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if re.fullmatch(r"\s*-?\d+\s*", value) is None or int(value) < minimum:
            msg = f"expected a whole number, at least {minimum}"
            raise ValueError(msg)
        return int(value)

    return parse


def _buffer_bytes(value: str) -> int | None:
    number = _integer(-1)(value)
    return None if number == -1 else number  # Java's -1 is kafka-python's None: what the system thinks best


def _boolean(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        msg = "expected true or false"
        raise ValueError(msg)
    return lowered == "true"


def _one_of(*choices: str) -> Callable[[str], str]:
    by_lower = {choice.lower(): choice for choice in choices}

    def parse(value: str) -> str:
        choice = by_lower.get(value.strip().lower())
        if choice is None:
            msg = f"expected one of {', '.join(choices)}"
            raise ValueError(msg)
        return choice

    return parse


def _servers(value: str) -> list[str]:
    servers = [server.strip() for server in value.split(",") if server.strip()]
    if not servers or any(re.fullmatch(r".*[^:]:\d{1,5}", server) is None for server in servers):
        msg = "expected host:port, several separated by commas"
        raise ValueError(msg)
    return servers


def _hostname_check(value: str) -> bool:
    algorithm = value.strip().lower()
    if algorithm not in ("", "https"):
        msg = "expected https, or nothing to turn the check of host names off"
        raise ValueError(msg)
    return algorithm == "https"


def _version(value: str) -> tuple[int, ...]:
    if re.fullmatch(r"\d+(\.\d+){1,2}", value.strip()) is None:
        msg = "expected a broker version such as 3.9"
        raise ValueError(msg)
    return tuple(int(part) for part in value.strip().split("."))


class Setting(NamedTuple):
    """One setting of the client.

    Attributes:
        java: Java's name without `kafka.`; None where only kafka-python has it.
        name: kafka-python's name, or one of `OWN_SETTINGS`.
        parse: text to value; raises ValueError with a sentence that repeats no part of the text.
    """

    java: str | None
    name: str
    parse: Callable[[str], Any]


SETTINGS: tuple[Setting, ...] = (
    Setting("bootstrap.servers", "bootstrap_servers", _servers),
    Setting("client.id", "client_id", _text),
    Setting("client.rack", "client_rack", _text),
    Setting(
        "client.dns.lookup",
        "client_dns_lookup",
        _one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    ),
    Setting("group.id", "group_id", _text),
    Setting("isolation.level", "isolation_level", _one_of("read_uncommitted", "read_committed")),
    Setting("check.crcs", "check_crcs", _boolean),
    Setting("fetch.min.bytes", "fetch_min_bytes", _integer(0)),
    Setting("fetch.max.wait.ms", "fetch_max_wait_ms", _integer(0)),
    Setting("fetch.max.bytes", "fetch_max_bytes", _integer(1)),
    Setting("max.partition.fetch.bytes", "max_partition_fetch_bytes", _integer(1)),
    Setting("max.poll.records", "max_poll_records", _integer(1)),
    Setting("request.timeout.ms", "request_timeout_ms", _integer(1)),
    Setting("default.api.timeout.ms", "default_api_timeout_ms", _integer(1)),
    Setting("bootstrap.timeout.ms", "bootstrap_timeout_ms", _integer(1)),
    Setting("socket.connection.setup.timeout.ms", "socket_connection_setup_timeout_ms", _integer(1)),
    Setting("socket.connection.setup.timeout.max.ms", "socket_connection_setup_timeout_max_ms", _integer(1)),
    Setting("retry.backoff.ms", "retry_backoff_ms", _integer(0)),
    Setting("reconnect.backoff.ms", "reconnect_backoff_ms", _integer(0)),
    Setting("reconnect.backoff.max.ms", "reconnect_backoff_max_ms", _integer(0)),
    Setting("connections.max.idle.ms", "connections_max_idle_ms", _integer(1)),
    Setting("metadata.max.age.ms", "metadata_max_age_ms", _integer(1)),
    Setting("receive.buffer.bytes", "receive_buffer_bytes", _buffer_bytes),
    Setting("send.buffer.bytes", "send_buffer_bytes", _buffer_bytes),
    Setting(None, "receive_message_max_bytes", _integer(1)),
    Setting(None, "api_version", _version),
    Setting(None, "proxy_url", Secret),  # may hold a password
    Setting("security.protocol", "security_protocol", _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    Setting("sasl.mechanism", "sasl_mechanism", lambda value: value.strip().upper()),
    Setting("sasl.jaas.config", "sasl_jaas_config", Secret),
    Setting(None, "sasl_plain_username", _text),
    Setting(None, "sasl_plain_password", Secret),
    Setting("sasl.kerberos.service.name", "sasl_kerberos_service_name", _text),
    Setting(None, "sasl_kerberos_domain_name", _text),
    Setting("ssl.truststore.type", "ssl_truststore_type", store_type),
    Setting("ssl.truststore.location", "ssl_cafile", _text),
    Setting("ssl.truststore.certificates", "ssl_truststore_pem", _text),
    Setting("ssl.keystore.type", "ssl_keystore_type", store_type),
    Setting("ssl.keystore.location", "ssl_certfile", _text),
    Setting("ssl.keystore.key", "ssl_keystore_key_pem", Secret),
    Setting("ssl.keystore.certificate.chain", "ssl_keystore_chain_pem", _text),
    Setting("ssl.key.password", "ssl_password", Secret),
    Setting("ssl.endpoint.identification.algorithm", "ssl_check_hostname", _hostname_check),
    Setting(None, "ssl_keyfile", _text),
    Setting(None, "ssl_crlfile", _text),
    Setting(None, "ssl_ciphers", _text),
)

# Settings that KafkaConsumer does not have: our kafka package makes them work, or they are gone before it.
OWN_SETTINGS = frozenset({
    "default_api_timeout_ms",
    "socket_connection_setup_timeout_ms",
    "socket_connection_setup_timeout_max_ms",
    "ssl_truststore_pem",
    "ssl_keystore_key_pem",
    "ssl_keystore_chain_pem",
    "ssl_truststore_type",
    "ssl_keystore_type",
    "sasl_jaas_config",
})  # fmt: skip

BY_NAME = {key: row for row in SETTINGS for key in (row.java, row.name) if key is not None}
