"""The read loop: chunks → split → decode → assemble. Data flows one way; nothing here infers."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, lru_cache
from textwrap import shorten

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DataLossError, DecodeError
from ticdc_source.options.ranges import CommitRange
from ticdc_source.pipeline.assemble import Rows, assemble, portions, with_corrupt
from ticdc_source.pipeline.coalesce import coalesce_batches, coalesce_chunks
from ticdc_source.pipeline.output_formats import OUTPUT_FORMATS, record_rows
from ticdc_source.pipeline.spec import ReadSpec, ReadState
from ticdc_source.pipeline.survey import Survey
from ticdc_source.protocols import with_likely_protocol
from ticdc_source.protocols.decoding import definitions_in, keep_rows, small_portions, splits_of, within
from ticdc_source.protocols.events import Corrupt, Split
from ticdc_source.schema.change_order import BOOTSTRAP
from ticdc_source.schema.ddl_event import DDLEvent, is_too_long, removes_rows_of
from ticdc_source.schema.table_name import TableName, Wants
from ticdc_source.sources.chunk import Chunk

_OTHER_MODES = "mode=PERMISSIVE keeps what cannot be read, in rows of its own; mode=DROPMALFORMED drops it"
_SHOWN = 500  # characters of a statement in a log line or an error
_log = logging.getLogger(__name__)


@cache
def leave_out_modules() -> None:
    """Exclude all existing objects from garbage collections, at the first call in a worker.

    PySpark's daemon runs a full collection after each task, which takes 50 ms for the objects of all imported modules.
    Objects are still freed with their last reference.
    """
    gc.freeze()


def read(chunks: Iterable[Chunk], spec: ReadSpec, state: ReadState | None = None) -> Iterator[pa.RecordBatch]:
    """Read the rows of chunks: the read loop of workers, `decode` and `tail`.

    The chunks may have any topic partitions, each in offset order.

    Raises:
        DecodeError: a record or event cannot be read, and the mode is FAILFAST.
        SchemaError: the messages do not fit the read schema, or have a second table.
        DataLossError: a DDL statement removed rows without delete events, and `onDestructiveDDL` is fail.
    """
    state = ReadState.of(spec) if state is None else state
    portions = small_portions(chunks, [spec.decoder]) if spec.claim_checks else chunks
    batches = _batches(portions, spec, state)
    return batches if spec.packs else coalesce_batches(batches, spec.max_rows, spec.max_bytes)


def _batches(chunks: Iterable[Chunk], spec: ReadSpec, state: ReadState) -> Iterator[pa.RecordBatch]:
    if spec.layout.output == "record":
        yield from _records(chunks, spec, state)
        return
    counters = state.counters
    for chunk, split in coalesce_chunks(_splits(chunks, spec, state)):
        yield from _record_batches(chunk, split, spec, state)
        del chunk, split  # they may be large, and the next ones too
    for count, text in (
        (counters.rescued, "%d rows have values in the rescued column"),
        (counters.invalid_utf8, "%d texts are not UTF-8; U+FFFD replaces each invalid byte"),
        (counters.wrong_checksums, "verifyChecksum=warn: %d rows do not match their checksums"),
        (counters.dropped, "mode=DROPMALFORMED dropped %d records or events that cannot be read"),
    ):
        if count:
            _log.warning(text, count)


def _records(chunks: Iterable[Chunk], spec: ReadSpec, state: ReadState) -> Iterator[pa.RecordBatch]:
    wants = _wants(spec)
    survey = Survey(spec.decoder, spec.tables, native=spec.plan.native_path) if spec.packs else None
    for chunk in chunks:
        splits = _splits_of(chunk, spec, state, wants)
        rows = record_rows(chunk, (within(split, spec.commits, spec.decoder) for split in splits), spec, survey)
        state.counters.count_commits(rows.commit_ts)
        batch = assemble(rows, spec.layout)
        state.counters.rows += batch.num_rows
        for start in range(0, batch.num_rows, spec.max_rows):
            yield batch.slice(start, spec.max_rows)
        del chunk, rows, batch


def _record_batches(chunk: Chunk, split: Split, spec: ReadSpec, state: ReadState) -> Iterator[pa.RecordBatch]:
    rows, failed = OUTPUT_FORMATS[spec.layout.output](chunk, split, spec, state)
    if spec.commits:
        rows = _within_commit_range(rows, spec)
    state.counters.count_rows(rows.change_types, rows.commit_ts)
    for event in split.ddl:
        _report_destruction(chunk, event, spec, state)
    bad_events = [with_likely_protocol(each, chunk, spec.decoder) for each in (*split.corrupt, *failed)]
    rows = with_corrupt(rows, _apply_mode(bad_events, spec, state))
    if len(rows):
        for portion in portions(rows, spec.layout, spec.max_bytes):
            batch = assemble(portion, spec.layout)
            state.counters.rows += batch.num_rows
            for start in range(0, batch.num_rows, spec.max_rows):
                yield batch.slice(start, spec.max_rows)


def _splits(chunks: Iterable[Chunk], spec: ReadSpec, state: ReadState) -> Iterator[tuple[Chunk, Split]]:
    wants = _wants(spec)
    for chunk in chunks:
        for split in _splits_of(chunk, spec, state, wants):
            if spec.commits.end is not None:
                keep_rows(split, CommitRange(end=spec.commits.end), spec.decoder.commit_versions)
            yield chunk, split
            del split


def _splits_of(chunk: Chunk, spec: ReadSpec, state: ReadState, wants: Wants) -> Iterator[Split]:
    state.counters.count_chunk(chunk)
    for split in splits_of(spec.decoder, chunk, wants, state.learned):
        if split.lost_deletes and not state.counters.lost_deletes:
            _log.warning(
                "Rows were deleted in a table without a primary key, and the messages do not say which (from %s on): "
                "set avro-include-before-value=true for the changefeed",
                chunk.address(0),
            )
        state.counters.count_split(split)
        state.learned.definitions |= definitions_in(split, spec.decoder)
        yield split
        del split


def _wants(spec: ReadSpec) -> Wants:
    return lru_cache(maxsize=4096)(spec.tables.matches)  # called for each table of each chunk


def _within_commit_range(rows: Rows, spec: ReadSpec) -> Rows:
    defines = pc.equal(rows.change_types, BOOTSTRAP)  # it has none, and changes nothing
    lacks = pc.and_(rows.commit_ts.is_null(), pc.invert(defines))
    if lacks.true_count:
        first = pc.index(lacks, value=True).as_py()
        address = rows.chunk.address(rows.positions[first].as_py())
        raise DecodeError(
            "a row has neither a commit-ts nor a time to replace it: leave startingCommitTs and endingCommitTs out",
            address,
        )
    return rows.filtered(pc.or_kleene(spec.commits.contains_each(rows.commit_ts), defines))


def _report_destruction(chunk: Chunk, event: DDLEvent, spec: ReadSpec, state: ReadState) -> None:
    """Report a DDL event that removes rows of the table of the read (with `outputFormat=event`, of any table).

    With `event`, the copy that is returned is reported. Otherwise it is unknown which copies the read has, and each
    task reports the first that it finds.
    """
    if event.commit_ts is not None and not spec.commits.contains(event.commit_ts):
        return
    if spec.layout.output == "event" and not spec.keeps_ddl(chunk, event):
        return
    table = event.table if spec.layout.output == "event" else state.table
    where = chunk.address(event.position, event.table)
    if event.commit_ts is not None and event.identity in state.destructive:
        return
    if table is not None and removes_rows_of(event, table):
        state.counters.destructive_ddl += 1
        statement = shorten(event.query or event.type, _SHOWN)
        reason = f"{statement} removed rows of {table} upstream without delete events"
    elif is_too_long(event) and event.type_code is None and _may_concern(event, table):
        reason = f"A DDL text of {len(event.query)} characters is too long to parse, and may have removed rows"
    else:
        return
    state.destructive.add(event.identity)
    if spec.on_destructive_ddl == "fail":
        raise DataLossError(
            f"{reason} ({where}, commit-ts {event.commit_ts}). Set onDestructiveDDL=warn to read on, and remove the "
            "same rows from the target of this feed (those with a smaller _commit_version)"
        )
    if spec.on_destructive_ddl == "warn" and spec.layout.output != "event":
        _log.warning("onDestructiveDDL: %s (%s)", reason, where)


def _may_concern(event: DDLEvent, table: TableName | None) -> bool:
    return table is None or not event.table.table or event.table.is_same(table)


def _apply_mode(corrupt: list[Corrupt], spec: ReadSpec, state: ReadState) -> list[Corrupt]:
    corrupt.sort(key=lambda item: (item.position, item.index))
    state.counters.decode_errors += len(corrupt)
    if not corrupt or spec.mode == "PERMISSIVE":
        first_of = {item.position: item.index for item in reversed(corrupt)}
        return [
            item if item.index == first_of[item.position] else replace(item, bytes_at_index=first_of[item.position])
            for item in corrupt
        ]
    first: DecodeError = corrupt[0].error
    if spec.mode == "FAILFAST":
        raise type(first)(f"{first.reason}. {_OTHER_MODES}", first.address)
    if not state.counters.dropped:
        _log.warning("mode=DROPMALFORMED: %s", first)
    state.counters.dropped += len(corrupt)
    return []
