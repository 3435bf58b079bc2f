"""Views and the history of a table, with real engines; and no sync in Spark Connect."""

from pathlib import Path

import pytest

from lakehouse.tests.engines.engines import ENGINES
from tests.fixtures import Kafka
from tests.versions.environments import interpreter, run_module
from ticdc_lakehouse import SyncConfig, sync
from ticdc_lakehouse.syncs.session_and_catalog import session_of
from ticdc_source.errors import OptionError

SECONDS = 1200
NEWEST = {"delta": ENGINES["delta-4.4"], "iceberg": ENGINES["iceberg-1.12"]}
CONFIG = SyncConfig(
    source={"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}, format="delta", path="/l", checkpoint="/c"
)


@pytest.mark.long("a JVM for each engine")
@pytest.mark.xdist_group("engines")
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("engine", ["delta", "iceberg"])
def test_what_analysts_choose(tmp_path: Path, broker: Kafka, engine: str) -> None:
    """Views equal their tables, in a catalog that has views, and a log has each change once."""
    python = interpreter(NEWEST[engine].pyspark)
    module = "lakehouse.tests.syncs.analysts_scenario"
    found, _ = run_module(python, tmp_path, SECONDS, module, engine, str(tmp_path), broker.bootstrap_servers)

    assert found["refused"] == "" if engine == "delta" else "the catalog lake has no views" in found["refused"]
    assert found["set aside"] == {}
    assert (found["log"], found["twice"]) == (found["events"], 0)
    assert found["current versions that differ"] == 0
    for table in found["tables"].values():
        assert table["rows"] > 0
        assert (table["own"], table["differences"], table["wrong times"]) == (["_committed_at"], 0, 0)


class Remote:
    """A session as Spark Connect has it."""


Remote.__module__ = "pyspark.sql.connect.session"


def test_a_sync_refuses_spark_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one clear error, before a session is made or anything is read."""
    with pytest.raises(OptionError, match="cannot run over Spark Connect"):
        sync(Remote(), CONFIG)  # type: ignore[arg-type]
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    with pytest.raises(OptionError, match="without SPARK_REMOTE"):
        session_of(CONFIG)
