"""Messages of TiCDC's own encoders, the same changes in three protocols, and what SQL says they come to."""

from examples.data.bundle import (
    FOLDER,
    PROTOCOLS,
    TRUTH,
    Cell,
    Message,
    TableTruth,
    read_messages,
    read_truth,
)

__all__ = [
    "FOLDER",
    "PROTOCOLS",
    "TRUTH",
    "Cell",
    "Message",
    "TableTruth",
    "read_messages",
    "read_truth",
]
