"""The registry: a folder and a row for each protocol, all of the contract, and the names that `protocol` takes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

import ticdc_source.protocols
from tests.support.captured import make_options
from ticdc_source.driver.resolved_ts import resolved_end
from ticdc_source.errors import OptionError, SchemaError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import OPTIONS
from ticdc_source.protocols import DECODERS, PROTOCOLS, checked_protocol, decoder_of
from ticdc_source.protocols.base import Decoder
from ticdc_source.protocols.canal_json.decoder import CanalJSON
from ticdc_source.schema.types import TYPES
from ticdc_source.source import TiCDCDataSource

# What each decoder says about its wire format, and what it does.
FACTS = frozenset(Decoder.__annotations__)
METHODS = frozenset(name for name in vars(Decoder) if not name.startswith("_")) - FACTS


def missing(decoder: type) -> list[str]:
    """Return the members of the contract that a class lacks."""
    return sorted(name for name in FACTS | METHODS if not hasattr(decoder, name))


def test_the_contract_is_whole() -> None:
    """The members below come from `protocols.base.Decoder` itself; this names them once, so that none gets lost."""
    assert {
        "name",
        "options",
        "chunk_records",
        "ddl_partition",
        "watermarks_need",
        "types_in_ddl",
        "zoned_timestamps",
        "kernels",
    } == FACTS
    assert {
        "of",
        "recognizes",
        "claim_checks",
        "split",
        "describe",
        "declared",
        "decode",
        "origins",
        "commit_versions",
        "settings",
        "without_files",
        "redact",
    } == METHODS


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_a_decoder_has_every_member_of_the_contract(decoder: type[Decoder]) -> None:
    """A fact that a decoder leaves out is found here, and not by a worker."""
    assert not missing(decoder)
    assert decoder.chunk_records > 0
    assert decoder.ddl_partition in (None, 0)
    assert decoder.watermarks_need != ""
    assert set(decoder.kernels) == set(TYPES)


@pytest.mark.parametrize("member", sorted(FACTS | METHODS))
def test_a_decoder_without_a_member_is_found(member: str) -> None:
    """The check above sees what is missing, whichever it is."""
    members = {name: value for name, value in vars(CanalJSON).items() if name != member}

    assert missing(type("CanalJSON", (), members)) == [member]


def test_every_folder_is_a_row_of_the_registry() -> None:
    """A folder without a row would never be read; names are unique."""
    folder = Path(ticdc_source.protocols.__file__).parent
    folders = {path.parent.name for path in folder.glob("*/__init__.py")}

    assert {decoder.__module__.split(".")[2] for decoder in DECODERS} == folders
    assert [decoder.name for decoder in DECODERS] == list(PROTOCOLS)


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_a_decoder_says_which_options_it_reads(decoder: type[Decoder]) -> None:
    """`of` reads the options that `options` names, and no others."""
    read = set()

    class Recorder:
        def __getattr__(self, attribute: str) -> object:
            read.add(OPTIONS[attribute].name)
            return getattr(options, attribute)

    options = make_options()
    decoder.of(Recorder())  # type: ignore[arg-type]  # stands in for Options

    assert read == decoder.options


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_decoder_is_built_from_options(name: str) -> None:
    """With the defaults it is the registry's own."""
    assert decoder_of(name, make_options()) == PROTOCOLS[name]
    assert decoder_of(name, make_options(valueCompression="lz4")) != PROTOCOLS[name]


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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("open-protocol", "wait for the first one, or widen the range$"),
        ("canal-json", "TiCDC writes them only with enable-tidb-extension=true$"),
        ("debezium", r"only with enable-tidb-extension=true in the new architecture \(since v8.5.4\)$"),
    ],
)
def test_an_error_says_what_watermarks_need(name: str, expected: str) -> None:
    """What the error of `endingCommitTs=resolved` recommends depends on the protocol."""
    empty = OffsetRange("t", 0, 0, 0)

    with pytest.raises(SchemaError, match=expected):
        resolved_end([empty], lambda _: (), PROTOCOLS[name])
