"""A wire format's facts, what a read learns about its messages (`Learned`), and decoded rows (`Decoded`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import pyarrow as pa

from ticdc_source.errors import DecodeError
from ticdc_source.kernels.native import native
from ticdc_source.kernels.wire import Wire
from ticdc_source.options.topics import TopicPartition
from ticdc_source.protocols.plan import Plan, PlannedVersion, WireOf
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.model import Column, Definitions, TypeVersions
from ticdc_source.schema.table_name import TableName

if TYPE_CHECKING:
    from ticdc_source.kernels._native import Prefixes
    from ticdc_source.options.logins import RegistrySettings
    from ticdc_source.sources.storage.file_format import FileFormat


Kept = TypeVar("Kept")

# What a message says about its origin: members of `source` in `outputFormat=envelope`, and `op`; NULL if unknown.
ORIGIN = pa.struct([pa.field(name, pa.string()) for name in ("version", "connector", "name", "snapshot", "op")])


@dataclass(slots=True, kw_only=True)
class Findings:
    """Problems found while parsing events.

    Attributes:
        failures: the errors of unreadable events, by event; they have no images.
        suspect: what is wrong with the checksums of returned events, by event.
    """

    failures: dict[int, DecodeError] = field(default_factory=dict)
    empty: int = 0
    claimed: int = 0
    key_only: int = 0
    verified: int = 0
    suspect: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Decoded(Findings):
    """The row images of one table's events, as Arrow arrays.

    Attributes:
        change_types: per image, an index into `CHANGE_TYPES` (schema/change_order.py); int8.
        events: per image, the index of its event among the table's events; int32.
        indexes: per image, the index of its event in the message; int32.
        columns: per field of the read schema, an array with a value for each image.
        commit_ts: per event, int64; NULL if the event could not be read.
        start_ts: per event, the start-ts of its transaction; int64.
        build_ts: per event, when TiCDC encoded it, in ms since the epoch; int64.
        cluster_id: per event, string.
        placed: per event, whether its commit-ts is another row's or a time, so that its place in the topic partition
            orders it among changes with that commit-ts; bool.
        replaced: the number of texts that are not UTF-8 and have U+FFFD for each bad byte.
        parsed: the number of images parsed by the general path.
    """

    change_types: pa.Array
    events: pa.Array
    indexes: pa.Array
    columns: dict[str, pa.Array]
    commit_ts: pa.Array
    start_ts: pa.Array
    build_ts: pa.Array
    cluster_id: pa.Array
    placed: pa.BooleanArray
    replaced: int = 0
    parsed: int = 0


class LearnedTable:
    """What one read learns about one table: its planned columns, and what the native path keeps."""

    __slots__ = ("_kept", "_learned", "_planned", "plan")

    def __init__(self, plan: Plan, learned: Learned | None = None) -> None:
        self.plan = plan
        self._learned = learned
        self._planned: dict[tuple[tuple[Column, ...], bool], PlannedVersion] = {}
        self._kept: dict[Hashable, object] = {}

    def planned(self, columns: tuple[Column, ...], wire_of: WireOf, *, dropped: bool = False) -> PlannedVersion:
        planned = self._planned.get((columns, dropped))
        if planned is None:
            planned = self._planned[columns, dropped] = self.plan.for_columns(columns, wire_of, dropped=dropped)
        return planned

    def definition(self, table: TableName, version: int) -> tuple[Column, ...] | None:
        return None if self._learned is None else self._learned.definition(table, version)

    @property
    def native(self) -> bool:
        return native is not None and self.plan.native_path and not self.plan.documents

    def kept(self, of: type[Kept], messages: Hashable = None) -> Kept:
        """Return what the native path keeps about the table's messages, or about these; `of` makes it at first."""
        kept = self._kept.get(messages)
        if not isinstance(kept, of):
            kept = self._kept[messages] = of()
        return kept


class Learned:
    """What one read learns about its messages; nothing else keeps any of it.

    Attributes:
        native: whether native code, if built, may identify tables.
        prefixes: the prefixes of row messages, in native code.
        numbers: the numbers of tables there.
        definitions: the table versions known so far, for rows that name one (`ProtocolFacts.definitions`).
        search: looks elsewhere for a missing version, and returns all that it finds.
        previous: returns the commit-ts of a table's last row with one before an offset of a topic partition.
    """

    __slots__ = ("_last", "_tables", "definitions", "native", "numbers", "prefixes", "previous", "search")

    def __init__(self, *, native: bool = True, definitions: Definitions | None = None) -> None:
        self.native = native
        self.prefixes: Prefixes | None = None
        self.numbers: dict[TableName, int] = {}
        self.definitions: Definitions = dict(definitions or {})
        self.search: Callable[[TableName, int], Definitions] | None = None
        self.previous: Callable[[TableName, TopicPartition, int], int | None] | None = None
        self._tables: dict[TableName, LearnedTable] = {}
        self._last: dict[tuple[TableName, TopicPartition], tuple[int, int | None]] = {}

    def commit_ts_before(self, table: TableName, topic_partition: TopicPartition, offset: int) -> int | None:
        """Return the commit-ts of a table's last row with one before an offset."""
        known = self._last.get((table, topic_partition))
        if known is None or known[0] >= offset:
            found = None if self.previous is None else self.previous(table, topic_partition, offset)
            known = self._last[table, topic_partition] = offset - 1, found
        return known[1]

    def remember_commit_ts(
        self, table: TableName, topic_partition: TopicPartition, offset: int, commit_ts: int
    ) -> None:
        self._last[table, topic_partition] = offset, commit_ts

    def of_table(self, table: TableName, plan: Plan) -> LearnedTable:
        learned = self._tables.get(table)
        if learned is None or learned.plan is not plan:
            learned = self._tables[table] = LearnedTable(plan, self)
        return learned

    def definition(self, table: TableName, version: int) -> tuple[Column, ...] | None:
        columns = self.definitions.get((table.folded, version))
        if columns is None and self.search is not None:
            self.definitions.update(self.search(table, version))
            columns = self.definitions.get((table.folded, version))
        return columns


# Returns the types that DDL events give a table's columns, by lower-case name.
TypesInDDL: TypeAlias = Callable[[TableName, Sequence[DDLEvent]], Mapping[str, TypeVersions]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolFacts:
    """The facts of a wire format that do not depend on options.

    Attributes:
        recognizes: whether a record, given its key and value, looks like this wire format; compares bytes, and parses
            nothing.
        kernels: how each type of `schema.types.TYPES` is written.
        chunk_records: the records of a chunk: enough to share the cost of Arrow's calls, few enough that their objects
            die young.
        ddl_partition: the only partition of a topic with DDL events; None if every partition gets a copy
            (docs/wire.md, item 29).
        watermarks_need: the TiCDC settings without which no watermarks are sent, for errors (docs/wire.md, item 54).
        types_in_ddl: reads the types that DDL events have beside the SQL text.
        zoned_timestamps: whether a TIMESTAMP has its time zone (docs/wire.md, item 21).
        lacks_commit_ts: whether deletes may lack a commit-ts, and get the previous row's (`Learned.commit_ts_before`).
        definitions: returns the table versions that DDL and BOOTSTRAP events define; None if rows describe their own
            columns.
        files: how a storage sink writes it.
        commit_ts_needs: what adds a commit-ts to rows that lack one, for notices.
        old_rows_need: the TiCDC setting without which updates have no old row.
        shows_extension: whether a row message, given the registry's settings, has what `enable-tidb-extension=true`
            adds; returns None if unknown, or if TiCDC did not write the message, and raises `messages.MALFORMED` if it
            is broken. None if the setting adds nothing to rows.
        of_tables: whether it is TiDB's own format of a table's rows.
        sent_name: returns the name of a table or column in messages, if it differs.
        text_start: where the first text that TiCDC may compress begins in a Kafka value.
    """

    name: str
    recognizes: Callable[[bytes | None, bytes | None], bool]
    kernels: Mapping[str, Wire]
    chunk_records: int = 4000
    ddl_partition: int | None = None
    watermarks_need: str | None = None
    types_in_ddl: TypesInDDL | None = None
    zoned_timestamps: bool = False
    lacks_commit_ts: bool = False
    definitions: Callable[[Iterable[DDLEvent]], Definitions] | None = None
    files: FileFormat | None = None
    has_checksums: bool = False
    commit_ts_needs: str | None = None
    old_rows_need: str | None = None
    shows_extension: Callable[[bytes, RegistrySettings], bool | None] | None = None
    text_start: int = 0
    in_topics: bool = True
    of_tables: bool = False
    sent_name: Callable[[str], str] | None = None

    @property
    def message(self) -> str:
        return f"{self._named} message"

    @property
    def row(self) -> str:
        return f"{self._named} row"

    @property
    def _named(self) -> str:
        return f"an {self.name}" if self.name[0] in "aeiou" else f"a {self.name}"
