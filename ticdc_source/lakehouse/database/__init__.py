"""A whole database kept in the lakehouse: what `ticdc-source sync` runs.

`config`, `names` and `sync_toml` need no Spark.
"""
