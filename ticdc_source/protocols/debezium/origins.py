"""What debezium's messages say of their own origin: members of `source`, and `op`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.events import Binaries
from ticdc_source.protocols.base import ORIGIN
from ticdc_source.protocols.debezium.native import payload_of
from ticdc_source.protocols.messages import MALFORMED, parse_object, readable

__all__ = ["origins"]

_FIELDS = list(ORIGIN)
# From `source` to the op, as TiCDC and Debezium write it. A text has a backslash before each quote, so none looks like
# this.
_SOURCE = (
    r'"source":\{"version":"(?P<version>[^"\\]*)","connector":"(?P<connector>[^"\\]*)","name":"(?P<name>[^"\\]*)",'
    r'"ts_ms":\d+,"snapshot":"(?P<snapshot>[^"\\]*)",[^{}]*\},(?:"ts_ms":\d+,|"transaction":null,)*"op":"(?P<op>[a-z])"'
)


def origins(messages: Sequence[bytes]) -> pa.StructArray:
    """Return the origin of each message (`ORIGIN`), NULL if it cannot be read."""
    array = messages.array if isinstance(messages, Binaries) else pa.array(messages, pa.binary())
    found = pc.extract_regex(array, _SOURCE)
    unknown = found.is_null()
    try:
        texts = [found.field(field.name).cast(pa.string()) for field in _FIELDS]
    except pa.ArrowInvalid:  # one of them is not UTF-8
        return pa.array(map(_parsed, messages), ORIGIN)
    if not unknown.true_count:
        return pa.StructArray.from_arrays(texts, fields=_FIELDS)
    each = pa.StructArray.from_arrays(texts, fields=_FIELDS).to_pylist()
    for index in pc.indices_nonzero(unknown).to_pylist():  # written in another way
        each[index] = _parsed(messages[index])
    return pa.array(each, ORIGIN)


def _parsed(message: bytes) -> dict[str, str | None] | None:
    try:
        payload = payload_of(parse_object(message))
        members = {**payload["source"], "op": payload.get("op")}
        return {field.name: _shown(members.get(field.name)) for field in _FIELDS}
    except MALFORMED:  # decoding reports it
        return None


def _shown(value: object) -> str | None:
    """Return a member as text. Debezium before 1.5 wrote `snapshot` as a boolean."""
    if isinstance(value, bool):
        return str(value).lower()
    return readable(value) if isinstance(value, str) else None
