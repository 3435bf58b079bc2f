"""A range of a table's rows as of a TSO → bounded chunks of row packets.

The topic of a record is its table, the partition the number of its range, and the offset the number of its row in the
range, in the order of the key, from 0. The columns of a table are the record of `DEFINITION`, at the TSO as its offset.
"""

from __future__ import annotations

from collections.abc import Iterator

from ticdc_source.errors import TiCDCSourceError
from ticdc_source.kernels.arrays import Binaries
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import parse_table
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.record_source import Fetcher
from ticdc_source.sources.tidb.catalog import described
from ticdc_source.sources.tidb.client import Session
from ticdc_source.sources.tidb.messages import key_of

DEFINITION = -1  # stands for the partition of the record with a table's columns
_NO_TIME = -1
_BLOCK = 2 << 20  # bytes of rows that are decoded together: enough to share the cost of a call


class RowRange(OffsetRange):
    """A range whose offsets number the rows of an answer as of a TSO. What is asked is no part of its equality."""

    tso: int
    sql: str

    @classmethod
    def of(cls, table: TableName, number: int, rows: int, tso: int, sql: str) -> RowRange:
        made = cls(str(table), number, 0, rows)
        made.tso, made.sql = tso, sql
        return made


def definition_range(topic: str, tso: int) -> OffsetRange:
    return OffsetRange(topic, DEFINITION, tso, tso + 1)


class SnapshotFetcher(Fetcher):
    """The `Fetcher` for rows of TiDB. It keeps one session, for ranges one after the other."""

    def __init__(self, options: Options, settings: FetchSettings) -> None:
        self._settings = settings
        self._session = Session(options)

    @property
    def library(self) -> str:
        return "PyMySQL"

    def close(self) -> None:
        self._session.close()

    def fetch(self, offset_range: OffsetRange) -> Iterator[Chunk]:
        """Yield the rows of a range in the order of the key; see `Fetcher.fetch`.

        Raises:
            TiDBUnavailableError: TiDB does not answer, also after some retries.
            DataLossError: TiDB's garbage collection has passed the TSO.
            AccessRefusedError: TiDB refuses the login, or the user may not read the table.
        """
        if isinstance(offset_range, RowRange):
            yield from self._rows(offset_range)
        else:
            topic, tso = offset_range.topic, offset_range.start
            definition = described(self._session, parse_table(topic), tso)
            yield Chunk(topic, DEFINITION, [tso], [_NO_TIME], [None], [definition.message()])

    def _rows(self, offset_range: RowRange) -> Iterator[Chunk]:
        """Yield the rows of a range: the same in each answer, in the order of the key."""
        table = parse_table(offset_range.topic)
        key = key_of(table, offset_range.tso)
        position, most, native = offset_range.start, self._settings.max_records, self._settings.native
        self._session.as_of(offset_range.tso, table)
        for rows in self._session.blocks(offset_range.sql, self._block_size, most, skip=position, uses_native=native):
            for first in range(0, len(rows), most):
                part = rows if len(rows) <= most else rows.part(first, min(first + most, len(rows)))
                yield self._chunk(offset_range, position, part, key)
                position += len(part)
        if position != offset_range.end:
            found, at = position - offset_range.start, f"now, as of the same TSO {offset_range.tso}: please report this"
            planned = f"{offset_range.size} rows when the read was planned"
            msg = f"{offset_range} of TiDB {self._session.server} had {planned}, and {found} {at}"
            raise TiCDCSourceError(msg)

    @property
    def _block_size(self) -> int:
        return min(_BLOCK, self._settings.max_bytes)

    def _chunk(self, offset_range: OffsetRange, position: int, rows: Binaries, key: bytes) -> Chunk:
        count = len(rows)
        return Chunk(
            offset_range.topic,
            offset_range.partition,
            range(position, position + count),
            [_NO_TIME] * count,
            [key] * count,
            rows,
            [[] for _ in range(count)] if self._settings.include_headers else None,
        )
