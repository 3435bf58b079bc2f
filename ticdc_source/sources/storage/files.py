"""Files in fsspec's storages, and locations without secrets."""

from __future__ import annotations

import errno
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from ticdc_source.errors import StorageUnavailableError

_MISSING, _MISSING_ERRNOS = (FileNotFoundError, NotADirectoryError), frozenset({errno.ENOENT, errno.ENOTDIR})
_SCHEME = re.compile(r"[A-Za-z][\w+.-]*:/+|//")
_USER = re.compile(r"(?s)[^/]*:.*@")
_UNKNOWN_SCHEME = re.compile(r"Protocol not known: [\w.+-]+")
BLOCK = 4 << 20  # bytes of a file to read at a time


class File(NamedTuple):
    """A file: its path relative to the folder, and its size in bytes."""

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
        """All files, or those below a path, at any depth.

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
        """Yield the files below a folder. fsspec's own walk treats a folder that cannot be listed as empty."""
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
        """The content of a small file; None if it does not exist.

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

    def blocks(self, path: str, size: int) -> Iterator[bytes]:
        """Yield the bytes of a file in blocks.

        Raises:
            FileNotFoundError: it does not exist.
            StorageUnavailableError: it cannot be read.
        """
        with self._our_errors(path):
            system, root = self._system()
            check_regular(system.protocol, f"{root}/{path}")
            file: IO[bytes] = system.open(f"{root}/{path}", "rb", block_size=BLOCK)
        with file:
            while True:
                with self._our_errors(path):
                    block = bytes(file.read(size))
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
        """Translate errors to FileNotFoundError or StorageUnavailableError."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (storages may raise anything)
            is_missing = isinstance(error, _MISSING) or getattr(error, "errno", None) in _MISSING_ERRNOS
            if isinstance(error, OSError) and is_missing:
                raise FileNotFoundError(what) from None
            msg = f"'path' {self}: {what} cannot be read: {why_unreadable(error)}"
            if isinstance(error, ModuleNotFoundError) and error.name == "fsspec":
                msg = (
                    "reading storage sink files needs fsspec on driver and executors: "
                    'pip install "ticdc-source[storage]", or pip install fsspec'
                )
            raise StorageUnavailableError(msg) from None


def redacted(location: str) -> str:
    """A path or URL (or fsspec's chain of them) without possible secrets: user, password and query."""
    return "::".join(map(_part_redacted, location.split("::")))


def _part_redacted(part: str) -> str:
    scheme = _SCHEME.match(part)
    if scheme is None and part.startswith("/"):  # a path of this machine
        return part
    begin = "" if scheme is None else scheme[0]
    rest = re.split("[?#]", part[len(begin) :], maxsplit=1)[0]
    if scheme is None and not _USER.match(part):
        return rest
    if "@" in part and "@" not in rest and ":" in rest.partition("/")[0]:  # a password with such a character
        return begin
    return begin + rest.rpartition("@")[2]


def why_unreadable(error: Exception) -> str:
    """An error's type and the system's words, as its own text may show secrets."""
    if isinstance(error, ImportError):  # it names the library that is missing
        return str(error)
    reason = error.strerror if isinstance(error, OSError) else ""
    if isinstance(error, ValueError) and _UNKNOWN_SCHEME.fullmatch(str(error)):
        reason = str(error)
    return f"{type(error).__name__} ({reason})" if reason else type(error).__name__


def check_regular(protocol: str | Sequence[str], path: str) -> None:
    """Refuse special files before they are opened: a FIFO would wait for a writer, and a device may be endless.

    Raises:
        OSError: it is a FIFO, a socket or a device.
    """
    if "file" not in protocol:  # of the storages, only a local folder has them
        return
    try:
        mode = Path(path).stat().st_mode
    except OSError:  # to open it says why
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is not a regular file")
