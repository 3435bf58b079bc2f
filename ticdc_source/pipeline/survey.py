"""Finding the records that tell the schema of all."""

from __future__ import annotations

from collections.abc import Iterator

from ticdc_source.options.ranges import CommitRange
from ticdc_source.options.topics import TableFilter
from ticdc_source.protocols.base import Learned
from ticdc_source.protocols.decoding import Decoder, splits_of, within
from ticdc_source.protocols.events import Split, TableEvents
from ticdc_source.schema.model import TableSchema, merge_schemas
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import Chunk


class Survey:
    """What one task knows about each table."""

    def __init__(self, decoder: Decoder, tables: TableFilter, *, native: bool = True) -> None:
        self._decoder = decoder
        self._tables = tables
        self._seen: dict[TableName, set[TableSchema]] = {}
        self._merged: dict[TableName, TableSchema] = {}
        self._has_corrupt = False
        self._learned = Learned(native=native)

    def told_by(self, chunk: Chunk, commits: CommitRange) -> set[int]:
        """Return the positions of the records of a chunk whose events in a range say something new."""
        splits = splits_of(self._decoder, chunk, learned=self._learned)
        return set().union(*(self.told_by_split(within(split, commits, self._decoder)) for split in splits))

    def told_by_split(self, split: Split) -> set[int]:
        """Return the positions of such records among the events of a split."""
        positions = {event.position for event in split.ddl} | self._defined_by(split)
        if split.corrupt and not self._has_corrupt:
            self._has_corrupt = True
            positions.add(split.corrupt[0].position)
        for table, events in split.tables.items():
            if self._tables.matches(table):
                positions |= self._told_by_rows(table, events)
            elif table not in self._seen:  # one row of each other table, for the error that lists the tables
                self._seen[table] = set()
                positions.add(events.positions[0])
        return positions

    def _defined_by(self, split: Split) -> set[int]:
        """Add the table versions that a split defines; return the positions of new BOOTSTRAPs."""
        definitions = self._decoder.facts.definitions
        if definitions is None:
            return set()
        known = self._learned.definitions
        known.update(definitions(split.ddl))
        new = {event.position for event in split.bootstraps if not definitions([event]).keys() <= known.keys()}
        known.update(definitions(split.bootstraps))
        return new

    def _told_by_rows(self, table: TableName, events: TableEvents) -> set[int]:
        positions = set(self._new_among(table, events))
        if not positions and len(events) and table not in self._seen:  # none can be read: the error says why
            self._seen[table] = set()
            positions.add(events.positions[0])
        return positions

    def _new_among(self, table: TableName, events: TableEvents) -> Iterator[int]:
        """Yield, in order, the positions of events that say something new."""
        schemas = self._decoder.describe(events, learned=self._learned) if len(events) else []
        if not any([self._is_new(table, schema, keep=len(events) == 1) for schema in schemas]):  # noqa: C419
            return
        if len(events) == 1:
            yield events.positions[0]
            return
        half = len(events) // 2
        for part in (range(half), range(half, len(events))):
            yield from self._new_among(table, events.picked(part))
        for schema in schemas:  # together they may say more than each alone
            self._is_new(table, schema, keep=True)

    def _is_new(self, table: TableName, schema: TableSchema, *, keep: bool = False) -> bool:
        """Whether a schema says something new; `keep` adds it to what is known."""
        seen = self._seen.get(table, ())
        if schema in seen:
            return False
        merged = self._merged.get(table)
        both = merge_schemas([schema] if merged is None else [merged, schema])
        assert both is not None  # noqa: S101 (for mypy)
        if keep:
            self._seen.setdefault(table, set()).add(schema)
            self._merged[table] = both
        return merged is None or frozenset(both.columns) != frozenset(merged.columns)
