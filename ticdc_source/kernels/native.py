"""The optional extension module `_native` beside this one, which nothing else imports.

`make native` builds it in a clone, and so does `pip install .` where there is cargo. Without it, the general path gives
the same rows.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from zlib import crc32

import pyarrow as pa

from ticdc_source.errors import OptionError, warn
from ticdc_source.kernels.arrays import Binaries
from ticdc_source.kernels.contract import Messages, PackedMessages

_HOW = (
    "run `make wheel` in a clone, which needs Rust, and install the wheel on the driver and on all executors. On one "
    "machine, install Rust, then `TICDC_BUILD_NATIVE=1 pip install --force-reinstall --no-deps --no-cache-dir .`"
)

_PROJECT = Path(__file__).parents[2]  # a clone; an installed package has no Rust files beside it


def _load() -> tuple[ModuleType | None, str | None]:
    """Return the module, or why it cannot be loaded."""
    try:
        import ticdc_source.kernels._native as module  # noqa: PLC0415 (it may be absent)
    except ImportError as error:  # not built, or this system cannot load it (an older glibc)
        return None, str(error)
    if not _is_of(_PROJECT, getattr(module, "CONTRACT", {})):
        return None, f"{module.__file__} was built from other sources: run `make native`, or install the package again"
    return module, None


def _is_of(project: Path, checksums: Mapping[str, int]) -> bool:
    """Whether the existing contract files have these CRC-32 checksums, by path in the project."""
    for path, checksum in checksums.items():
        file = project / path
        if file.is_file() and crc32(file.read_bytes()) != checksum:
            return False
    return bool(checksums)


native, _missing = _load()


def messages_of(messages: Sequence[bytes]) -> Messages:
    if isinstance(messages, Binaries):
        return PackedMessages(messages.spans.data, messages.spans.bounds.tobytes())
    return messages if isinstance(messages, list) else list(messages)


def numbers_of(arrow: pa.DataType, written: bytes | memoryview) -> pa.Array:
    """Wrap numbers in native byte order as an array, without a copy."""
    buffer = pa.py_buffer(written)
    return pa.Array.from_buffers(arrow, buffer.size * 8 // arrow.bit_width, [None, buffer])


def why_general(native_code: str) -> str | None:
    """Return why this process does not take the native path; None if it does."""
    return "nativeCode=off" if native_code == "off" else _missing


def refuse_missing(native_code: str) -> None:
    """Raise an OptionError if `nativeCode` requires the native path and it is missing."""
    if native_code == "require" and native is None:
        raise OptionError(
            f"nativeCode=require, but {sys.executable} on {platform.node()} has no native path: {_missing}. "
            f"Set nativeCode=auto, or {_HOW}"
        )


def warn_of_missing(native_code: str) -> None:
    """Warn once that reads take the general path, unless `nativeCode` asks for it."""
    refuse_missing(native_code)
    if native_code == "auto" and native is None:
        _warn()


@cache
def _warn() -> None:
    warn(
        f"Reads take the general path, which returns the same rows but takes more CPU time: {_missing}. For the native "
        f"path, {_HOW}. nativeCode=off hides this warning"
    )
