# The public names and their modules: type checkers read them here, and `__init__.py` imports one when it is first used.
from ticdc_source import errors as errors
from ticdc_source.errors import TiCDCSourceError as TiCDCSourceError
from ticdc_source.inspection.listener import progress_listener as progress_listener
from ticdc_source.inspection.progress import StreamProgress as StreamProgress
from ticdc_source.planning.batch_reads import commit_range as commit_range
from ticdc_source.planning.batch_reads import complete_until as complete_until
from ticdc_source.planning.batch_reads import read_arrow as read_arrow
from ticdc_source.spark.frames import decode as decode
from ticdc_source.spark.frames import infer_schema as infer_schema
from ticdc_source.spark.frames import packed_schema as packed_schema
from ticdc_source.spark.source import TiCDCDataSource as TiCDCDataSource
from ticdc_source.spark.sync_state import SyncState as SyncState
from ticdc_source.spark.tables import Tables as Tables
from ticdc_source.spark.tables import tables as tables

__all__: list[str]  # noqa: PYI035 (the names above)
__version__: str
