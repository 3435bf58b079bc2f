"""The protocols, by the name that TiCDC's `protocol` has."""

from __future__ import annotations

from ticdc_source.protocols.base import Decoder
from ticdc_source.protocols.canal_json import CanalJSON
from ticdc_source.protocols.debezium import Debezium
from ticdc_source.protocols.open_protocol import OpenProtocol

__all__ = ["PROTOCOLS"]

PROTOCOLS: dict[str, Decoder] = {decoder.name: decoder for decoder in (OpenProtocol(), CanalJSON(), Debezium())}
