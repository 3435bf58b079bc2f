"""The contract of a wire format: what its folder says about it, and what a read hands to it and gets back.

A decoder has three verbs, which are stages of docs/design/0001: `split`, `describe` and `decode`. It keeps no state.
What a read learns of its messages is in one object, `Learned`, which the reader creates and hands to each call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DecodeError
from ticdc_source.events import Chunk, Corrupt, DDLEvent, Split, TableEvents, TableName, Wants, every_table
from ticdc_source.kernels import Wire
from ticdc_source.native import native
from ticdc_source.options.options import Options
from ticdc_source.protocols.plan import Plan, PlannedVersion, WireOf
from ticdc_source.schema.model import Column, TableSchema, TypeVersions

if TYPE_CHECKING:
    from ticdc_source._native import Prefixes
    from ticdc_source.protocols.redaction import Redactor
    from ticdc_source.protocols.settings import SettingsFinder

__all__ = [
    "ORIGIN",
    "Decoded",
    "Decoder",
    "Learned",
    "LearnedPrefixes",
    "LearnedTable",
    "no_origins",
    "number_after",
    "splits_of",
]

Kept = TypeVar("Kept")

# What a message says of its own origin: members of `source` of `outputFormat=envelope`, and `op`; NULL if nothing.
ORIGIN = pa.struct([pa.field(name, pa.string()) for name in ("version", "connector", "name", "snapshot", "op")])


def no_origins(count: int) -> pa.StructArray:
    """Return the origins of messages that say nothing of it. They are no rows of a snapshot: TiCDC sends none."""
    return pa.repeat(pa.scalar({"snapshot": "false"}, ORIGIN), count)


def number_after(values: pa.BinaryArray, pattern: str) -> pa.Int64Array:
    """Return the number that a regular expression (RE2) finds in each value as its group `n`; NULL if nothing matches.

    The group matches at most 18 digits, which fit into 64 bits.
    """
    found = pc.struct_field(pc.extract_regex(values, pattern), "n")
    return found.cast(pa.string()).cast(pa.int64())


@dataclass(slots=True, kw_only=True)
class Decoded:
    """The row images of one table's events, as Arrow arrays.

    Attributes:
        change_types: per image, an index into `events.CHANGE_TYPES`; int8.
        events: per image, the index of its event among the table's events; int32.
        indexes: per image, the index of its event in the message, from 0; int32.
        columns: per field of the read schema, one array with a value for each image.
        commit_ts: per event, int64; NULL if the event could not be read.
        build_ts: per event, the time when TiCDC encoded it, in ms since the epoch; int64, NULL if messages lack it.
        cluster_id: per event, string; NULL if messages lack it.
        failures: the errors of events that could not be read, by event. No image of these events is here.
        replaced: number of texts that are not UTF-8 and have U+FFFD in place of each bad byte.
        parsed: number of images that the general path parsed, one by one.
        empty: number of events without any row. TiCDC writes them if no column is selected.
        claimed: number of events that were read from claim-check storage.
        key_only: number of events that have their key columns only, because they were too large.
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


class LearnedTable:
    """What one read learns of one table: its planned columns, and what the native path keeps.

    Attributes:
        plan: the plan that all of this is for.
    """

    __slots__ = ("_kept", "_planned", "plan")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._planned: dict[tuple[Column, ...], PlannedVersion] = {}
        self._kept: object = None

    def planned(self, columns: tuple[Column, ...], wire_of: WireOf) -> PlannedVersion:
        """Return the plan of one version of the table; it is made when these columns are first seen.

        Raises:
            SchemaError: as `Plan.for_columns`.
        """
        planned = self._planned.get(columns)
        if planned is None:
            planned = self._planned[columns] = self.plan.for_columns(columns, wire_of)
        return planned

    @property
    def native(self) -> bool:
        """Whether the native path reads the table's events."""
        return native is not None and self.plan.native_path and not self.plan.documents

    def kept(self, of: type[Kept]) -> Kept:
        """Return what the native path keeps about the table's messages; `of` makes an object that holds nothing."""
        found = self._kept
        if not isinstance(found, of):
            found = self._kept = of()
        return found


@dataclass(slots=True)
class LearnedPrefixes:
    """What row messages begin with.

    Attributes:
        tables: the table by prefix.
        shortest: the length of the shortest prefix in bytes, 0 if there is none.
        native: whether the native path compares prefixes, if it is there.
        kept: the prefixes in native code, None if there are none.
        numbers: the number that a table has there.
    """

    tables: dict[bytes, TableName] = field(default_factory=dict)
    shortest: int = 0
    native: bool = True
    kept: Prefixes | None = None
    numbers: dict[TableName, int] = field(default_factory=dict)


class Learned:
    """What one read learns of its messages. The reader creates one for each read; nothing else keeps any of it.

    Args:
        native: whether the read may take the native path.

    Attributes:
        prefixes: what row messages begin with.
    """

    __slots__ = ("_tables", "prefixes")

    def __init__(self, *, native: bool = True) -> None:
        self.prefixes = LearnedPrefixes(native=native)
        self._tables: dict[TableName, LearnedTable] = {}

    def of_table(self, table: TableName, plan: Plan) -> LearnedTable:
        """Return what was learned of a table; with another plan than before, nothing."""
        learned = self._tables.get(table)
        if learned is None or learned.plan is not plan:
            learned = self._tables[table] = LearnedTable(plan)
        return learned


class Decoder(Protocol):
    """A wire format. Its class is in a folder of this package and has a row in `protocols.DECODERS`.

    Attributes:
        name: the name that TiCDC's option `protocol` has for it.
        options: the names of the options that `of` reads. Options that mean the same for all wire formats are not
            among them.
        kernels: how each type of `schema.types.TYPES` is written.
        chunk_records: how many records a chunk should have: enough to share the cost of a call of Arrow, few
            enough that the objects made of them die young.
        ddl_partition: the only partition of a topic that gets its DDL events; None if every partition gets a copy
            (docs/wire.md, item 29).
        watermarks_need: the TiCDC settings without which no watermarks are sent, as an error names them; None if they
            are always sent (docs/wire.md, item 54).
        types_in_ddl: whether DDL events say in a form of their own, beside the SQL text, which types columns have.
        zoned_timestamps: whether a TIMESTAMP comes with its time zone (docs/wire.md, item 21).
    """

    name: ClassVar[str]
    options: ClassVar[frozenset[str]]
    kernels: ClassVar[Mapping[str, Wire]]
    chunk_records: ClassVar[int]
    ddl_partition: ClassVar[int | None]
    watermarks_need: ClassVar[str | None]
    types_in_ddl: ClassVar[bool]
    zoned_timestamps: ClassVar[bool]

    @classmethod
    def of(cls, options: Options) -> Decoder:
        """Return the decoder that these options ask for."""

    def recognizes(self, key: bytes | None, value: bytes | None) -> bool:
        """Return whether a record looks like one of this wire format. Only bytes are compared; nothing is parsed."""

    def claim_checks(self, key: bytes | None, value: bytes | None) -> int:
        """Return how many files of claim-check storage a record names, without parsing it."""

    def split(self, chunk: Chunk, wants: Wants = every_table, learned: Learned | None = None) -> Split:
        """Cut a chunk into events. Nothing is raised: `Split.corrupt` gets what cannot be cut.

        If messages are compressed, the events may be too large together: `Split.rest` then has the later ones. Call
        `splits_of`, which returns all.

        Args:
            chunk: the records.
            wants: which tables are wanted. Row events of the others are only counted.
            learned: what the read has learned so far.
        """

    def settings(self) -> SettingsFinder:
        """Return what looks for the settings of the changefeed in messages. Only `ticdc-source inspect` asks for it."""

    def without_files(self) -> Decoder:
        """Return the decoder that reads no claim-check file: it takes large messages with their key columns only."""

    def redact(self, key: bytes | None, value: bytes | None, redactor: Redactor) -> tuple[bytes | None, bytes | None]:
        """Return a record's key and value with the values of columns redacted; only `ticdc-source capture` asks."""

    def describe(
        self, events: TableEvents, ddl: Sequence[DDLEvent] = (), declared: Mapping[str, TypeVersions] | None = None
    ) -> list[TableSchema]:
        """Return the versions of a table that events show, oldest first. Events that cannot be read are left out.

        Args:
            events: row events of the table.
            ddl: DDL events of any table; those of this one say more about its columns.
            declared: the types that the SQL texts of those DDL events give the columns, by lower-case name.
        """

    def declared(self, table: TableName, ddl: Sequence[DDLEvent]) -> Mapping[str, TypeVersions]:
        """Return the types that DDL events give a table's columns beside their SQL text, by lower-case name."""

    def decode(self, events: TableEvents, plan: Plan, learned: Learned | None = None) -> Decoded:
        """Turn a table's events into columns.

        Args:
            events: row events of the table.
            plan: what is wanted of it.
            learned: what the read has learned so far.

        Raises:
            SchemaError: the messages do not fit the plan's fields.
        """

    def origins(self, events: TableEvents) -> pa.StructArray:
        """Return what each event says of its own origin (`ORIGIN`). Only `outputFormat=envelope` asks for it."""

    def commit_versions(self, events: TableEvents) -> pa.Int64Array:
        """Return each event's commit-ts where it can be found without parsing the message, else NULL.

        Only `outputFormat=record` asks for it.
        """


def splits_of(
    decoder: Decoder, chunk: Chunk, wants: Wants = every_table, learned: Learned | None = None
) -> Iterator[Split]:
    """Yield all events of a chunk, in one piece if they are not too large together; see `Decoder.split`."""
    if chunk.failure is not None:
        yield Split(corrupt=[Corrupt(0, 0, DecodeError(chunk.failure, chunk.address(0)))])
        return
    split = decoder.split(chunk, wants, learned)
    rest = split.rest
    yield split
    del split
    yield from rest
