"""Which files a changefeed with a storage sink has written whole.

TiCDC writes a data file, then its number into the index file of the directory, and then the checkpoint-ts: all rows up
to the checkpoint-ts are in files that index files count (pingcap/ticdc downstreamadapter/sink/cloudstorage/writer.go).
Before it writes rows of a new version of a table it has written all rows of the version before. So the checkpoint-ts is
read first, and index files from new versions to old ones: whoever finds rows finds what was before them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ticdc_source.errors import DecodeError, OptionError, warn
from ticdc_source.options.topics import TopicPartition
from ticdc_source.storage.files import Folder
from ticdc_source.storage.paths import (
    DataDirectory,
    DataFile,
    IndexFile,
    directory_of,
    is_schema_file,
    order_of,
    parse_path,
    stem_of,
)

__all__ = ["CHECKPOINT", "Changefeed", "Look", "checkpoint_ts", "schema_files_of"]

# The topic partition that stands for the file `metadata`: the offset is the checkpoint-ts.
CHECKPOINT = TopicPartition("metadata", 0)
_NUMBER = re.compile(r"(\d{6,20})\.\w+\s*$")  # of the data file that an index file names

Files = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the changefeed has written, at one moment.

    Attributes:
        starts: by topic partition, the offset of the first file that is there: its number less 1; 0 for a schema file.
            The topic of a data directory is the pattern of the names of its files.
        ends: by topic partition, the end offset: the number of the last whole file; 1 for a schema file.
        checkpoint: the checkpoint-ts; None if there is none yet.
        other: the path of one file that TiCDC does not write; None if there is none.
        uncounted: the pattern of one directory that has data files and no count; None if there is none.
        sizes: by pattern, the size in bytes of each data file that is there, by its number.
    """

    starts: Files = field(default_factory=dict)
    ends: Files = field(default_factory=dict)
    checkpoint: int | None = None
    uncounted: str | None = None
    other: str | None = None
    sizes: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is no file of a changefeed."""
        return not self.sizes and not self.ends and self.checkpoint is None


class Changefeed:
    """The folder of a changefeed. Each look lists all of its files.

    Args:
        location: a path, or a URL that fsspec supports.
    """

    def __init__(self, location: str) -> None:
        self._folder = Folder(location)
        self._counted: dict[str, int] = {}  # by pattern: the number of the last whole file
        self._emptied: dict[str, str] = {}  # by the path of an index file without data files: the file that it names

    def __str__(self) -> str:
        """Return the location without what may be secret."""
        return str(self._folder)

    def look(self) -> Look:
        """Return what the changefeed has written.

        Raises:
            StorageUnavailableError: the folder cannot be read.
            DecodeError: `metadata` or an index file is broken.
        """
        checkpoint = checkpoint_ts(self._folder.text(CHECKPOINT.topic))
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
            elif file.path != CHECKPOINT.topic:
                other = file.path
        starts, ends, uncounted = self._count(sizes, indexes)
        return Look(
            starts=dict.fromkeys(schemas, 0) | starts,
            ends=dict.fromkeys(schemas, 1) | ends,
            checkpoint=checkpoint,
            uncounted=uncounted,
            other=other,
            sizes=sizes,
        )

    def _count(
        self, sizes: Mapping[str, Mapping[int, int]], indexes: Mapping[IndexFile, str]
    ) -> tuple[Files, Files, str | None]:
        """Return the starts and ends of data directories, and one that no index file counts; see `Look`."""
        starts, ends, uncounted = Files(), Files(), None
        grown: set[str] = set()  # owners with a directory that was not counted before
        for pattern in sorted(sizes, key=order_of, reverse=True):
            place = directory_of(pattern)
            assert place is not None  # noqa: S101 (for mypy: `parse_path` has asked)
            before, numbers = self._counted.get(pattern, 0), sizes[pattern]
            counted = before
            if max(numbers) > before or place.owner in grown:
                counted = self._counted[pattern] = self._last_whole(pattern, indexes) or before
            if counted and not before:
                grown.add(place.owner)
            if counted:
                directory = TopicPartition(pattern, 0)
                starts[directory], ends[directory] = min(min(numbers) - 1, counted), counted
            else:
                uncounted = pattern
        for pattern, counted in self._without_files(sizes, indexes):
            directory = TopicPartition(pattern, 0)
            starts[directory] = ends[directory] = counted
        return starts, ends, uncounted

    def _without_files(
        self, sizes: Mapping[str, Mapping[int, int]], indexes: Mapping[IndexFile, str]
    ) -> Iterator[tuple[str, int]]:
        """Yield the patterns of which only the index file is left, with the number in it."""
        with_files = {(pattern.rpartition("/")[0], stem_of(pattern)) for pattern in sizes}
        for index, path in indexes.items():
            if (index.directory, index.stem) in with_files:
                continue
            name = self._emptied.get(path) or (self._folder.text(path) or b"").decode("utf-8", "replace").strip()
            named = parse_path(f"{index.directory}/{name}")
            if isinstance(named, DataFile):
                self._emptied[path] = name  # nothing is written there any more, or a file will show it
                yield named.pattern, named.number

    def _last_whole(self, pattern: str, indexes: Mapping[IndexFile, str]) -> int:
        """Return the number of the last file that is written whole; 0 if there is none yet."""
        path = indexes.get(IndexFile(pattern.rpartition("/")[0], stem_of(pattern)))
        text = None if path is None else self._folder.text(path)
        if not text:
            return 0
        number = _NUMBER.search(text.decode("utf-8", "replace"))
        if number is None:
            msg = f"'path' {self}: the index file {path} names no data file but {text[:80]!r}"
            raise DecodeError(msg)
        return int(number[1])

    def earliest(self, places: Iterable[TopicPartition]) -> Files:
        """Return 0 for schema files: DDL of before a read is in no other."""
        return {place: 0 for place in places if is_schema_file(place.topic)}

    def partitions(self, *, missing: bool = False, known: Iterable[TopicPartition] = ()) -> list[TopicPartition]:  # noqa: ARG002 (as of Kafka)
        """Return the one topic partition that has watermarks."""
        return [CHECKPOINT]

    def look_of_batch(self) -> Look:
        """Return what the changefeed has written; a batch has nothing to wait for.

        Raises:
            OptionError: there is nothing.
            StorageUnavailableError, DecodeError: see `look`.
        """
        look = self.look()
        if look.is_empty:
            raise OptionError(self.why_empty(look))
        return look

    def why_empty(self, look: Look) -> str:
        """Return what to say of a folder without a file of a changefeed."""
        has = f"files such as {look.other}, but none" if look.other else "no file"
        return (
            f"'path' {self} has {has} of a changefeed: give the folder of its sink-uri, the one that has the file "
            f"{CHECKPOINT.topic} and a folder for each database. Or has TiCDC written nothing yet?"
        )

    def warn_of_gaps(self, look: Look) -> None:
        """Warn about what a batch does not read: data files that no index file counts, and a missing checkpoint-ts."""
        if look.checkpoint is None:
            warn(
                f"'path' {self} has no file {CHECKPOINT.topic} with a checkpoint-ts: nothing says up to which commit "
                "its rows are complete. Is it the whole folder of the changefeed's sink-uri?"
            )
        if look.uncounted is not None:
            warn(
                f"'path' {self}: files such as {look.uncounted} are left out, because no index file (meta/CDC.index "
                "beside them) counts them: TiCDC has not finished them, or the folder was copied without it"
            )


def schema_files_of(folder: Folder, place: DataDirectory, version: int) -> list[str]:
    """Return the paths of the schema files with this version of the table that a data directory is of."""
    table = place.owner.partition("/")[0] if place.table is None else "/".join(place.table)
    paths = [file.path for below in ("meta", str(version)) for file in folder.files(f"{table}/{below}")]
    return [path for path in paths if is_schema_file(path) and order_of(path)[0] == version]


def checkpoint_ts(text: bytes | None) -> int | None:
    """Return the checkpoint-ts of the file `metadata`; None if TiCDC has not begun: no file, an empty one, or 0.

    Raises:
        DecodeError: the file has no valid checkpoint-ts.
    """
    if not text:
        return None
    try:
        ts = json.loads(text)["checkpoint-ts"]
    except (KeyError, TypeError, ValueError):
        ts = None
    if type(ts) is not int or not 0 <= ts < 1 << 63:
        msg = f"the file {CHECKPOINT.topic} has no checkpoint-ts, but {text[:80]!r}"
        raise DecodeError(msg)
    return ts or None
