"""The table of client settings: Java's names, kafka-python's, and how their texts are read.

Java's names are those of Kafka's documentation ("Consumer Configs"); kafka-python's those of
`KafkaConsumer.DEFAULT_CONFIG` in its version 3 (a test compares).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ticdc_source.credentials import Secret, store_type

__all__ = ["BY_NAME", "OWN_SETTINGS", "SETTINGS", "Setting"]


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
