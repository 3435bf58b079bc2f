"""Rows as of a TSO: TiDB's SQL, and Spark's JDBC source that runs it."""
