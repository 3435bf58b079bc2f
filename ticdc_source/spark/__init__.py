"""The Spark data source, its readers, and the decoding of DataFrames."""
