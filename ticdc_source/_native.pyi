from collections.abc import Sequence
from typing import TypeAlias

# Number of values, number of NULLs, validity, offsets, data; None for a buffer that an array lacks.
Buffers: TypeAlias = tuple[int, int, bytes | None, bytes | None, bytes]

INTERFACE: int

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
