"""Every error this package raises on purpose.

    TiCDCSourceError
    ├── OptionError (also a ValueError)   an option is missing, unknown, misspelt or contradicts another
    ├── SchemaError                       the messages and the schema asked for do not fit together
    │   └── UnsupportedTypeError          a column has a type that no kernel reads
    ├── DecodeError                       a record, or one value of it, cannot be read; carries its address
    │   └── FramingError                  open-protocol frames that do not add up
    ├── DataLossError                     records between the start and the end of a range are gone
    ├── KafkaUnavailableError             the brokers did not answer in time
    └── ClaimCheckUnavailableError        the storage of large messages cannot be read

All take positional arguments only, so that they survive pickling between Spark's processes.
A message never contains an option's value that may be a secret.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "Address",
    "ClaimCheckUnavailableError",
    "DataLossError",
    "DecodeError",
    "FramingError",
    "KafkaUnavailableError",
    "OptionError",
    "SchemaError",
    "TiCDCSourceError",
    "UnsupportedTypeError",
]


class Address(NamedTuple):
    """Where in Kafka, and where in the table, something was found; unknown parts are None."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    table: str | None = None
    column: str | None = None

    def completed_by(self, other: Address) -> Address:
        """Return this address with the parts that only `other` knows."""
        return Address(
            self.topic if self.topic is not None else other.topic,
            self.partition if self.partition is not None else other.partition,
            self.offset if self.offset is not None else other.offset,
            self.table if self.table is not None else other.table,
            self.column if self.column is not None else other.column,
        )

    def __str__(self) -> str:
        """Return the known parts as `topic=… partition=… offset=… table=… column=…`."""
        return " ".join(f"{name}={value}" for name, value in zip(self._fields, self, strict=True) if value is not None)


class TiCDCSourceError(Exception):
    """Root of the tree: catch this to catch everything that the package raises on purpose."""


class OptionError(TiCDCSourceError, ValueError):
    """An option is missing, unknown, misspelt or contradicts another one."""


class SchemaError(TiCDCSourceError):
    """The messages and the schema asked for do not fit together."""


class UnsupportedTypeError(SchemaError):
    """A column has a type that no kernel reads."""


class DecodeError(TiCDCSourceError):
    """A record, or one value of it, cannot be read.

    Attributes:
        reason: what is wrong and what to do about it.
        address: where it was found.
    """

    def __init__(self, reason: str, address: Address = Address(), /) -> None:  # noqa: B008 (immutable)
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
    """Open-protocol frames that do not add up: a length beyond the end, or keys without values."""


class DataLossError(TiCDCSourceError):
    """Records between the start and the end of an offset range are gone from Kafka."""


class KafkaUnavailableError(TiCDCSourceError):
    """The brokers did not answer in time."""


class ClaimCheckUnavailableError(TiCDCSourceError):
    """The storage of large messages cannot be read: an error in every mode, as it says nothing of the message."""
