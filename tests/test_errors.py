"""Errors say where they happened, and travel between processes."""

import pickle

import pytest

from ticdc_source import errors
from ticdc_source.errors import (
    AccessRefusedError,
    Address,
    CheckpointError,
    ClaimCheckUnavailableError,
    DataLossError,
    DecodeError,
    FramingError,
    KafkaUnavailableError,
    OptionError,
    SchemaError,
    SchemaRegistryUnavailableError,
    StorageUnavailableError,
    TiCDCSourceError,
    TiDBUnavailableError,
    UnsupportedTypeError,
)

ADDRESS = Address(topic="tidb-orders", partition=2, offset=42, table="shop.orders", column="total")
EXAMPLES: list[TiCDCSourceError] = [
    TiCDCSourceError("something"),
    OptionError("Option 'mode': expected one of FAILFAST"),
    SchemaError("the messages hold a second table"),
    UnsupportedTypeError("type geometry is not supported"),
    DecodeError("the JSON is broken", ADDRESS),
    DecodeError("the address is not known"),
    FramingError("a key frame of 9 bytes where 1 are left", Address(topic="t", partition=0, offset=7)),
    CheckpointError("the checkpoint of the query holds -5"),
    DataLossError("offsets from 3 are requested, but the earliest is 9"),
    ClaimCheckUnavailableError("file a.json of claimCheckLocation s3://b cannot be read: PermissionError"),
    StorageUnavailableError("'path' s3://b: metadata cannot be read: PermissionError"),
    TiDBUnavailableError("No TiDB answers at 'tidb.url' tidb:4000: timed out"),
    SchemaRegistryUnavailableError("The schema registry http://r:8081 refuses the login (HTTP 401 Unauthorized)"),
    AccessRefusedError("Kafka at b:9092 refuses the login: no. Check kafka.sasl.jaas.config"),
    KafkaUnavailableError("Kafka at b:9092 did not answer in 10 ms"),
]


def test_there_is_an_example_of_every_class() -> None:
    """The examples of this module leave no class out."""
    classes = (item for item in vars(errors).values() if isinstance(item, type))

    assert {type(error) for error in EXAMPLES} == {item for item in classes if issubclass(item, TiCDCSourceError)}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error: TiCDCSourceError) -> None:
    """A worker's error arrives at the driver with its class, text and attributes."""
    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301 (what was pickled a moment ago)

    assert type(arrived) is type(error)
    assert (str(arrived), arrived.args, vars(arrived)) == (str(error), error.args, vars(error))


def test_an_address_is_completed_and_never_overwritten() -> None:
    """`at` fills the gaps of an error's address, and keeps its known parts, its reason and its class."""
    error = FramingError("cut short", Address(topic="t", column="a"))

    completed = error.at(Address(topic="other", partition=1, offset=0, table="d.t", column="b"))

    assert type(completed) is FramingError
    assert completed.reason == "cut short"
    assert completed.address == Address(topic="t", partition=1, offset=0, table="d.t", column="a")
    assert error.address == Address(topic="t", column="a")
