"""A whole database kept in Delta or Iceberg, and the public functions for one table of it. It imports pyspark.

    from ticdc_lakehouse import merge_into

    merge_into(changes, "lake.shop.orders", format="iceberg")

`merge_into` keeps the newest image of each row, `append_log` all changes, which `scd2_view` shows as versions of rows.
`is_merged` says whether a table needs `merge_into` or `append_log`.
`sync` does this for all tables of its topics, in one stream. `ticdc-lakehouse sync` calls it with a `SyncConfig`.
`commits_of` and `resolved_ts_of` say how complete a table is; `purge_deleted` forgets rows that were deleted long ago,
and `maintain` tidies the files. `audit` compares a table with TiDB. `as_of` returns the tables of a sync at
one commit-ts, and `diff` what changed in one. What writes one table is in `lakehouse/ticdc_lakehouse/targets`.
"""

from ticdc_lakehouse.audit.report import AuditReport
from ticdc_lakehouse.sync.auditing import audit
from ticdc_lakehouse.sync.config import MaintainConfig, SyncConfig, TableConfig
from ticdc_lakehouse.sync.database_sync import sync
from ticdc_lakehouse.sync.reports import SyncReport
from ticdc_lakehouse.sync.sync_toml import read_toml
from ticdc_lakehouse.sync.tidb_config import TiDBConfig
from ticdc_lakehouse.sync.time_travel import DatabaseState, as_of, diff
from ticdc_lakehouse.targets.history import scd2_view
from ticdc_lakehouse.targets.log import LogReport, append_log, is_merged
from ticdc_lakehouse.targets.maintenance import commits_of, maintain, purge_deleted, resolved_ts_of
from ticdc_lakehouse.targets.merge import MergeReport, merge_into

__all__ = [
    "AuditReport",
    "DatabaseState",
    "LogReport",
    "MaintainConfig",
    "MergeReport",
    "SyncConfig",
    "SyncReport",
    "TableConfig",
    "TiDBConfig",
    "append_log",
    "as_of",
    "audit",
    "commits_of",
    "diff",
    "is_merged",
    "maintain",
    "merge_into",
    "purge_deleted",
    "read_toml",
    "resolved_ts_of",
    "scd2_view",
    "sync",
]
