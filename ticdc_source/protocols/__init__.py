"""The wire formats that are read. A new one is a folder of this package and a row of `DECODERS`."""

from __future__ import annotations

from ticdc_source.errors import OptionError
from ticdc_source.options.options import Options
from ticdc_source.options.parsers import one_of
from ticdc_source.protocols.base import Decoder
from ticdc_source.protocols.canal_json.decoder import CanalJSON
from ticdc_source.protocols.compression import looks_compressed
from ticdc_source.protocols.debezium.decoder import Debezium
from ticdc_source.protocols.open_protocol.decoder import OpenProtocol

__all__ = ["DECODERS", "PROTOCOLS", "checked_protocol", "decoder_of", "describe_unknown", "possible_decoders"]

DECODERS: tuple[type[Decoder], ...] = (
    OpenProtocol,
    CanalJSON,
    Debezium,
)

# By name, with the default of each option: for what does not depend on options.
PROTOCOLS: dict[str, Decoder] = {decoder.name: decoder() for decoder in DECODERS}


def checked_protocol(options: Options) -> str:
    """Return the option `protocol` after a check: `auto`, or one of `PROTOCOLS`.

    Raises:
        OptionError: No protocol has that name.
    """
    try:
        return one_of("auto", *PROTOCOLS)(options.protocol)
    except ValueError as error:
        msg = f"Option 'protocol': {error}, got '{options.protocol}'"
        raise OptionError(msg) from None


def possible_decoders(options: Options) -> list[Decoder]:
    """Return the decoder that the option `protocol` names, and with `auto` those of all protocols."""
    names = PROTOCOLS if options.protocol == "auto" else [options.protocol]
    return [decoder_of(name, options) for name in names]


def decoder_of(protocol: str, options: Options) -> Decoder:
    """Return the decoder of a protocol that these options ask for."""
    return PROTOCOLS[protocol].of(options)


def describe_unknown(value: bytes) -> str:
    """Return what a value looks like that no decoder recognizes, for an error."""
    if b'"commitTs":' in value and b'"schemaVersion":' in value:
        return "it looks like TiCDC's simple protocol, which this release does not read"
    if looks_compressed(value):
        return "it looks compressed by TiCDC's large-message-handle-compression: pip install cramjam"
    if value[:1] == b"\x00" and len(value) > 5:  # noqa: PLR2004 (magic byte and schema id)
        return "it looks like Avro from a schema registry, which this release does not read"
    return f"the value begins {value[:40]!r}"
