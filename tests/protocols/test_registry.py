"""The registry: a row for each wire format, all of the contract, and the names that `protocol` takes."""

from collections.abc import Callable
from importlib import import_module
from pkgutil import walk_packages
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

import ticdc_source
import ticdc_source.protocols
from tests.support.captured import make_options
from ticdc_source.errors import OptionError, SchemaError
from ticdc_source.options.logins import RegistrySettings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.parsers import Secret
from ticdc_source.planning.watermarks import resolved_until
from ticdc_source.protocols import DECODERS, OF_MESSAGES, PROTOCOLS, checked_protocol, decoder_of
from ticdc_source.protocols.canal_json import CanalJSON
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.decoding import Decoder, DecoderSettings
from ticdc_source.protocols.large_messages import LargeMessages
from ticdc_source.schema.types import TYPES
from ticdc_source.spark.source import TiCDCDataSource


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.facts.name)
def test_the_facts_of_a_wire_format_are_whole(decoder: type[Decoder]) -> None:
    """Each type has its kernel, and the facts that a read uses have values that it can use."""
    assert decoder.facts.chunk_records > 0
    assert decoder.facts.ddl_partition in (None, 0)
    assert decoder.facts.watermarks_need != ""
    assert set(decoder.facts.kernels) == set(TYPES)


def test_every_decoder_is_a_row_of_the_registry() -> None:
    """A decoder without a row would never be used; names are unique."""
    package = ticdc_source.protocols
    modules = [import_module(found.name) for found in walk_packages(package.__path__, f"{package.__name__}.")]
    classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}

    assert {each for each in classes if issubclass(each, Decoder) and hasattr(each, "facts")} == set(DECODERS)
    assert [decoder.facts.name for decoder in DECODERS] == list(PROTOCOLS)


def test_a_decoder_gets_what_it_needs_of_the_options() -> None:
    """Each option about messages reaches the settings of a decoder, which has nothing else of the options."""
    given = {"valueCompression": "lz4", "maxMessageBytes": "5000", "maxBytesPerBatch": "4000"}
    files = {"claimCheckLocation": "/claims", "onHandleKeyOnly": "null"}
    options = make_options(**given, **files, **{"schema.registry.url": "http://user:secret@registry:8081/"})

    decoder = decoder_of("canal-json", options)

    assert isinstance(decoder, CanalJSON)
    registry = RegistrySettings(urls=("http://registry:8081",), user_info=Secret("user:secret"))
    large = LargeMessages("/claims", "null", 5000)
    assert decoder.settings == DecoderSettings(Compression("lz4", 5000, 4000), large, registry=registry)
    assert "secret" not in repr(decoder.settings)


def test_a_decoder_may_be_told_to_read_no_files() -> None:
    """Whatever the options say, it then takes large messages with their key columns only."""
    options = make_options(claimCheckLocation="/claims", onHandleKeyOnly="fail")

    decoder = decoder_of("canal-json", options, reads_files=False)

    assert isinstance(decoder, CanalJSON)
    assert decoder.settings.large == LargeMessages(on_key_only="null", reads_files=False)


@pytest.mark.parametrize("name", ["auto", *OF_MESSAGES])
def test_every_protocol_is_a_value_of_the_option(name: str) -> None:
    """Names are compared without case."""
    options = Options.of({"protocol": f" {name.upper()} "}, from_kafka=False)

    assert checked_protocol(options) == name


def test_an_unknown_protocol_is_refused() -> None:
    """The error names the option and the nearest protocol."""
    with pytest.raises(OptionError, match=r"^Option 'protocol': ") as caught:
        checked_protocol(make_options(protocol="canaljson"))

    assert "expected one of auto, open-protocol, simple, canal-json, " in str(caught.value)
    assert "got 'canaljson'; did you mean canal-json?" in str(caught.value)


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
    source = TiCDCDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "protocol": "maxwell"})

    with pytest.raises(OptionError, match=r"Option 'protocol': expected one of auto, .*, got 'maxwell'"):
        load(source)


TOPIC = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
BATCH, STREAM = (cast(DataFrame, SimpleNamespace(isStreaming=is_stream)) for is_stream in (False, True))


@pytest.mark.parametrize("name", ["maxwell", ""])
@pytest.mark.parametrize("door", [
    lambda protocol: ticdc_source.decode(BATCH, protocol=protocol),
    lambda protocol: ticdc_source.decode(BATCH, "id int", protocol=protocol, outputFormat="event"),
    lambda protocol: ticdc_source.decode(STREAM, "id int", protocol=protocol),
    lambda protocol: ticdc_source.tables(BATCH, protocol=protocol),
    lambda protocol: ticdc_source.infer_schema(BATCH, protocol=protocol),
    lambda protocol: ticdc_source.infer_schema({**TOPIC, "protocol": protocol}),
], ids=["decode", "decode-event", "decode-stream", "tables", "infer_schema", "infer_schema-topic"])  # fmt: skip
def test_every_door_refuses_an_unknown_protocol(door: Callable[[str], object], name: str) -> None:
    """A wrong name fails on the driver, with the reader's error, before Spark is asked for anything."""
    with pytest.raises(OptionError, match=f"^Option 'protocol': expected one of auto, .*, got '{name}'"):
        door(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("open-protocol", "wait for the first one, or widen the range$"),
        ("canal-json", "TiCDC writes them only with enable-tidb-extension=true$"),
        ("avro", "only with enable-tidb-extension=true and avro-enable-watermark=true$"),
        ("debezium", r"only with enable-tidb-extension=true in the new architecture \(since v8.5.4\)$"),
    ],
)
def test_an_error_says_what_watermarks_need(name: str, expected: str) -> None:
    """What the error of `endingCommitTs=resolved` recommends depends on the protocol."""
    empty = OffsetRange("t", 0, 0, 0)

    with pytest.raises(SchemaError, match=expected):
        resolved_until([empty], lambda _: (), PROTOCOLS[name])
