"""One table in Delta or Iceberg: changes are merged into it or appended to its log, and DDL is applied to it."""
