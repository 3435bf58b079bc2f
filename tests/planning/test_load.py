"""The driver's sequence runs where pyspark cannot be imported."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from examples.local_kafka import ExternalKafka, LocalKafka, produce
from tests.support.messages import TSO, canal
from tests.support.paths import ROOT
from tests.test_architecture import BLOCKED_IMPORT
from ticdc_source.errors import OptionError
from ticdc_source.planning.frame_sample import frame_options
from ticdc_source.planning.load import batch_options, load_schema, stream_options

_READ = """
import json, os
from ticdc_source.planning import load
from ticdc_source.planning.fetchers import driver_fetcher
from ticdc_source.pipeline.spec import read_spec
from ticdc_source.pipeline.read import read

options = load.batch_options(json.loads(os.environ["OPTIONS"]))
schema = load.load_schema(json.loads(os.environ["OPTIONS"]))
partitions = load.plan_batch(schema, options)
rows = []
with driver_fetcher(options) as fetcher:
    for part in partitions:
        spec = read_spec(schema, options, part.context, part.scope)
        for batch in read(fetcher.fetch(part.ranges[0]), spec):
            rows += batch.select(["_change_type", "id", "v"]).to_pylist()
print(json.dumps(rows))
"""


@pytest.mark.broker
def test_a_read_needs_no_spark(broker: LocalKafka | ExternalKafka, topic: Callable[..., str]) -> None:
    name = topic()
    messages = [
        canal("INSERT", [{"id": str(number), "v": "x"}], None, {"id": "int", "v": "varchar"}, _tidb={"commitTs": TSO})
        for number in range(3)
    ]
    produce(broker.bootstrap_servers, name, [(0, *message, [], None) for message in messages])
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name}

    done = subprocess.run(
        [sys.executable, "-c", BLOCKED_IMPORT + _READ, "pyspark,py4j"],
        cwd=ROOT, env={"OPTIONS": json.dumps(options), "PATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [{"_change_type": "insert", "id": number, "v": "x"} for number in range(3)]


@pytest.mark.parametrize("door", [batch_options, stream_options, load_schema, frame_options])
def test_every_door_refuses_a_near_miss(door: Callable[[dict[str, str]], object]) -> None:
    """A near miss of a name is an error before a broker is asked: a stream would start at its end, and say nothing."""
    given = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t", "startoffsets": "earliest"}

    with pytest.raises(OptionError, match="Unknown option 'startoffsets'; did you mean 'startingOffsets'"):
        door(given)


def test_a_stream_has_no_end() -> None:
    given = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t", "endingCommitTs": "resolved"}

    with pytest.raises(OptionError, match="a stream has no end"):
        stream_options(given)
