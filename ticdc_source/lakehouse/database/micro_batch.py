"""A micro-batch of a sync: its tables are written side by side, and one that cannot go on is set aside."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from ticdc_source.errors import KafkaUnavailableError, TargetError, TiCDCSourceError
from ticdc_source.lakehouse.database.config import SyncConfig, TableConfig
from ticdc_source.lakehouse.database.kept_records import KeptRecords
from ticdc_source.lakehouse.database.loading import COMPLETE
from ticdc_source.lakehouse.database.names import Layout
from ticdc_source.lakehouse.database.quarantine import Quarantine
from ticdc_source.lakehouse.database.status import Kind, TableStatus
from ticdc_source.lakehouse.database.views import Views
from ticdc_source.lakehouse.log import append_log, is_merged
from ticdc_source.lakehouse.merge import merge_into
from ticdc_source.lakehouse.sql_targets import open_target
from ticdc_source.lakehouse.targets import CommitFacts
from ticdc_source.options.options import Options
from ticdc_source.options.table_filter import parse_table
from ticdc_source.schema.ddl_kinds import ddl_kind
from ticdc_source.schema.model import KEY, MYSQL_TYPE, TABLE
from ticdc_source.spark.frames import decode
from ticdc_source.spark.tables import Tables

__all__ = ["MicroBatch", "Outcome"]

_LONGEST_REASON = 2000  # characters
_CORRUPT = Options(given=frozenset(), kafka={}).column_name_of_corrupt_record
# What Spark says of an error of ours that was raised on a worker.
_OURS = re.compile(r"ticdc_source\.errors\.(\w+): (.*)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a table in a micro-batch.

    Attributes:
        status: its status now.
        images: how many changed rows were written.
        created: whether its target was created.
        bad_records: how many of its records went into quarantine.
    """

    status: TableStatus
    images: int = 0
    created: bool = False
    bad_records: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """The changes of a micro-batch, and where they go.

    Attributes:
        changes: the changes of each table.
        facts: what the commits record.
        config: what is copied, and how.
        layout: where the targets are.
        statuses: the statuses of the tables before this micro-batch, by name.
        quarantine: the table of bad records.
        kept: returns where the records of a table are kept while it is set aside; None if they are there already.
        stopping: is set when the sync is stopped.
        views: the views of the tables.
    """

    changes: Tables
    facts: CommitFacts
    config: SyncConfig
    layout: Layout
    statuses: Mapping[str, TableStatus]
    quarantine: Quarantine
    kept: Callable[[str], KeptRecords] | None
    stopping: threading.Event
    views: Views

    def quarantine_unreadable(self) -> int:
        """Put the records of which nobody can tell the table into quarantine; return how many there are.

        Raises:
            TiCDCSourceError: there are some, and `bad_records` is `fail`.
        """
        if self.changes.corrupt is None or self.changes.records is None:
            return 0
        if self.config.bad_records == "fail":
            raise self.changes.corrupt
        unreadable = self.changes.records.where(F.array_contains("_event_types", "corrupt") & (F.size("_tables") == 0))
        options = {name: text for name, text in self.config.decode_options().items() if name == "protocol"}
        rows = decode(unreadable, outputFormat="event", mode="PERMISSIVE", **options)
        return self.quarantine.add(rows, _CORRUPT, replace(self.facts, app_id=f"{self.facts.app_id}/unreadable"))

    def apply(self, names: Sequence[str]) -> list[Outcome]:
        """Write tables side by side.

        Args:
            names: the tables.
        """
        every = (parse_table(name) for name in [*self.statuses, *names])
        refused = self.layout.refused(table for table in every if self.config.selects(table))
        run = _in_thread(self.changes.records, lambda name: self._apply_one(name, refused.get(parse_table(name))))
        with ThreadPoolExecutor(self.config.parallel, thread_name_prefix="ticdc-sync") as pool:
            return list(pool.map(run, (name for name in names if self.config.selects(parse_table(name)))))

    def _apply_one(self, name: str, refused: TiCDCSourceError | None) -> Outcome:
        """Write the changes of a table, or set it aside.

        Raises:
            Exception: what would stop every table.
        """
        wrong = refused or self.changes.errors.get(name)
        target = "" if refused is not None else self.layout.target(parse_table(name))
        status = self.statuses.get(name) or TableStatus(table_name=name, target=target)
        if status.state == "set aside":
            self._keep(name)
            return Outcome(status)
        if wrong is not None:
            return self._set_aside(status, wrong)
        try:
            return self._write(status, self.changes[name])
        except Exception as error:  # of Spark, Py4J, a catalog or a store: each has its own
            if self._stops_all(error):
                raise
            return self._without_bad_records(status, error)

    def _without_bad_records(self, status: TableStatus, error: Exception) -> Outcome:
        """Write what can be read of a table, if bad records are what is wrong; otherwise set it aside."""
        if self.config.bad_records == "fail" or isinstance(error, TargetError):
            return self._set_aside(status, error)
        try:
            rows = self.changes.persist(self.changes.tolerant(status.table_name))
            writer = f"{self.facts.app_id}/{status.table_name}"
            count = self.quarantine.add(rows, _CORRUPT, replace(self.facts, app_id=writer))
            if count == 0:
                return self._set_aside(status, error)
            readable = rows.where(F.col(_CORRUPT).isNull()).drop(_CORRUPT)
            return replace(self._write(status, readable, whole=False), bad_records=count)
        except Exception as second:
            if self._stops_all(second):
                raise
            return self._set_aside(status, second)

    def _write(self, status: TableStatus, frame: DataFrame, *, whole: bool = True) -> Outcome:
        """Merge the changes of a table into its target, or append them to its log.

        Args:
            status: the status of the table.
            frame: the changes.
            whole: whether none is left out: otherwise the commit does not say that the table is complete.
        """
        name, table = status.table_name, parse_table(status.table_name)
        own, ddl = self.config.of_table(table), self.changes.ddl.get(name, ())
        created_at = next((one.commit_ts for one in ddl if ddl_kind(one) == "create_table"), None)
        complete_since = created_at if status.complete_since is None else status.complete_since
        has_key = _has_key(frame, own)
        kind: Kind | None = "log" if own.log else status.kind
        if kind is None and has_key is not None:
            kind = "table" if has_key else "log"
        spark, engine = frame.sparkSession, self.config.format
        target = self.layout.target(table, "__log" if kind == "log" else "")
        if status.kind not in (None, kind):
            msg = (
                f"log = true, and the rows of {name} until now are in {status.target}. Remove log = true; or rename or "
                f"drop that table, and the row of {name} in the status table"
            )
            raise TargetError(msg)
        if status.kind is not None and not open_target(spark, target, engine).exists():
            msg = (
                f"The target {target} is gone. Restore it; or remove the row of {name} from the status table, load the "
                "table again, and resume it"
            )
            raise TargetError(msg)
        if not own.log and has_key is not None and has_key != (kind == "table"):
            is_merged(frame, self.layout.target(table), self.layout.target(table, "__log"))  # says what is wrong
        properties = {} if complete_since is None else {COMPLETE: str(complete_since)}
        facts = self.facts if whole else replace(self.facts, resolved_ts=None)
        if kind == "log":
            log = append_log(frame, target, format=engine, app_id=facts.app_id, batch_id=facts.batch_id,
                             resolved_ts=facts.resolved_ts, ddl=ddl, properties=properties,
                             column_prefix=self.config.column_prefix, time_as=self.config.time_as)  # fmt: skip
            created, images = log.created, 0
            kind = None if log.missing else kind
        else:
            merged = merge_into(frame, target, keys=own.keys, deletes=own.deletes or self.config.deletes,
                                format=engine, app_id=facts.app_id, batch_id=facts.batch_id,
                                resolved_ts=facts.resolved_ts, ddl=ddl, on_destructive_ddl="apply",
                                properties=properties, column_prefix=self.config.column_prefix,
                                time_zone=self.config.time_zone, commit_time=self.config.commit_time,
                                time_as=self.config.time_as)  # fmt: skip
            created, images = merged.created, merged.images
            if own.history:  # after the merge: what a set-aside table repeats must not be in the log before
                append_log(frame, self.layout.target(table, "__log"), format=engine, app_id=facts.app_id,
                           batch_id=facts.batch_id, resolved_ts=facts.resolved_ts, ddl=ddl,
                           column_prefix=self.config.column_prefix, time_as=self.config.time_as)  # fmt: skip
            self.views.write(spark, table, has_history=own.history)
        now = replace(
            status,
            target=target,
            kind=kind,
            complete_since=complete_since if whole else None,
            resolved_ts=facts.resolved_ts if facts.resolved_ts is not None else status.resolved_ts,
            batch_id=facts.batch_id or 0,
            images=status.images + images,
        )
        return Outcome(now, images=images, created=created)

    def _set_aside(self, status: TableStatus, error: Exception) -> Outcome:
        self._keep(status.table_name)
        return Outcome(status.set_aside(self.facts.batch_id or 0, _reason(error)))

    def _keep(self, name: str) -> None:
        if self.kept is not None and self.changes.records is not None:
            self.kept(name).keep(name, self.facts.batch_id or 0, self.changes.records)

    def _stops_all(self, error: Exception) -> bool:
        """Return whether an error is none of one table: brokers or the session are gone."""
        if (
            self.stopping.is_set()
            or isinstance(error, KafkaUnavailableError)
            or f"errors.{KafkaUnavailableError.__name__}" in str(error)
        ):
            return True
        if isinstance(error, TiCDCSourceError):
            return False
        try:
            return bool(self.changes.records is None or self.changes.records.sparkSession.range(1).count() != 1)
        except Exception:  # noqa: BLE001 (whatever it is)
            return True


def _in_thread(records: DataFrame | None, apply: Callable[[str], Outcome]) -> Callable[[str], Outcome]:
    """Return a function for another thread, where it has the local properties and tags of this one."""
    if records is None:
        return apply
    inherited: Any = inheritable_thread_target(records.sparkSession)  # without a session it warns that tags are lost
    return inherited(apply) if callable(inherited) else apply  # the session itself, if threads are not pinned


def _has_key(frame: DataFrame, own: TableConfig) -> bool | None:
    """Return whether a table has a key; None if there is only DDL, which does not say it."""
    metadata = [field.metadata or {} for field in frame.schema]
    if not any({TABLE, MYSQL_TYPE} & set(each) for each in metadata):
        return None
    return bool(own.keys) or any(each.get(KEY) == "true" for each in metadata)


def _reason(error: Exception) -> str:
    """Return what an error says; of one that was raised on a worker, what it said there."""
    ours = _OURS.search(str(error))
    text = ours[2] if ours is not None and not isinstance(error, TiCDCSourceError) else str(error)
    return text[:_LONGEST_REASON]
