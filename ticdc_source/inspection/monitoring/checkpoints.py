"""The offsets in the checkpoint folder of a stream, read without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from ticdc_source.errors import CheckpointError
from ticdc_source.options.topics import TopicPartition
from ticdc_source.schema.json_text import loads
from ticdc_source.sources.stream_offsets import offsets_of

__all__ = ["committed_in_checkpoint"]


def committed_in_checkpoint(location: str, topics: Collection[str]) -> dict[TopicPartition, int]:
    """Return the offsets up to which a stream has written its output; empty before its first micro-batch.

    They are those of the newest file in `offsets` that is also in `commits` (Spark's OffsetSeqLog and CommitLog): a
    micro-batch without its file in `commits` may have to be repeated. The location is a path, or a URI that pyarrow
    knows. Sources of the same stream that read none of the topics are left out.

    Raises:
        CheckpointError: it cannot be read, it is no checkpoint, or no source of it reads one of the topics.
    """
    try:
        system, folder = _opened(location)
        offsets = _batches(system, f"{folder}/offsets")
        newest = max(offsets & _batches(system, f"{folder}/commits"), default=None)
        if newest is None:
            return {}
        with system.open_input_stream(f"{folder}/offsets/{newest}") as file:
            lines = file.read().decode().splitlines()
    except (OSError, ValueError, pa.ArrowException) as error:
        msg = f"The checkpoint {location} cannot be read: {error}"
        raise CheckpointError(msg) from None
    sources = [offsets for offsets in _sources(lines) if any(key.topic in topics for key in offsets)]
    if not sources:
        msg = f"No source of the checkpoint {location} reads {', '.join(sorted(topics))}"
        raise CheckpointError(msg)
    return sources[0]


def _opened(location: str) -> tuple[fs.FileSystem, str]:
    if "://" in location or location.startswith("file:"):
        system, folder = fs.FileSystem.from_uri(location)
    else:
        system, folder = fs.LocalFileSystem(), str(Path(location).resolve())
    if not _has_offsets(system, folder):
        inner = sorted(
            item.base_name
            for item in system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
            if item.type == fs.FileType.Directory and _has_offsets(system, item.path)
        )
        meant = ", ".join(f"{location.rstrip('/')}/{name}" for name in inner)
        hint = f"; {meant} {'has' if len(inner) == 1 else 'have'} one: give that of the stream" if inner else ""
        if system.get_file_info(folder).type == fs.FileType.NotFound:
            msg = "there is no such folder"
        else:
            msg = f"it has no folder 'offsets', as the checkpointLocation of a stream has{hint}"
        raise ValueError(msg)
    return system, folder.rstrip("/")


def _has_offsets(system: fs.FileSystem, folder: str) -> bool:
    return bool(system.get_file_info(f"{folder}/offsets").type == fs.FileType.Directory)


def _batches(system: fs.FileSystem, folder: str) -> set[int]:
    """Return the numbers of the micro-batches with a file in a folder. Other files are temporary, or checksums."""
    files = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return {int(file.base_name) for file in files if file.base_name.isdigit()}


def _sources(lines: list[str]) -> Iterator[dict[TopicPartition, int]]:
    """Yield the offsets of each source that has offsets of Kafka: line 1 is the version, line 2 is Spark's."""
    for line in lines[2:]:
        try:
            yield offsets_of(loads(line))
        # "-": the source has no offset yet; or it is another kind of source
        except (ValueError, CheckpointError):
            continue
