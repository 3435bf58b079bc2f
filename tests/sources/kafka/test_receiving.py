"""What is read from a socket is what kafka-python's parser makes of the same bytes."""

import random
import socket
from collections.abc import Iterator
from typing import Any

import kafka.errors
import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.parser import KafkaProtocol

from ticdc_source.sources.kafka.kafka_python.connections import Receiver

VERSION = 12
Topic = FetchResponse.FetchableTopicResponse


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection; nobody waits at the second."""
    here, there = socket.socketpair()
    there.setblocking(False)
    with here, there:
        yield here, there


def answer(number: int, records: bytes | None) -> bytes:
    partition = Topic.PartitionData(partition_index=0, error_code=0, high_watermark=number, records=records)
    response = FetchResponse(session_id=0, responses=[Topic(topic="naïve", partitions=[partition])], version=VERSION)
    response.with_header(correlation_id=number)
    return bytes(response.encode(framed=True, header=True))


def waiting(answers: int) -> KafkaProtocol:
    parser = KafkaProtocol(client_id="t")
    for _ in range(answers):
        parser.send_request(FetchRequest(topics=[], max_wait_ms=1, min_bytes=1, version=VERSION))
    return parser


@pytest.mark.parametrize("seed", range(20))
def test_answers_are_those_of_kafka_python(seed: int, ends: tuple[socket.socket, socket.socket]) -> None:
    """Whatever pieces the bytes come in."""
    rng = random.Random(seed)
    here, there = ends
    answers = [
        answer(n, rng.choice([None, b"", rng.randbytes(rng.choice([1, 500, 9_000])), b"x"])) for n in range(1, 8)
    ]
    data = b"".join(answers)
    expected = waiting(7).receive_bytes(data)
    parser = waiting(7)
    receiver = Receiver(parser)
    got: list[Any] = []
    while data:
        size = rng.choice([1, 3, 4, 100, 5_000, 30_000])
        here.sendall(data[:size])
        data = data[size:]
        came, error = receiver.read(there)
        assert error is None
        got += parser.receive_bytes(came)
    assert got == expected
    assert len(got) == 7


def test_what_came_before_the_end_is_not_lost(ends: tuple[socket.socket, socket.socket]) -> None:
    """An answer together with the end of the connection is given, and then the end."""
    here, there = ends
    here.sendall(answer(1, b"last words") + b"\0")
    here.close()
    parser = waiting(1)
    receiver = Receiver(parser)
    came, error = receiver.read(there)
    assert error is None
    ((_, response),) = parser.receive_bytes(came)
    assert response.responses[0].partitions[0].records == b"last words"
    came, error = receiver.read(there)
    assert (came, type(error)) == ([], kafka.errors.KafkaConnectionError)


@pytest.mark.parametrize("size", [-1, 100_000_001])
def test_a_length_that_cannot_be(size: int, ends: tuple[socket.socket, socket.socket]) -> None:
    """What is no length of an answer ends the connection, before memory is taken for it."""
    here, there = ends
    here.sendall(size.to_bytes(4, "big", signed=True))
    came, error = Receiver(waiting(1)).read(there)
    assert (came, type(error)) == ([], kafka.errors.InvalidReceiveError)
