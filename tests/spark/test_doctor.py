"""`ticdc-source doctor --spark`: the steps of a read on the executors of a session."""

import json
import sys

import pytest

from examples.local_kafka import produce
from examples.local_kafka.broker import free_ports
from tests.fixtures import Kafka
from tests.spark.conftest import MakeTopic
from tests.support.messages import TSO, canal
from ticdc_source.cli.__main__ import main

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.mark.usefixtures("spark")
def test_executors_take_the_same_steps(broker: Kafka, topic: MakeTopic, capsys: pytest.CaptureFixture[str]) -> None:
    """Each executor reads a record and looks at its packages; one that cannot reach the broker makes the code 1."""
    name = topic(1)
    message = canal("INSERT", [{"id": "1"}], None, {"id": "int"}, _tidb={"commitTs": TSO})
    produce(broker.bootstrap_servers, name, [(0, *message, [], 1_700_000_000_000)])

    main(["doctor", "--spark", "--json", "--bootstrap-servers", broker.bootstrap_servers, "--subscribe", name])
    ((executor, report),) = json.loads(capsys.readouterr().out)["executors"].items()

    assert executor.endswith(sys.executable)
    steps = {(check["step"], check["subject"]): check["result"] for check in report["checks"]}
    assert {steps[step, ""] for step in ("read", "messages", "clock")} == {"ok"}
    assert steps["package", "pyarrow"] == "ok"

    closed = f"127.0.0.1:{free_ports(1)[0]}"
    assert main(["doctor", "--spark", "--json", "--bootstrap-servers", closed, "--subscribe", name]) == 1
    ((_, report),) = json.loads(capsys.readouterr().out)["executors"].items()
    assert "nothing listens there" in [check["message"] for check in report["checks"] if check["result"] == "failed"]
