# The public names and their modules: type checkers read them here, and `__init__.py` imports one when it is first used.
from ticdc_lakehouse.audits.table_audit import AuditReport as AuditReport
from ticdc_lakehouse.audits.table_audit import audit as audit
from ticdc_lakehouse.errors import LogTypeError as LogTypeError
from ticdc_lakehouse.errors import TargetError as TargetError
from ticdc_lakehouse.errors import UnexplainedChangeError as UnexplainedChangeError
from ticdc_lakehouse.syncs.config import MaintainConfig as MaintainConfig
from ticdc_lakehouse.syncs.config import SyncConfig as SyncConfig
from ticdc_lakehouse.syncs.config import TableConfig as TableConfig
from ticdc_lakehouse.syncs.database_sync import sync as sync
from ticdc_lakehouse.syncs.reports import SyncReport as SyncReport
from ticdc_lakehouse.syncs.sync_toml import read_toml as read_toml
from ticdc_lakehouse.syncs.time_travel import DatabaseState as DatabaseState
from ticdc_lakehouse.syncs.time_travel import as_of as as_of
from ticdc_lakehouse.targets.log import LogReport as LogReport
from ticdc_lakehouse.targets.log import append_log as append_log
from ticdc_lakehouse.targets.log import is_merged as is_merged
from ticdc_lakehouse.targets.log import scd2_view as scd2_view
from ticdc_lakehouse.targets.maintenance import commits_of as commits_of
from ticdc_lakehouse.targets.maintenance import maintain as maintain
from ticdc_lakehouse.targets.maintenance import purge_deleted as purge_deleted
from ticdc_lakehouse.targets.maintenance import resolved_ts_of as resolved_ts_of
from ticdc_lakehouse.targets.merge import MergeReport as MergeReport
from ticdc_lakehouse.targets.merge import merge_into as merge_into
from ticdc_lakehouse.tidb import TiDBConfig as TiDBConfig

__all__: list[str]  # noqa: PYI035 (the names above)
