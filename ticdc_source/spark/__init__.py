"""Spark: the data source readers, the only package that imports pyspark."""
