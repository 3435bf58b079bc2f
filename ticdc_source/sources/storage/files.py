"""Files in a folder that fsspec can reach. No message shows what may be secret in its URL."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple, NoReturn, TypeVar

from ticdc_source.errors import StorageUnavailableError
from ticdc_source.sources.locations import check_regular, redacted, why_unreadable

__all__ = ["File", "Folder"]

Answer = TypeVar("Answer")
_MISSING = (FileNotFoundError, NotADirectoryError)
_BLOCK = 4 << 20  # bytes of a file to read at a time


class File(NamedTuple):
    """A file: its path, relative to the folder, and its size in bytes."""

    path: str
    size: int


class Folder:
    """A folder. It connects at first use.

    Args:
        location: a path, or a URL that fsspec supports.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._opened: tuple[Any, str] | None = None  # Any: fsspec has no types

    def __str__(self) -> str:
        """Return the location without what may be secret."""
        return redacted(self._location)

    def files(self, below: str = "") -> list[File]:
        """Return all files, at any depth.

        Args:
            below: only those below this path.

        Raises:
            StorageUnavailableError: the folder cannot be read.
        """

        def listed() -> list[File]:
            from fsspec import AbstractFileSystem  # noqa: PLC0415 (as in `_system`)

            system, root = self._system()
            system.invalidate_cache()  # storages keep their answers
            start = f"{root}/{below}" if below else root
            if type(system).find is AbstractFileSystem.find:
                return list(self._walk(start))
            entries = system.find(start, detail=True)
            return [File(path[len(root) + 1 :], entry.get("size") or 0) for path, entry in entries.items()]

        return self._answer(listed, "it", missing=list)

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

        def read() -> bytes:
            system, root = self._system()
            check_regular(system.protocol, f"{root}/{path}")
            return bytes(system.cat_file(f"{root}/{path}"))

        return self._answer(read, path, missing=lambda: None)

    def blocks(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file.

        Raises:
            FileNotFoundError: there is none.
            StorageUnavailableError: it cannot be read.
        """

        def opened() -> IO[bytes]:
            system, root = self._system()
            check_regular(system.protocol, f"{root}/{path}")
            file: IO[bytes] = system.open(f"{root}/{path}", "rb", block_size=_BLOCK)
            return file

        def missing() -> NoReturn:
            raise FileNotFoundError(path)

        file = self._answer(opened, path, missing=missing)
        with file:
            while block := self._answer(lambda: bytes(file.read(_BLOCK)), path, missing=missing):
                yield block

    def _system(self) -> tuple[Any, str]:
        if self._opened is None:
            import fsspec  # noqa: PLC0415 (only reads of files need it)

            system, root = fsspec.core.url_to_fs(self._location)
            self._opened = system, root.rstrip("/")
        return self._opened

    def _answer(self, ask: Callable[[], Answer], what: str, *, missing: Callable[[], Answer]) -> Answer:
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 (storages may raise anything)
            if isinstance(error, OSError) and (
                isinstance(error, _MISSING) or error.errno in (errno.ENOENT, errno.ENOTDIR)
            ):
                return missing()
            if isinstance(error, ModuleNotFoundError) and error.name == "fsspec":
                msg = (
                    "reading files of a storage sink needs fsspec on driver and executors: "
                    'pip install "ticdc-source[storage]", or pip install fsspec'
                )
            else:
                msg = f"'path' {self}: {what} cannot be read: {why_unreadable(error)}"
            raise StorageUnavailableError(msg) from None
