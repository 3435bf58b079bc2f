"""What the driver learns before a read, about the messages and the range, and sends to the workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.model import Definitions, ReadField
from ticdc_source.schema.table_name import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadContext:
    """What the driver knows about the messages of a read. It is pickled and sent to the workers.

    Its columns are read as string, as in documents, and their names are in lower case.

    Attributes:
        protocol: None if there was no record to detect it from.
        table: the one table of the read; None if there was no row to infer it from.
        columns: the columns of that table, by lower-case name.
        expected: lower-case names of all columns that inference saw; None if unknown columns are not an error.
        told_at: the TSO as of which TiDB told the columns, if it did.
        tables: with `outputFormat=event`, the columns of tables that not only single messages tell, by lower-case
            table name; see `columns_of`.
        definitions: the table versions known before the read (`ProtocolFacts.definitions`).
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
        """Return a table's known columns for `outputFormat=event`; empty if only messages tell them."""
        name = table.folded
        columns = self.tables.get(name)
        return self.tables.get(TableName("", name.table), ()) if columns is None else columns


@dataclass(frozen=True, slots=True, kw_only=True)
class DDLCoverage:
    """Which DDL events the read has from one topic partition, if every partition gets a copy: by default all.

    An uncertain copy counts as outside the read, so the DDL event may also come from another partition: twice rather
    than never.

    Attributes:
        after: copies of DDL events with a larger commit-ts are after the start; None for all.
        until: copies of DDL events up to this commit-ts are before the end; None for all.
        exceptions: the identities of DDL events for which that is wrong.
    """

    after: int | None = None
    until: int | None = None
    exceptions: frozenset[str] = frozenset()

    def has(self, event: DDLEvent) -> bool:
        """Whether the read surely has the partition's copy of a DDL event."""
        return self._is_between(event.commit_ts) != (event.identity in self.exceptions)

    def with_seen(self, inside: Mapping[str, int | None], outside: Mapping[str, int | None]) -> DDLCoverage:
        """Add the exceptions that the driver has seen, given the commit-ts of DDL events by identity.

        An event that TiCDC sent again may be on both sides; it counts as inside.
        """
        missed = {identity for identity, ts in inside.items() if not self._is_between(ts)}
        lacking = {identity for identity, ts in outside.items() if self._is_between(ts)} - inside.keys()
        return replace(self, exceptions=frozenset(missed | lacking))

    def _is_between(self, commit_ts: int | None) -> bool:
        if commit_ts is None:
            return self.after is None and self.until is None
        return (self.after is None or commit_ts > self.after) and (self.until is None or commit_ts <= self.until)


# The coverage of each topic's partitions. A missing partition is not read, or is above one of which the read has all
# copies.
DDLCopies = Mapping[str, Mapping[int, DDLCoverage]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchScope:
    """The range of a batch or micro-batch, sent to the workers with the context.

    Attributes:
        ddl_copies: which DDL events the read has from each partition. Of several copies, the one in the lowest
            partition is kept; for topics not named here, the one in partition 0.
        partitions: the number of topic partitions; None if unknown.
        commit_end: the commit-ts that `endingCommitTs=resolved` stands for.
        topic_ids: the known topic ids when the read was planned.
        one_watermark: whether one watermark covers all records, like the checkpoint-ts of files.
        merged_by: columns by which the rows are merged: a pre-image with the values of its post-image is left out.
    """

    ddl_copies: DDLCopies = field(default_factory=dict)
    partitions: int | None = None
    commit_end: int | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    one_watermark: bool = False
    merged_by: tuple[str, ...] = ()
