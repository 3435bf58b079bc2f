"""A range of files → bounded chunks of their rows.

The topic of a row is the path of its file, the partition the number of the file, and the offset the number of the row
in the file, from 0. A schema file is one record, at offset 0. The watermark is one of `metadata`, at the checkpoint-ts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from ticdc_source.errors import DataLossError, warn
from ticdc_source.kernels.arrays import Binaries
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.schema.tso import physical_ms
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.record_source import Fetcher
from ticdc_source.sources.storage.changefeed import CHECKPOINT
from ticdc_source.sources.storage.file_format import FileFormat, FileSettings
from ticdc_source.sources.storage.files import Folder
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

_log = logging.getLogger(__name__)
_NO_TIME = -1


class FileFetcher(Fetcher):
    """The `Fetcher` for files. An offset of a directory is the number of a file, less 1.

    DDL and watermarks become messages of the protocol, if it is known. `max_rows` is for each file.
    """

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
        self._widths: dict[str, int] = {}  # of the numbers, by pattern

    @property
    def library(self) -> str:
        return "fsspec"

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
        except ValueError as error:  # the decoder does not know it either: it makes a bad record
            _log.warning("%s is no schema file: %s", path, error)
            message = data
        if message:
            yield Chunk(path, 0, [0], [_NO_TIME], [None], [message])

    def _file(self, pattern: str, number: int) -> str | None:
        """Return the path of a file; None if it is gone. How wide its number is only the folder tells."""
        for file in self._folder.files(index_of(pattern).directory):
            if parse_path(file.path) == DataFile(pattern, number):
                self._widths[pattern] = len(file.path) - (len(pattern) - len("%d"))
                return file.path
        return None

    def _rows(self, pattern: str, number: int) -> Iterator[Chunk]:
        place = directory_of(pattern)
        assert place is not None  # noqa: S101 (for mypy: the driver has asked)
        path = data_file_name(pattern, number, self._widths.get(pattern, WIDTH))
        blocks = self._folder.blocks(path)
        first, limit = 0, self._max_rows
        try:
            try:
                block = next(blocks, b"")
            except FileNotFoundError:
                path = self._file(pattern, number) or path
                blocks = self._folder.blocks(path)
                block = next(blocks, b"")
            cutter = self._formats[extension_of(path)].cutter(place.version, self._files)
            while block:
                messages = cutter.cut(block)
                wanted = len(messages) if limit is None else min(limit, len(messages))
                yield from self._chunks(path, number, first, _part(messages, 0, wanted), cutter.key)
                first += len(messages)
                if self._max_rows is not None:
                    limit = self._max_rows - first
                    if limit <= 0:
                        return
                del messages
                block = next(blocks, b"")
        except FileNotFoundError:
            self._lost(path)
            return
        yield from self._chunks(path, number, first, cutter.rest()[:limit], cutter.key)

    def _chunks(
        self, path: str, number: int, first: int, messages: list[bytes] | Binaries, key: bytes | None
    ) -> Iterator[Chunk]:
        for start in range(0, len(messages), self._settings.max_records):
            after = min(start + self._settings.max_records, len(messages))
            yield from self._small(path, number, first + start, _part(messages, start, after), key)

    def _small(
        self, path: str, number: int, first: int, messages: list[bytes] | Binaries, key: bytes | None
    ) -> Iterator[Chunk]:
        """Yield messages in chunks of at most so many bytes: halves, while they are larger."""
        count = len(messages)
        size = messages.nbytes if isinstance(messages, Binaries) else sum(map(len, messages))
        if count > 1 and size > self._settings.max_bytes:
            half = count // 2
            yield from self._small(path, number, first, _part(messages, 0, half), key)
            yield from self._small(path, number, first + half, _part(messages, half, count), key)
            return
        yield Chunk(
            path,
            number,
            range(first, first + count),
            [_NO_TIME] * count,
            [key] * count,
            messages if isinstance(messages, Binaries) else list[bytes | None](messages),
            [[] for _ in messages] if self._settings.include_headers else None,
        )

    def _lost(self, path: str) -> None:
        msg = (
            f"'path' {self._folder}: the file {path} is gone. Has file-expiration-days of the sink, or a lifecycle "
            "rule of the bucket, removed it before it was read? With failOnDataLoss=false the read goes on without it"
        )
        if self._settings.fail_on_data_loss:
            raise DataLossError(msg)
        warn(msg)
        _log.warning("%s", msg)


def _part(messages: list[bytes] | Binaries, start: int, after: int) -> list[bytes] | Binaries:
    if start == 0 and after == len(messages):
        return messages
    return messages.part(start, after) if isinstance(messages, Binaries) else messages[start:after]
