from collections.abc import Sequence
from typing import TypeAlias

# Number of values, number of NULLs, validity, offsets, data; None for a buffer that an array lacks.
Buffers: TypeAlias = tuple[int, int, bytes | None, bytes | None, bytes]

class Scanned:
    fitting: bytes
    others: bytes
    commit_ts: bytes
    build_ts: bytes
    change_types: bytes
    events: bytes
    columns: list[Buffers]

class Scanner:
    def __init__(
        self,
        steps: Sequence[tuple[object, ...]],
        heads: Sequence[Sequence[bytes]],
        tail: bytes,
        casts: Sequence[tuple[int, tuple[object, ...]]],
        *,
        partial: bool,
        operations: Sequence[bool],
        preimages: bool,
        commit_ts: tuple[int, int],
    ) -> None: ...
    def scan_list(self, messages: list[bytes], events: Sequence[int] | None = None) -> Scanned: ...
    def scan_array(
        self,
        count: int,
        offsets: tuple[int, int],
        data: tuple[int, int],
        events: Sequence[int] | None = None,
    ) -> Scanned: ...
