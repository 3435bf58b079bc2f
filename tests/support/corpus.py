"""The corpus: messages of TiCDC's own encoders with the SQL truth of each, in one file (`tests/data/README.md`).

`python -m tests.support.corpus FOLDER` writes it again from the files that the encoders wrote.
"""

import argparse
import base64
import gzip
import json
import lzma
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from examples.data import read_messages
from examples.data.make_data import SCENARIOS as STREAMED

BUNDLE = Path(__file__).resolve().parents[1] / "data" / "corpus.jsonl.xz"
STREAMS = {scenario: protocol for protocol, scenario in STREAMED.items()}
_NOT_HERE = ("stream.final-state",)  # the demo's data has the final state

# As in examples/data: it keeps the bytes of a message that are not UTF-8.
_BYTES_AS_TEXT = "surrogateescape"

Json = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """A Kafka record of a scenario: `truth` is what SQL says, `large` is true for events that were too large."""

    partition: int
    key: bytes | None
    value: bytes | None
    truth: Json
    large: tuple[bool, ...] = ()


@dataclass
class Scenario:
    """A file of the corpus: its header (encoder, config, tables) and its records in the order of delivery."""

    header: Json
    records: list[Line]
    files: dict[str, bytes] = field(default_factory=dict)


@cache
def _bundle() -> tuple[list[str], dict[str, list[str]]]:
    """Return the truths and the lines of each scenario; lines are JSON, and whoever needs one parses it."""
    truths: list[str] = []
    scenarios: dict[str, list[str]] = {}
    current = truths
    with lzma.open(BUNDLE, "rt", encoding="ascii") as lines:
        for line in lines:
            if line.startswith('"'):
                current = scenarios.setdefault(json.loads(line), [])
            else:
                current.append(line)
    return truths, scenarios


def scenarios() -> list[str]:
    return sorted(_bundle()[1])


def scenario(name: str) -> Scenario:
    """Load a file; a stream ends with the last message of the demo's data."""
    truths, files = _bundle()
    head, *lines = map(json.loads, files[name])
    found = Scenario(head["header"], [], {file: _bytes(text) or b"" for file, text in head["files"].items()})
    if name in STREAMS:
        messages = read_messages(STREAMS[name])
        lines = [[*message, *line] for message, line in zip(messages, lines, strict=True)]
    else:
        lines = [[line[0], _bytes(line[1]), _bytes(line[2]), *line[3:]] for line in lines]
    for partition, key, value, truth, *large in lines:
        events = [json.loads(truths[number]) for number in truth] if isinstance(truth, list) else []
        whole = {"op": "batch", "events": events} if isinstance(truth, list) else json.loads(truths[truth])
        found.records.append(Line(partition, key, value, whole, tuple(large[0] if large else ())))
    return found


def names_in(folder: Path) -> list[str]:
    names = (path.name.removesuffix(".jsonl.gz") for path in folder.glob("*.jsonl.gz"))
    return sorted(name for name in names if not name.startswith(_NOT_HERE))


def read_file(folder: Path, name: str) -> Scenario:
    """Load a file of the corpus itself (its README describes the format)."""
    with gzip.open(folder / f"{name}.jsonl.gz") as lines:
        header, *entries = map(json.loads, lines)
    records = [
        Line(
            entry["partition"],
            _unarmoured(entry["key_b64"]),
            _unarmoured(entry["value_b64"]),
            _with_commit_ts(entry["truth"]),
            tuple(entry.get("large", ())),
        )
        for entry in entries
    ]
    files = {path.name: path.read_bytes() for path in sorted((folder / "claim-check" / name).glob("*"))}
    return Scenario(header, records, files)


def _with_commit_ts(truth: Json) -> Json:
    """Return a truth under the names that most files have: avro's call the commit-ts of a watermark otherwise."""
    return {"commit_ts" if name == "watermark_ts" else name: value for name, value in truth.items()}


def _unarmoured(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def written(found: Mapping[str, Scenario]) -> Iterator[str]:
    """Yield the lines of the bundle: each truth once, then the files, which refer to truths by number."""
    numbers: dict[str, int] = {}
    texts: list[str] = []
    for name, one in found.items():
        texts += [_dump(name), _dump({"header": one.header, "files": {n: _text(f) for n, f in one.files.items()}})]
        for line in one.records:
            whole = line.truth
            events = [_dump(event) for event in whole.get("events", [whole])]
            indices = [numbers.setdefault(event, len(numbers)) for event in events]
            truth: Any = indices if "events" in whole else indices[0]
            rest: list[Any] = [truth, line.large] if line.large else [truth]
            texts.append(
                _dump(rest if name in STREAMS else [line.partition, _text(line.key), _text(line.value), *rest])
            )
    yield from numbers
    yield from texts


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", _BYTES_AS_TEXT)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", _BYTES_AS_TEXT)


def streamed(name: str, whole: Scenario) -> Scenario:
    """Return a scenario; a stream ends with the last message of the demo's data."""
    count = len(read_messages(STREAMS[name])) if name in STREAMS else len(whole.records)
    return Scenario(whole.header, whole.records[:count], whole.files)


def write(lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    BUNDLE.write_bytes(lzma.compress(text.encode("ascii"), preset=9 | lzma.PRESET_EXTREME))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.corpus", description=__doc__)
    parser.add_argument("corpus", type=Path, help="the folder with the corpus's *.jsonl.gz")
    folder = parser.parse_args().corpus
    write(written({name: streamed(name, read_file(folder, name)) for name in names_in(folder)}))
    sys.stdout.write(f"{BUNDLE.stat().st_size:,} bytes {BUNDLE.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
