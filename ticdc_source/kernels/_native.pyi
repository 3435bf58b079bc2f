from collections.abc import Sequence

from ticdc_source.kernels.contract import ChangeTypes, Messages, Program, RecordRun, Wanted

# Of each file that says what Python and native code hand to one another, from the project's folder: its CRC-32.
CONTRACT: dict[str, int]

# Bytes that hold numbers hold them in native byte order.

# A column: the buffers of an Arrow array, None for one that it lacks.
class ColumnBuffers:
    length: int
    nulls: int
    validity: bytes | None
    offsets: bytes | None
    data: bytes

# What a scan has read.
class Scanned:
    accepted: bytes  # the indexes of the messages that fit, rising; int32
    declined: bytes  # the indexes of the others; int32
    commit_ts: bytes  # of each accepted message; -1 if it lacks it; int64
    start_ts: bytes | None  # likewise; None if all lack it
    build_ts: bytes  # when it was encoded, in ms; -1 if it lacks it; int64
    change_types: bytes  # of each image; int8
    events: bytes  # of each image, the index of its message; int32
    columns: list[ColumnBuffers]  # of each column that is wanted

# Reads the messages of one version of one table into columns.
class Scanner:
    def __init__(self, program: Program, wanted: Wanted, change_types: ChangeTypes) -> None: ...
    def scan(self, messages: Messages, selected: Sequence[int] | None = None) -> Scanned: ...

# The prefixes that a read has learned: what row messages begin with.
class Prefixes:
    def __init__(self, marker: bytes) -> None: ...
    def learn(self, message: bytes, end: int, table: int) -> bool: ...
    def tables(self, messages: Messages, indexes: Sequence[int] | None = None) -> bytes: ...
    def __len__(self) -> int: ...

# How far a walk over records came.
class Walked:
    count: int
    after: int  # the index of the next record's first byte
    missing: int  # how many bytes of the next record are missing at least; 0 if it is not cut off, or cannot be found

# The parts of records.
class CutRecords:
    first_offset: int | None  # if the offset of each of the others is one more than that before it
    offsets: list[int]  # empty if `first_offset` says it
    timestamps: list[int]
    keys: list[bytes | None]
    bounds: bytes | None  # if no value is null: of each, the index of its first byte and of the byte behind it; int32
    nbytes: int  # the number of bytes between all bounds
    values: list[bytes | None]  # empty if there are bounds
    headers: list[list[tuple[str, bytes | None]]] | None

def walk_records(data: bytes, at: int, end: int, max_records: int, max_bytes: int) -> Walked: ...
def cut_runs(data: bytes, runs: Sequence[RecordRun], previous: int, wants_headers: bool) -> CutRecords | None: ...

# Rows of MySQL's text protocol.
class CutPackets:
    bounds: bytes  # of each, the index of its first byte and of the byte behind it; two int32
    after: int  # the index behind the last one

# The row packets in the bytes of a result, up to the first that is cut off or no row; `base` is added to their bounds.
def cut_packets(data: bytes, base: int) -> CutPackets: ...

# Records of open-protocol, split into events.
class Framed:
    records: bytes  # of each event; int32
    indexes: bytes  # of each event, its index in the record; int32
    ends: bytes  # of each event, an index into `ends_of_keys`; int32
    commit_ts: bytes  # of each event; int64
    bounds: bytes  # of each event, where its value frame lies in the bytes that all values lie in; two int32
    ends_of_keys: list[bytes]  # the distinct ends of key frames, behind the commit-ts
    declined: list[int]  # the records that are left to the caller

def split_frames(keys: Sequence[bytes | None], values: Messages) -> Framed: ...
