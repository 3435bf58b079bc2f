"""Tables of TiDB as of a TSO, as a `RecordSource`: `snapshot=only`.

The rows of a table are cut into ranges of its key, each of which is an input partition. A range carries its SQL
statement and the TSO to a worker (`RowRange`). A record's topic is its table, the partition the number of its range,
and the offset the number of its row in the range, in the order of the key, from 0. The columns of a table are a record
in the partition `DEFINITION`, with the TSO as its offset, which the driver reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ticdc_source.errors import CheckpointError, OptionError, TiCDCSourceError, warn
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TableFilter, TopicPartition, listed, parse_table
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.tso import duration, of_ms, physical_ms
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.record_source import Fetcher, OffsetMembers, RecordSource, StreamPlanner, WireFormats
from ticdc_source.sources.stream_offsets import Offsets, StreamLimits
from ticdc_source.sources.tidb.catalog import described, rows_about, tables_at
from ticdc_source.sources.tidb.client import Session
from ticdc_source.sources.tidb.messages import key_of
from ticdc_source.sources.tidb.progress import SnapshotProgress, TableProgress, Texts
from ticdc_source.sources.tidb.sql import Bound, StoredRows

_TICK_S = 0.001  # TiDB's clock counts milliseconds
DEFINITION = -1  # the partition of the record with a table's columns
_BLOCK = 2 << 20  # bytes of rows that are decoded together: enough to share the cost of a call


class RowRange(OffsetRange):
    """A range whose offsets number the rows of a query as of a TSO. Equality ignores the query."""

    tso: int
    sql: str

    @classmethod
    def of(cls, table: TableName, number: int, rows: int, tso: int, sql: str) -> RowRange:
        made = cls(str(table), number, 0, rows)
        made.tso, made.sql = tso, sql
        return made


def definition_range(topic: str, tso: int) -> OffsetRange:
    return OffsetRange(topic, DEFINITION, tso, tso + 1)


class SnapshotSource(RecordSource):
    """The tables of TiDB that the option `tables` selects, as of `snapshot.at`."""

    is_one_log = True
    loss = "Some rows of TiDB's past are gone. Reason: "

    def __init__(self, options: Options, formats: WireFormats) -> None:
        super().__init__(options, formats)
        self._session = Session(options)
        self._tso: int | None = None if options.snapshot_at == "now" else options.snapshot_at

    def close(self) -> None:
        self._session.close()

    def described(self, ranges: Iterable[OffsetRange]) -> str:  # noqa: ARG002 (all are there)
        return f"'tidb.url' {self._session.server}"

    def check_protocol(self, protocol: str) -> None:
        if protocol != "auto":
            raise OptionError(
                f"protocol={protocol} is for messages, but snapshot=only reads rows of TiDB: leave 'protocol' out"
            )

    def protocol(self, offsets_read: Iterable[TopicPartition] = ()) -> str:  # noqa: ARG002 (there is one)
        return self._formats.of_tables

    def batch_ranges(self) -> list[OffsetRange]:
        """The ranges of the tables' rows (`snapshot.rowsPerRange` in each but a table's last) and columns."""
        session, ranges = self._session, self.ranges_to_infer_from(batch=True)
        for name in self._tables():
            rows = self._stored(name)
            session.rows(rows.probe())
            cuts = cut_ranges(session, rows, self._options.snapshot_rows_per_range)
            ranges += self._ranges_of(name, cuts)
        return ranges

    def begin(self) -> SnapshotProgress:
        """Choose the TSO of a stream's snapshot, and check that all tables can be read.

        It is the last one of a past millisecond, because changes may have only milliseconds.

        Raises:
            OptionError: TiDB lacks a table, or there are several and the output has the columns of one.
        """
        session = self._session
        self._tso = of_ms(physical_ms(session.now()) + 1) - 1
        while session.now() <= self._tso:
            time.sleep(_TICK_S)
        tables = {}
        for each in self.ranges_to_infer_from(batch=False):
            name = parse_table(each.topic)
            session.rows(self._stored(name).probe())
            tables[name] = TableProgress(about=rows_about(session, name))
        return SnapshotProgress(self._tso, self._options.snapshot_rows_per_range, tables)

    def advance(self, progress: SnapshotProgress, most: int) -> tuple[SnapshotProgress, list[OffsetRange]]:
        """Plan up to `most` more ranges; return the progress after them, and the ranges.

        Raises:
            DataLossError: TiDB's garbage collection has passed the moment.
        """
        self._warn_of_collection()
        size, tables, ranges = self._options.snapshot_rows_per_range, dict(progress.tables), list[OffsetRange]()
        for name, begun in progress.tables.items():
            if begun.done or most <= 0:
                continue
            rows = self._stored(name)
            cuts = list(islice(cut_ranges(self._session, rows, size, bound_of(rows, begun.after)), most))
            is_done = len(cuts) < most or cuts[-1].after is None
            most -= len(cuts)
            ranges += [definition_range(str(name), progress.tso), *self._ranges_of(name, cuts, begun.ranges)]
            tables[name] = TableProgress(
                None if is_done else cuts[-1].after,
                begun.ranges + len(cuts),
                begun.rows + sum(cut.rows for cut in cuts),
                is_done,
                begun.about,
            )
        return SnapshotProgress(progress.tso, size, tables), ranges

    def between(self, before: SnapshotProgress, after: SnapshotProgress) -> list[OffsetRange]:
        """The ranges that `advance` returned, even in another process or with another size of ranges."""
        ranges = []
        for name, ended in after.tables.items():
            begun = before.tables.get(name, TableProgress())
            if ended != begun:
                rows = self._stored(name)
                low, end = bound_of(rows, begun.after), bound_of(rows, ended.after)
                cuts = cut_ranges(self._session, rows, after.size, low, end)
                ranges += [definition_range(str(name), after.tso), *self._ranges_of(name, cuts, begun.ranges)]
        return ranges

    def _ranges_of(self, name: TableName, cuts: Iterable[Cut], first: int = 0) -> list[RowRange]:
        return [RowRange.of(name, number, cut.rows, self._moment(), cut.sql) for number, cut in enumerate(cuts, first)]

    def _stored(self, name: TableName) -> StoredRows:
        table = described(self._session, name, self._moment())
        return StoredRows(table.table, table.columns, table.clustered)

    def _warn_of_collection(self) -> None:
        """Warn if TiDB will soon forget the TSO; going there from the present makes TiDB check it."""
        self._session.as_of(None)
        life_s, now = self._session.collected_after_s(), self._session.now()
        if life_s is not None and physical_ms(now) - physical_ms(self._moment()) > life_s * 1000 / 2:
            warn(
                f"The snapshot has taken more than half of TiDB's tidb_gc_life_time ({duration(life_s)}), and fails "
                "when that has passed: SET GLOBAL tidb_gc_life_time = '24h'"
            )

    def ranges_to_infer_from(self, *, batch: bool) -> list[OffsetRange]:  # noqa: ARG002 (a stream is refused before)
        """The ranges of the tables' columns.

        Raises:
            OptionError: a table does not exist, or there are several and the output has the columns of one.
        """
        names = self._tables()
        if len(names) > 1 and self._options.is_typed:
            raise OptionError(
                f"The read selects {len(names)} tables, but outputFormat=changelog and envelope return only one: "
                f"{listed(names)}. Choose one, e.g. .option('tables', '{names[0]}'), or set outputFormat=event, which "
                "has the rows of all as JSON"
            )
        return [definition_range(str(name), self._moment()) for name in names]

    def sampled(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        return [each for each in ranges if each.partition == DEFINITION]

    def with_ddl(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        return self.sampled(ranges)

    def defining(self, around: OffsetRange, version: int) -> list[OffsetRange]:
        return [definition_range(around.topic, version)]

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:  # noqa: ARG002 (none)
        return {}

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:  # noqa: ARG002 (none)
        return {}

    def resolved_end(self) -> int:
        return self._moment() + 1

    def pieces(self, ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
        """Each range of rows alone, and for `outputFormat=record` those of columns: others have a read context."""
        of_rows = self._options.output_format != "record"
        return [[each] for each in ranges if each.size and not (of_rows and each.partition == DEFINITION)]

    def fetcher(
        self,
        settings: FetchSettings,
        *,
        protocol: str | None = None,  # noqa: ARG002 (there is one)
        max_rows: int | None = None,  # noqa: ARG002 (no rows are sampled)
        driver: bool = True,  # noqa: ARG002 (both connect alike)
    ) -> Fetcher:
        return SnapshotFetcher(self._options, settings)

    def stream(self, limits: StreamLimits, members: OffsetMembers | None = None) -> StreamPlanner:
        raise NotImplementedError

    def _moment(self) -> int:
        if self._tso is None:
            self._tso = self._session.now()
        return self._tso

    def _tables(self) -> list[TableName]:
        moment = self._moment()
        return tables_at(self._session, TableFilter(self._options.tables or ()), moment)


class Cut(NamedTuple):
    """A range of a table."""

    sql: str
    rows: int
    after: Texts | None  # its end as TiDB's text; None for the last range


def cut_ranges(
    session: Session, rows: StoredRows, size: int, low: Bound | None = None, end: Bound | None = None
) -> Iterator[Cut]:
    """Yield the ranges of a table, or of a part of it, in the order of its key.

    Each has `size` rows, the last one maybe fewer; more if the key of the row after it has no literal, or repeats the
    key before it.
    """
    more = True
    while more:
        count, high, after = 0, None, None
        while more and high is None:
            count += size
            after = rows.after(session.rows(rows.next_bound(low, end, count)))
            more = after is not None
            high = end if after is None else rows.bound(after)
        if not more:
            count = int(session.rows(rows.count(low, end))[0][0] or 0)
        if count:
            yield Cut(rows.select(low, high), count, None if after is None else tuple(text or "" for text in after))
        low = high


def bound_of(rows: StoredRows, texts: Texts | None) -> Bound | None:
    """Parse a checkpoint's bound.

    Raises:
        CheckpointError: it has no literal, unlike those that are written.
    """
    bound = None if texts is None else rows.bound(texts)
    if texts is not None and bound is None:
        raise CheckpointError(f"The checkpoint's offset has an invalid bound of rows: {texts}")
    return bound


class SnapshotFetcher(Fetcher):
    """The `Fetcher` for rows of TiDB; it keeps one session."""

    library = "PyMySQL"

    def __init__(self, options: Options, settings: FetchSettings) -> None:
        self._settings = settings
        self._session = Session(options)

    def close(self) -> None:
        self._session.close()

    def fetch(self, offset_range: OffsetRange) -> Iterator[Chunk]:
        if isinstance(offset_range, RowRange):
            yield from self._rows(offset_range)
        else:
            topic, tso = offset_range.topic, offset_range.start
            definition = described(self._session, parse_table(topic), tso)
            yield Chunk.of_rows(topic, DEFINITION, tso, [definition.message()])

    def _rows(self, offset_range: RowRange) -> Iterator[Chunk]:
        table = parse_table(offset_range.topic)
        key = key_of(table, offset_range.tso)
        settings, position = self._settings, offset_range.start
        size, most = min(_BLOCK, settings.max_bytes), settings.max_records
        self._session.as_of(offset_range.tso, table)
        blocks = self._session.blocks(offset_range.sql, size, most, skip=position, uses_native=settings.native)
        for rows in blocks:
            for first in range(0, len(rows), most):
                part = rows if len(rows) <= most else rows.part(first, min(first + most, len(rows)))
                yield Chunk.of_rows(
                    offset_range.topic,
                    offset_range.partition,
                    position,
                    part,
                    key,
                    include_headers=settings.include_headers,
                )
                position += len(part)
        if position != offset_range.end:
            found, at = position - offset_range.start, f"now, as of the same TSO {offset_range.tso}: please report this"
            planned = f"{offset_range.size} rows when the read was planned"
            raise TiCDCSourceError(f"{offset_range} of TiDB {self._session.server} had {planned}, and {found} {at}")
