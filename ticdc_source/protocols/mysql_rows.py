"""The decoder of a snapshot's rows: packets of MySQL's text protocol, as TiDB sends them.

A row is only its cells, as MySQL's text. The key of its record names the table and the TSO. A record without a key has
the columns of that version of the table (`sources/tidb/messages.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from ticdc_source.errors import DecodeError
from ticdc_source.kernels import numbers, strings, temporal
from ticdc_source.kernels.arrays import repeated
from ticdc_source.kernels.contract import Image, Program, TextRow
from ticdc_source.kernels.wire import Wire
from ticdc_source.protocols.base import ORIGIN, Decoded, Learned, LearnedTable, ProtocolFacts
from ticdc_source.protocols.decoding import Decoder, ReadEvent
from ticdc_source.protocols.events import Split, TableEvents
from ticdc_source.protocols.images import Parsed
from ticdc_source.protocols.messages import parse_object
from ticdc_source.protocols.templates import INSERT, General, Template, Templates
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.model import Column, Definitions, TableSchema, TypeVersions
from ticdc_source.schema.table_name import TableName, Wants, every_table
from ticdc_source.schema.types import BINARIES
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.tidb.messages import Definition, RowKey, is_of_snapshot, parsed_key

# MySQL's text, except for binary types, whose bytes are unchanged.
_KERNELS: dict[str, Wire] = {
    **strings.TEXT_KERNELS,
    **dict.fromkeys(BINARIES, strings.BYTES),
    "bit": numbers.BIT_BYTES,
    "timestamp": temporal.TIMESTAMP_UTC_TEXT,  # the session's zone
    "enum": strings.LABEL,
    "set": strings.LABEL,
}
_AS_BYTES = frozenset({*BINARIES, "bit"})
_NULL = 0xFB
# The number of bytes of a length, by the byte before it.
_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}


def cells_of(row: bytes) -> list[bytes | None]:
    """Return the cells of a row packet; None for NULL.

    Raises:
        ValueError: the lengths do not add up.
    """
    cells: list[bytes | None] = []
    at, end = 0, len(row)
    while at < end:
        length = row[at]
        at += 1
        if length == _NULL:
            cells.append(None)
            continue
        if length > _NULL:
            width = _WIDTHS.get(length, end)
            length = int.from_bytes(row[at : at + width], "little")
            at += width
        if at + length > end:
            raise ValueError(f"a cell of {length:,} bytes begins at byte {at:,} of a row packet of {end:,}")
        cells.append(row[at : at + length])
        at += length
    return cells


def _definitions_of(events: Iterable[DDLEvent]) -> Definitions:
    definitions = [Definition.of(member) for event in events for member in event.table_changes or ()]
    return {(each.table.folded, each.tso): each.columns for each in definitions}


def _template_of(columns: Sequence[Column]) -> Template:
    binary = tuple(map(_is_binary, columns))
    row = TextRow(Image.MAIN, binary)
    program = Program([INSERT, row], heads=(), tail=b"", partial=False)
    return Template(identity=binary, program=lambda _: program)


def _is_binary(column: Column) -> bool:
    return column.type is not None and column.type.name in _AS_BYTES


class MySQLRows(Decoder):
    """The decoder of row packets."""

    facts = ProtocolFacts(
        name="mysql-rows",
        recognizes=is_of_snapshot,
        kernels=_KERNELS,
        chunk_records=8192,
        zoned_timestamps=True,
        definitions=_definitions_of,
        in_topics=False,
        of_tables=True,
    )

    def split(self, chunk: Chunk, wants: Wants = every_table, learned: Learned | None = None) -> Split:
        """Read the key, which is the same for all rows of a chunk."""
        key = chunk.keys[0] if chunk.keys else None
        if key is None or chunk.keys.count(key) < len(chunk):
            return super().split(chunk, wants, learned)
        parsed = parsed_key(key)
        return Split.of_one_table(chunk, parsed.table, wants, parsed)

    def _add(self, split: Split, chunk: Chunk, position: int) -> None:
        key, value = chunk.keys[position], chunk.values[position] or b""
        if key is not None:
            parsed = parsed_key(key)
            split.table_events(chunk, parsed.table).append(position, 0, value, parsed)
            return
        definition = Definition.of(parse_object(value))
        split.bootstraps.append(
            DDLEvent(
                position=position,
                index=0,
                commit_ts=definition.tso,
                table=definition.table,
                query="",
                type="",
                table_changes=[parse_object(value)],
            )
        )

    def describe(
        self,
        events: TableEvents,
        ddl: Sequence[DDLEvent] = (),
        declared: Mapping[str, TypeVersions] | None = None,
        learned: Learned | None = None,
    ) -> list[TableSchema]:
        """Look at one row of each version, as all have its columns."""
        firsts = {key: events.event_keys.index(key) for key in set(events.event_keys)}
        return super().describe(events.picked(sorted(firsts.values())), ddl, declared, learned)

    def commit_versions(self, events: TableEvents) -> pa.Int64Array:
        keys = events.event_keys
        if len(keys) and keys.count(keys[0]) == len(keys):
            return repeated(keys[0].tso, pa.int64(), len(keys))
        return pa.array([key.tso for key in keys], pa.int64())

    def origins(self, events: TableEvents) -> pa.StructArray:
        return pa.repeat(pa.scalar({"snapshot": "true", "op": "r"}, ORIGIN), len(events))

    def _by_templates(self, events: TableEvents, learned: LearnedTable, general: General) -> Decoded:
        templates = learned.kept(Templates)
        for tso in {key.tso for key in events.event_keys[:: max(1, len(events) - 1)]}:
            columns = learned.definition(events.table, tso)
            if columns is not None:
                templates.know(_template_of(columns), 0, columns)
        return templates.decode(events, learned, self._wire_of, general, self.commit_versions(events))

    def _reader(self, events: TableEvents, parsed: Parsed, learned: LearnedTable) -> ReadEvent:
        plan, images, keys = learned.plan, parsed.images, events.event_keys
        columns: tuple[Column, ...] = ()
        names: list[str] = []
        texts: list[int] = []  # the indexes of columns whose cells are text
        last: RowKey | None = None

        def read(event: int, payload: bytes) -> None:
            nonlocal columns, names, texts, last
            key = keys[event]
            parsed.commit_ts[event] = key.tso
            if key is not last:  # `parsed_key` keeps one object for each
                columns, last = _columns(events.table, key.tso, learned), key
                names = [column.name for column in columns]
                texts = [index for index, column in enumerate(columns) if not _is_binary(column)]
                images.continue_run(columns)
            cells: list[bytes | str | None] = list(cells_of(payload))
            if len(cells) != len(names):
                raise ValueError(f"a row of {len(cells)} cells for {len(names)} columns")
            for index in texts:
                cell = cells[index]
                if isinstance(cell, bytes):
                    cells[index] = cell.decode(errors="surrogateescape")
            images.add(event, 0, "insert", dict(zip(names, cells, strict=True)), None, plan)

        return read


def _columns(table: TableName, tso: int, learned: LearnedTable) -> tuple[Column, ...]:
    defined = learned.definition(table, tso)
    if defined is None:
        raise DecodeError(f"the columns of {table} at TSO {tso} are unknown: load the source again")
    return defined
