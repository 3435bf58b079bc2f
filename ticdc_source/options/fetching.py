"""What options say of fetching records, from topics or from files."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FetchSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How a `Fetcher` reads.

    Attributes:
        max_records: records in a chunk at most.
        max_bytes: bytes of keys and values in a chunk at most, unless it is a single record.
        poll_timeout_ms: how long to wait for a record that should be there.
        fail_on_data_loss: whether missing records are an error, or a warning.
        lost_too: what the warning adds: what else is lost with records.
        max_record_bytes: bytes of a record of a compressed record batch at most; a larger one is a chunk of its own,
            without key and value and with `Chunk.failure`.
        native: whether the native path cuts record batches, if it is there.
    """

    max_records: int
    max_bytes: int
    include_headers: bool = False
    poll_timeout_ms: int = 120_000
    fail_on_data_loss: bool = True
    lost_too: str = ""
    max_record_bytes: int = 72 << 20
    native: bool = True
