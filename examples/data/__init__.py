"""Messages of TiCDC's own encoders: the same changes in three protocols, and the tables that SQL has after them."""

from examples.data.bundle import FOLDER, PROTOCOLS, TRUTH, Cell, Message, TableTruth, read_messages, read_truth

__all__ = ["FOLDER", "PROTOCOLS", "TRUTH", "Cell", "Message", "TableTruth", "read_messages", "read_truth"]
