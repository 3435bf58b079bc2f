"""Syncs keep a whole database in Delta or Iceberg, in one stream; also its history, views and audits."""
