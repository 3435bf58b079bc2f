"""Every error this package raises on purpose.

    TiCDCSourceError
    ├── OptionError (also a ValueError)   an option is missing, unknown, misspelt or contradicts another
    ├── SchemaError                       the messages and the requested schema do not fit together
    │   └── UnsupportedTypeError          a column has a type that no kernel reads
    ├── DecodeError                       a record, or one value of it, cannot be read; carries its address
    │   └── FramingError                  the frames of a record do not add up
    ├── DataLossError                     records of an offset range are gone
    ├── KafkaUnavailableError             the brokers did not answer in time
    ├── CheckpointError                   a stream's checkpoint does not hold offsets
    ├── ClaimCheckUnavailableError        the storage of large messages cannot be read
    └── TargetError                       a table in the lakehouse cannot take the changes

All take positional arguments only, so that they survive pickling between Spark's processes. No message contains the
value of an option that may be a secret.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = [
    "Address",
    "CheckpointError",
    "ClaimCheckUnavailableError",
    "DataLossError",
    "DecodeError",
    "FramingError",
    "KafkaUnavailableError",
    "OptionError",
    "SchemaError",
    "TargetError",
    "TiCDCSourceError",
    "UnsupportedTypeError",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where in Kafka, and where in the table, something was found. Unknown parts are None.

    `database` is only the address of what belongs to no table.
    """

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    table: str | None = None
    column: str | None = None
    database: str | None = None

    def completed_by(self, other: Address) -> Address:
        """Return this address with the parts that only `other` knows."""
        return Address(**(asdict(other) | self._known()))

    def _known(self) -> dict[str, str | int]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        """Return the known parts as `topic=… partition=… offset=… table=… column=…`, or with `database=…`."""
        return " ".join(f"{name}={value}" for name, value in self._known().items())


class TiCDCSourceError(Exception):
    """The root of the tree: it catches everything that the package raises on purpose."""


class OptionError(TiCDCSourceError, ValueError):
    """An option is missing, unknown, misspelt or contradicts another one."""


class SchemaError(TiCDCSourceError):
    """The messages and the requested schema do not fit together."""


class UnsupportedTypeError(SchemaError):
    """A column has a type that no kernel reads."""


class DecodeError(TiCDCSourceError):
    """A record, or one value of it, cannot be read.

    Attributes:
        reason: what is wrong and what to do about it.
        address: where it was found.
    """

    def __init__(self, reason: str, address: Address = Address(), /) -> None:
        super().__init__(reason, address)
        self.reason = reason
        self.address = address

    def __str__(self) -> str:
        """Return `reason (address)`."""
        where = str(self.address)
        return f"{self.reason} ({where})" if where else self.reason

    def at(self, address: Address, /) -> DecodeError:
        """Return the same error with the parts that only `address` knows filled in."""
        return type(self)(self.reason, self.address.completed_by(address))


class FramingError(DecodeError):
    """The frames of a record do not add up: a length beyond the end, or keys without values."""


class DataLossError(TiCDCSourceError):
    """Records between the start and the end of an offset range are gone from Kafka."""


class KafkaUnavailableError(TiCDCSourceError):
    """The brokers did not answer in time."""


class CheckpointError(TiCDCSourceError):
    """A stream's checkpoint does not hold offsets: somebody has edited it."""


class ClaimCheckUnavailableError(TiCDCSourceError):
    """The storage of large messages cannot be read.

    It is an error in every mode, because the message itself may be fine.
    """


class TargetError(TiCDCSourceError):
    """A table in the lakehouse cannot take the changes. Nothing has been written."""
