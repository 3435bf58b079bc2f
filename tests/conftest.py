"""What tests share: a broker, topics on it, a Spark session, and the corpus."""

import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from examples.local_kafka import ExternalKafka, LocalKafka, connect, create_topic, delete_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
Kafka: TypeAlias = LocalKafka | ExternalKafka
MARKED_FIXTURES = ("broker", "corpus", "spark")


# For every JVM that tests start: none lives long enough to repay its optimising compiler or parallel collector.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def pytest_configure() -> None:
    """Let the JVMs of this process, and of all that it starts, take `QUICK_JAVA`."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JAVA)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with what it needs, and place it for pytest-xdist.

    All tests that need the broker or Spark are one group: one process runs them, first, with one broker and one
    session. Every other file is a group of its own; `pytest.mark.xdist_group` on a test splits a long file.
    """
    for item in items:
        for name in set(MARKED_FIXTURES).intersection(getattr(item, "fixturenames", ())):
            item.add_marker(name)
        if _needs_java(item):
            item.add_marker(pytest.mark.xdist_group("java"))
        elif item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
        slow = item.get_closest_marker("slow")
        if slow is not None and not slow.args:
            message = f"{item.nodeid}: `slow` needs a reason"
            raise pytest.UsageError(message)
    items.sort(key=_needs_java, reverse=True)


def _needs_java(item: pytest.Item) -> bool:
    return item.get_closest_marker("broker") is not None or item.get_closest_marker("spark") is not None


@pytest.fixture(scope="session")
def broker() -> Iterator[Kafka]:
    """The session's broker, with SASL: the one at `$TICDC_TEST_BOOTSTRAP`, or one started at first use."""
    with connect(sasl=True) as kafka:
        yield kafka


@pytest.fixture
def topic(broker: Kafka) -> Iterator[Callable[..., str]]:
    """A function that makes a topic with a name nobody else has; all are deleted after the test."""
    made: list[str] = []

    def make(partitions: int = 1, config: Mapping[str, object] | None = None, prefix: str = "test") -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        create_topic(broker.bootstrap_servers, name, partitions, config)
        made.append(name)
        return name

    yield make
    for name in made:
        delete_topic(broker.bootstrap_servers, name)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A local Spark session of two cores that knows `ticdc` as a format."""
    from pyspark.sql import SparkSession

    from ticdc_source.source import TiCDCDataSource

    with pytest.MonkeyPatch.context() as patch:  # the JVM, and the Python workers after it, take these over
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
        builder = SparkSession.builder.master("local[2]").appName("ticdc_source tests")
        for name, value in {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.dataSource.register(TiCDCDataSource)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of messages made by TiCDC's own encoders: `$TICDC_CORPUS`, or `../shared/corpus`."""
    named = os.environ.get("TICDC_CORPUS")
    folder = Path(named) if named else ROOT.parent / "shared" / "corpus"
    if not folder.is_dir():
        pytest.skip(f"the corpus is not at {folder}: set TICDC_CORPUS to the folder that holds it")
    return folder
