"""The bundled files: JSON lines, compressed with xz. `xzcat` shows them."""

import dataclasses
import json
import lzma
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

FOLDER = Path(__file__).parent
PROTOCOLS = ("open-protocol", "canal-json", "debezium")
TRUTH = FOLDER / "final-state.jsonl.xz"

# Messages are not only UTF-8 (open-protocol's lengths are binary); this keeps the other bytes too.
_BYTES_AS_TEXT = "surrogateescape"

Cell: TypeAlias = "str | dict[str, Any] | None"
"""One value in SQL's own text; {"hex"} for binary; {"label", "number"} for ENUM and SET."""


class Message(NamedTuple):
    """One Kafka record as TiCDC wrote it; None is Kafka's null."""

    partition: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class TableTruth:
    """The rows that SQL has of one table after the last bundled transaction.

    Attributes:
        table: `database.table`.
        key: the columns of the primary key.
        columns: MySQL's type of each column, in table order.
        changes: number of inserts, updates and deletes in the messages, repeated ones included.
        repeated: number of those that TiCDC sent a second time, after its restart.
        rows: the rows, their values in the order of `columns`.
    """

    table: str
    key: list[str]
    columns: dict[str, str]
    changes: dict[str, int]
    repeated: int
    rows: list[list[Cell]]


def read_messages(protocol: str) -> list[Message]:
    """Read the messages of one protocol, in an order in which TiCDC sent them."""
    with lzma.open(_stream(protocol), "rt", encoding="ascii") as lines:
        return [Message(partition, _bytes(key), _bytes(value)) for partition, key, value in map(json.loads, lines)]


def write_messages(protocol: str, messages: Iterable[Message]) -> Path:
    """Write the messages of one protocol."""
    lines = ([message.partition, _text(message.key), _text(message.value)] for message in messages)
    return _write(_stream(protocol), lines)


def read_truth(path: Path = TRUTH) -> dict[str, TableTruth]:
    """Read the final state of each table, by `database.table`."""
    with lzma.open(path, "rt", encoding="ascii") as lines:
        truths = [TableTruth(**json.loads(line)) for line in lines]
    return {truth.table: truth for truth in truths}


def write_truth(truths: Mapping[str, TableTruth], path: Path = TRUTH) -> Path:
    """Write the final state of each table."""
    return _write(path, map(dataclasses.asdict, truths.values()))


def _stream(protocol: str) -> Path:
    return FOLDER / f"{protocol}.jsonl.xz"


def _write(path: Path, lines: Iterable[object]) -> Path:
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.write_bytes(lzma.compress(text.encode("ascii"), preset=9 | lzma.PRESET_EXTREME))
    return path


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", _BYTES_AS_TEXT)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", _BYTES_AS_TEXT)
