"""The registry of protocols: which names the option `protocol` takes."""

from collections.abc import Callable

import pytest
from pyspark.sql.types import StructType

from tests.support.captured import make_options
from ticdc_source.errors import OptionError
from ticdc_source.protocols import PROTOCOLS, checked_protocol
from ticdc_source.source import TiCDCDataSource


@pytest.mark.parametrize("name", ["auto", *PROTOCOLS])
def test_every_protocol_is_a_value_of_the_option(name: str) -> None:
    """Names are compared without case."""
    assert checked_protocol(make_options(protocol=f" {name.upper()} ")) == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("canaljson", "expected one of auto, open-protocol, canal-json, debezium; did you mean canal-json?, got"),
        ("avro", "expected one of auto, open-protocol, canal-json, debezium, got 'avro'"),
    ],
)
def test_an_unknown_protocol_is_refused(name: str, expected: str) -> None:
    """The error names the option and the nearest protocol."""
    with pytest.raises(OptionError, match=r"^Option 'protocol': ") as caught:
        checked_protocol(make_options(protocol=name))

    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "load",
    [
        TiCDCDataSource.schema,
        lambda source: source.reader(StructType()),
        lambda source: source.streamReader(StructType()),
    ],
    ids=["schema", "reader", "streamReader"],
)
def test_the_source_refuses_an_unknown_protocol(load: Callable[[TiCDCDataSource], object]) -> None:
    """A wrong name fails before anything is read."""
    source = TiCDCDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "protocol": "avro"})

    with pytest.raises(OptionError, match="Option 'protocol': expected one of auto, "):
        load(source)
