"""What all micro-batches of a sync share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.failures import Shared, text_of
from ticdc_lakehouse.syncs.joining import Joining
from ticdc_lakehouse.syncs.kept_records import KeptRecords
from ticdc_lakehouse.syncs.quarantine import Quarantine
from ticdc_lakehouse.syncs.redaction import Redaction
from ticdc_lakehouse.syncs.status import TableStatus, now_text
from ticdc_lakehouse.syncs.steps import Event, Rules, Step, step
from ticdc_lakehouse.syncs.views import Views
from ticdc_source.developer_api import DDLEvent

__all__ = ["SyncContext"]

_LONGEST_REASON = 2000  # characters


@dataclass(slots=True, kw_only=True)
class SyncContext:
    """What is copied, where to, and what this process has found out about it.

    Attributes:
        spark: the session.
        config: what is copied, and how.
        shared: tells errors of one table from those of all.
        redaction: hides secrets.
        quarantine: the table of bad records.
        views: the views of the tables.
        joining: reads tables from TiDB.
        lost_until: the topics may have lost changes up to this commit-ts, so that only a table created after it is
            complete without a load; None if they have lost none.
        checked: the tables whose targets this process has found to be the sync's own.
    """

    spark: SparkSession
    config: SyncConfig
    shared: Shared
    redaction: Redaction
    quarantine: Quarantine
    views: Views
    joining: Joining
    lost_until: int | None = None
    checked: set[str] = field(default_factory=set)

    def step(self, status: TableStatus, event: Event) -> Step:
        """Return what becomes of a table now, and what is to be done about it."""
        return step(status, event, Rules.of(self.config, status), now_text())

    def kept(self, table: str) -> KeptRecords:
        """Return the records of a table that are kept because they are not written yet."""
        return KeptRecords(self.spark, self.config.checkpoint, table)

    def reason(self, error: Exception) -> str:
        """Return why a table is set aside, without secrets."""
        return self.redaction.text(text_of(error))[:_LONGEST_REASON]

    def known_ddl(self, statuses: Mapping[str, TableStatus]) -> dict[str, Sequence[DDLEvent]]:
        """Return the DDL that loads tell; every table that the sync knows is named as in its status."""
        return {**dict.fromkeys(statuses, ()), **self.joining.known_ddl}
