"""A whole database kept in Delta or Iceberg, in one stream; and its past, its views and its audits."""
