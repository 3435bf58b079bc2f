"""The spine: chunks → split → decode → assemble. Data flows one way; nothing here infers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DataLossError, DecodeError
from ticdc_source.events import Chunk, Corrupt, Split
from ticdc_source.pipeline.assemble import Rows, assemble
from ticdc_source.pipeline.coalesce import coalesce_chunks
from ticdc_source.pipeline.formats import OUTPUT_FORMATS
from ticdc_source.pipeline.wanted import Reading
from ticdc_source.schema.destructive_ddl import removes_rows_of

__all__ = ["Reading", "read"]

_OTHER_MODES = "mode=PERMISSIVE keeps what cannot be read, in rows of its own; mode=DROPMALFORMED drops it"
_log = logging.getLogger(__name__)


def read(chunks: Iterable[Chunk], reading: Reading) -> Iterator[pa.RecordBatch]:
    """Read rows out of chunks: a record batch for each, or for several of which few rows are wanted.

    Raises:
        DecodeError: something cannot be read, and the mode is FAILFAST.
        SchemaError: the messages do not fit the read schema, or hold a second table.
        DataLossError: a DDL has removed rows without delete events, and `onDestructiveDDL` is fail.
    """
    counters = reading.counters
    make = OUTPUT_FORMATS[reading.layout.output]
    for chunk, split in coalesce_chunks(_splits(chunks, reading)):
        rows, failed = make(chunk, split, reading)
        if reading.commits:
            rows = _within(rows, reading)
        counters.count_rows(rows.change_types, rows.commit_ts)
        if split.ddl and reading.takes_ddl:
            _look_for_destruction(chunk, split, reading)
        corrupt = _settled([*split.corrupt, *failed], reading)
        if len(rows.positions) or corrupt:
            batch = assemble(rows, corrupt, reading.layout)
            counters.rows += batch.num_rows
            for start in range(0, batch.num_rows, reading.max_rows):
                yield batch.slice(start, reading.max_rows)
    if counters.rescued:
        _log.warning("%d rows have values in the rescued column", counters.rescued)
    if counters.invalid_utf8:
        _log.warning("%d texts are not UTF-8: U+FFFD stands for what is none", counters.invalid_utf8)
    if counters.dropped:
        _log.warning("mode=DROPMALFORMED has dropped %d records or events that cannot be read", counters.dropped)


def _splits(chunks: Iterable[Chunk], reading: Reading) -> Iterator[tuple[Chunk, Split]]:
    wants = lru_cache(maxsize=4096)(reading.tables.matches)  # asked for each table of each chunk
    for chunk in chunks:
        split = reading.decoder.split(chunk, wants, reading.learned)
        reading.counters.count_chunk(chunk, split)
        yield chunk, split


def _within(rows: Rows, reading: Reading) -> Rows:
    """Leave out what `startingCommitTs` and `endingCommitTs` do not want."""
    if rows.commit_ts.null_count:
        first = pc.index(rows.commit_ts.is_null(), value=True).as_py()
        address = rows.chunk.address(rows.positions[first].as_py())
        msg = "a row without a commit-ts, nor a time to make one of: startingCommitTs and endingCommitTs cannot be used"
        raise DecodeError(msg, address)
    keep = reading.commits.contains_each(rows.commit_ts)
    return rows if keep.true_count == len(keep) else rows.filtered(keep)


def _look_for_destruction(chunk: Chunk, split: Split, reading: Reading) -> None:
    """Tell of DDL that removes rows of the table that is read (of any, with `outputFormat=event`)."""
    for event in split.ddl:
        if event.commit_ts is not None and not reading.commits.contains(event.commit_ts):
            continue
        table = event.table if reading.layout.output == "event" else reading.table
        if table is None or not removes_rows_of(event, table):
            continue
        reading.counters.destructive_ddl += 1
        reason = f"{event.query or event.type} has removed rows of {table} upstream, and no delete events tell which"
        where = chunk.address(event.position, event.table)
        if reading.on_destructive_ddl == "fail":
            msg = (
                f"{reason} ({where}). Do the same to what this feed is applied to, and go on from the next offset, or "
                "set onDestructiveDDL to warn or ignore"
            )
            raise DataLossError(msg)
        if reading.on_destructive_ddl == "warn" and reading.layout.output != "event":
            _log.warning("onDestructiveDDL: %s (%s)", reason, where)


def _settled(corrupt: list[Corrupt], reading: Reading) -> list[Corrupt]:
    """Do with bad records what `mode` says; return those that become rows."""
    corrupt.sort(key=lambda item: (item.position, item.index))
    reading.counters.decode_errors += len(corrupt)
    if not corrupt or reading.mode == "PERMISSIVE":
        return corrupt
    first: DecodeError = corrupt[0].error
    if reading.mode == "FAILFAST":
        msg = f"{first.reason}. {_OTHER_MODES}"
        raise type(first)(msg, first.address)
    if not reading.counters.dropped:
        _log.warning("mode=DROPMALFORMED: %s", first)
    reading.counters.dropped += len(corrupt)
    return []
