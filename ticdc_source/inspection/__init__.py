"""Inspection finds out what a topic holds and whether the brokers can be reached, without Spark."""
