"""The driver: what happens once per query, without Spark."""
