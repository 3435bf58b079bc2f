"""The contract of a wire format's decoder, and the decoding that all share.

Events are parsed one by one, or read by templates, and become columns. A sample of events becomes a table's
description, with details from values where declarations lack them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import ClassVar, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DecodeError
from ticdc_source.kernels.wire import Cells, Wire
from ticdc_source.options.logins import RegistrySettings
from ticdc_source.options.options import Options
from ticdc_source.options.ranges import CommitRange
from ticdc_source.protocols.base import ORIGIN, Decoded, Learned, LearnedTable, ProtocolFacts
from ticdc_source.protocols.cast import cast_images, loses_digits
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.events import Corrupt, Split, TableEvents
from ticdc_source.protocols.images import Images, Parse, Parsed
from ticdc_source.protocols.large_messages import LargeMessages
from ticdc_source.protocols.messages import MALFORMED, parse_exact, parse_failure, parse_object
from ticdc_source.protocols.plan import Plan
from ticdc_source.protocols.templates import General, KeepTemplate, Templates
from ticdc_source.schema.ddl import completed, version_at
from ticdc_source.schema.ddl_event import DDLEvent, Moment
from ticdc_source.schema.model import Column, Definitions, ReadField, TableSchema, TypeVersions
from ticdc_source.schema.table_name import TableName, Wants, every_table
from ticdc_source.schema.types import BIGINT_UNSIGNED, ColumnType, type_of
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.storage.file_format import FileSettings

_2_63 = 1 << 63
_10_20 = 10**BIGINT_UNSIGNED.precision
_MOST_DIGITS = 20  # of a number with 64 bits

# Reads one event, given its index and payload; raises errors of `MALFORMED`.
ReadEvent: TypeAlias = Callable[[int, bytes], None]


class ColumnRuns:
    """The columns of events during parsing, made once for consecutive events with the same columns.

    Attributes:
        version: how many of the plan's boundaries are before the last event.
    """

    def __init__(self, events: TableEvents, parsed: Parsed, plan: Plan) -> None:
        self.version = 0
        self._events, self._parsed, self._boundaries = events, parsed, plan.boundaries()
        self._columns: tuple[Column, ...] = ()
        self._signature: object = None

    def columns(self, event: int, signature: object, make: Callable[[], tuple[Column, ...]]) -> tuple[Column, ...]:
        """Return an event's columns before its images are added; `make` is called if they may differ.

        Args:
            event: its index; its commit-ts must be known.
            signature: equal only for events with the same columns by `make`.
        """
        version = 0
        if self._boundaries:
            moment = self._events.moment(event, self._parsed.commit_ts[event])
            version = bisect_left(self._boundaries, moment)
        if signature != self._signature or version != self.version:
            columns = make()
            if version:
                columns = tuple(replace(column, since=self._boundaries[version - 1]) for column in columns)
            self.version, self._columns, self._signature = version, columns, signature
            self._parsed.images.continue_run(columns)
        return self._columns


@dataclass(frozen=True, slots=True)
class DecoderSettings:
    """The settings of a decoder, which `protocols.decoder_of` makes from the options. They can be pickled.

    Attributes:
        options: the read's options, for settings without a form of their own.
    """

    compression: Compression = field(default_factory=Compression)
    large: LargeMessages = field(default_factory=LargeMessages)
    registry: RegistrySettings = field(default_factory=RegistrySettings)
    files: FileSettings = field(default_factory=FileSettings)
    options: Options = field(default_factory=partial(Options.of, {}, from_kafka=False), compare=False)


@dataclass(frozen=True)
class Decoder(ABC):
    """A wire format: a module or a folder of this package, and a row of `protocols.DECODERS`.

    A subclass splits messages (`split`, or `_add` for each record) and parses events (`_reader`). `split`, `describe`
    and `decode` are stages of docs/design/0001. A decoder has no state: what a read learns about its messages is in one
    `Learned` object, which the reader creates and passes to each call.
    """

    facts: ClassVar[ProtocolFacts]
    settings: DecoderSettings = field(default_factory=DecoderSettings)

    @abstractmethod
    def _reader(self, events: TableEvents, parsed: Parsed, learned: LearnedTable) -> ReadEvent:
        """Return the function that parses one event of a table."""

    def _wire_of(self, column: Column, read_field: ReadField) -> tuple[Wire | None, ColumnType]:
        """Choose how to read a column (`plan.WireOf`): by its type, or the field's if it is unknown."""
        type_ = column.type or read_field.type_since(column.since) or type_of(read_field.arrow)
        return self.facts.kernels.get(type_.name), type_

    def claim_checks(self, key: bytes | None, value: bytes | None) -> int:  # noqa: ARG002 (no large messages)
        """Count the claim-check files that a record names, without parsing it."""
        return 0

    def split(self, chunk: Chunk, wants: Wants = every_table, learned: Learned | None = None) -> Split:  # noqa: ARG002
        """Cut a chunk into events; what cannot be cut is in `Split.corrupt`, and raises nothing.

        Row events of unwanted tables are only counted. If decompressed messages are too large together, `Split.rest`
        has
        the later events: call `splits_of` for all.
        """
        split = Split()
        for position in range(len(chunk)):
            try:
                self._add(split, chunk, position)
            except MALFORMED as error:
                failure = parse_failure(error, self.facts.message).at(chunk.address(position))
                split.corrupt.append(Corrupt(position, 0, failure))
        split.keep(wants)
        return split

    def _add(self, split: Split, chunk: Chunk, position: int) -> None:
        """Add a record's event to a split; raises errors of `MALFORMED`."""
        raise NotImplementedError

    def describe(
        self,
        events: TableEvents,
        ddl: Sequence[DDLEvent] = (),
        declared: Mapping[str, TypeVersions] | None = None,
        learned: Learned | None = None,
    ) -> list[TableSchema]:
        """Return the versions of a table that events show, oldest first; unreadable events are ignored.

        A version is the definition that rows name, or what messages tell, completed by values and DDL.

        Args:
            ddl: DDL events of any table.
            declared: the column types in the SQL texts of those DDL events, by lower-case name.
            learned: if given, events that add nothing may be ignored: the merged versions are the same.
        """
        if self.facts.definitions is not None:  # they have all types
            learned = Learned() if learned is None else learned
            learned.definitions.update(self.facts.definitions(ddl))
            images = self._parse(events, LearnedTable(Plan(()), learned), parse=parse_exact).images
            return self._shown(describe_images(events.table, images), images)
        if learned is not None:
            events = self._telling(events, learned)
        parsed = self._sampled(events, declared)
        moments = list(map(events.moment, count(), parsed.commit_ts))
        return describe_images(events.table, parsed.images, moments, declared)

    def decode(self, events: TableEvents, plan: Plan, learned: Learned | None = None) -> Decoded:
        """Turn a table's events into columns, in native code where possible.

        Raises:
            SchemaError: the messages do not fit the plan's fields.
        """
        learned_table = (Learned() if learned is None else learned).of_table(events.table, plan)

        def general(some: TableEvents, learn: KeepTemplate | None = None) -> Decoded:
            parsed = self._parse(some, learned_table, learn)
            if loses_digits(parsed, some, learned_table.plan):
                parsed = self._parse(some, learned_table, parse=parse_exact)
            return cast_images(parsed, some, learned_table, self._wire_of)

        return self._by_templates(events, learned_table, general) if learned_table.native else general(events)

    def origins(self, events: TableEvents) -> pa.StructArray:
        """Return each event's origin (`ORIGIN`), for `outputFormat=envelope`.

        By default it is unknown, and not a snapshot: TiCDC sends none.
        """
        return pa.repeat(pa.scalar({"snapshot": "false"}, ORIGIN), len(events))

    @abstractmethod
    def commit_versions(self, events: TableEvents) -> pa.Int64Array:
        """Return each event's commit-ts if it can be found without parsing the message, else NULL."""

    def _by_templates(self, events: TableEvents, learned: LearnedTable, general: General) -> Decoded:
        """Read events by templates, which are learned from those that `general` reads."""
        return learned.kept(Templates).decode(events, learned, self._wire_of, general)

    def _shown(self, schemas: list[TableSchema], images: Images) -> list[TableSchema]:  # noqa: ARG002 (nothing)
        """Complete the definitions of each run of images by its values."""
        return schemas

    def _telling(self, events: TableEvents, learned: Learned) -> TableEvents:  # noqa: ARG002 (values of any kind tell)
        """Return events whose merged descriptions equal that of all."""
        return events

    def _sampled(self, events: TableEvents, declared: Mapping[str, TypeVersions] | None) -> Parsed:
        """Parse events of a sample; runs of images end where DDL changes the table."""
        fields = (ReadField(name, pa.null(), versions=versions) for name, versions in (declared or {}).items())
        return self._parse(events, LearnedTable(Plan(tuple(fields))), parse=parse_exact)

    def _parse(
        self, events: TableEvents, learned: LearnedTable, learn: KeepTemplate | None = None, parse: Parse = parse_object
    ) -> Parsed:
        """Parse events one by one; an unreadable event is a failure without images."""
        parsed = Parsed.of(len(events), parse, learn)
        images, read = parsed.images, self._reader(events, parsed, learned)
        for event, payload in enumerate(events.payloads):
            images_before = len(images.rows)
            try:
                read(event, payload)
            except MALFORMED as error:
                images.truncate(images_before)
                parsed.failures[event] = parse_failure(error, self.facts.row).at(events.address(event))
        return parsed


def splits_of(
    decoder: Decoder, chunk: Chunk, wants: Wants = every_table, learned: Learned | None = None
) -> Iterator[Split]:
    """Yield all events of a chunk, in pieces if they are too large together; see `Decoder.split`."""
    if chunk.failure is not None:
        yield Split(corrupt=[Corrupt(0, 0, DecodeError(chunk.failure, chunk.address(0)))])
        return
    split = decoder.split(chunk, wants, learned)
    rest = split.rest
    yield split
    del split
    yield from rest


def definitions_in(split: Split, decoder: Decoder) -> Definitions:
    """Return the table versions that a split's events define."""
    definitions = decoder.facts.definitions
    return {} if definitions is None else definitions([*split.ddl, *split.bootstraps])


def commit_versions_of(events: TableEvents, decoder: Decoder) -> pa.Int64Array:
    """Return each event's commit-ts, NULL if unreadable, parsing messages only if necessary."""
    versions = decoder.commit_versions(events)
    return decoder.decode(events, Plan(())).commit_ts if versions.null_count else versions


def keep_rows(split: Split, commits: CommitRange, versions_of: Callable[[TableEvents], pa.Int64Array]) -> None:
    """Drop row events outside of a range before decoding: an ALTER may have changed the types of later ones."""
    for table, events in list(split.tables.items()):
        kept = pc.fill_null(commits.contains_each(versions_of(events)), True)  # noqa: FBT003 (Arrow's)
        if kept.false_count:
            split.tables[table] = events.picked(pc.indices_nonzero(kept).to_pylist())
            if not len(split.tables[table]):
                del split.tables[table]


def within(split: Split, commits: CommitRange, decoder: Decoder) -> Split:
    """Drop row and DDL events outside of a range of commit-ts."""
    if commits:
        keep_rows(split, commits, lambda events: commit_versions_of(events, decoder))
        split.ddl = [event for event in split.ddl if event.commit_ts is None or commits.contains(event.commit_ts)]
    return split


def small_portions(chunks: Iterable[Chunk], decoders: Sequence[Decoder]) -> Iterator[Chunk]:
    """Cut chunks so that only one record of each names claim-check files.

    A file exceeds Kafka's limit (by default 10 MiB), but its message has a few hundred bytes: otherwise all files of a
    chunk would be in memory together.
    """
    for chunk in chunks:
        start, files = 0, 0
        for position, (key, value) in enumerate(zip(chunk.keys, chunk.values, strict=True)):
            more = max(decoder.claim_checks(key, value) for decoder in decoders)
            if more and files:
                yield chunk.part(start, position)
                start, files = position, 0
            files += more
        yield chunk.part(start, len(chunk)) if start else chunk


def number_after(values: pa.BinaryArray, pattern: str) -> pa.Int64Array:
    """Return the number in group `n` of a regular expression (RE2) for each value; NULL if it does not match.

    The group must match at most 18 digits, which fit into 64 bits.
    """
    numbers = pc.struct_field(pc.extract_regex(values, pattern), "n")
    return numbers.cast(pa.string()).cast(pa.int64())


def describe_images(
    table: TableName, images: Images, moments: Sequence[Moment] = (), declared: Mapping[str, TypeVersions] | None = None
) -> list[TableSchema]:
    """Return a schema for each run of images, completed by values and DDL."""
    return [
        TableSchema(
            table,
            tuple(
                _declared(_observed(column, cells[column.name]), declared, moments, images.events[span.start])
                for column in span.columns
            ),
        )
        for span in images.spans()
        for cells in [images.cells(span)]
    ]


def _declared(
    column: Column, declared: Mapping[str, TypeVersions] | None, moments: Sequence[Moment], event: int
) -> Column:
    versions = (declared or {}).get(column.name.lower(), ())
    exact = version_at(versions, moments[event]) if versions else None
    if exact is None:
        return column
    column = completed(column, exact)
    # Which label a number stands for changes with the version: the reader needs all versions.
    labelled = all(type_.family in ("enum", "set") for _, type_ in versions)
    return replace(column, versions=versions) if labelled else column


def _observed(column: Column, cells: Cells) -> Column:
    if column.type is None:
        return replace(column, json_type=_json_type(cells))
    if column.type.is_unspecified:
        return replace(column, type=_observed_decimal(column.type, cells))
    if column.type.name == "set" and column.type.labels is None:
        wide = any(map(_is_wide, cells))
        return replace(column, type=replace(column.type, wide=wide)) if wide else column
    return column


def _is_wide(cell: object) -> bool:
    if isinstance(cell, str):
        return cell.isdecimal() and len(cell) <= _MOST_DIGITS and int(cell) >= _2_63
    return isinstance(cell, int) and cell >= _2_63


def _observed_decimal(type_: ColumnType, cells: Sequence[object]) -> ColumnType:
    """Add a sample's digits: MySQL prints every value with the declared scale."""
    texts = [cell.lstrip("-") for cell in cells if isinstance(cell, str)]
    if not texts:
        return type_
    parts = [text.partition(".") for text in texts]
    whole = max(len(before.lstrip("0")) for before, _, _ in parts)
    scale = max(len(after) for _, _, after in parts)
    return replace(type_, whole=whole, scale=scale)


def _json_type(cells: Sequence[object]) -> pa.DataType | None:
    """Return the Arrow type that JSON values suggest; None if all are null.

    If a double would lose digits of numbers, they are text.
    """
    types = set(map(type, cells)) - {type(None)}
    if not types:
        return None
    if types == {bool}:
        return pa.bool_()
    if types == {int}:
        integers = [cell for cell in cells if isinstance(cell, int)]
        if all(-_2_63 <= integer < _2_63 for integer in integers):
            return pa.int64()
        return BIGINT_UNSIGNED if all(abs(integer) < _10_20 for integer in integers) else pa.string()
    if types <= {int, float} and all(_is_double(cell) for cell in cells if isinstance(cell, int)):
        return pa.float64()
    return pa.string()


def _is_double(integer: int) -> bool:
    return abs(integer) < _10_20 and float(integer) == integer
