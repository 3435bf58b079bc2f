"""The same batch and stream on every PySpark that is supported."""
