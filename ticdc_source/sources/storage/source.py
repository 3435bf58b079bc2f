"""The files of a storage sink as a `RecordSource`.

The offset of a data directory is the number of the last file that was read. The one record of the file `metadata` has
the checkpoint-ts as its offset, so the offset after it is checkpoint-ts + 1. Everything else is as for topics: offset
ranges, the JSON of a checkpoint, input partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ticdc_source.errors import OptionError, SchemaError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TableFilter, TopicPartition
from ticdc_source.sources.chunk import FetchSettings
from ticdc_source.sources.record_source import Fetcher, OffsetMembers, RecordSource, WireFormats
from ticdc_source.sources.storage.changefeed import CHECKPOINT, Changefeed
from ticdc_source.sources.storage.fetch import FileFetcher
from ticdc_source.sources.storage.file_format import FileSettings
from ticdc_source.sources.storage.file_planner import FilePlanner, packed_files, ranges_of, sampled, tables_of
from ticdc_source.sources.storage.paths import DataFile, directory_of, extension_of, is_schema_file, parse_path
from ticdc_source.sources.stream_offsets import Offsets, StreamLimits

FILE_LOSS = (
    "Some data may have been lost because files of the storage sink are gone before they were read. If you don't want "
    "your query to fail on such cases, set the source option failOnDataLoss to false. Reason: "
)


class FileSource(RecordSource):
    """The folder that the option `path` names."""

    is_one_log = True
    loss = FILE_LOSS

    def __init__(self, options: Options, formats: WireFormats) -> None:
        super().__init__(options, formats)
        assert options.path is not None  # noqa: S101 (for mypy: `source_of` has asked)
        self._location = options.path
        self._changefeed = Changefeed(options.path)

    def described(self, ranges: Iterable[OffsetRange]) -> str:  # noqa: ARG002 (all are there)
        return f"'path' {self._changefeed}"

    def check_protocol(self, protocol: str) -> None:
        """Do nothing: `protocol` compares it with the files."""

    def protocol(self, offsets_read: Iterable[TopicPartition] = ()) -> str | None:
        """Return the protocol that the names of data files tell, or of those that a stream has read; None if none does.

        Raises:
            OptionError: the option `protocol` contradicts the file names, the files have several protocols, or an
                extension is unknown.
        """
        formats = {each.extension: name for name, each in self._formats.in_files.items()}
        given = self._options.protocol
        if given not in {"auto", *formats.values()}:
            msg = f"protocol={given} has no files: a storage sink writes {', '.join(sorted(formats.values()))}"
            raise OptionError(msg)
        read = (place.topic for place in offsets_read if directory_of(place.topic) is not None)
        extensions = sorted({extension_of(pattern) for pattern in {*self._changefeed.last_look().sizes, *read}})
        unknown = [extension for extension in extensions if extension not in formats]
        if unknown:
            msg = f"'path' has data files with the extension {unknown[0]}, and a storage sink writes "
            raise OptionError(msg + ", ".join(formats))
        names = [formats[extension] for extension in extensions]
        if not names:
            return None
        if len(names) > 1:
            msg = f"'path' has files of {' and '.join(names)}: give the folder of one changefeed"
            raise OptionError(msg)
        if given not in {"auto", names[0]}:
            msg = f"'path' has files of {names[0]}, and protocol is {given}: leave 'protocol' out"
            raise OptionError(msg)
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
            reason = f"{self.described(())} has no file with rows, or no more"
            if look.unindexed is not None:
                reason = changefeed.why_unindexed(look)
            msg = (
                f"{reason}. So the schema cannot be inferred: load again later, or give it with .schema(…) and the "
                "options 'protocol' and 'tables'"
            )
            raise SchemaError(msg)
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
        """Return 0 for each schema file: a read scans them for earlier DDL."""
        return {place: 0 for place in topic_partitions if is_schema_file(place.topic)}

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        ends = self._changefeed.last_look().ends
        return {place: ends[place] for place in topic_partitions if place in ends}

    def existing(self) -> Iterable[TopicPartition]:
        """Return nothing: files count as one."""
        return ()

    def resolved_end(self) -> int:
        checkpoint = self._changefeed.last_look().checkpoint
        if checkpoint is None:
            msg = (
                f"endingCommitTs=resolved needs the checkpoint-ts, and {self.described(())} has no file "
                f"{CHECKPOINT.topic} yet: read again when TiCDC has written it, or leave the option out"
            )
            raise SchemaError(msg)
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
