"""`kafka.*` options → the settings of the Kafka client: a typed dataclass, without I/O or an import of kafka.

The settings can be pickled, and their repr has no secrets.
"""

# ruff: noqa: RUF009 (`option` returns a dataclass field; its default is made once, and never changed)

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from ticdc_source.errors import OptionError, warn
from ticdc_source.options import parsers
from ticdc_source.options.logins import Login, LoginTimes, SASLSettings, TLSSettings, login_of
from ticdc_source.options.option import CLIENT, DOTTED, Option, made, rows_of
from ticdc_source.options.options import Options
from ticdc_source.options.parsers import Secret

SecurityProtocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How to reach Kafka, and how to fetch from it.

    Each setting has kafka-python's name; None leaves the client's default.

    Attributes:
        default_api_timeout_ms: the limit of a request with its retries; kafka-python's consumer has none.
        broker_timeout_ms: how long a stream waits for brokers that it has reached before; None for a batch read.
        login: None without SASL.
        tls: None without TLS.
    """

    bootstrap_servers: tuple[str, ...] = field(
        default=(), metadata={"option": Option(name="kafka.bootstrap.servers", parse=parsers.servers, scope=CLIENT)}
    )
    client_id: str = CLIENT.option(DOTTED, parsers.stripped, default="ticdc-source")
    client_rack: str | None = CLIENT.optional(DOTTED, parsers.stripped)
    client_dns_lookup: str | None = CLIENT.optional(
        DOTTED, parsers.one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
    )
    group_id: str | None = CLIENT.optional(DOTTED, parsers.stripped)
    isolation_level: Literal["read_uncommitted", "read_committed"] = CLIENT.option(
        DOTTED, parsers.one_of("read_uncommitted", "read_committed"), default="read_uncommitted"
    )
    check_crcs: bool = CLIENT.option(DOTTED, parsers.boolean, default="true")
    fetch_min_bytes: int | None = CLIENT.optional(DOTTED, parsers.int32(0))
    fetch_max_wait_ms: int = CLIENT.option(DOTTED, parsers.int32(0), default="500")
    fetch_max_bytes: int | None = CLIENT.optional(DOTTED, parsers.int32(1))
    # A client reads one partition at a time, and fetches the next response while one is read. Each response costs
    # kafka-python about a millisecond, whatever its size; 4 MiB take 25 MiB more of a worker's memory than 2 or 3.
    max_partition_fetch_bytes: int = CLIENT.option(DOTTED, parsers.int32(1), default="3145728")
    max_poll_records: int | None = CLIENT.optional(DOTTED, parsers.int32(1))
    request_timeout_ms: int = CLIENT.option(DOTTED, parsers.int32(1), default="30000")
    default_api_timeout_ms: int = CLIENT.option(DOTTED, parsers.int32(1), default="30000")
    bootstrap_timeout_ms: int = CLIENT.option(DOTTED, parsers.int32(1), default="30000")
    socket_connection_setup_timeout_ms: int | None = CLIENT.optional(DOTTED, parsers.whole_number(1))
    socket_connection_setup_timeout_max_ms: int | None = CLIENT.optional(DOTTED, parsers.whole_number(1))
    retry_backoff_ms: int | None = CLIENT.optional(DOTTED, parsers.whole_number(0))
    reconnect_backoff_ms: int | None = CLIENT.optional(DOTTED, parsers.whole_number(0))
    # find a restarted broker again soon
    reconnect_backoff_max_ms: int = CLIENT.option(DOTTED, parsers.whole_number(0), default="1000")
    connections_max_idle_ms: int = CLIENT.option(DOTTED, parsers.whole_number(1), default="540000")
    metadata_max_age_ms: int | None = CLIENT.optional(DOTTED, parsers.whole_number(1))
    receive_buffer_bytes: int | None = CLIENT.optional(DOTTED, parsers.buffer_bytes)
    send_buffer_bytes: int | None = CLIENT.optional(DOTTED, parsers.buffer_bytes)
    receive_message_max_bytes: int | None = CLIENT.optional("kafka.receive_message_max_bytes", parsers.int32(1))
    api_version: tuple[int, ...] | None = CLIENT.optional("kafka.api_version", parsers.broker_version)
    proxy_url: Secret | None = CLIENT.optional("kafka.proxy_url", parsers.proxy_url, secret=True)
    security_protocol: SecurityProtocol = CLIENT.option(
        DOTTED, parsers.one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), default="PLAINTEXT"
    )
    broker_timeout_ms: int | None = None
    login: Login | None = None
    tls: TLSSettings | None = None


_BY_CLIENT_ID = ": tokens are requested with a client id and secret"
# Settings that would change which records are read, or how, and what follows "is not supported" in the error.
_REFUSED = {
    "auto.offset.reset": (
        ". Instead set the source option 'startingoffsets' to 'earliest' or 'latest' to specify where to start. "
        "Structured Streaming manages which offsets are consumed internally, rather than relying on the kafkaConsumer "
        "to do it. This will ensure that no data is missed when new topics/partitions are dynamically subscribed. Note "
        "that 'startingoffsets' only applies when a new Streaming query is started, and that resuming will always pick "
        "up from where the query left off. The command 'ticdc-source options' lists all options."
    ),
    "key.deserializer": " as keys are read as bytes; see the option 'includeMetadata'.",
    "value.deserializer": " as values are read as bytes and decoded by protocol; see the option 'protocol'.",
    "enable.auto.commit": "",
    "sasl.login.class": ": it names a Java class",
    "sasl.oauthbearer.assertion.file": _BY_CLIENT_ID,
    "sasl.oauthbearer.assertion.private.key.file": _BY_CLIENT_ID,
    "interceptor.classes": "",
    "allow.auto.create.topics": ": reading never creates a topic",
}


def _refused(java: str, why: str) -> Option:
    meaning = f"Kafka option '{java}' is not supported{why}"
    field = java.replace(".", "_")
    return Option(
        name=f"kafka.{java}", field=field, parse=str, scope=CLIENT, meaning=meaning, secret=True, refused=True
    )


SETTINGS = (
    *rows_of(ClientSettings),
    *rows_of(SASLSettings, "sasl_"),
    *rows_of(LoginTimes, "sasl_login_"),
    *rows_of(TLSSettings, "ssl_"),
    *(_refused(java, why) for java, why in _REFUSED.items()),
)
SETTINGS_BY_NAME = {name: row for row in SETTINGS for name in row.names}

_GROUP_ID_WARNING = (
    "Kafka option 'kafka.group.id' has been set on this query, it is not recommended to set this option. "
    "This option is unsafe to use since multiple concurrent queries or sources using the same group id will "
    "interfere with each other as they are part of the same consumer group. Restarted queries may also "
    "suffer interference from the previous run having the same group id. The user should have only one "
    "query per group id."
)


def client_settings(options: Options, *, driver: bool) -> ClientSettings:
    """Return the client's settings; only the driver warns.

    Raises:
        OptionError: a setting is refused or malformed; the message has no value that may be secret.
    """
    given: dict[str, object] = {}
    for name, text in ((f"kafka.{name}", text) for name, text in options.kafka.items()):
        row = SETTINGS_BY_NAME.get(name)
        if row is None:
            continue  # `options.names` reports it
        if row.refused:
            raise OptionError(row.meaning)
        if row.field in given:
            raise OptionError(f"Options '{row.names[0]}' and '{row.names[1]}' are the same: set one of them")
        given[row.field] = row.value_of(text, name)
    if driver and "group_id" in given:
        warn(_GROUP_ID_WARNING)
        if options.is_given("groupIdPrefix"):
            msg = "Option 'groupIdPrefix' will be ignored as option 'kafka.group.id' has been set."
            warn(msg)
    # In Spark it is the prefix of a group id. This source joins no group, so brokers see it in the client id.
    client_id = f"{options.group_id_prefix or 'ticdc-source'}-{'driver' if driver else 'executor'}"
    settings = made(ClientSettings, {"client_id": client_id, **given})
    protocol = settings.security_protocol
    sasl, times = made(SASLSettings, given, "sasl_"), made(LoginTimes, given, "sasl_login_")
    return replace(
        _with_fitting_times(settings, given),
        # Java's client ignores the settings of a login and of TLS too, if the protocol has none.
        login=login_of(sasl, times, protocol) if protocol.startswith("SASL_") else None,
        tls=made(TLSSettings, given, "ssl_") if protocol.endswith("SSL") else None,
        broker_timeout_ms=options.broker_timeout_ms if options.is_stream else None,
    )


def _with_fitting_times(settings: ClientSettings, given: Container[str]) -> ClientSettings:
    """Adjust the times that are not given to fit the given ones.

    kafka-python requires fetch_max_wait_ms < request_timeout_ms < connections_max_idle_ms.
    """
    request, fetch, idle = settings.request_timeout_ms, settings.fetch_max_wait_ms, settings.connections_max_idle_ms
    fetch = fetch if "fetch_max_wait_ms" in given else min(fetch, request - 1)
    idle = idle if "connections_max_idle_ms" in given else max(idle, request + 1)
    if not fetch < request < idle:
        raise OptionError(
            "kafka.fetch.max.wait.ms must be smaller than kafka.request.timeout.ms, and that smaller than "
            "kafka.connections.max.idle.ms"
        )
    api = settings.default_api_timeout_ms if "default_api_timeout_ms" in given else request
    return replace(
        settings,
        fetch_max_wait_ms=fetch,
        connections_max_idle_ms=idle,
        default_api_timeout_ms=api,
        bootstrap_timeout_ms=settings.bootstrap_timeout_ms if "bootstrap_timeout_ms" in given else api,
    )
