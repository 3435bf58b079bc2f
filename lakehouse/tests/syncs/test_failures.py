"""What one table's failure is, and what every table's: conflicts, stores, secrets in reasons; without Spark."""

from collections.abc import Callable

import pytest

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.config import redactor
from ticdc_lakehouse.syncs.failures import Shared, cause_of, shared_cause, text_of
from ticdc_lakehouse.targets.opening import retried
from ticdc_source.errors import (
    AccessRefusedError,
    ClaimCheckUnavailableError,
    DataLossError,
    DecodeError,
    KafkaUnavailableError,
    SchemaError,
    StorageUnavailableError,
)

CONFLICTS = [
    "[DELTA_CONCURRENT_APPEND.WITHOUT_HINT] ConcurrentAppendException: Files were added to the root of the table",
    "io.delta.exceptions.MetadataChangedException: [DELTA_METADATA_CHANGED] The metadata of the table has changed",
    "org.apache.iceberg.exceptions.CommitFailedException: Cannot commit: stale table metadata",
    "org.apache.iceberg.exceptions.CommitStateUnknownException: connection reset",
    "org.apache.iceberg.exceptions.ValidationException: Found conflicting files that can contain records matching true",
]


def attempts(*errors: Exception) -> Callable[[], int]:
    """Return a function that fails so, and then returns how often it was called."""
    left = list(errors)

    def write() -> int:
        if left:
            raise left.pop(0)
        return len(errors) + 1

    return write


@pytest.mark.parametrize("text", CONFLICTS)
def test_a_commit_conflict_is_tried_again(text: str) -> None:
    """Another writer's commit costs a pause, each longer than the one before, and no table."""
    pauses: list[float] = []

    assert retried(attempts(RuntimeError(text), RuntimeError(text)), pauses.append) == 3
    assert pauses == sorted(set(pauses))
    with pytest.raises(RuntimeError):
        retried(attempts(*[RuntimeError(text)] * 9), pauses.append)


@pytest.mark.parametrize("error", [RuntimeError("disk full"), TargetError("ConcurrentAppendException"), KeyError("v")])
def test_nothing_else_is_tried_again(error: Exception) -> None:
    """What is no conflict would fail again."""
    with pytest.raises(type(error)):
        retried(attempts(error), lambda _: pytest.fail("it waited"))


def shared(try_store: Callable[[], None] = lambda: None) -> Shared:
    return Shared(stopping=lambda: False, try_store=try_store)


def test_a_store_that_fails_is_no_tables_trouble() -> None:
    """If the status table cannot be written either, its error ends the sync; otherwise the table is set aside."""

    def fails() -> None:
        raise TargetError("the store fails")

    for error in (RuntimeError("503 Slow Down"), TargetError("cannot be opened"), OSError("No space left on device")):
        assert not shared().stops_all(error)
        with pytest.raises(TargetError, match="the store fails"):
            shared(fails).stops_all(error)
    assert not shared(fails).stops_all(SchemaError("the store is not asked about messages"))


@pytest.mark.parametrize(
    "kind", [AccessRefusedError, ClaimCheckUnavailableError, KafkaUnavailableError, StorageUnavailableError]
)
def test_what_every_table_is_read_from_is_no_tables_trouble(kind: type[Exception]) -> None:
    """If brokers, logins or storages fail, the sync ends, also if only a worker has noticed it."""
    there = shared(lambda: pytest.fail("asked"))
    of_worker = RuntimeError(f"Job aborted.\nticdc_source.errors.{kind.__name__}: no answer\n\n\tat x")

    assert there.stops_all(kind("no answer"))
    assert there.stops_all(of_worker)
    assert repr(shared_cause(of_worker)) == repr(kind("no answer"))


def test_other_causes_are_one_tables() -> None:
    """A file that is missing is one table's trouble; whoever stops the query of a sync ends it."""
    there = shared(lambda: pytest.fail("asked"))
    assert not there.stops_all(DecodeError("no file x"))
    there.stopping = lambda: True
    assert there.stops_all(SchemaError("the session is gone"))
    assert shared_cause(RuntimeError("ticdc_source.errors.DecodeError: no file x")) is None
    lost = cause_of(RuntimeError("Traceback …\nticdc_source.errors.DataLossError: gone\nSQLSTATE: 38000"))
    assert repr(lost) == repr(DataLossError("gone"))
    assert str(cause_of(RuntimeError("ticdc_source.errors.DecodeError: no number (topic=t)"))) == "no number (topic=t)"
    assert cause_of(RuntimeError("ticdc_source.errors.Address: x")) is None


def test_tables_that_fail_side_by_side_ask_the_store_once() -> None:
    """The store is tried once after a failure, whichever tables fail before; a later failure asks again."""
    tried: list[float] = []
    now = 1.0
    asked = shared(lambda: tried.append(now))
    asked.clock = lambda: now
    for _ in range(3):
        asked.stops_all(RuntimeError("x"))
    now = 2.0
    asked.stops_all(RuntimeError("x"))

    assert tried == [1.0, 2.0]


def test_an_error_of_a_worker_is_told_in_its_own_words() -> None:
    """Of Spark's text around one of the package's errors only that one is kept."""
    text = 'Job aborted.\n  File "x.py"\nticdc_source.errors.DecodeError: value 7 (topic=t)\n\n\tat org.apache'

    assert text_of(RuntimeError(text)) == "value 7 (topic=t)"
    assert text_of(SchemaError("as it is")) == "as it is"


SECRETS = ["hunter2", "AKIAABCDEFG", "s3cr3t/key+1=", "eyJhbGciOi.J9", "p:w", "abc"]


def test_errors_of_stores_hide_secrets() -> None:
    """Given secrets are hidden wherever they stand; users in URLs, queries, headers and named secrets always."""
    redact = redactor(
        {
            "kafka.bootstrap.servers": "broker:9092",
            "kafka.sasl.jaas.config": 'PlainLoginModule required username="me" password="hunter2";',
            "timeZone": "UTC",
            "kafka.client.rack": "amazonaws",
            "kafka.unknown.password": "abc",
        },
        {"spark.hadoop.fs.s3a.secret.key": "s3cr3t/key+1=", "spark.driver.memory": "4g"},
    )
    text = redact(
        "Access denied for hunter2 (abc) at broker:9092 in UTC with 4g: "
        "GET https://AKIAABCDEFG:p:w@bucket.s3.amazonaws.com/lake?X-Amz-Signature=abc%2Fdef&x=1 "
        "(Authorization: Bearer eyJhbGciOi.J9, secret_key=s3cr3t/key+1=, fs.s3a.access.key: 'AKIAABCDEFG')"
    )

    assert not [secret for secret in SECRETS if secret in text], text
    for kept in ("broker:9092", "UTC", "4g", "bucket.s3.amazonaws.com/lake", "Access denied"):
        assert kept in text
    assert redactor({}, {})("Column v is int, and token was expected") == "Column v is int, and token was expected"
