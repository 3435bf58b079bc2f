"""Kernels: a column of cells → an Arrow array. Each protocol has a table of how it writes the types."""

from ticdc_source.kernels.base import (
    TEXT_CAST,
    Cast,
    Cell,
    Cells,
    Kernel,
    Settings,
    Wire,
    arrays_taken,
    convert,
    failing_cells,
    kernel,
    native_cast,
)

__all__ = [
    "TEXT_CAST",
    "Cast",
    "Cell",
    "Cells",
    "Kernel",
    "Settings",
    "Wire",
    "arrays_taken",
    "convert",
    "failing_cells",
    "kernel",
    "native_cast",
]
