"""Public cases: messages of public bug reports, captures and test resources, and what a read must return.

`python -m tests.support.public_cases FOLDER` writes `tests/data/public-cases.jsonl.xz` from a folder with a folder for
each case (tests/data/README.md).
"""

from __future__ import annotations

import argparse
import base64
import datetime
import json
import lzma
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.captured import Captured, Record

BUNDLE = Path(__file__).resolve().parents[1] / "data" / "public-cases.jsonl.xz"
_MICROSECOND = datetime.timedelta(microseconds=1)
_KEPT = ("source", "licence", "saw", "right")


@dataclass(frozen=True)
class Read:
    """A read of a case, and what it must return.

    Attributes:
        label: what is special about it.
        options: options of the read.
        api: `decode` if the records come as rows of a DataFrame.
        count: the number of rows; None if the case does not say.
        rows: values of the rows, in the order of `_sequence`; None if the case does not say.
        schema: Spark types of columns.
        error: words of the error; empty if there is none.
        sync_rows: the rows that a copy must end with; None if the case does not say.
    """

    label: str
    options: Mapping[str, str]
    api: str = ""
    count: int | None = None
    rows: list[Mapping[str, Any]] | None = None
    schema: Mapping[str, str] = field(default_factory=dict)
    error: tuple[str, ...] = ()
    sync_rows: list[Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class PublicCase:
    """A case: `texts` says where it is from, what somebody saw, and what is right."""

    name: str
    texts: Mapping[str, str]
    captured: Captured
    reads: list[Read]


@cache
def cases() -> list[PublicCase]:
    """Load all cases."""
    with lzma.open(BUNDLE, "rt", encoding="ascii") as lines:
        return [_loaded(json.loads(line)) for line in lines]


def _loaded(line: Mapping[str, Any]) -> PublicCase:
    partitions: dict[int, list[Record]] = {}
    for partition, key, value in line["records"]:
        partitions.setdefault(partition, []).append(Record(_bytes(key), _bytes(value)))
    reads = [Read(**read) for read in line["reads"]]
    texts = {name: line[name] for name in _KEPT}
    return PublicCase(line["name"], texts, Captured({}, dict(sorted(partitions.items()))), reads)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


def printed(value: object) -> object:
    """Write a value of a read as the cases do: decimals and times as Python prints them."""
    match value:
        case bytes():
            return f"hex:{value.hex()}"
        case datetime.timedelta():
            return f"us:{value // _MICROSECOND}"
        case datetime.datetime():
            return str(value.replace(tzinfo=None))
        case Decimal():
            return format(value, "f")
        case datetime.date():
            return str(value)
        case _:
            return value


def main() -> int:
    """Read the folders, write the bundle."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.public_cases", description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder with a folder for each case")
    lines = [_line(folder) for folder in sorted(parser.parse_args().folder.iterdir()) if folder.is_dir()]
    text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines)
    BUNDLE.write_bytes(lzma.compress(text.encode("ascii"), preset=9 | lzma.PRESET_EXTREME))
    sys.stdout.write(f"{BUNDLE.stat().st_size:,} bytes {BUNDLE.name}\n")
    return 0


def _line(folder: Path) -> dict[str, Any]:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    records = []
    for text in (folder / "messages.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(text)
        sides = (record["key_b64"], record["value_b64"])
        records.append(
            [record["partition"], *(None if side is None else _text(base64.b64decode(side)) for side in sides)]
        )
    return {
        "name": folder.name,
        **{name: expected[name] for name in _KEPT},
        "records": records,
        "reads": expected["reads"],
    }


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


if __name__ == "__main__":
    sys.exit(main())
