"""Changes → tables in Delta and Iceberg that stay equal to TiDB's. It imports pyspark.

    from ticdc_source.lakehouse import merge_into

    merge_into(changes, "lake.shop.orders", format="iceberg")

`merge_into` keeps the newest image of each row, `append_log` all changes, which `scd2_view` shows as versions of rows;
`is_merged` says which of them a table needs.
`sync` keeps all tables of topics so, in one stream: what `ticdc-source sync` runs, on a `SyncConfig`.
`commits_of` and `resolved_ts_of` say how complete a table is; `purge_deleted` forgets rows that were deleted long ago,
and `maintain` tidies the files.
"""

from ticdc_source.lakehouse.database.config import MaintainConfig, SyncConfig, TableConfig
from ticdc_source.lakehouse.database.sync import SyncReport, sync
from ticdc_source.lakehouse.database.tidb_config import TiDBConfig
from ticdc_source.lakehouse.history import scd2_view
from ticdc_source.lakehouse.log import LogReport, append_log, is_merged
from ticdc_source.lakehouse.maintenance import commits_of, maintain, purge_deleted, resolved_ts_of
from ticdc_source.lakehouse.merge import MergeReport, merge_into

__all__ = [
    "LogReport",
    "MaintainConfig",
    "MergeReport",
    "SyncConfig",
    "SyncReport",
    "TableConfig",
    "TiDBConfig",
    "append_log",
    "commits_of",
    "is_merged",
    "maintain",
    "merge_into",
    "purge_deleted",
    "resolved_ts_of",
    "scd2_view",
    "sync",
]
