"""A stream whose next records, partitions or topics are gone fails, or continues with failOnDataLoss=false."""

from contextlib import closing

import pytest
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaTopicPartition

from examples.local_kafka import create_topic, delete_topic
from tests.spark.conftest import MakeStream, MakeTopic
from tests.spark.streams import Stream, failure_of, sizes, wait_for, write_rows


def delete_before(servers: str, topic: str, offset: int) -> None:
    """Move the log start of partition 0."""
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.delete_records({KafkaTopicPartition(topic, 0): offset})


@pytest.mark.slow("waits for the broker to delete records")
def test_records_that_aged_out_between_batches(stream: MakeStream, servers: str, topic: MakeTopic) -> None:
    """A log start past the checkpoint fails the stream with partition and offsets; or the stream reads the rest."""
    name = topic()
    write_rows(servers, name, *range(5))
    one = stream(name, startingOffsets="earliest")
    one.finish()
    write_rows(servers, name, *range(5, 20))
    delete_before(servers, name, 12)

    failure = failure_of(one.start(availableNow=True))

    assert "DataLossError" in failure
    assert f"{name}-0: offsets 5 to 11 are gone (reading {name}-0 [5, 20))" in failure
    tolerant = Stream(one.spark, stream(name, failOnDataLoss="false").frame, one.folder)
    tolerant.finish()
    assert tolerant.ids() == [*range(5), *range(12, 20)]
    write_rows(servers, name, 20)
    one.finish()
    assert one.ids() == [*range(5), *range(12, 21)]


@pytest.mark.slow("four streams, one after the other")
def test_a_topic_that_was_recreated_between_batches(stream: MakeStream, servers: str, topic: MakeTopic) -> None:
    """A restarted stream fails and names both topic ids, although the new topic is longer; or it reads all of that."""
    name = topic()
    write_rows(servers, name, *range(5))
    one = stream(name, startingOffsets="earliest")
    one.finish()
    old = one.topic_id(name)
    delete_topic(servers, name)
    create_topic(servers, name)
    write_rows(servers, name, *range(100, 126))

    failure = failure_of(one.start(once=True))

    assert "DataLossError" in failure
    assert f"Deleted and created again: topic {name} (its id was {old} and is " in failure
    assert "failOnDataLoss=false the stream continues at the earliest offset" in failure
    tolerant = Stream(one.spark, stream(name, failOnDataLoss="false").frame, one.folder)
    tolerant.finish()
    write_rows(servers, name, 200)
    one.finish(once=True)
    assert one.ids() == [*range(5), *range(100, 126), 200]


@pytest.mark.slow("runs a stream")
def test_a_topic_that_is_deleted_under_a_running_stream(stream: MakeStream, servers: str, topic: MakeTopic) -> None:
    """A stream whose topic is deleted fails, and the error names the partitions."""
    name = topic(2)
    write_rows(servers, name, *range(6), partitions=2)
    one = stream(name, startingOffsets="earliest")
    query = one.start()
    wait_for(query, lambda: sum(sizes(query)) == 6)

    delete_topic(servers, name)
    failure = failure_of(query)

    assert "DataLossError" in failure
    assert f"Partitions {name}-0, {name}-1 have been deleted" in failure
