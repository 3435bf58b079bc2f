"""A target compared with its table in TiDB as of one TSO, and repaired; imports pyspark."""
