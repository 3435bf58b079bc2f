"""What the driver finds out before a read, and sends to the workers: of the messages, and of the range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.model import Definitions, ReadField
from ticdc_source.schema.table_name import TableName

UNKNOWN_PARTITION = -1  # of the rows of a DataFrame that has none


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadContext:
    """What the driver knows about the messages of a read. It is pickled and sent to the workers.

    Columns are fields that are read as string, as in documents, with their names in lower case.

    Attributes:
        protocol: the protocol; None if there was no record to detect it from.
        table: the one table of the read; None if there was no row event to infer it from.
        columns: the columns of that table, by lower-case name.
        expected: lower-case names of all columns that inference saw; None if unknown columns are not an error.
        told_at: the TSO as of which TiDB told them, if it did.
        tables: with `outputFormat=event`, the columns of tables that are known beside single messages, by the table's
            name in lower case; `columns_of` looks them up.
        definitions: the versions of tables that are known before the read (`ProtocolFacts.definitions`).
        provisional: whether inference had no row yet; a stream then tries again with its next micro-batch.
    """

    protocol: str | None = None
    table: TableName | None = None
    columns: Mapping[str, ReadField] = field(default_factory=dict)
    expected: frozenset[str] | None = None
    told_at: int | None = None
    tables: Mapping[TableName, Sequence[ReadField]] = field(default_factory=dict)
    definitions: Definitions = field(default_factory=dict)
    provisional: bool = False

    def columns_of(self, table: TableName) -> Sequence[ReadField]:
        """Return what is known of a table's columns with `outputFormat=event`; nothing if only messages tell."""
        name = table.folded
        columns = self.tables.get(name)
        return self.tables.get(TableName("", name.table), ()) if columns is None else columns


@dataclass(frozen=True, slots=True, kw_only=True)
class DDLCoverage:
    """Which DDL events the read has from one topic partition, if every partition gets a copy: all, by default.

    If it is not known whether a copy lies inside the read, the copy counts as outside. Then the DDL event may come from
    another partition too: twice rather than never.

    Attributes:
        after: the copies of DDL events with a larger commit-ts lie after the start; None for all.
        until: the copies of DDL events up to this commit-ts lie before the end; None for all.
        exceptions: the identities of DDL events of which that is not true.
    """

    after: int | None = None
    until: int | None = None
    exceptions: frozenset[str] = frozenset()

    def has(self, event: DDLEvent) -> bool:
        """Whether the read surely has the partition's copy of a DDL event."""
        return self._is_between(event.commit_ts) != (event.identity in self.exceptions)

    def with_seen(self, inside: Mapping[str, int | None], outside: Mapping[str, int | None]) -> DDLCoverage:
        """Return the coverage with the exceptions that the driver has seen, given their commit-ts by identity.

        What TiCDC has sent again may be inside the read and outside of it, and is inside.
        """
        missed = {identity for identity, ts in inside.items() if not self._is_between(ts)}
        lacking = {identity for identity, ts in outside.items() if self._is_between(ts)} - inside.keys()
        return replace(self, exceptions=frozenset(missed | lacking))

    def _is_between(self, commit_ts: int | None) -> bool:
        if commit_ts is None:
            return self.after is None and self.until is None
        return (self.after is None or commit_ts > self.after) and (self.until is None or commit_ts <= self.until)


# For each topic, the coverage of its partitions. A partition that is not named is not read, or is higher than one of
# which the read has all copies.
DDLCopies = Mapping[str, Mapping[int, DDLCoverage]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchScope:
    """What a batch or a micro-batch covers. It is sent to the workers beside the context.

    Attributes:
        ddl_copies: which DDL events the read has from each partition. Of the copies of a DDL event, that of the lowest
            partition is kept; that of partition 0 for a topic which is not named here.
        partitions: how many topic partitions are read; None if that is not known.
        commit_end: the commit-ts to which `endingCommitTs=resolved` was resolved.
        topic_ids: the ids of the topics when the read was planned, as far as they are known.
        one_watermark: whether one watermark speaks for all records, as the checkpoint-ts does for those of files.
    """

    ddl_copies: DDLCopies = field(default_factory=dict)
    partitions: int | None = None
    commit_end: int | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    one_watermark: bool = False
