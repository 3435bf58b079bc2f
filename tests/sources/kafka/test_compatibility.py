"""The installed kafka-python has the private names that are used, and another version is refused before it is used."""

import ast
import functools
import importlib
import inspect
import itertools
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kafka
import pytest

from tests.support.paths import ROOT
from ticdc_source.errors import OptionError
from ticdc_source.inspection.environment import Package, check_package
from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.sources.kafka.kafka_python import connect as module
from ticdc_source.sources.kafka.kafka_python.connect import REQUIRED, connect, installed
from ticdc_source.sources.kafka.patience import Limit, Patience

MANAGER, FETCHER = "kafka.net.manager:KafkaConnectionManager", "kafka.consumer.fetcher:Fetcher"
# What is called, overridden or replaced, with its parameters.
SIGNATURES = {
    "kafka.net.selector:NetworkSelector.run": "self coro args",
    "kafka.net.compat:KafkaNetClient.__init__": "self net manager configs",
    f"{MANAGER}.__init__": "self net configs",
    f"{MANAGER}.get_connection": (
        "self node_id timeout_ms pop_on_close refresh_metadata_on_err reset_backoff_on_connect"
    ),
    f"{MANAGER}._build_transport": "self node timeout_at",
    f"{MANAGER}.bootstrap_async": "self timeout_ms refresh",
    f"{MANAGER}.least_loaded_node": "self",
    f"{MANAGER}.close": "self node_id timeout_ms",
    f"{MANAGER}.send": "self request node_id request_timeout_ms",
    "kafka.cluster:ClusterMetadata.update_metadata": "self metadata",
    "kafka.net.transport:KafkaTCPTransport.__init__": "self net sock host",
    "kafka.net.transport:KafkaTCPTransport._sock_recv": "self",
    "kafka.net.transport:KafkaSSLTransport.__init__": "self net sock host configs",
    "kafka.net.transport:KafkaSSLTransport._sock_recv": "self",
    "kafka.net.inet:KafkaNetSocket.sock_connect": "self net sock sockaddr timeout_at",
    "kafka.net.connection:KafkaConnection.data_received": "self data",
    "kafka.net.connection:KafkaConnection._request_timed_out": "self future sent_at timeout_at",
    "kafka.net.selector:NetworkSelector.call_at": "self when task",
    "kafka.protocol.parser:KafkaProtocol.receive_bytes": "self data",
    "kafka.protocol.parser:KafkaProtocol._process_response": "self read_buffer",
    "kafka.protocol.parser:KafkaProtocol._validate_frame_size": "self nbytes",
    f"{FETCHER}.PartitionRecords.__init__": (
        "self fetch_offset tp records key_deserializer value_deserializer check_crcs isolation_level "
        "aborted_transactions metric_aggregator on_drain"
    ),
    f"{FETCHER}.PartitionRecords.take": "self n",
    f"{FETCHER}._append": "self drained part max_records update_offsets",
    f"{FETCHER}._parse_fetched_data": "self completed_fetch",
    f"{FETCHER}._on_partition_records_drain": "self partition_records",
    f"{FETCHER}._fetchable_partitions": "self",
    "kafka.record.legacy_records:LegacyRecordBatch.__init__": "self buffer magic",
    "kafka.net.sasl.gssapi:SaslMechanismGSSAPI.receive": "self auth_bytes",
}
# What else is used of a class or a table of settings.
MEMBERS = {
    "kafka.net.selector:NetworkSelector": "start",
    "kafka.net.compat:KafkaNetClient": "close",
    MANAGER: "bootstrapped broker_version ssl_enabled call_soon wait_for connection_delay",
    "kafka.net.connection:KafkaConnection": "closed init_future close_future",
    "kafka.cluster:ClusterMetadata": (
        "brokers bootstrap_brokers broker_metadata leader_for_partition start_refresh_loop"
    ),
    "kafka.cluster:ClusterMetadata.DEFAULT_CONFIG": "allow_auto_create_topics",
    "kafka:KafkaConsumer.DEFAULT_CONFIG": "kafka_client",
    "kafka.net.inet:KafkaNetSocket": "dns_lookup socket",
    "kafka.net.transport:KafkaTCPTransport": "handshake close",
    "kafka.future:Future": "is_done success succeeded add_callback add_errback",
    "kafka.protocol.metadata:MetadataRequest": "MetadataRequestTopic",
    "kafka.protocol.consumer:ListOffsetsRequest": "ListOffsetsTopic min_version_for_isolation_level",
    "kafka.protocol.consumer:OffsetForLeaderEpochRequest": "OffsetForLeaderTopic",
    "kafka:IsolationLevel": "build_from",
}
PATIENCE = Patience("b:1", "no broker answers", Limit(1, "an option"))


def named(name: str) -> Any:
    """What `module:Class.attribute` names in the installed version."""
    holder, _, path = name.partition(":")
    return functools.reduce(getattr, path.split("."), importlib.import_module(holder))


@pytest.mark.parametrize("name", SIGNATURES)
def test_what_is_called_or_replaced_takes_the_same(name: str) -> None:
    """If not, look at what the new version does there before the range in pyproject.toml is widened."""
    assert " ".join(inspect.signature(named(name)).parameters) == SIGNATURES[name]


@pytest.mark.parametrize("name", MEMBERS)
def test_what_is_used_of_a_class_is_there(name: str) -> None:
    """Methods, properties and settings."""
    holder = named(name)
    has = holder.__contains__ if isinstance(holder, dict) else functools.partial(hasattr, holder)

    assert [member for member in MEMBERS[name].split() if not has(member)] == []


def test_what_objects_hold_is_there() -> None:
    """Attributes that constructors set, as far as they need no broker."""
    net = named("kafka.net.selector:NetworkSelector")()
    manager = named(MANAGER)(net, bootstrap_servers=["b:1"])
    client = named("kafka.net.compat:KafkaNetClient")(net=net, manager=manager)
    transport = named("kafka.net.transport:KafkaTCPTransport")(net, None)
    held = [(manager, "_conns _net _bootstrap_future cluster config"), (transport, "_sock _protocol last_read")]

    assert [name for one, names in held for name in names.split() if not hasattr(one, name)] == []
    assert named("kafka.record:MemoryRecords")(b"bytes")._buffer == b"bytes"
    client.close()


def test_what_our_kerberos_sets_is_used() -> None:
    """Its constructor, which takes the place of kafka-python's, sets these attributes; without gssapi none can run."""
    source = inspect.getsource(named("kafka.net.sasl.gssapi:SaslMechanismGSSAPI"))
    names = ("auth_id", "_is_done", "_is_authenticated", "_client_ctx", "_next_token")

    assert [name for name in names if f"self.{name} = " not in source] == []


def names_of_the_page() -> set[str]:
    page = (ROOT / "docs/design/0010-record-path.md").read_text(encoding="utf-8")
    _, table = page.split("| private name |", 1)
    rows = itertools.takewhile(lambda line: line.startswith("|"), table.splitlines()[2:])
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_the_design_page_lists_every_private_name() -> None:
    """Each class that is looked at here, and each name that is imported, is listed with its reason; and no other."""
    looked_at = {name.partition(":")[2].partition(".")[0] for name in (*SIGNATURES, *MEMBERS)}
    imported = {
        alias.name
        for file in Path(module.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafka.")
        for alias in node.names
    }

    assert names_of_the_page() == looked_at | imported


def test_pip_and_the_check_have_one_range() -> None:
    """Where pip is not asked, the check says what pip would have."""
    assert f'"{REQUIRED}",' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("version", ["3.0.12", "3.0.13", "3.0.99.dev1"])
def test_a_version_in_the_range_is_taken(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So are later patches."""
    monkeypatch.setattr(kafka, "__version__", version)

    assert installed() == version


@pytest.mark.parametrize("version", ["2.3.1", "3.0.11", "3.0", "3.1.0", "3.1.dev0", "4.0.0", "unknown"])
def test_another_version_is_refused_at_once(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading and `doctor` say which version is there and what to install; nothing is connected."""
    monkeypatch.setattr(kafka, "__version__", version)
    message = rf'^Reading Kafka needs {REQUIRED}, but version {version} is installed: pip install "{REQUIRED}" on '
    began = time.monotonic()
    for use in (lambda: connect(ClientSettings(), PATIENCE), lambda: check_package(Package("kafka-python", "reads"))):
        with pytest.raises(OptionError, match=message):
            use()
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("there", [None, SimpleNamespace()])
def test_what_is_no_kafka_python_is_refused(there: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package, and another one of that name, are told in the same way."""
    monkeypatch.setitem(importlib.import_module("sys").modules, "kafka", there)

    with pytest.raises(OptionError, match=r"but it cannot be imported \(.*kafka|no attribute '__version__'"):
        connect(ClientSettings(), PATIENCE)
