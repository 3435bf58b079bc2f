"""Fixtures for all tests: a broker, topics on it, a Spark session, and the corpus."""

import os
import runpy
import socket
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from kafka.net.inet import KafkaNetSocket
from kafka.net.transport import KafkaTCPTransport

from examples.local_kafka import ExternalKafka, LocalKafka, connect, create_topic, delete_topic
from tests.support.paths import PACKAGES, ROOT
from tests.support.spark_settings import LOCAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.tidb.server import TiDB

PRELOAD = ROOT / "tests" / "support" / "preload"
LAKEHOUSE = ROOT / "lakehouse" / "tests"
Kafka: TypeAlias = LocalKafka | ExternalKafka
MARKED_FIXTURES = ("broker", "corpus", "spark", "tidb")


def _cargo() -> str | None:
    script = runpy.run_path(str(ROOT / "native" / "extension.py"))
    try:
        found: str = script["find_cargo"]()
    except script["BuildError"]:
        return None
    return found


CARGO = _cargo()
# In the order in which they start: those that take the longest first. `engines` is one JVM after another.
GROUPS = ("engines", "spark", "lakehouse-syncs", "broker", "versions", "lakehouse", "")
# Spark's default runs `readlink` or `chmod` for each file of a checkpoint: 150 processes for three micro-batches.
CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# For every JVM that tests start: none lives long enough to repay its optimising compiler or parallel collector. Without
# that compiler Java reserves 48 MiB for code, which a database of many tables fills: Spark then fails at random.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"


def pytest_configure() -> None:
    """Let the JVMs of this process, and of all that it starts, take `QUICK_JAVA`; close sockets for kafka-python."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JAVA)
    KafkaNetSocket.connect = _connect_or_close
    KafkaTCPTransport.close = _closing_at_once(KafkaTCPTransport.close)


# kafka-python leaves sockets open, which garbage collection would find in the midst of another test. Only the clients
# with which tests write to brokers come to these two functions: the package's own has others (`connections.py`).


async def _connect_or_close(
    self: Any, net: Any, info: tuple[Any, ...], options: Any = (), timeout_at: float | None = None
) -> socket.socket:
    """Connect as kafka-python does, and close a socket that does not connect in time."""
    family, kind, protocol, _, address = info
    sock: socket.socket = self.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        for option in options:
            sock.setsockopt(*option)
        connected: socket.socket = await self.sock_connect(net, sock, address, timeout_at=timeout_at)
    except BaseException:
        sock.close()
        raise
    return connected


def _closing_at_once(close: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a function that closes a connection, and does not wait for a broker to take what is left to send."""

    def close_at_once(self: Any) -> None:
        self._write_buffer.clear()
        close(self)

    return close_at_once


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with what it needs, and long ones as slow; put each into its group for pytest-xdist.

    One process runs all tests of a group: those that use the Spark session, the slow ones of the lakehouse that do
    (those of syncs apart), the others that need a broker, and the rest file by file. The marker `xdist_group` puts
    tests into a group of their own. The groups start in the order of `GROUPS`.
    """
    for item in items:
        for name in set(MARKED_FIXTURES).intersection(getattr(item, "fixturenames", ())):
            item.add_marker(name)
        for name in ("long", "slow"):
            marker = item.get_closest_marker(name)
            if marker is not None and not marker.args:
                raise pytest.UsageError(f"{item.nodeid}: `{name}` needs a reason")
            if marker is not None and name == "long":
                item.add_marker(pytest.mark.slow(*marker.args))
    items.sort(key=lambda item: GROUPS.index(_group(item)))
    if hasattr(config, "workerinput"):  # a process of pytest-xdist
        for item in items:
            _add_group(item)


def _group(item: pytest.Item) -> str:
    """Return the group of a test; "" for the group of its file."""
    marker = item.get_closest_marker("xdist_group")
    if marker is not None:
        return str(marker.args[0])
    if "spark" in getattr(item, "fixturenames", ()):
        # A session of their own would take longer to start than the few that `make test` has of them run.
        if LAKEHOUSE not in item.path.parents or not item.get_closest_marker("slow"):
            return "spark"
        return "lakehouse-syncs" if LAKEHOUSE / "syncs" in item.path.parents else "lakehouse"
    return "broker" if item.get_closest_marker("broker") or item.get_closest_marker("spark") else ""


def _add_group(item: pytest.Item) -> None:
    """Put the group into the node id, where pytest-xdist looks for it; its own code for that fails with pytest 9."""
    group = _group(item)
    if not group or item.nodeid.endswith(f"@{group}"):
        return
    node_id = f"{item.nodeid}@{group}"
    if hasattr(item, "_id"):
        item._id = type(item._id).parse(node_id)
    else:
        item._nodeid = node_id  # type: ignore[attr-defined]
    if item.nodeid != node_id:
        raise pytest.UsageError(
            "pytest keeps node ids elsewhere: pytest-xdist cannot keep the tests of a group together"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadGroupScheduling

    class GroupsAndFiles(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            scope = super()._split_scope(nodeid)
            return nodeid.partition("::")[0] if scope == nodeid else scope

    return GroupsAndFiles(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.fixture(scope="session")
def broker() -> Iterator[Kafka]:
    """The broker of this process, with SASL: the one at `$TICDC_TEST_BOOTSTRAP`, or one started at first use."""
    with connect(sasl=True) as kafka:
        yield kafka


@pytest.fixture
def topic(broker: Kafka) -> Iterator[Callable[..., str]]:
    """A function that creates a topic with a unique name; the topics end with the broker, or with the test."""
    made: list[str] = []

    def make(partitions: int = 1, config: Mapping[str, object] | None = None, prefix: str = "test") -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        create_topic(broker.bootstrap_servers, name, partitions, config)
        made.append(name)
        return name

    yield make
    if not broker.owned:
        for name in made:
            delete_topic(broker.bootstrap_servers, name)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A local Spark session with two cores in which the format `ticdc` is registered."""
    from pyspark.sql import SparkSession

    from tests.tidb.server import driver_jars
    from ticdc_source.spark.source import TiCDCDataSource

    with pytest.MonkeyPatch.context() as patch:  # the JVM, and the Python workers after it, take these over
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        folders = [str(PRELOAD), PACKAGES, os.environ.get("PYTHONPATH")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))
        settings = {
            **LOCAL,
            "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS,
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.jars": ",".join(map(str, driver_jars())),  # none before `make tidb`
        }
        session = SparkSession.builder.master("local[2]").config(map={**settings}).getOrCreate()
        session.dataSource.register(TiCDCDataSource)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def native_path() -> ModuleType:
    """The native path; without cargo, skips if it is not there."""
    from ticdc_source.kernels.native import native, why_general

    if native is None and CARGO is None:
        pytest.skip(f"there is neither the native path nor cargo to build it: {why_general('auto')}")
    assert native is not None, f"cargo is here, but the native path is not: run `make native` ({why_general('auto')})"
    return native


@pytest.fixture(scope="session")
def tidb(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[TiDB]":
    """A TiDB in one process; skips if `make tidb` did not build it."""
    from tests.tidb.server import missing, running

    why = missing()
    if why is not None:
        pytest.skip(why)
    with running(tmp_path_factory.mktemp("tidb")) as server:
        yield server


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of messages made by TiCDC's own encoders: `$TICDC_CORPUS`, or `../shared/corpus`."""
    named = os.environ.get("TICDC_CORPUS")
    folder = Path(named) if named else ROOT.parent / "shared" / "corpus"
    if not folder.is_dir():
        pytest.skip(f"the corpus is not at {folder}: set TICDC_CORPUS to the folder that holds it")
    return folder
