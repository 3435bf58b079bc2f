"""Which private names of kafka-python are used, and what happens if the installed version lacks one.

`GUARDS` is the one table; docs/design/0010 says of each name why it is used. Each row guards one way past the library's
public names, and says what is done without it. A version is looked at once in a process: what it is, not what number it
has. If it differs, one warning says so, and the lines of `metricsPath` say it too.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType, MappingProxyType

import kafka

from ticdc_source.errors import warn
from ticdc_source.sources.kafka.client import ClientFacts

__all__ = [
    "ANSWERS",
    "CONNECTIONS",
    "GUARDS",
    "RECORD_BATCHES",
    "TESTED",
    "Expectation",
    "Guard",
    "differences",
    "facts",
]

TESTED = "3.0.12"  # the version that the expectations below were read from

CONNECTIONS, ANSWERS, RECORD_BATCHES = "connections", "answers", "record batches"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a name of the library must be like.

    Attributes:
        name: `module:Class.attribute`.
        parameters: those of the function, in order; None if they do not matter.
        members: attributes, or keys, that it must have.
        uses: names that the function's code must use, or that of the functions inside it.
    """

    name: str
    parameters: tuple[str, ...] | None = None
    members: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()

    def difference(self) -> str | None:
        """Return what is different in the installed version, None if nothing is."""
        module, _, path = self.name.partition(":")
        try:
            named: object = importlib.import_module(module)
        except ImportError as error:
            return f"{module} cannot be imported ({error})"
        for part in path.split("."):
            if not hasattr(named, part):
                return f"there is no {self.name.replace(':', '.')}"
            named = getattr(named, part)
        if missing := [member for member in self.members if not _has(named, member)]:
            return f"{path} has no {', '.join(missing)}"
        if self.parameters is not None and (given := _parameters(named)) != self.parameters:
            return f"{path} has other parameters: {', '.join(given or ('unknown',))}"
        used = _names_used(named)
        if missing := [name for name in self.uses if name not in used]:
            return f"{path} does not use {', '.join(missing)}"
        return None


def _has(named: object, member: str) -> bool:
    return member in named if isinstance(named, Mapping) else hasattr(named, member)


def _parameters(named: object) -> tuple[str, ...] | None:
    try:
        return tuple(inspect.signature(named).parameters) if callable(named) else None
    except ValueError:
        return None


def _names_used(named: object) -> frozenset[str]:
    """Return the names that a function uses, those of the functions inside it too."""
    code = named if isinstance(named, CodeType) else getattr(named, "__code__", None)
    if not isinstance(code, CodeType):
        return frozenset()
    return frozenset(code.co_names).union(*map(_names_used, code.co_consts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One way past the library's public names.

    Attributes:
        instead: what is done if the installed version differs.
        expectations: what the library must be like.
    """

    instead: str
    expectations: tuple[Expectation, ...]

    def difference(self) -> str | None:
        """Return the first difference, None if there is none."""
        differences = (expectation.difference() for expectation in self.expectations)
        return next((difference for difference in differences if difference is not None), None)


_MANAGER = "kafka.net.manager:KafkaConnectionManager"
_FETCHER = "kafka.consumer.fetcher:Fetcher"

GUARDS: Mapping[str, Guard] = MappingProxyType({
    # connections.py and network_client.py: look-ups with a time-out, failures reported at once, no topic created.
    CONNECTIONS: Guard(
        instead="a plain KafkaConsumer looks up and reads: it is slower, and says less about failed connections",
        expectations=(
            Expectation("kafka.net.selector:NetworkSelector", members=("start",)),
            Expectation("kafka.net.selector:NetworkSelector.run", parameters=("self", "coro", "args")),
            Expectation("kafka.net.compat:KafkaNetClient", members=("close",)),
            Expectation("kafka.net.compat:KafkaNetClient.__init__", parameters=("self", "net", "manager", "configs")),
            Expectation(_MANAGER, members=("bootstrapped", "broker_version", "ssl_enabled", "call_soon", "wait_for")),
            Expectation(
                f"{_MANAGER}.__init__", parameters=("self", "net", "configs"), uses=("_net", "cluster", "config")
            ),
            Expectation(
                f"{_MANAGER}.get_connection",
                uses=("_connect", "call_soon", "KafkaConnection", "close_future", "_conns"),
            ),
            Expectation(f"{_MANAGER}._connect", uses=("_build_transport", "connection_made")),
            Expectation(
                f"{_MANAGER}._build_transport", parameters=("self", "node", "timeout_at"), uses=("handshake",)
            ),
            Expectation(
                f"{_MANAGER}.bootstrap_async",
                parameters=("self", "timeout_ms", "refresh"),
                uses=("_bootstrap_future", "is_done"),
            ),
            Expectation(f"{_MANAGER}.least_loaded_node", parameters=("self",), uses=("_conns", "connection_delay")),
            Expectation(f"{_MANAGER}.close", parameters=("self", "node_id", "timeout_ms")),
            Expectation(f"{_MANAGER}.send", parameters=("self", "request", "node_id", "request_timeout_ms")),
            Expectation("kafka.net.connection:KafkaConnection", members=("init_future", "close_future")),
            Expectation(
                "kafka.cluster:ClusterMetadata",
                members=(
                    "brokers",
                    "bootstrap_brokers",
                    "broker_metadata",
                    "leader_for_partition",
                    "start_refresh_loop",
                ),
            ),
            Expectation("kafka.cluster:ClusterMetadata.DEFAULT_CONFIG", members=("allow_auto_create_topics",)),
            Expectation("kafka.cluster:ClusterMetadata.update_metadata", parameters=("self", "metadata")),
            Expectation(
                "kafka.net.transport:KafkaTCPTransport._read_from_sock",
                uses=("_sock_recv", "_protocol", "data_received"),
            ),
            Expectation(
                "kafka.net.transport:KafkaTCPTransport.__init__",
                parameters=("self", "net", "sock", "host"),
                uses=("_sock", "_protocol"),
            ),
            Expectation(
                "kafka.net.transport:KafkaSSLTransport.__init__", parameters=("self", "net", "sock", "host", "configs")
            ),
            Expectation("kafka.net.inet:KafkaNetSocket", members=("dns_lookup", "socket")),
            Expectation(
                "kafka.net.inet:KafkaNetSocket.sock_connect",
                parameters=("self", "net", "sock", "sockaddr", "timeout_at"),
            ),
            Expectation("kafka.future:Future", members=("success", "succeeded", "add_callback", "add_errback")),
            Expectation("kafka.protocol.metadata:MetadataRequest", members=("MetadataRequestTopic",)),
            Expectation(
                "kafka.protocol.consumer:ListOffsetsRequest",
                members=("ListOffsetsTopic", "min_version_for_isolation_level"),
            ),
            Expectation("kafka.protocol.consumer:OffsetForLeaderEpochRequest", members=("OffsetForLeaderTopic",)),
            Expectation("kafka:IsolationLevel", members=("build_from",)),
            Expectation("kafka:KafkaConsumer.DEFAULT_CONFIG", members=("kafka_client",)),
            Expectation("kafka:KafkaConsumer.__init__", uses=("_client", "_manager", "_net", "start")),
        ),
    ),
    # receiving.py: an answer is read from the socket into the memory that it is decoded from.
    ANSWERS: Guard(
        instead="the library's own parser takes bytes as they arrive: answers are copied more often",
        expectations=(
            Expectation(
                "kafka.protocol.parser:KafkaProtocol.receive_bytes",
                parameters=("self", "data"),
                uses=("_process_response", "_validate_frame_size", "_receiving", "_rbuffer"),
            ),
            Expectation(
                "kafka.protocol.parser:KafkaProtocol._process_response",
                parameters=("self", "read_buffer"),
            ),
            Expectation("kafka.protocol.parser:KafkaProtocol._validate_frame_size", parameters=("self", "nbytes")),
            Expectation("kafka.net.connection:KafkaConnection.data_received", uses=("parser",)),
        ),
    ),
    # slicing.py: a fetch is handed out as record batches, not record by record.
    RECORD_BATCHES: Guard(
        instead="records are read one by one, as KafkaConsumer.poll returns them: several times slower",
        expectations=(
            Expectation(
                f"{_FETCHER}.PartitionRecords.__init__",
                parameters=(
                    "self",
                    "fetch_offset",
                    "tp",
                    "records",
                    "key_deserializer",
                    "value_deserializer",
                    "check_crcs",
                    "isolation_level",
                    "aborted_transactions",
                    "metric_aggregator",
                    "on_drain",
                ),
            ),
            Expectation(f"{_FETCHER}.PartitionRecords", members=("__bool__", "take", "drain")),
            Expectation("kafka.record:MemoryRecords", members=("_buffer",)),
            Expectation(
                f"{_FETCHER}._append",
                uses=("topic_partition", "next_fetch_offset", "leader_epoch", "take", "drain"),
            ),
            Expectation(f"{_FETCHER}._parse_fetched_data", uses=("PartitionRecords", "MemoryRecords")),
            Expectation(f"{_FETCHER}._on_partition_records_drain", uses=("bytes_read", "topic_partition")),
            Expectation(f"{_FETCHER}._fetchable_partitions", uses=("_next_partition_records", "topic_partition")),
            Expectation("kafka:KafkaConsumer.__init__", uses=("_fetcher",)),
            Expectation(
                "kafka.record.legacy_records:LegacyRecordBatch.__init__", parameters=("self", "buffer", "magic")
            ),
        ),
    ),
})  # fmt: skip


@functools.cache
def differences() -> Mapping[str, str]:
    """Return what is different in the installed version, by the name of the guard.

    The first call in a process looks, and warns if anything is different. If `CONNECTIONS` differ, everything is done
    by public names, and no other guard matters.
    """
    texts = {name: text for name, guard in GUARDS.items() if (text := guard.difference()) is not None}
    if CONNECTIONS in texts:
        texts = {CONNECTIONS: texts[CONNECTIONS]}
    if texts:
        details = "; ".join(f"{text}: {GUARDS[name].instead}" for name, text in texts.items())
        warn(
            f"kafka-python {kafka.__version__} is not built as {TESTED}, which ticdc_source was tested with. Rows are "
            f"the same, but {details}"
        )
    return MappingProxyType(texts)


def facts() -> ClientFacts:
    """Return which kafka-python is installed, and what it lacks."""
    lacking = "; ".join(f"{name}: {text}" for name, text in differences().items())
    return ClientFacts(f"kafka-python {kafka.__version__}", lacking or None)
