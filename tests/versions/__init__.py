"""The same batch and streams on every supported version of PySpark."""
