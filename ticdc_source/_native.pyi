from collections.abc import Sequence
from typing import TypeAlias

# Number of values, number of NULLs, validity, offsets, data; None for a buffer that an array lacks.
Buffers: TypeAlias = tuple[int, int, bytes | None, bytes | None, bytes]

INTERFACE: int

class Scanned:
    accepted: bytes
    declined: bytes
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
        commit_ts_range: tuple[int, int],
    ) -> None: ...
    def scan(self, messages: list[bytes] | tuple[bytes, bytes], selected: Sequence[int] | None = None) -> Scanned: ...

class Prefixes:
    def __init__(self, marker: bytes) -> None: ...
    def learn(self, message: bytes, end: int, table: int) -> bool: ...
    def tables(self, messages: list[bytes] | tuple[bytes, bytes], indexes: Sequence[int] | None = None) -> bytes: ...
    def __len__(self) -> int: ...

# Of records of one batch, one behind the other: the index of the first byte, how many they are, the offset and the time
# that theirs are relative to, and the broker's own time, if that is what the topic keeps.
_Run: TypeAlias = tuple[int, int, int, int, int | None]
_Headers: TypeAlias = list[list[tuple[str, bytes | None]]]
# The bounds of values (`events.Spans`) and the number of their bytes; a list if some are null.
_Values: TypeAlias = tuple[bytes, int] | list[bytes | None]

def walk_records(data: bytes, at: int, end: int, max_records: int, max_bytes: int) -> tuple[int, int, int]: ...
def cut_runs(
    data: bytes, runs: Sequence[_Run], wants_headers: bool
) -> tuple[int | list[int], list[int], list[bytes | None], _Values, _Headers | None] | None: ...

class Framed:
    records: bytes
    indexes: bytes
    ends: bytes
    commit_ts: bytes
    bounds: bytes
    ends_of_keys: list[bytes]
    declined: list[int]

def split_frames(keys: Sequence[bytes | None], values: list[bytes] | tuple[bytes, bytes]) -> Framed: ...
