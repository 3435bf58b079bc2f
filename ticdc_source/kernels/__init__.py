"""Kernels: a column of wire cells → one `pyarrow.Array`. Which one a type gets is each protocol's table."""

from ticdc_source.kernels.base import Cell, Cells, Kernel, Settings, Wire, arrays_taken, convert, failing_cells, kernel

__all__ = ["Cell", "Cells", "Kernel", "Settings", "Wire", "arrays_taken", "convert", "failing_cells", "kernel"]
