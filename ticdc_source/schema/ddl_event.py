"""DDL events, and when a change happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

from ticdc_source.schema.table_name import TableName

_BEHIND = 1 << 31  # every partition


class Moment(NamedTuple):
    """When a change happened, among the rows of its table: its commit-ts, then its place in the topic partition.

    Without a place, it comes behind every row of its commit-ts: a row with the commit-ts of a DDL event belongs to the
    schema before it (docs/wire.md, item 31). Where a time stands for the commit-ts, the place decides.
    """

    commit_ts: int
    partition: int = _BEHIND
    offset: int = 0

    @property
    def last_before(self) -> int:
        """The last commit-ts of which all rows lie before it."""
        return self.commit_ts - (self.partition < _BEHIND)


START = Moment(0)


# A wire format's own description of tables after a DDL event, parsed JSON; the decoder of the same protocol reads it.
TableChanges: TypeAlias = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DDLEvent:
    """A DDL event.

    Attributes:
        position, index: its record in the chunk, and its index in that message, from 0.
        commit_ts: its commit-ts; None if the wire format has none.
        table: the table; its name is empty for the DDL of a database.
        table_changes: the wire format's own description of the table afterwards, parsed JSON; None if there is none.
        place: its topic partition and offset, by which it is ordered among the changes with its commit-ts if a time
            stands for that; None if it has a commit-ts of its own.
    """

    position: int
    index: int
    commit_ts: int | None
    table: TableName
    query: str
    type: str
    type_code: int | None = None
    table_changes: TableChanges | None = None
    build_ts: int | None = None
    cluster_id: str | None = None
    place: tuple[int, int] | None = None

    @property
    def moment(self) -> Moment:
        """When it happened; at 0 if it has no commit-ts."""
        return Moment(self.commit_ts or 0, *(self.place or ()))

    @property
    def identity(self) -> str:
        """What its copies in other topic partitions, and those that TiCDC sends again, have in common.

        Where a time stands for the commit-ts, two events may have the same text and time: each is another one.
        """
        text = f"{self.table.database}\0{self.table.table}\0{self.query}"
        text += "" if self.place is None else f"\0{self.place}"
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
        return f"{self.commit_ts}-{digest.hexdigest()}"
