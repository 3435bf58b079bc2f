"""Kernels turn a column of cells into an Arrow array; each protocol has a table of its encodings."""
