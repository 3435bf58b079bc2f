# What `__init__.py` imports when it is first used, for type checkers.
from ticdc_source.driver.batches import commit_range as commit_range
from ticdc_source.driver.batches import resolved_ts as resolved_ts
from ticdc_source.driver.stream_progress import StreamProgress as StreamProgress
from ticdc_source.errors import CheckpointError as CheckpointError
from ticdc_source.errors import ClaimCheckUnavailableError as ClaimCheckUnavailableError
from ticdc_source.errors import DataLossError as DataLossError
from ticdc_source.errors import DecodeError as DecodeError
from ticdc_source.errors import FramingError as FramingError
from ticdc_source.errors import KafkaUnavailableError as KafkaUnavailableError
from ticdc_source.errors import OptionError as OptionError
from ticdc_source.errors import SchemaError as SchemaError
from ticdc_source.errors import TargetError as TargetError
from ticdc_source.errors import TiCDCSourceError as TiCDCSourceError
from ticdc_source.errors import UnsupportedTypeError as UnsupportedTypeError
from ticdc_source.lakehouse.log import LogReport as LogReport
from ticdc_source.lakehouse.log import append_log as append_log
from ticdc_source.lakehouse.log import scd2_view as scd2_view
from ticdc_source.lakehouse.maintenance import commits_of as commits_of
from ticdc_source.lakehouse.maintenance import purge_deleted as purge_deleted
from ticdc_source.lakehouse.maintenance import resolved_ts_of as resolved_ts_of
from ticdc_source.lakehouse.merge import MergeReport as MergeReport
from ticdc_source.lakehouse.merge import merge_into as merge_into
from ticdc_source.source import TiCDCDataSource as TiCDCDataSource
from ticdc_source.spark.frames import decode as decode
from ticdc_source.spark.frames import infer_schema as infer_schema
from ticdc_source.spark.listener import progress_listener as progress_listener
from ticdc_source.spark.snapshot import current_tso as current_tso
from ticdc_source.spark.snapshot import snapshot as snapshot
from ticdc_source.spark.sync_state import SyncState as SyncState
from ticdc_source.spark.tables import Tables as Tables
from ticdc_source.spark.tables import tables as tables

__all__: list[str]  # noqa: PYI035 (the names above)
__version__: str
