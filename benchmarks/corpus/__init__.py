"""Seeded messages as TiCDC's encoders write them: one `Work` for each type of topic that is measured.

`messages("canal-json")` yields them without end; the same seed yields the same messages.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from benchmarks.corpus import avro, canal_json, debezium, open_protocol, simple
from benchmarks.corpus.tables import COLUMN_TYPES, DATABASE, LABELS, NARROW, ORDERS, WIDE, Table

__all__ = [
    "COLUMN_TYPES",
    "DATABASE",
    "LABELS",
    "ORDERS",
    "WORKS",
    "Message",
    "Table",
    "Work",
    "messages",
    "watermarks",
]


class Message(NamedTuple):
    """Key and value of a Kafka record, and the number of changelog rows in it."""

    key: bytes | None
    value: bytes | None
    rows: int


@dataclass(frozen=True)
class Work:
    """A type of topic that is measured.

    Attributes:
        name: its name in tables.
        protocol: the option `protocol`.
        table: the table in it.
        records: yields (key, value, rows) without end, from (table, seed, bytes of the column `note`).
    """

    name: str
    protocol: str
    table: Table
    records: Callable[..., Iterator[tuple[bytes | None, bytes, int]]]

    @property
    def options(self) -> dict[str, str]:
        """The options that supply what the messages lack; DDL of debezium and definitions of simple lack nothing."""
        if self.protocol == "avro":
            hints = ", ".join(f"{name} smallint" for name, type_name in self.table.columns if type_name == "smallint")
            return {"schema.registry.url": avro.registry_url(), **({"schemaHints": hints} if hints else {})}
        hints = "" if self.protocol in ("debezium", "simple") else self.table.hints
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
        Work("simple", "simple", ORDERS, simple.records),
        Work("simple, 60 columns", "simple", WIDE, simple.records),
        Work("avro", "avro", ORDERS, avro.records),
        Work("avro, 60 columns", "avro", WIDE, avro.records),
    )
}


def messages(work: str = "canal-json", seed: int = 0, note_bytes: int = 0) -> Iterator[Message]:
    """Yield row messages without end: inserts, 30 % updates with the whole old row, and a few deletes.

    Args:
        work: the name of one of `WORKS`.
        seed: the same seed yields the same messages.
        note_bytes: length of the text column `note`; 0 for a short text.
    """
    chosen = WORKS[work]
    return (Message(*record) for record in chosen.records(chosen.table, seed, note_bytes))


def watermarks(seed: int = 0) -> Iterator[Message]:
    """Yield canal-json's watermark messages without end: records without rows."""
    return (Message(*record) for record in canal_json.watermarks(seed))
