"""Kernels turn a column of encoded values into an Arrow array; each protocol has a table of its encodings."""
