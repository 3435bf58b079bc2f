"""Records as every source yields them: a bounded run of one topic partition, as parallel lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ticdc_source.errors import Address
from ticdc_source.kernels.arrays import Binaries
from ticdc_source.schema.table_name import TableName

# Of records whose partition or offset nobody knows, such as rows of a DataFrame; the topic is then "".
UNKNOWN_PARTITION = -(1 << 31)
UNKNOWN_OFFSETS = -(1 << 62)  # and the offsets after it, which number the rows
KNOWN_OFFSETS = UNKNOWN_OFFSETS // 2  # those from here on are as they are


class _Lists(NamedTuple):
    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]


@dataclass(slots=True)
class Chunk:
    """A bounded run of records of one topic partition, in offset order.

    Attributes:
        offsets: one per record, rising, not always by one; a range if by one and the native path cut them.
        timestamps: Kafka's record timestamps, in milliseconds since the epoch; -1 for none.
        keys: the records' keys; None is Kafka's null, b"" an empty key.
        values: the records' values; None is Kafka's null. They may be an array if none is null.
        headers: one list of (key, value) per record; None unless requested.
        failure: why the chunk's only record could not be extracted from its record batch; its key and value are None.
    """

    topic: str
    partition: int
    offsets: list[int] | range = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] | Binaries = field(default_factory=list)
    headers: list[list[tuple[str, bytes | None]]] | None = None
    failure: str | None = None

    @classmethod
    def of_rows(
        cls,
        topic: str,
        partition: int,
        first: int,
        rows: list[bytes | None] | Binaries,
        key: bytes | None = None,
        *,
        include_headers: bool = False,
    ) -> Chunk:
        """Rows without times, numbered from `first` on, with the same key."""
        count = len(rows)
        headers: list[list[tuple[str, bytes | None]]] | None = [[] for _ in range(count)] if include_headers else None
        return cls(topic, partition, range(first, first + count), [-1] * count, [key] * count, rows, headers)

    def __len__(self) -> int:
        return len(self.offsets)

    def lists(self) -> _Lists:
        """Return the chunk's lists, for appending; offsets and values become lists if they are not."""
        if not isinstance(self.offsets, list):
            self.offsets = list(self.offsets)
        if isinstance(self.values, Binaries):
            self.values = list[bytes | None](self.values)
        return _Lists(self.offsets, self.timestamps, self.keys, self.values)

    def place(self, position: int) -> tuple[int, int]:
        return self.partition, self.offsets[position]

    def part(self, first: int, after: int) -> Chunk:
        values = self.values
        return Chunk(
            self.topic,
            self.partition,
            self.offsets[first:after],
            self.timestamps[first:after],
            self.keys[first:after],
            values.part(first, after) if isinstance(values, Binaries) else values[first:after],
            None if self.headers is None else self.headers[first:after],
            self.failure,
        )

    def address(self, position: int, table: TableName | None = None, column: str | None = None) -> Address:
        """The address of the record at an index. A table without a name stands for its database.

        The number of its row replaces an unknown offset.
        """
        offset = self.offsets[position]
        return Address(
            topic=self.topic or None,
            partition=None if self.partition == UNKNOWN_PARTITION else self.partition,
            offset=offset - UNKNOWN_OFFSETS if offset < KNOWN_OFFSETS else offset,
            database=None if table is None or table.table else table.database or None,
            table=None if table is None or not table.table else str(table),
            column=column,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How a `Fetcher` reads.

    Attributes:
        max_bytes: about the most bytes of keys and values in a chunk of several records.
        lost_too: what else is lost with records, for the warning.
        max_record_bytes: the most bytes of a record in a compressed batch; a larger one is a chunk of its own, with
            `Chunk.failure` instead of key and value.
        native: whether native code, if built, cuts record batches and rows.
    """

    max_records: int
    max_bytes: int
    include_headers: bool = False
    poll_timeout_ms: int = 120_000
    fail_on_data_loss: bool = True
    lost_too: str = ""
    max_record_bytes: int = 72 << 20
    native: bool = True
