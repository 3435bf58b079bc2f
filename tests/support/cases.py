"""Golden cases: a `.case` file has records and what a read must return (tests/golden/README.md)."""

import ast
import base64
import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.support.captured import Captured, Record
from tests.support.messages import framed

_VERSION = (1).to_bytes(8, "big")
_SENTENCES = ("truth", "source", "messages")
_EXPECTED = ("row", "ddl", "watermark", "error", "warning")


@dataclass
class Case:
    """A golden case."""

    path: Path
    truth: str = ""
    source: str = ""
    messages: str = ""
    options: dict[str, str] = field(default_factory=dict)
    captured: Captured = field(default_factory=lambda: Captured({}, {}))
    types: dict[str, str] = field(default_factory=dict)
    mysql_types: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, dict[str, str | None]] = field(default_factory=dict)
    keys: list[str] | None = None
    columns: list[str] | None = None
    expected: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _EXPECTED})


def load_case(path: Path) -> Case:
    """Read a case."""
    case = Case(path)
    record: Record | None = None
    for name, value, frames in _fields(path.read_text(encoding="utf-8")):
        if name in _SENTENCES:
            setattr(case, name, value)
        elif name in ("options", "types", "mysql_types", "metadata", "keys", "columns"):
            setattr(case, name, json.loads(value))
        elif name == "record":
            record = Record(None, None)
            case.captured.partitions.setdefault(int(value.removeprefix("partition ")), []).append(record)
        elif name == "key" and record is not None:
            record.key = _content(value, frames, _VERSION)
        elif name == "value" and record is not None:
            record.value = _content(value, frames, b"")
        elif name in case.expected:
            case.expected[name].append(value if name in ("error", "warning") else json.loads(value))
        else:
            raise ValueError(f"{path.name}: a case has no {name!r}")
    return case


def _fields(text: str) -> Iterator[tuple[str, str, list[str]]]:
    name, value, below = "", "", []
    for line in text.split("\n"):
        if line.startswith("  "):
            below.append(line[2:])
        elif line and not line.startswith("#"):
            if name:
                yield name, value, below
            name, _, value = line.partition(":")
            value, below = value.strip(), []
    yield name, value, below


def _content(form: str, frames: list[str], version: bytes) -> bytes | None:
    if form == "open-protocol":
        return version + framed(*(_bytes(frame) or b"" for frame in frames))
    return _bytes(form)


def _bytes(content: str) -> bytes | None:
    """Read `null`, `empty`, or a form and the bytes in it."""
    form, _, rest = content.partition(" ")
    match form:
        case "null":
            return None
        case "empty":
            return b""
        case "text":
            return rest.encode()
        case "bytes":
            value: bytes = ast.literal_eval(rest)
            return value
        case "hex":
            return bytes.fromhex(rest)
        case "base64":
            return base64.b64decode(rest, validate=True)
        case _:
            raise ValueError(f"bytes written as {form!r}")


def shown(value: Any) -> Any:
    """Write a value of a read as cases do: numbers and texts as in JSON, others as MySQL prints them."""
    match value:
        case bytes():
            return {"hex": value.hex()}
        case Decimal():
            return format(value, "f")
        case datetime.datetime():
            return value.replace(tzinfo=None).isoformat(" ") + ("Z" if value.tzinfo else "")
        case datetime.date():
            return value.isoformat()
        case datetime.timedelta():
            return _time(value)
        case dict():
            return {name: shown(part) for name, part in value.items()}
        case list():
            return [shown(part) for part in value]
        case _:
            return value


def _time(value: datetime.timedelta) -> str:
    micros = abs(value) // datetime.timedelta(microseconds=1)
    seconds, micros = divmod(micros, 1_000_000)
    sign = "-" if value < datetime.timedelta(0) else ""
    fraction = f".{micros:06d}" if micros else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
