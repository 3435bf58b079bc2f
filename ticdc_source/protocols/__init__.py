"""The protocols, by the name that TiCDC's `protocol` has."""

from __future__ import annotations

from ticdc_source.options.options import Options
from ticdc_source.protocols.base import Decoder
from ticdc_source.protocols.canal_json.decoder import CanalJSON
from ticdc_source.protocols.debezium.decoder import Debezium
from ticdc_source.protocols.large_messages import LargeMessages
from ticdc_source.protocols.open_protocol.decoder import OpenProtocol

__all__ = ["PROTOCOLS", "decoder_of"]

PROTOCOLS: dict[str, Decoder] = {
    OpenProtocol.name: OpenProtocol(),
    CanalJSON.name: CanalJSON(),
    Debezium.name: Debezium(),
}


def decoder_of(protocol: str, options: Options) -> Decoder:
    """Return the decoder of a protocol, as the options have it."""
    codec = options.value_compression
    if protocol == Debezium.name:  # has no large messages
        return Debezium(codec)
    large = LargeMessages(options.claim_check_location, options.on_handle_key_only)
    return {kind.name: kind for kind in (OpenProtocol, CanalJSON)}[protocol](codec, large)
