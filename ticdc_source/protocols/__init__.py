"""The protocols, by the name that TiCDC's `protocol` has."""

from __future__ import annotations

from collections.abc import Callable

from ticdc_source.protocols.base import Decoder
from ticdc_source.protocols.canal_json import CanalJSON
from ticdc_source.protocols.debezium import Debezium
from ticdc_source.protocols.open_protocol import OpenProtocol

__all__ = ["PROTOCOLS", "decoder_of"]

PROTOCOLS: dict[str, Decoder] = {
    OpenProtocol.name: OpenProtocol(),
    CanalJSON.name: CanalJSON(),
    Debezium.name: Debezium(),
}


def decoder_of(protocol: str, codec: str) -> Decoder:
    """Return the decoder of a protocol for messages compressed with `codec` (the option `valueCompression`)."""
    kinds: dict[str, Callable[[str], Decoder]] = {kind.name: kind for kind in (OpenProtocol, CanalJSON, Debezium)}
    return kinds[protocol](codec)
