"""Spark: the data source, its readers, and frames of records."""
