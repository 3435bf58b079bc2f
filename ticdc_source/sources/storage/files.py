"""Files in a folder that fsspec can reach. No message shows what may be secret in its URL."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

from ticdc_source.errors import StorageUnavailableError
from ticdc_source.sources.locations import check_regular, redacted, why_unreadable

_MISSING, _MISSING_ERRNOS = (FileNotFoundError, NotADirectoryError), frozenset({errno.ENOENT, errno.ENOTDIR})
_BLOCK = 4 << 20  # bytes of a file to read at a time


class File(NamedTuple):
    """A file: its path, relative to the folder, and its size in bytes."""

    path: str
    size: int


class Folder:
    """A folder, as a path or a URL that fsspec supports. It connects at first use."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._opened: tuple[Any, str] | None = None  # Any: fsspec has no types

    def __str__(self) -> str:
        return redacted(self._location)

    def files(self, below: str = "") -> list[File]:
        """Return all files, or those below a path, at any depth.

        Raises:
            StorageUnavailableError: the folder cannot be read.
        """
        try:
            with self._our_errors("it"):
                from fsspec import AbstractFileSystem  # noqa: PLC0415 (as in `_system`)

                system, root = self._system()
                system.invalidate_cache()  # storages keep their answers
                start = f"{root}/{below}" if below else root
                if type(system).find is AbstractFileSystem.find:
                    return list(self._walk(start))
                entries = system.find(start, detail=True)
                return [File(path[len(root) + 1 :], entry.get("size") or 0) for path, entry in entries.items()]
        except FileNotFoundError:
            return []

    def _walk(self, start: str) -> Iterator[File]:
        """Yield the files below a folder. fsspec's own walk takes a folder that cannot be listed for an empty one."""
        system, root = self._system()
        left = [start]
        while left:
            try:
                entries = system.ls(left.pop(), detail=True)
            except _MISSING:  # TiCDC removes folders meanwhile
                continue
            for entry in entries:
                if entry["type"] == "directory":
                    left.append(entry["name"])
                else:
                    yield File(entry["name"][len(root) + 1 :], entry.get("size") or 0)

    def text(self, path: str) -> bytes | None:
        """Return a small file; None if there is none.

        Raises:
            StorageUnavailableError: it cannot be read.
        """
        try:
            with self._our_errors(path):
                system, root = self._system()
                check_regular(system.protocol, f"{root}/{path}")
                return bytes(system.cat_file(f"{root}/{path}"))
        except FileNotFoundError:
            return None

    def blocks(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file.

        Raises:
            FileNotFoundError: there is none.
            StorageUnavailableError: it cannot be read.
        """
        with self._our_errors(path):
            system, root = self._system()
            check_regular(system.protocol, f"{root}/{path}")
            file: IO[bytes] = system.open(f"{root}/{path}", "rb", block_size=_BLOCK)
        with file:
            while True:
                with self._our_errors(path):
                    block = bytes(file.read(_BLOCK))
                if not block:
                    return
                yield block

    def _system(self) -> tuple[Any, str]:
        if self._opened is None:
            import fsspec  # noqa: PLC0415 (only reads of files need it)

            system, root = fsspec.core.url_to_fs(self._location)
            self._opened = system, root.rstrip("/")
        return self._opened

    @contextmanager
    def _our_errors(self, what: str) -> Iterator[None]:
        """Translate the errors of the block: FileNotFoundError for what is not there, StorageUnavailableError else."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (storages may raise anything)
            is_missing = isinstance(error, _MISSING) or getattr(error, "errno", None) in _MISSING_ERRNOS
            if isinstance(error, OSError) and is_missing:
                raise FileNotFoundError(what) from None
            msg = f"'path' {self}: {what} cannot be read: {why_unreadable(error)}"
            if isinstance(error, ModuleNotFoundError) and error.name == "fsspec":
                msg = (
                    "reading files of a storage sink needs fsspec on driver and executors: "
                    'pip install "ticdc-source[storage]", or pip install fsspec'
                )
            raise StorageUnavailableError(msg) from None
