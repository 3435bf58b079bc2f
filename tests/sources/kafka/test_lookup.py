"""Looking up without a broker: what is tried again, how often, and what is not."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace

import kafka.errors
import pytest
from kafka import IsolationLevel

from tests.sources.kafka.reading import StandIn
from ticdc_source.errors import DataLossError, KafkaUnavailableError, OptionError
from ticdc_source.options.kafka_client import ClientSettings, client_settings
from ticdc_source.options.options import Options
from ticdc_source.options.ranges import LATEST
from ticdc_source.options.topics import TopicPartition
from ticdc_source.planning.load import batch_options, stream_options
from ticdc_source.sources.kafka import KafkaCluster
from ticdc_source.sources.kafka.answers import UnknownPartitionsError
from ticdc_source.sources.kafka.kafka_python.library_errors import our_errors
from ticdc_source.sources.kafka.kafka_python.network_client import NetworkClient
from ticdc_source.sources.kafka.patience import Cause, Limit, Patience

T0 = TopicPartition("t", 0)


class StubClients(StandIn):
    """Makes clients that fail with the given errors, one after the other, and then answer."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)
        self.made = self.closed = 0

    def __call__(self, config: ClientSettings, patience: Patience) -> "StubClients":
        assert not patience.is_over
        assert config.bootstrap_servers == ("b:1",)
        self.made += 1
        return self

    def offsets(self, times: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:
        assert not patience.is_over
        while self.errors and self.errors[0] is GONE:  # a client asks again, as long as there is time
            self.errors.pop(0)
            patience.failed(self.servers, Cause("gone"))
            time.sleep(min(0.2, patience.left_ms / 1000))
            patience.check()
        with our_errors(self.servers):
            if self.errors:
                raise self.errors.pop(0)
        return dict.fromkeys(times, 7)

    def close(self) -> None:
        self.closed += 1


PATIENT = {
    "kafka.bootstrap.servers": "b:1",
    "subscribe": "t",
    "protocol": "canal-json",
    "kafka.default.api.timeout.ms": "100",
}


def look_up(clients: StubClients, retries: int) -> dict[TopicPartition, int]:
    options = Options.of(
        {
            "kafka.bootstrap.servers": "b:1",
            "subscribe": "t",
            "kafka.default.api.timeout.ms": "700",
            "fetchOffset.numRetries": str(retries),
            "fetchOffset.retryIntervalMs": "1",
        }
    )
    with KafkaCluster(options, connect=clients) as cluster:
        return cluster.latest([T0])


GONE = kafka.errors.KafkaConnectionError("gone")
REFUSED = kafka.errors.UnknownError("no")  # by a broker that answers


def test_a_look_up_is_repeated_with_new_clients() -> None:
    """Each retry has a client of its own; brokers that are away are asked again by the same one."""
    clients = StubClients(GONE, ConnectionResetError("gone"), REFUSED)
    assert look_up(clients, 2) == {T0: 7}
    assert clients.made == clients.closed == 3


@pytest.mark.parametrize("retries", [0, 2])
def test_at_last_it_fails(retries: int) -> None:
    """`fetchOffset.numRetries` counts what comes after an error that a broker has answered."""
    clients = StubClients(*[REFUSED] * 10)
    with pytest.raises(KafkaUnavailableError, match=r"b:1 does not answer as it should: .*UnknownError: no"):
        look_up(clients, retries)
    assert clients.made == clients.closed == retries + 1


@pytest.mark.parametrize(
    ("error", "ours", "message"),
    [
        (kafka.errors.SaslAuthenticationFailedError("no"), OptionError, "refuses the login"),
        (kafka.errors.IllegalSaslStateError(), OptionError, "no login on this listener .*kafka.security.protocol"),
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


@pytest.mark.parametrize(
    ("make_options", "more", "option"),
    [
        (batch_options, {}, "kafka.default.api.timeout.ms = 100 ms"),
        (stream_options, {"brokerTimeoutMs": "150"}, "brokerTimeoutMs = 150 ms"),
        (stream_options, {}, None),
    ],
)
def test_a_stream_is_more_patient_once_the_brokers_have_answered(
    make_options: Callable[[dict[str, str]], Options], more: dict[str, str], option: str | None
) -> None:
    """Until its first answer a stream has the patience of a batch read, then `brokerTimeoutMs`: minutes by default."""
    given = make_options({**PATIENT, **more})
    clients = StubClients(*[GONE] * 9)
    with KafkaCluster(given, connect=clients) as cluster:
        with pytest.raises(KafkaUnavailableError, match=r"kafka\.default\.api\.timeout\.ms = 100 ms"):
            cluster.latest([T0])
        clients.errors = []
        assert cluster.latest([T0]) == {T0: 7}
        clients.errors = [GONE] * 2
        if option is None:
            assert cluster.latest([T0]) == {T0: 7}
        else:
            with pytest.raises(KafkaUnavailableError, match=re.escape(option)):
                cluster.latest([T0])


class ForgetfulClients(StubClients):
    """Makes clients of a broker that at some looks knows no topic, as one that has just started."""

    def __init__(self, *knows: bool) -> None:
        super().__init__()
        self.knows = list(knows)

    def topics(self, names: Iterable[str] | None, patience: Patience) -> dict[str, list[TopicPartition]]:  # noqa: ARG002
        assert not patience.is_over
        return {"t": [T0]} if self.knows.pop(0) else {}


@pytest.mark.parametrize("choice", [{"subscribe": "t"}, {"subscribePattern": "t.*"}, {"assign": '{"t": [0]}'}])
def test_a_broker_that_has_just_started_deletes_no_topic(
    choice: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that a stream has found and that a look does not find is looked for again; one deleted stays away."""
    monkeypatch.setattr("ticdc_source.sources.kafka.lookup.time.sleep", lambda _: None)
    clients = ForgetfulClients(False, True, False, False, False, True, *[False] * 10, False)
    options = stream_options({"kafka.bootstrap.servers": "b:1", "protocol": "canal-json", **choice})

    with KafkaCluster(options, connect=clients) as cluster:
        assert cluster.partitions(missing=True) == []
        assert cluster.partitions(missing=True) == [T0]
        assert cluster.partitions(missing=True) == [T0]
        assert len(clients.knows) == 11
        assert cluster.partitions(missing=True) == []
        assert len(clients.knows) == 1
        assert cluster.partitions(missing=True) == []


@pytest.mark.parametrize("choice", [{"subscribe": "t"}, {"subscribePattern": "t.*"}, {"assign": '{"t": [0]}'}])
def test_a_restarted_stream_looks_for_the_partitions_of_its_checkpoint(
    choice: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten times, as for those that it has found itself; a topic that is no longer chosen is not waited for."""
    monkeypatch.setattr("ticdc_source.sources.kafka.lookup.time.sleep", lambda _: None)
    options = stream_options({"kafka.bootstrap.servers": "b:1", "protocol": "canal-json", **choice})

    for knows, known, expected in (
        ([False] * 5 + [True], [T0], [T0]),
        ([False] * 10, [T0], []),
        ([False], [TopicPartition("other", 0)], []),
    ):
        clients = ForgetfulClients(*knows)
        with KafkaCluster(options, connect=clients) as cluster:
            assert cluster.partitions(missing=True, known=known) == expected
            assert clients.knows == []


def test_an_answer_about_what_nobody_asked_for_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that adds a partition of its own to the end offsets is no error, and the partition no part of a read."""
    partitions = [
        SimpleNamespace(partition_index=number, error_code=0, offset=7 + number, leader_epoch=3) for number in (0, 1)
    ]
    answer = SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=partitions)])
    patience = Patience("b:1", "a test", Limit(1000, "an option"))
    monkeypatch.setattr(NetworkClient, "__init__", lambda *_: None)
    monkeypatch.setattr(NetworkClient, "_isolation", IsolationLevel.READ_UNCOMMITTED, raising=False)
    monkeypatch.setattr(NetworkClient, "leader_epochs", {}, raising=False)
    monkeypatch.setattr(NetworkClient, "_send", lambda *_: answer)
    client = NetworkClient(
        client_settings(stream_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t"}), driver=True), patience
    )

    assert client._list_offsets(1, {T0: LATEST}, patience) == {T0: 7}
    assert client.leader_epochs == {T0: 3}
