"""The files of a storage sink as a `RecordSource`.

The offset of a data directory is the number of the last file read. The record of the file `metadata` is a watermark,
with the checkpoint-ts as its offset, so the next offset is checkpoint-ts + 1. A schema file is one record, at offset 0.
All else is as for topics: offset ranges, a checkpoint's JSON, input partitions.

A row's topic is the path of its file, its partition the file's number, and its offset the number of the row in the
file, from 0.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from ticdc_source.errors import OptionError, SchemaError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TableFilter, TopicPartition
from ticdc_source.schema.tso import physical_ms
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.record_source import Fetcher, OffsetMembers, RecordSource, WireFormats, report_loss
from ticdc_source.sources.storage.changefeed import CHECKPOINT, Changefeed
from ticdc_source.sources.storage.file_format import FileFormat, FileSettings
from ticdc_source.sources.storage.file_planner import FilePlanner, packed_files, ranges_of, sampled, tables_of
from ticdc_source.sources.storage.files import BLOCK, Folder
from ticdc_source.sources.storage.paths import (
    WIDTH,
    DataFile,
    data_file_name,
    directory_of,
    extension_of,
    index_of,
    is_schema_file,
    parse_path,
)
from ticdc_source.sources.stream_offsets import Offsets, StreamLimits

_log = logging.getLogger(__name__)
_SMALLEST_BLOCK = 1 << 20  # a message longer than a block is scanned again with each block
_FILE_LOSS = (
    "Some data may have been lost because files of the storage sink were removed before they were read. If you don't "
    "want your query to fail on such cases, set the source option failOnDataLoss to false. Reason: "
)


class FileSource(RecordSource):
    """The folder that the option `path` names."""

    is_one_log = True
    loss = _FILE_LOSS

    def __init__(self, options: Options, formats: WireFormats) -> None:
        super().__init__(options, formats)
        assert options.path is not None  # noqa: S101 (for mypy: `source_of` has asked)
        self._location = options.path
        self._changefeed = Changefeed(options.path)

    def described(self, ranges: Iterable[OffsetRange]) -> str:  # noqa: ARG002 (all are there)
        return f"'path' {self._changefeed}"

    def protocol(self, offsets_read: Iterable[TopicPartition] = ()) -> str | None:
        """The protocol, by the extensions of existing data files, or of those that a stream has read.

        Raises:
            OptionError: the option `protocol` contradicts the file names, the files have several protocols, or an
                extension is unknown.
        """
        formats = {each.extension: name for name, each in self._formats.in_files.items()}
        given = self._options.protocol
        if given not in {"auto", *formats.values()}:
            raise OptionError(
                f"protocol={given} has no files: a storage sink writes {', '.join(sorted(formats.values()))}"
            )
        read = (place.topic for place in offsets_read if directory_of(place.topic) is not None)
        extensions = sorted({extension_of(pattern) for pattern in {*self._changefeed.last_look().sizes, *read}})
        unknown = [extension for extension in extensions if extension not in formats]
        if unknown:
            msg = f"'path' has data files with the extension {unknown[0]}, but a storage sink writes "
            raise OptionError(msg + ", ".join(formats))
        names = [formats[extension] for extension in extensions]
        if not names:
            return None
        if len(names) > 1:
            raise OptionError(f"'path' has files of {' and '.join(names)}: use the folder of one changefeed")
        if given not in {"auto", names[0]}:
            raise OptionError(f"'path' has files of {names[0]}, but protocol is {given}: leave 'protocol' out")
        return names[0]

    def batch_ranges(self) -> list[OffsetRange]:
        look = self._changefeed.look_of_batch()
        self._changefeed.warn_of_gaps(look)
        return ranges_of(look, self._tables)

    def ranges_to_infer_from(self, *, batch: bool) -> list[OffsetRange]:  # noqa: ARG002 (a batch reads all files)
        changefeed = self._changefeed
        look = changefeed.look_of_batch(
            ". A stream with .schema(…), or with outputFormat=event or record, waits for files"
        )
        self.protocol()
        ranges = ranges_of(look, self._tables)
        if not any(each.size and directory_of(each.topic) is not None for each in ranges):
            tables = tables_of(look)
            if tables and not any(map(self._tables.matches, tables)):
                raise OptionError(self._tables.without_row(tables, f"the files of {self.described(())}"))
            reason = f"{self.described(())} has no file with rows, or none left"
            if look.unindexed is not None:
                reason = changefeed.why_unindexed(look)
            raise SchemaError(
                f"{reason}. So the schema cannot be inferred: load again later, or set it with .schema(…) and the "
                "options 'protocol' and 'tables'"
            )
        return sampled(ranges)

    def sampled(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        return sampled(ranges)

    def with_ddl(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        return [each for each in ranges if is_schema_file(each.topic)]

    def defining(self, around: OffsetRange, version: int) -> list[OffsetRange]:
        file = parse_path(around.topic)
        place = directory_of(file.pattern if isinstance(file, DataFile) else around.topic)
        paths = [] if place is None else self._changefeed.schema_files(place, version)
        return [OffsetRange(path, 0, 0, 1) for path in paths]

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """0 for each schema file, which reads scan for earlier DDL."""
        return {place: 0 for place in topic_partitions if is_schema_file(place.topic)}

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        ends = self._changefeed.last_look().ends
        return {place: ends[place] for place in topic_partitions if place in ends}

    def resolved_end(self) -> int:
        checkpoint = self._changefeed.last_look().checkpoint
        if checkpoint is None:
            raise SchemaError(
                f"endingCommitTs=resolved needs the checkpoint-ts, and {self.described(())} has no file "
                f"{CHECKPOINT.topic} yet: read again when TiCDC has written it, or leave the option out"
            )
        return checkpoint + 1

    def pieces(self, ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
        return packed_files(ranges, self._changefeed.last_look().sizes, self._options.min_partitions)

    def fetcher(
        self,
        settings: FetchSettings,
        *,
        protocol: str | None = None,
        max_rows: int | None = None,
        driver: bool = True,  # noqa: ARG002 (both open files alike)
    ) -> Fetcher:
        return FileFetcher(
            self._location,
            FileSettings.of(self._options),
            settings,
            formats=self._formats.in_files,
            protocol=protocol,
            max_rows=max_rows,
        )

    def stream(self, limits: StreamLimits, members: OffsetMembers | None = None) -> FilePlanner:  # noqa: ARG002 (one log)
        options = self._options
        return FilePlanner(
            self._changefeed,
            limits,
            self.report_loss,
            tables=self._tables,
            begins_at_end=options.is_given("startingOffsets") and options.starting_offsets == "latest",
            waits_for_data_file=options.protocol == "auto",
        )

    @property
    def _tables(self) -> TableFilter:
        return TableFilter(self._options.tables or ())


class FileFetcher(Fetcher):
    """The `Fetcher` for files. DDL and watermarks become messages of the protocol, if known."""

    library = "fsspec"

    def __init__(
        self,
        location: str,
        files: FileSettings,
        settings: FetchSettings,
        *,
        formats: Mapping[str, FileFormat],
        protocol: str | None = None,
        max_rows: int | None = None,
    ) -> None:
        self._folder = Folder(location)
        self._files = files
        self._settings = settings
        self._formats = {each.extension: each for each in formats.values()}
        self._own_format = formats.get(protocol or "") or next(iter(formats.values()))
        self._max_rows = max_rows
        self._widths: dict[str, int] = {}  # of the numbers in names, by pattern: only the folder tells it

    def fetch(self, offset_range: OffsetRange) -> Iterator[Chunk]:
        topic = offset_range.topic
        if offset_range.topic_partition == CHECKPOINT:
            ts = offset_range.end - 1
            yield Chunk(topic, 0, [ts], [physical_ms(ts)], [None], [self._own_format.of_checkpoint(ts)])
        elif is_schema_file(topic):
            yield from self._schema(topic)
        else:
            for number in range(offset_range.start + 1, offset_range.end + 1):
                yield from self._rows(topic, number)

    def _schema(self, path: str) -> Iterator[Chunk]:
        data = self._folder.text(path)
        if data is None:
            self._lost(path)
            return
        try:
            message = self._own_format.of_schema(data)
        except ValueError as error:  # the decoder makes a bad record of it
            _log.warning("%s is not a schema file: %s", path, error)
            message = data
        if message:
            yield Chunk.of_rows(path, 0, 0, [message])

    def _opened(self, pattern: str, number: int) -> tuple[str, Iterator[bytes]]:
        """Return the path of a file and its bytes.

        Raises:
            FileNotFoundError: it is gone.
        """
        path = data_file_name(pattern, number, self._widths.get(pattern, WIDTH))
        try:
            return path, self._blocks(path)
        except FileNotFoundError:
            for file in self._folder.files(index_of(pattern).directory):
                if parse_path(file.path) == DataFile(pattern, number):
                    self._widths[pattern] = len(file.path) - (len(pattern) - len("%d"))
                    return file.path, self._blocks(file.path)
            raise

    def _blocks(self, path: str) -> Iterator[bytes]:
        blocks = self._folder.blocks(path, max(_SMALLEST_BLOCK, min(BLOCK, self._settings.max_bytes)))
        return chain([next(blocks, b"")], blocks)  # some storages notice only now that it is gone

    def _rows(self, pattern: str, number: int) -> Iterator[Chunk]:
        place = directory_of(pattern)
        assert place is not None  # noqa: S101 (for mypy: the driver has asked)
        first, most, headers = 0, self._settings.max_records, self._settings.include_headers
        try:
            path, blocks = self._opened(pattern, number)
            cutter = self._formats[extension_of(path)].cutter(place.version, self._files)
            for block in chain(blocks, [None]):
                messages = cutter.rest() if block is None else cutter.cut(block)
                if self._max_rows is not None:
                    messages = messages[: self._max_rows - first]
                for at in range(0, len(messages), most):
                    rows = list[bytes | None](messages[at : at + most])
                    yield Chunk.of_rows(path, number, first + at, rows, cutter.key, include_headers=headers)
                first += len(messages)
                if first == self._max_rows:
                    return
        except FileNotFoundError:
            self._lost(data_file_name(pattern, number, self._widths.get(pattern, WIDTH)))

    def _lost(self, path: str) -> None:
        reason = (
            f"'path' {self._folder}: the file {path} is gone. Has file-expiration-days of the sink, or a lifecycle "
            "rule of the bucket, removed it before it was read?"
        )
        report_loss(reason, fail=self._settings.fail_on_data_loss, begin=_FILE_LOSS)
