"""Spark imports every package named `pyspark_*` and registers its `DefaultSource`: format("ticdc") needs no more."""

from ticdc_source import TiCDCDataSource as DefaultSource

__all__ = ["DefaultSource"]
