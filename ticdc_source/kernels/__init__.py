"""Kernels: a column of cells → an Arrow array. Each protocol has a table of how it writes the types."""

from ticdc_source.kernels.base import Cell, Cells, Kernel, Settings, Wire, arrays_taken, convert, failing_cells, kernel

__all__ = ["Cell", "Cells", "Kernel", "Settings", "Wire", "arrays_taken", "convert", "failing_cells", "kernel"]
