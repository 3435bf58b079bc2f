"""What Python passes to native code. `_native.pyi` declares what Python can call, and what that returns.

native/src/contract.rs mirrors these classes. The extension module has the checksums of these three files: it is not
used if one has changed since it was built (`native.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from ticdc_source.schema.change_order import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE


class PackedMessages(NamedTuple):
    """Messages that are slices of one buffer.

    Attributes:
        data: the buffer.
        bounds: for each message, its start and its exclusive end in `data`: two int32 in native byte order.
    """

    data: bytes
    bounds: bytes


Messages: TypeAlias = list[bytes] | PackedMessages


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Consecutive records of one record batch.

    Attributes:
        begin: the index of the first record's first byte.
        count: the number of records.
        offset: the batch's base offset.
        highest_offset: the highest offset that a record of the batch may have.
        timestamp: the batch's base timestamp.
        append_time: with LogAppendTime, the batch's max timestamp; else None.
    """

    begin: int
    count: int
    offset: int
    highest_offset: int
    timestamp: int
    append_time: int | None


class Slot(Enum):
    """Where a number in a message is kept."""

    COMMIT_TS = auto()
    START_TS = auto()  # of the transaction
    BUILD_TS = auto()  # when the event was encoded, in ms
    EVENT_TIME = auto()  # when the change was committed, in ms; stands in for a missing commit-ts
    IGNORED = auto()


class Image(Enum):
    """What a row in a message is."""

    PREIMAGE = auto()  # the row before an update
    MAIN = auto()  # the row after an insert or an update, or the deleted one


class Operation(Enum):
    """What happened to a row."""

    INSERT = auto()
    UPDATE = auto()
    DELETE = auto()


@dataclass(frozen=True, slots=True)
class Const:
    """Matches these bytes."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Choice:
    """Matches the first of these byte strings that fits, without backtracking: a longer one precedes its prefix."""

    choices: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Number:
    """Matches an integer from 1 to `most`, of at most 18 digits, and keeps it in a slot."""

    slot: Slot
    most: int


@dataclass(frozen=True, slots=True)
class Members:
    """Matches these members of an object (`"name":"text"`), each once, in any order.

    No path through the branches has this step twice.
    """

    members: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Row:
    """Matches a row, and keeps its cells as this image."""

    image: Image


class AvroType(Enum):
    """A primitive type of Avro."""

    BOOLEAN = auto()
    LONG = auto()  # also for `int`: they are written alike
    FLOAT = auto()
    DOUBLE = auto()
    BYTES = auto()
    STRING = auto()


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a row in Avro.

    Attributes:
        avro_type: its type.
        null: of a union of two, which of them is null; None if it is no union.
    """

    avro_type: AvroType
    null: int | None


@dataclass(frozen=True, slots=True)
class Forget:
    """Forgets the row that was kept as this image; reads no bytes."""

    image: Image


@dataclass(frozen=True, slots=True)
class AvroRow:
    """Matches a row in Avro, and keeps its cells as this image."""

    image: Image
    fields: Sequence[AvroField]


@dataclass(frozen=True, slots=True)
class TextRow:
    """Matches a row of MySQL's text protocol, and keeps its cells as this image.

    Attributes:
        binary: for each column, whether its bytes need not be UTF-8.
    """

    image: Image
    binary: Sequence[bool]


class CSVDialect(NamedTuple):
    """How rows of CSV are written.

    Attributes:
        quote: one byte around texts, or none.
        terminator: what ends a row.
    """

    delimiter: bytes
    quote: bytes
    null: bytes
    terminator: bytes


@dataclass(frozen=True, slots=True)
class CSVRow:
    """Matches a row of CSV, and keeps its cells as this image; does not match its terminator.

    Attributes:
        quoted: for each column, whether its values stand in quotes.
    """

    image: Image
    quoted: Sequence[bool]
    dialect: CSVDialect


@dataclass(frozen=True, slots=True)
class AvroNumber:
    """Matches an integer of Avro from 1 to `most`, and keeps it in a slot."""

    slot: Slot
    most: int


@dataclass(frozen=True, slots=True)
class AvroSkip:
    """Matches any value of a type of Avro."""

    avro_type: AvroType


@dataclass(frozen=True, slots=True)
class SetOperation:
    """Sets the operation; reads no bytes. Every path has this step."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Branch:
    """Takes the first way whose bytes match, without backtracking; the steps behind the branch follow in any case."""

    ways: Sequence[Way]


Step: TypeAlias = (
    Const
    | Choice
    | Number
    | Members
    | Row
    | Forget
    | AvroRow
    | TextRow
    | CSVRow
    | AvroNumber
    | AvroSkip
    | SetOperation
    | Branch
)


class Way(NamedTuple):
    """One way of a branch: the bytes that it begins with, and its steps."""

    begin: bytes
    steps: Sequence[Step]


@dataclass(frozen=True, slots=True)
class Program:
    """A pattern of the messages of one version of a table, as a short program over bytes.

    Attributes:
        steps: the steps.
        heads: for each column of a row in JSON, the bytes before its cell.
        tail: the bytes after each cell.
        partial: whether a preimage may lack columns, which then have the values of the main image.
    """

    steps: Sequence[Step]
    heads: Sequence[bytes]
    tail: bytes
    partial: bool


class PlainCast(Enum):
    """Casts without parameters."""

    JSON = auto()  # each cell's JSON, collected in one array: `[1,null,"x"]`
    TEXT = auto()  # a string
    LATIN1 = auto()  # bytes, written as ISO-8859-1 text
    BASE64 = auto()  # bytes in base64
    BASE64_TEXT = auto()  # UTF-8 text in base64
    TIME = auto()  # microseconds, from MySQL's TIME text
    BYTES = auto()  # bytes, as they are


@dataclass(frozen=True, slots=True)
class IntegerCast:
    """A signed integer of so many bytes; of a number, or of digits in text."""

    text: bool
    bytes: int


@dataclass(frozen=True, slots=True)
class DecimalCast:
    """A decimal of 128 bits, from the same."""

    text: bool
    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class UnscaledCast:
    """A decimal of 128 bits, from a big-endian integer in bytes of Avro, to which so many zeros are added."""

    precision: int
    zeros: int


@dataclass(frozen=True, slots=True)
class FloatCast:
    """A number of 32 or 64 bits with a fraction, from the same."""

    text: bool
    single: bool


@dataclass(frozen=True, slots=True)
class DateCast:
    """Days since 1970, of MySQL's text."""

    zero_is_null: bool


@dataclass(frozen=True, slots=True)
class DatetimeCast:
    """Microseconds since 1970, of MySQL's text."""

    zero_is_null: bool


@dataclass(frozen=True, slots=True)
class ZonedCast:
    """Microseconds since 1970, of MySQL's text in an object, which begins with these bytes and ends with `"}`."""

    begin: bytes
    zero_is_null: bool


@dataclass(frozen=True, slots=True)
class LabelCast:
    """The label of an index, from 1, which is a JSON number or digits in text; index 0 is the empty text."""

    text: bool
    labels: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class LabelsCast:
    """The labels of the bits of a mask, which is written in the same ways."""

    text: bool
    labels: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class BitsCast:
    """Up to 64 bits as a signed integer, written in the same ways, or as bytes of Avro."""

    text: bool


@dataclass(frozen=True, slots=True)
class BitCast:
    """One bit, written in the same ways, or as bytes of Avro."""

    text: bool


# How a cell becomes a value. A cast accepts a strict subset of what the kernel of the type accepts.
Cast: TypeAlias = (
    PlainCast
    | IntegerCast
    | DecimalCast
    | UnscaledCast
    | FloatCast
    | DateCast
    | DatetimeCast
    | ZonedCast
    | LabelCast
    | LabelsCast
    | BitsCast
    | BitCast
)


class ColumnCast(NamedTuple):
    """A column that is wanted: its index among the columns of a row, and how its cells become values."""

    column: int
    cast: Cast


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows and columns to read.

    Attributes:
        columns: the columns.
        operations: the operations whose rows are read.
        preimages: whether preimages are read.
        after: a message with this commit-ts or an earlier one does not fit.
        last: a message with a later commit-ts does not fit.
    """

    columns: Sequence[ColumnCast]
    operations: Sequence[Operation]
    preimages: bool
    after: int
    last: int


class ChangeTypes(NamedTuple):
    """The number of each change type."""

    insert: int
    preimage: int
    postimage: int
    delete: int


CHANGE_TYPES = ChangeTypes(INSERT, UPDATE_PREIMAGE, UPDATE_POSTIMAGE, DELETE)
