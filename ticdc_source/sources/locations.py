"""Paths and URLs of fsspec: how they are shown without secrets, and what is no file there."""

from __future__ import annotations

import errno
import re
import stat
from collections.abc import Sequence
from pathlib import Path

_SCHEME = re.compile(r"[A-Za-z][\w+.-]*:/+|//")
_USER = re.compile(r"(?s)[^/]*:.*@")
_UNKNOWN_SCHEME = re.compile(r"Protocol not known: [\w.+-]+")


def redacted(location: str) -> str:
    """Return a path or URL without what may be secret: user, password and query. A chain of fsspec has several URLs."""
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
    """Return what to say of an error of fsspec: its type, and the system's words; its text may show secrets."""
    if isinstance(error, ImportError):  # it names the library that is missing
        return str(error)
    reason = error.strerror if isinstance(error, OSError) else ""
    if isinstance(error, ValueError) and _UNKNOWN_SCHEME.fullmatch(str(error)):
        reason = str(error)
    return f"{type(error).__name__} ({reason})" if reason else type(error).__name__


def check_regular(protocol: str | Sequence[str], path: str) -> None:
    """Refuse what is no file before it is opened: to open a FIFO waits for a writer, and a device has no end.

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
        raise OSError(errno.EINVAL, "it is no regular file")
