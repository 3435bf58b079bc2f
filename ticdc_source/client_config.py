"""`kafka.*` options → the settings of kafka-python's KafkaConsumer. No I/O, and no import of kafka.

The result pickles, and prints without secrets.
"""

from __future__ import annotations

import difflib
import warnings
from typing import Any

from ticdc_source.client_settings import BY_NAME
from ticdc_source.credentials import sasl, tls
from ticdc_source.errors import OptionError

__all__ = ["client_config"]


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
