"""Syncs copy a whole database into Delta or Iceberg in one stream, with its history, views and audits."""
