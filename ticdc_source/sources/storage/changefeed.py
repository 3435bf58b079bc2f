"""Which files of a storage sink TiCDC has finished.

TiCDC writes a data file, then its name into the directory's index file, then the checkpoint-ts (pingcap/ticdc
downstreamadapter/sink/cloudstorage/writer.go), and all rows of a table version before those of the next. So a look
reads the checkpoint-ts first, then index files from new versions to old ones: with a row, it finds all earlier rows of
its table, and it finds all rows up to the checkpoint-ts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ticdc_source.errors import DecodeError, OptionError, warn
from ticdc_source.options.topics import TopicPartition
from ticdc_source.schema.json_text import loads
from ticdc_source.sources.storage.files import Folder
from ticdc_source.sources.storage.paths import (
    MOST_FILES,
    DataDirectory,
    DataFile,
    IndexFile,
    directory_of,
    index_of,
    is_schema_file,
    order_of,
    parse_path,
)
from ticdc_source.sources.stream_offsets import Offsets

# The file `metadata`; its one record has the checkpoint-ts as its offset.
CHECKPOINT = TopicPartition("metadata", 0)
_MOST_MISSING = 100_000  # files of a directory; each is looked for
_NUMBER = re.compile(r"(\d{6,20})\.\w+\s*$")  # at the end of the file name in an index file


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the changefeed has written, at one moment.

    Attributes:
        starts: the offset of the first existing file of each topic partition: its number less 1; 0 for a schema file.
            The topic of a data directory is the name pattern of its files.
        ends: the number of each topic partition's last complete file; 1 for a schema file.
        unindexed: the pattern of a directory with data files but no index file that names one.
        other: the path of a file that TiCDC does not write.
        sizes: the size in bytes of each existing data file, by pattern and number.
    """

    starts: Offsets = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    checkpoint: int | None = None
    unindexed: str | None = None
    other: str | None = None
    sizes: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    is_empty: bool = False


class Changefeed:
    """The folder of a changefeed, as a path or a URL that fsspec supports. Each look lists all of its files."""

    def __init__(self, location: str) -> None:
        self._folder = Folder(location)
        self._last_ends: dict[str, int] = {}  # by pattern: the number of the last finished file
        self._last_look: Look | None = None
        self._emptied: dict[str, str] = {}  # by path of an index file: the name in it, while it has no data files

    def __str__(self) -> str:
        return str(self._folder)

    def look(self) -> Look:
        """List what the changefeed has written.

        Raises:
            OptionError: the folder contains folders of changefeeds.
            StorageUnavailableError: the folder cannot be read.
            DecodeError: `metadata` or an index file is broken.
        """
        metadata = self._folder.text(CHECKPOINT.topic)
        checkpoint = checkpoint_ts(metadata)
        sizes: dict[str, dict[int, int]] = {}
        indexes: dict[IndexFile, str] = {}
        schemas, other = [], None
        for file in self._folder.files():
            parsed = parse_path(file.path)
            if isinstance(parsed, DataFile):
                sizes.setdefault(parsed.pattern, {})[parsed.number] = file.size
            elif isinstance(parsed, IndexFile):
                indexes[parsed] = file.path
            elif is_schema_file(file.path):
                schemas.append(TopicPartition(file.path, 0))
            elif file.path.endswith(f"/{CHECKPOINT.topic}"):
                raise OptionError(
                    f"'path' {self} has the file {file.path}, so changefeeds' folders are inside it: use the folder "
                    "of one changefeed"
                )
            elif file.path != CHECKPOINT.topic:
                other = file.path
        starts, ends, unindexed = self._offsets_of_directories(sizes, indexes)
        self._last_look = Look(
            starts=dict.fromkeys(schemas, 0) | starts,
            ends=dict.fromkeys(schemas, 1) | ends,
            checkpoint=checkpoint,
            unindexed=unindexed,
            other=other,
            sizes=sizes,
            is_empty=metadata is None and not sizes and not ends and not schemas,
        )
        return self._last_look

    def last_look(self) -> Look:
        """The last look, or a first one, as after a stream's restart."""
        return self._last_look or self.look()

    def schema_files(self, place: DataDirectory, version: int) -> list[str]:
        # With use-table-id-as-path, the owner begins with the id of the table, which is its folder.
        table = place.owner.partition("/")[0] if place.table is None else "/".join(place.table)
        paths = [file.path for below in ("meta", str(version)) for file in self._folder.files(f"{table}/{below}")]
        return [path for path in paths if is_schema_file(path) and order_of(path)[0] == version]

    def _offsets_of_directories(
        self, sizes: Mapping[str, Mapping[int, int]], indexes: Mapping[IndexFile, str]
    ) -> tuple[Offsets, Offsets, str | None]:
        """The starts, ends and `unindexed` of a look at data directories."""
        starts, ends, unindexed = Offsets(), Offsets(), None
        owners_with_new: set[str] = set()  # owners of a directory that gets an end for the first time
        for pattern in sorted(sizes, key=order_of, reverse=True):  # new versions first, see the top of this module
            directory = directory_of(pattern)
            assert directory is not None  # noqa: S101 (for mypy: `parse_path` has asked)
            numbers, known_end = sizes[pattern], self._last_ends.get(pattern, 0)
            end = known_end
            # An index file is read only if it may have changed. A newer directory of the owner means that TiCDC has
            # finished this one, perhaps with a file newer than the listing.
            if max(numbers) > known_end or directory.owner in owners_with_new:
                end = self._last_ends[pattern] = self._last_whole(pattern, indexes) or known_end
            if not end:
                unindexed = pattern
                continue
            if not known_end:
                owners_with_new.add(directory.owner)
            tp = TopicPartition(pattern, 0)
            # If only unfinished files are left, the first file is after the end, and there is nothing to read.
            starts[tp], ends[tp] = min(min(numbers) - 1, end), end
            if end - starts[tp] > len(numbers) + _MOST_MISSING:
                index = indexes.get(index_of(pattern))
                raise DecodeError(self._far_off(index, end))
        for pattern, end in self._emptied_directories(sizes, indexes):
            tp = TopicPartition(pattern, 0)
            starts[tp] = ends[tp] = end
        return starts, ends, unindexed

    def _emptied_directories(
        self, sizes: Mapping[str, Mapping[int, int]], indexes: Mapping[IndexFile, str]
    ) -> Iterator[tuple[str, int]]:
        """Yield the pattern and last number of each directory with an index file but no data files any more."""
        with_files = {index_of(pattern) for pattern in sizes}
        for index, path in indexes.items():
            if index in with_files:
                self._emptied.pop(path, None)  # the index file names another file when the directory is empty again
                continue
            name = self._emptied.get(path) or (self._folder.text(path) or b"").decode("utf-8", "replace").strip()
            named = parse_path(f"{index.directory}/{name}")
            if isinstance(named, DataFile):
                self._emptied[path] = name
                yield named.pattern, named.number

    def _last_whole(self, pattern: str, indexes: Mapping[IndexFile, str]) -> int:
        """The number of the last complete file; 0 if there is none yet."""
        path = indexes.get(index_of(pattern))
        text = None if path is None else self._folder.text(path)
        if not text:
            return 0
        number = _NUMBER.search(text.decode("utf-8", "replace"))
        if number is None:
            raise DecodeError(f"'path' {self}: the index file {path} names no data file but {text[:80]!r}")
        if int(number[1]) > MOST_FILES:
            raise DecodeError(self._far_off(path, int(number[1])))
        return int(number[1])

    def _far_off(self, path: str | None, number: int) -> str:
        return (
            f"'path' {self}: the index file {path} names file number {number}, far beyond the existing files. "
            "TiCDC numbers the files of a directory from 1 without gaps: the index file is damaged"
        )

    def look_of_batch(self, advice: str = "") -> Look:
        """Look for a batch, which cannot wait for files: an empty folder is an OptionError that ends with `advice`."""
        look = self.look()
        if look.is_empty:
            raise OptionError(self.why_empty(look) + advice)
        return look

    def why_empty(self, look: Look) -> str:
        others = f"It has other files, such as {look.other}. " if look.other else ""
        return (
            f"'path' {self} has no file of a changefeed. {others}Use the folder that the changefeed's sink-uri names: "
            f"it has the file {CHECKPOINT.topic} and a folder for each database. If it is that folder, TiCDC has "
            "written nothing yet"
        )

    def warn_of_gaps(self, look: Look) -> None:
        self.warn_of_no_checkpoint(look)
        if look.unindexed is not None:
            warn(f"{self.why_unindexed(look)}. They are not read")

    def warn_of_no_checkpoint(self, look: Look) -> None:
        if look.checkpoint is None and look.sizes:
            warn(
                f"'path' {self} has no checkpoint-ts in the file {CHECKPOINT.topic}: nothing says up to which commit "
                "the rows are complete. Is it the whole folder of the changefeed's sink-uri?"
            )

    def why_unindexed(self, look: Look) -> str:
        return (
            f"'path' {self}: the index file (such as meta/CDC.index) of {look.unindexed} (%d is the number) is missing "
            "or empty. Either TiCDC has not finished such files, or the folder was copied without index files"
        )


def checkpoint_ts(text: bytes | None) -> int | None:
    """The checkpoint-ts in the file `metadata`; None if TiCDC has not begun: no file, an empty one, or 0.

    Raises:
        DecodeError: the file has no valid checkpoint-ts.
    """
    if not text:
        return None
    try:
        ts = loads(text)["checkpoint-ts"]
    except (KeyError, TypeError, ValueError):
        ts = None
    if type(ts) is not int or not 0 <= ts < 1 << 63:
        raise DecodeError(f"the file {CHECKPOINT.topic} has no checkpoint-ts, but {text[:80]!r}")
    return ts or None
