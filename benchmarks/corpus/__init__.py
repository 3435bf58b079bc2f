"""Seeded messages as TiCDC's encoders write them: one work for each kind of topic that is measured.

`messages("canal-json")` yields them for ever; the same seed, the same messages.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from benchmarks.corpus import canal_json, debezium, open_protocol
from benchmarks.corpus.tables import DATABASE, KINDS, LABELS, NARROW, ORDERS, WIDE, Table

__all__ = ["DATABASE", "KINDS", "LABELS", "ORDERS", "WORKS", "Message", "Table", "Work", "messages", "watermarks"]


class Message(NamedTuple):
    """A Kafka record's key and value, and how many rows of a changelog it holds."""

    key: bytes | None
    value: bytes | None
    rows: int


@dataclass(frozen=True)
class Work:
    """A kind of topic.

    Attributes:
        name: what tables call it.
        protocol: the option `protocol`.
        table: the one table in it.
        records: makes (key, value, rows), for ever, of (table, seed, bytes of the column `note`).
    """

    name: str
    protocol: str
    table: Table
    records: Callable[..., Iterator[tuple[bytes | None, bytes, int]]]

    @property
    def options(self) -> dict[str, str]:
        """What `ticdc` is told: what the messages lack. debezium's DDL lacks nothing."""
        hints = "" if self.protocol == "debezium" else self.table.hints
        return {"schemaHints": hints} if hints else {}


WORKS = {
    work.name: work
    for work in (
        Work("canal-json", "canal-json", ORDERS, canal_json.records),
        Work("canal-json, 3 columns", "canal-json", NARROW, canal_json.records),
        Work("canal-json, 60 columns", "canal-json", WIDE, canal_json.records),
        Work("open-protocol", "open-protocol", ORDERS, open_protocol.records),
        Work("debezium, no schema", "debezium", ORDERS, partial(debezium.records, schema=False)),
        Work("debezium, schema", "debezium", ORDERS, partial(debezium.records, schema=True)),
    )
}


def messages(work: str = "canal-json", seed: int = 0, note_bytes: int = 0) -> Iterator[Message]:
    """Yield row messages for ever: inserts, 30 % updates with the whole old row, and a few deletes.

    Args:
        work: the name of one of `WORKS`.
        seed: the same seed, the same messages.
        note_bytes: how long to make the text column `note`; 0 for a short one.
    """
    chosen = WORKS[work]
    return (Message(*record) for record in chosen.records(chosen.table, seed, note_bytes))


def watermarks(seed: int = 0) -> Iterator[Message]:
    """Yield canal-json's watermark messages for ever: records without rows."""
    return (Message(*record) for record in canal_json.watermarks(seed))
