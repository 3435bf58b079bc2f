"""Small files in a folder or a store of `pyarrow.fs`, as for `metricsPath`; readers see only complete files.

A URI may hold credentials (`s3://key:secret@bucket`), and pyarrow's errors may repeat it. So messages here have errors'
texts only without them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from ticdc_source.schema.json_text import loads
from ticdc_source.sources.storage.files import redacted

_log = logging.getLogger(__name__)

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_SPARKS_NAMES = {"s3a": "s3", "s3n": "s3"}  # Spark's name of a scheme: pyarrow's
# Stores in which an object appears when its upload ends. Elsewhere a file is visible while it is written.
_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})
_LOCAL = "local"
# An unreachable store takes seconds to fail (pyarrow's S3 client: six), and every task would wait for it.
_PAUSE_S = 60.0
_PARTS = re.compile(r"[/:@?#&=]+")  # between the parts of a URI
_SUFFIX = ".jsonl"


class MetricFiles:
    """The metric files of one folder: a path, or a URI that `pyarrow.fs` knows.

    `write` never fails: a failure is logged once, until a file can be written again. For a minute after it nothing is
    written, so that a dead store does not delay every task. The other methods raise an OSError, whose text may show a
    secret; `shown` does not.
    """

    def __init__(self, location: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._location = location
        self._clock = clock
        self._opened: tuple[fs.FileSystem, str] | None = None
        self._paused_until: float | None = None

    def __repr__(self) -> str:
        """Return the location without secrets."""
        return f"MetricFiles({redacted(self._location)})"

    def write(self, name: str, lines: Iterable[Mapping[str, object]]) -> None:
        """Write lines as JSON to a new file whose name begins with `name`."""
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        if self._paused_until is not None and self._clock() < self._paused_until:
            return
        try:
            self._write(f"{name}-{uuid.uuid4().hex}{_SUFFIX}", data)
        except Exception as error:  # noqa: BLE001 (metrics never fail a read, whatever a store raises)
            level = logging.WARNING if self._paused_until is None else logging.DEBUG
            _log.log(level, "metricsPath: %s cannot be written: %s", redacted(self._location), self.shown(error))
            self._paused_until = self._clock() + _PAUSE_S
        else:
            self._paused_until = None

    def put(self, name: str, data: bytes) -> None:
        with _store_errors():
            self._write(name, data)

    def get(self, name: str) -> bytes | None:
        with _store_errors():
            system, folder = self._open()
            try:
                if system.type_name == _LOCAL:
                    return (Path(folder) / name).read_bytes()
                with system.open_input_stream(f"{folder}/{name}") as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

    def names(self) -> list[str]:
        """Return the names of the complete files, in order; empty if there is no folder."""
        with _store_errors():
            system, folder = self._open()
            if system.type_name == _LOCAL:
                names = os.listdir(folder) if Path(folder).is_dir() else []  # noqa: PTH208 (no Path for each of many)
            else:
                names = [info.base_name for info in system.get_file_info(fs.FileSelector(folder, allow_not_found=True))]
        return sorted(name for name in names if name.endswith(_SUFFIX) and not name.startswith("."))

    def read(self, name: str) -> list[dict[str, object]]:
        data = self.get(name)
        if data is None:
            raise FileNotFoundError(name)
        with _store_errors():
            return [loads(line) for line in data.splitlines()]

    def shown(self, error: Exception) -> str:
        return hidden_location(f"{type(error).__name__}: {error}", self._location)

    def _open(self) -> tuple[fs.FileSystem, str]:
        if self._opened is None:
            self._opened = file_system(self._location)
        return self._opened

    def _write(self, name: str, data: bytes) -> None:
        system, folder = self._open()
        if system.type_name == _LOCAL:
            _write_locally(Path(folder) / name, data)
        elif system.type_name in _OBJECT_STORES:
            _write_stream(system, f"{folder}/{name}", data)
        else:
            draft = f"{folder}/.{name}.tmp"
            system.create_dir(folder, recursive=True)
            try:
                _write_stream(system, draft, data)
                if system.get_file_info(f"{folder}/{name}").type == fs.FileType.File:
                    system.delete_file(f"{folder}/{name}")  # HDFS moves nothing over a file
                system.move(draft, f"{folder}/{name}")
            except BaseException:
                with suppress(OSError):
                    system.delete_file(draft)
                raise


@lru_cache(maxsize=8)
def metric_files(location: str) -> MetricFiles:
    """Return the metric files of a location; one object per process, so that a store is opened once."""
    return MetricFiles(location)


@contextmanager
def _store_errors() -> Iterator[None]:
    """Turn errors of stores, and of files that are not JSON, into OSError."""
    try:
        yield
    except (ValueError, NotImplementedError, pa.ArrowException) as error:
        raise OSError(str(error)) from None


def hidden_location(text: str, location: str) -> str:
    clean = redacted(location)
    text, kept = text.replace(location, clean), _PARTS.split(clean)
    hidden = {each for part in _PARTS.split(location) if part not in kept for each in (part, unquote(part))}
    for secret in sorted(hidden - {""}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def file_system(location: str) -> tuple[fs.FileSystem, str]:
    if _URI.match(location) is None:
        return fs.LocalFileSystem(), location
    scheme, colon, rest = location.partition(":")
    system, folder = _from_uri(f"{_SPARKS_NAMES.get(scheme.lower(), scheme.lower())}{colon}{rest}")
    return system, folder.rstrip("/")


def _from_uri(uri: str) -> tuple[fs.FileSystem, str]:
    if uri.startswith("s3:"):
        # One request for a small object, in place of the three of an upload in parts. Older pyarrows do not know it.
        with suppress(pa.ArrowInvalid):
            return fs.FileSystem.from_uri(f"{uri}{'&' if '?' in uri else '?'}allow_delayed_open=true")  # type: ignore[no-any-return]
    return fs.FileSystem.from_uri(uri)  # type: ignore[no-any-return]


def _write_locally(final: Path, data: bytes) -> None:
    final.parent.mkdir(parents=True, exist_ok=True)
    draft = final.with_name(f".{final.name}.tmp")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(final)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def _write_stream(system: fs.FileSystem, path: str, data: bytes) -> None:
    stream = system.open_output_stream(path)
    stream.write(data)
    stream.close()
