"""The contract of a protocol.

A protocol is three verbs over the stages of docs/design/0001: `split`, `describe`, `decode`. It keeps no state
between chunks; the plan that it is handed caches what was decided once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from ticdc_source.errors import DecodeError
from ticdc_source.events import Chunk, DDLEvent, Split, TableEvents, TableName, Wants, every_table
from ticdc_source.kernels import Wire
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.model import TableSchema, TypeVersions

__all__ = ["Decoded", "Decoder"]


@dataclass(slots=True)
class Decoded:
    """One table events, decoded: what is per image, and what is per event, as Arrow arrays.

    Attributes:
        change_types: what each image is: an index into `events.CHANGE_TYPES`, as int8.
        events: each image's event, as a place in the table events, int32.
        indexes: each image's place in its message, from 0, as int32.
        columns: per field of the read schema, one array with a value an image.
        commit_ts: per event, int64; NULL where the event could not be read.
        build_ts: per event, when TiCDC encoded it, ms since the epoch, int64; NULL where the wire has none.
        cluster_id: per event, string, likewise.
        failures: events that could not be read, none of whose images are here.
        replaced: texts that are not UTF-8, in which U+FFFD stands for what is none.
        parsed: images that were parsed one by one, and not by columns.
        empty: events that hold no row at all, which TiCDC writes where no column is selected.
        claimed: events that were read from claim-check storage.
        key_only: events that have their key columns only, as they were too large.
    """

    change_types: pa.Array
    events: pa.Array
    indexes: pa.Array
    columns: dict[str, pa.Array]
    commit_ts: pa.Array
    build_ts: pa.Array
    cluster_id: pa.Array
    failures: dict[int, DecodeError] = field(default_factory=dict)
    replaced: int = 0
    parsed: int = 0
    empty: int = 0
    claimed: int = 0
    key_only: int = 0


class Decoder(Protocol):
    """What a protocol can do; one implementation a module of this package, listed in `PROTOCOLS`."""

    @property
    def name(self) -> str:
        """TiCDC's name of the protocol."""

    @property
    def kernels(self) -> Mapping[str, Wire]:
        """How each type of `TYPES` is written."""

    @property
    def ddl_tells(self) -> bool:
        """Whether its DDL events say of types what its messages leave open."""

    @property
    def broadcasts_ddl(self) -> bool:
        """Whether a DDL event is sent to every partition of its topic (docs/wire.md, item 29)."""

    def split(self, chunk: Chunk, wants: Wants = every_table) -> Split:
        """Cut a chunk into events; never raises, what cannot be cut goes to `Split.corrupt`.

        Row events of tables that are not wanted are only counted.
        """

    def describe(
        self, events: TableEvents, ddl: Sequence[DDLEvent] = (), declared: Mapping[str, TypeVersions] | None = None
    ) -> list[TableSchema]:
        """Say what these events, and those DDL events that are of their table, tell: the table's versions, in order.

        `declared` is what the texts of those DDL events gave the columns, by lower-case name.

        Events that cannot be read are passed over: `decode` reports them.
        """

    def declared(self, table: TableName, ddl: Sequence[DDLEvent]) -> Mapping[str, TypeVersions]:
        """Return, by lower-case name, the types that DDL events gave a table's columns, for messages that lack them."""

    def decode(self, events: TableEvents, plan: Plan) -> Decoded:
        """Turn a table's events into columns.

        Raises:
            SchemaError: the messages do not fit the plan's fields.
        """

    def recognises(self, key: bytes | None, value: bytes | None) -> bool:
        """Tell whether a record looks like this protocol's (its first bytes; nothing is decoded)."""
