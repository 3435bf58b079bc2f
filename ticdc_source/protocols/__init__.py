"""The protocols, by the name that TiCDC's `protocol` has."""

from __future__ import annotations

from ticdc_source.errors import OptionError
from ticdc_source.options.options import Options
from ticdc_source.options.parsers import one_of
from ticdc_source.protocols.base import Decoder
from ticdc_source.protocols.canal_json.decoder import CanalJSON
from ticdc_source.protocols.debezium.decoder import Debezium
from ticdc_source.protocols.large_messages import LargeMessages
from ticdc_source.protocols.open_protocol.decoder import OpenProtocol

__all__ = ["PROTOCOLS", "checked_protocol", "decoder_of"]

PROTOCOLS: dict[str, Decoder] = {
    OpenProtocol.name: OpenProtocol(),
    CanalJSON.name: CanalJSON(),
    Debezium.name: Debezium(),
}


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


def decoder_of(protocol: str, options: Options) -> Decoder:
    """Return the decoder of a protocol, as the options have it."""
    codec = options.value_compression
    if protocol == Debezium.name:  # has no large messages
        return Debezium(codec)
    large = LargeMessages(options.claim_check_location, options.on_handle_key_only)
    return {kind.name: kind for kind in (OpenProtocol, CanalJSON)}[protocol](codec, large)
