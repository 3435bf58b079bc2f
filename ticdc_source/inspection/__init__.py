"""Inspection finds out what a topic holds and whether it can be reached, without Spark."""
