"""Looking up without a broker: what is tried again, how often, and what is not."""

from collections.abc import Iterable, Mapping

import kafka.errors
import pytest

from ticdc_source.errors import DataLossError, KafkaUnavailableError, OptionError
from ticdc_source.kafka import KafkaCluster
from ticdc_source.kafka.api import ClientConfig, ClientFacts
from ticdc_source.kafka.client import PartitionReader, Topic, UnknownPartitionsError
from ticdc_source.kafka.kafka_python.errors import our_errors
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition

T0 = TopicPartition("t", 0)


class StubClients:
    """Makes clients that fail with the given errors, one after the other, and then answer."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.made = self.closed = 0

    def __call__(self, config: ClientConfig) -> "StubClients":
        assert config["bootstrap_servers"] == ["b:1"]
        self.made += 1
        return self

    servers, timeout_ms, facts = "b:1", 100, ClientFacts("stub", None)

    def topics(self, names: Iterable[str] | None) -> dict[str, Topic]:
        raise NotImplementedError

    def offsets(
        self, times: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        assert timeout_ms is None
        with our_errors(self.servers, self.timeout_ms):
            if self.errors:
                raise self.errors.pop(0)
        return dict.fromkeys(times, 7)

    def reader(self, *_: object) -> PartitionReader:
        raise NotImplementedError

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.closed += 1


def look_up(clients: StubClients, retries: int) -> dict[TopicPartition, int]:
    """Look up the end of a partition."""
    options = Options.of(
        {
            "kafka.bootstrap.servers": "b:1",
            "subscribe": "t",
            "fetchOffset.numRetries": str(retries),
            "fetchOffset.retryIntervalMs": "1",
        }
    )
    with KafkaCluster(options, connect=clients) as cluster:
        return cluster.latest([T0])


GONE = kafka.errors.KafkaConnectionError("gone")


def test_a_look_up_is_retried_with_new_clients() -> None:
    """Each attempt after a failure has a client of its own, and each client is closed."""
    clients = StubClients(GONE, ConnectionResetError("gone"), kafka.errors.KafkaTimeoutError("late"))
    assert look_up(clients, 3) == {T0: 7}
    assert clients.made == clients.closed == 4


@pytest.mark.parametrize("retries", [0, 2])
def test_at_last_it_fails(retries: int) -> None:
    """`fetchOffset.numRetries` counts what comes after the first attempt."""
    clients = StubClients(*[GONE] * 10)
    with pytest.raises(KafkaUnavailableError, match=r"b:1 did not answer in 100 ms.*gone"):
        look_up(clients, retries)
    assert clients.made == clients.closed == retries + 1


@pytest.mark.parametrize(
    ("error", "ours", "message"),
    [
        (kafka.errors.SaslAuthenticationFailedError("no"), OptionError, "refuses the login"),
        (kafka.errors.TopicAuthorizationFailedError("t"), OptionError, "does not permit this user to read t"),
        (UnknownPartitionsError([T0]), DataLossError, "Partitions t-0 have been deleted"),
    ],
)
def test_what_a_retry_does_not_solve(error: Exception, ours: type[Exception], message: str) -> None:
    """A refused login, a missing permission and a deleted partition are errors at once."""
    clients = StubClients(error)
    with pytest.raises(ours, match=message):
        look_up(clients, 5)
    assert clients.made == clients.closed == 1
