"""Kernels: a column of wire cells → one `pyarrow.Array`. Which one a type gets is each protocol's table."""

from ticdc_source.kernels.base import Cells, Kernel, Settings, Wire, convert, failing_cells, kernel, takes_arrays

__all__ = ["Cells", "Kernel", "Settings", "Wire", "convert", "failing_cells", "kernel", "takes_arrays"]
