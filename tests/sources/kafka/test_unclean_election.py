"""Three brokers, of which one is elected to lead a partition although it lacks records that were read."""

import json
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient

from examples.local_kafka import LocalKafkaCluster, produce
from tests.sources.kafka.reading import fetch
from ticdc_source.errors import DataLossError
from ticdc_source.options.kafka_client import client_settings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.planning.load import stream_options
from ticdc_source.sources.kafka import KafkaCluster, report_loss
from ticdc_source.sources.kafka.topic_planner import TopicPlanner
from ticdc_source.sources.stream_offsets import OffsetJSON, StreamLimits

pytestmark = [pytest.mark.broker, pytest.mark.slow("three brokers, two of which are killed")]

SESSION_SECONDS = 3.0
LONGEST = 120.0  # seconds until a broker is no longer waited for; ten on two idle cores


def write(servers: str, *texts: str) -> None:
    produce(servers, "t", [(0, None, text.encode(), [], None) for text in texts])


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < deadline, f"not in {LONGEST} s"
        time.sleep(0.2)


def values(options: Options, ranges: list[OffsetRange]) -> list[str]:
    settings = client_settings(options, driver=False)
    chunks = [chunk for each in ranges for chunk in fetch(each, settings, max_records=100, max_bytes=1 << 20)]
    return [value.decode() for chunk in chunks for value in chunk.values if value is not None]


def test_a_log_that_was_truncated_and_has_grown_again() -> None:
    """A stream fails if an unclean election has replaced what it read by more; or it reads all of that, once."""
    with LocalKafkaCluster(session_seconds=SESSION_SECONDS) as cluster:
        servers = cluster.bootstrap_servers
        _, first, second = cluster.brokers
        with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
            settings = {"assignments": {0: [2, 3]}, "configs": {"unclean.leader.election.enable": "true"}}
            admin.create_topics({"t": settings}, wait_for_metadata=True)
        options = stream_options(
            {
                "kafka.bootstrap.servers": servers,
                "subscribe": "t",
                "protocol": "canal-json",
                "startingOffsets": "earliest",
            }
        )
        with KafkaCluster(options) as lookup:

            def planner(*, fail: bool = True) -> TopicPlanner:
                return TopicPlanner(lookup, StreamLimits(), lambda reason: report_loss(reason, fail=fail))

            def checkpointed(offset: OffsetJSON) -> dict[str, Any]:
                saved: dict[str, Any] = json.loads(json.dumps(offset))
                return saved

            write(servers, *"abc")
            running = planner()
            start = checkpointed(running.next(running.initial()))
            second.kill()
            write(servers, *"defgh")
            (partition,) = lookup.partitions()
            wait_for(lambda: lookup.latest([partition])[partition] == 8)  # when the other no longer counts
            offset = checkpointed(planner().next(start))
            assert values(options, running.ranges(start, offset)) == list("defgh")
            first.kill()
            second.start()
            write(servers, *"DEFGHIJK")
            assert lookup.latest([partition])[partition] == 11

            truncated = "Truncated by the election .* t-0 at offset 3, .* and offset 8 had been reached"
            with pytest.raises(DataLossError, match=truncated):
                running.next(offset)
            with pytest.raises(DataLossError, match=truncated):
                planner().next(offset)
            restarted = planner(fail=False)
            with pytest.warns(UserWarning, match=truncated):
                end = checkpointed(restarted.next(offset))
            with pytest.warns(UserWarning, match=truncated):
                ranges = restarted.ranges(offset, end)
            assert values(options, ranges) == list("DEFGHIJK")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert restarted.next(end) == planner().next(end) == end
