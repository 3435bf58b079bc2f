"""A micro-batch of a sync: its tables are written in parallel, and one that cannot be written is set aside."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from ticdc_lakehouse.audits.repair import rows_of_keys
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.checkpoint import FOR_EVER, newest_ts
from ticdc_lakehouse.syncs.config import SyncConfig, TableConfig
from ticdc_lakehouse.syncs.failures import LONGEST_REASON, Shared, shared_cause, text_of, why_of
from ticdc_lakehouse.syncs.joining import Joining
from ticdc_lakehouse.syncs.kept_records import Bounds, KeptRecords, Quarantine
from ticdc_lakehouse.syncs.status import Following, Kind, TableStatus, now_text
from ticdc_lakehouse.syncs.steps import BadRecords, Changed, Effect, Event, Failed, Rules, Step, step
from ticdc_lakehouse.syncs.views import Views
from ticdc_lakehouse.targets.data_layout import DataLayout
from ticdc_lakehouse.targets.log import IMAGES, append_changes, check_key
from ticdc_lakehouse.targets.merge import COMPLETE, merge_changes
from ticdc_lakehouse.targets.merge import TABLE as TABLE_PROPERTY
from ticdc_lakehouse.targets.opening import open_target
from ticdc_lakehouse.targets.sessions import in_thread
from ticdc_lakehouse.targets.target import CommitFacts, Target
from ticdc_source import Tables, decode
from ticdc_source.developer_api import KEY, MYSQL_TYPE, PROTOCOLS, TABLE, Options, ddl_kind, is_of_messages, parse_table
from ticdc_source.errors import TiCDCSourceError

_CORRUPT = Options(given=frozenset(), kafka={}).column_name_of_corrupt_record
_METADATA_COLUMNS = 4  # the only columns of a table's changes if the micro-batch has only DDL for it


@dataclass(slots=True, kw_only=True)
class SyncContext:
    """What all micro-batches of a process share."""

    spark: SparkSession
    config: SyncConfig
    shared: Shared
    joining: Joining
    quarantine: Quarantine = field(init=False)
    views: Views = field(init=False)
    # Topics may have lost changes up to this commit-ts: only a table that is created later is complete without a load.
    lost_until: int | None = None
    checked: set[str] = field(default_factory=set)  # tables whose targets are known to be the sync's own

    def __post_init__(self) -> None:
        self.quarantine, self.views = Quarantine(self.config), Views(self.config)

    def step(self, status: TableStatus, event: Event) -> Step:
        return step(status, event, Rules.of(self.config, status), now_text())

    def kept(self, table: str) -> KeptRecords:
        return KeptRecords(self.spark, self.config.checkpoint, table)

    def reason(self, error: Exception) -> str:
        return self.config.redact(text_of(error))[:LONGEST_REASON]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a table in a micro-batch."""

    status: TableStatus
    images: int = 0  # how many keys have changes, or how many changes a log gets; even if the target has them already
    created: bool = False
    bad_records: int = 0  # how many of its records went into quarantine


def summed(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        outcomes[-1].status,
        images=sum(each.images for each in outcomes),
        created=any(each.created for each in outcomes),
        bad_records=sum(each.bad_records for each in outcomes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """The changes of a micro-batch, which it writes into targets, keeps, or puts into quarantine."""

    context: SyncContext
    changes: Tables
    facts: CommitFacts
    statuses: Mapping[str, TableStatus]  # before this micro-batch
    is_replay: bool = False  # whether these are kept records, which need not be kept again

    @property
    def _config(self) -> SyncConfig:
        return self.context.config

    def quarantine_without_table(self) -> int:
        """Put bad records of unknown tables into quarantine, or raise their error; return how many there are."""
        if self.changes.bad_record_error is None:
            return 0
        if self._config.bad_records == "fail":
            raise self.changes.bad_record_error
        bad = self.changes.records(F.array_contains("_event_types", "corrupt") & (F.size("_tables") == 0))
        protocol = self.changes.protocol or next(iter(PROTOCOLS))
        given = {name: text for name, text in self._config.decode_options().items() if is_of_messages(name)}
        rows = decode(bad, outputFormat="event", mode="PERMISSIVE", **{**given, "protocol": protocol})
        facts = replace(self.facts, app_id=f"{self.facts.app_id}/unreadable")
        count = self.context.quarantine.add(rows, _CORRUPT, facts)
        if count == 0:  # otherwise the record would be lost silently
            raise self.changes.bad_record_error
        return count

    def apply(self, names: Sequence[str]) -> list[Outcome]:
        every = (parse_table(name) for name in [*self.statuses, *names])
        refused = self._config.layout.refused(table for table in every if self._config.selects(table))
        runs = [
            in_thread(self.context.spark, partial(self._apply_one, name, refused.get(parse_table(name))))
            for name in names
            if self._config.selects(parse_table(name))
        ]
        with ThreadPoolExecutor(self._config.parallel, thread_name_prefix="ticdc-sync") as pool:
            return [each.result() for each in [pool.submit(run) for run in runs]]

    def _apply_one(self, name: str, refused: TiCDCSourceError | None) -> Outcome:
        """Write the changes of a table, or set it aside; an error that affects every table is raised."""
        wrong = refused or self.changes.errors.get(name)
        target = "" if refused is not None else self._config.layout.target(parse_table(name))
        status = self.statuses.get(name) or TableStatus(table_name=name, target=target)
        follows = isinstance(status.phase, Following)
        if wrong is not None and follows:
            if shared_cause(wrong) is not None:
                raise wrong
            return self._failed(status, wrong)
        try:
            needs_load = follows and self._needs_load(status)
            status, effects = self.context.step(status, Changed(self.facts.batch_id or 0, needs_load))
            if Effect.KEEP in effects:
                self._keep(name)
            if Effect.WRITE not in effects:
                return Outcome(status)
            return self.context.shared.retried(lambda: self._write(status, self._changes_of(status)), name)
        except Exception as error:  # of Spark, Py4J, a catalog or a store: each has its own
            if not follows or self.context.shared.stops_all(error):
                raise
            return self._write_readable(status, error)

    def _changes_of(self, status: TableStatus) -> DataFrame:
        """Return the changes of a table; for a merge alone, only those pre-images that change the key."""
        name = status.table_name
        frame, settings = self.changes[name], self._config.of_table(parse_table(name))
        keys = settings.keys or [field.name for field in frame.schema if (field.metadata or {}).get(KEY) == "true"]
        is_merged = bool(keys) and status.kind in (None, "table") and not (settings.log or settings.history)
        return self.changes.to_merge(name, keys) if is_merged else frame

    def _needs_load(self, status: TableStatus) -> bool:
        """Whether a table must be loaded before its changes are written.

        Not if the table is known, if its CREATE TABLE or only DDL is in this micro-batch, or if TiDB does not have it.
        """
        name = status.table_name
        ddl = self.changes.ddl.get(name, ())
        is_known = status.kind is not None or status.complete_since is not None
        is_new = any(ddl_kind(one) == "create_table" for one in ddl)
        if self.is_replay or is_known or is_new or len(self.changes[name].columns) <= _METADATA_COLUMNS:
            return False
        return self.context.joining.has(parse_table(name))

    def _write_readable(self, status: TableStatus, error: Exception) -> Outcome:
        """Write the readable changes of a table, if the error is bad records; otherwise set it aside."""
        name = status.table_name
        has_no_rows = len(self.changes[name].columns) <= _METADATA_COLUMNS
        if self._config.bad_records == "fail" or isinstance(error, TargetError) or has_no_rows:
            return self._failed(status, error)
        lacking = status
        try:
            asked = self._write_key_only(status)
            if asked is not None:
                return asked
            rows = self.changes.persist(self.changes.tolerant(name))
            facts = replace(self.facts, app_id=f"{self.facts.app_id}/{name}")
            quarantine = self.context.quarantine
            count = self.context.shared.retried(lambda: quarantine.add(rows, _CORRUPT, facts), quarantine.name)
            if count == 0:
                return self._failed(status, error)
            readable = rows.where(F.col(_CORRUPT).isNull()).drop(_CORRUPT)
            is_repeated = self._is_counted(status)
            lacking = status if is_repeated else status.with_bad_records(status.bad_records + count, newest_ts())
            outcome = self.context.shared.retried(lambda: self._write(lacking, readable, whole=False), name)
            written = replace(outcome, bad_records=count)
            if is_repeated:
                return written
            bad = BadRecords(f"{count} bad records are in {quarantine.name}", status.complete_since)
            return replace(written, status=self.context.step(written.status, bad)[0])
        except Exception as second:
            if self.context.shared.stops_all(second):
                raise
            # Without the number of bad records, which is counted when the micro-batch comes again.
            return self._failed(status if lacking is status else replace(status, complete_since=None), second)

    def _write_key_only(self, status: TableStatus) -> Outcome | None:
        """Write the changes of a table whose only bad records are key-only messages: TiDB is asked for their rows.

        None if the table has other bad records, or if those rows are not enough, as it has a history or DDL.
        """
        name, config = status.table_name, self._config
        table = parse_table(name)
        is_alone = config.of_table(table).history or self.changes.ddl.get(name)
        if config.tidb is None or status.kind != "table" or is_alone or not Rules.of(config, status).heals:
            return None
        every = self.changes.persist(self.changes.tolerant(name, keys_alone=True))
        if not every.where(F.col(_CORRUPT).isNotNull()).isEmpty():
            return None
        prefix = config.column_prefix
        readable = self.changes.persist(self.changes.tolerant(name)).where(F.col(_CORRUPT).isNull()).drop(_CORRUPT)
        key_only = every.join(readable.select(f"{prefix}sequence"), f"{prefix}sequence", "left_anti")
        at = every.agg(F.max(f"{prefix}commit_version")).collect()[0][0]
        if at is None or at <= (status.loaded_ts or 0) or key_only.isEmpty():
            return None
        target = open_target(every.sparkSession, status.target, config.format)
        rows = rows_of_keys(
            key_only, target, config.tidb, name, at, prefix=prefix, zero_date=config.source_option("zeroDate", "null")
        )
        if rows is None:
            return None
        if not readable.isEmpty():  # in a commit of their own, without a resolved ts
            alone = replace(self, facts=replace(self.facts, app_id=f"{self.facts.app_id}/readable", resolved_ts=None))
            before = replace(status, target_batch=None)
            self.context.shared.retried(lambda: alone._write(before, readable), name)  # noqa: SLF001 (its own class)
        return self.context.shared.retried(lambda: self._write(status, rows), name)

    def _write(self, status: TableStatus, frame: DataFrame, *, whole: bool = True) -> Outcome:
        """Merge the changes of a table into its target, or append them to its log.

        If they are not `whole`, because bad records are left out, CREATE TABLE does not reset the count of bad records.
        """
        name, table = status.table_name, parse_table(status.table_name)
        settings, ddl = self._config.of_table(table), self.changes.ddl.get(name, ())
        written = self._config.write_settings(table)
        history, history_ddl = frame, ddl  # all of them, even those that a load has
        if status.loaded_ts is not None:  # the load has all changes and DDL up to it
            frame = frame.where(F.col(f"{self._config.column_prefix}commit_version") > status.loaded_ts)
            ddl = [one for one in ddl if one.commit_ts is None or one.commit_ts > status.loaded_ts]
            has_nothing = status.batch_id < 0 and not ddl and not settings.history and frame.isEmpty()
            if has_nothing:  # such changes could bring back columns that were dropped since
                return Outcome(status)
        created_ts = next((one.commit_ts for one in ddl if ddl_kind(one) == "create_table"), None)
        if created_ts is not None and whole and status.bad_records and created_ts > (status.bad_until or FOR_EVER):
            status = status.without_bad_records()
        complete_since = self._complete_since(status, created_ts)
        has_key = _has_key(frame, settings)
        kind: Kind | None = "log" if settings.log else status.kind
        if kind is None and has_key is not None:
            kind = "table" if has_key else "log"
        spark, engine = frame.sparkSession, self._config.format
        merged_target, log_target = self._config.layout.target(table), self._config.layout.target(table, "__log")
        target = log_target if kind == "log" else merged_target
        if status.kind not in (None, kind):
            raise TargetError(
                f"log = true, but {name} already has a merged target: {status.target}. Remove log = true. Or stop the "
                f"sync, rename or drop this target, and delete the row of {name} from the table _ticdc_sync"
            )
        after = -1 if status.target_batch is None else status.target_batch
        opened = open_target(spark, target, engine)
        columns = tuple(opened.columns()) if opened.exists() else ()
        if status.kind is not None:
            _check_columns(status, columns, opened)
            if name not in self.context.checked:  # once in a process, because it reads the properties
                _check_own(opened, status)
                if settings.history and kind == "table":
                    self._check_history(open_target(spark, log_target, engine), status)
                self.context.checked.add(name)
        if not settings.log and has_key is not None and has_key != (kind == "table"):
            check_key(frame, merged_target, log_target)
        properties = {} if complete_since is None else {COMPLETE: str(complete_since)}
        facts = self.facts
        if status.loaded_ts is not None:  # the load made the target complete up to its own TSO
            facts = replace(facts, resolved_ts=max(facts.resolved_ts or 0, status.loaded_ts))
        facts = replace(facts, resolved_ts=None) if status.bad_records else facts
        if columns and complete_since is None:
            was_complete = status.complete_since is not None or (status.bad_records and COMPLETE in opened.properties())
            if was_complete:
                opened.remove_properties([COMPLETE])  # before the commit that makes it untrue
        if kind == "log":
            frame = self.changes.persist(frame)
            images = frame.where(F.col(f"{self._config.column_prefix}change_type").isin(*IMAGES)).count()
            log = append_changes(frame, target, written, facts, after_batch=after, ddl=ddl, properties=properties)
            created, kind, content = log.created, None if log.missing else kind, log.content
        else:
            merged = merge_changes(
                frame, target, written, facts, after_batch=after, ddl=ddl, properties=properties,
                on_destructive_ddl="apply", on_doubtful_ddl="fail" if self._config.heal else "warn",
            )  # fmt: skip
            created, images, content = merged.created, merged.images, merged.content
            if settings.history:  # after the merge: if that fails, these changes come again
                beside = replace(written, layout=DataLayout())  # the layout is for the table alone
                append_changes(history, log_target, beside, facts, ddl=history_ddl)
            self.context.views.write(spark, table)
        if columns and properties and complete_since != status.complete_since:
            open_target(spark, target, engine).set_properties(properties)
        now = replace(
            status,
            target=target,
            kind=kind,
            complete_since=complete_since,
            resolved_ts=facts.resolved_ts if facts.resolved_ts is not None else status.resolved_ts,
            batch_id=facts.batch_id or 0,
            target_batch=status.target_batch if content is None else facts.batch_id,
            target_content=content or status.target_content,
            images=status.images + (0 if self._is_counted(status) else images),
            columns=columns,
        )
        return Outcome(now, images=images, created=created)

    def _is_counted(self, status: TableStatus) -> bool:
        """Whether a status counts this micro-batch already: Spark repeats it after a kill."""
        return self.facts.batch_id is not None and status.batch_id >= self.facts.batch_id

    def _check_history(self, log: Target, status: TableStatus) -> None:
        """Refuse a history log that is behind its table."""
        last = log.last_batch(self.facts.app_id or "") if log.exists() else None
        held = None if last is None else last.number
        if held is not None and held < status.batch_id:
            raise TargetError(
                f"{log.name} ends with micro-batch {held}, and {status.target} with micro-batch {status.batch_id}: the "
                "log lacks the changes in between, because history was off. Rename or drop the log, so that a new one "
                f"begins, and resume {status.table_name}; or remove history = true"
            )

    def _complete_since(self, status: TableStatus, created_ts: int | None) -> int | None:
        """Return the commit-ts from which the copy has all rows; None if that is not known.

        It has all rows if the stream has the table's CREATE and every later change: no topic partition has lost changes
        that are as new, and the table has no bad records.
        """
        if status.bad_records:
            return None
        if status.complete_since is not None or created_ts is None:
            return status.complete_since
        return created_ts if self.context.lost_until is None or created_ts > self.context.lost_until else None

    def _failed(self, status: TableStatus, error: Exception) -> Outcome:
        failed = Failed(self.context.reason(error), why_of(error), self.facts.batch_id or 0)
        status, _ = self.context.step(status, failed)
        self._keep(status.table_name)
        return Outcome(status)

    def _keep(self, name: str) -> None:
        if self.is_replay:
            return
        resolved_ts, batch_id = self.changes.resolved_ts, self.facts.batch_id or 0
        held_from = None if self._config.consistency == "latest" else (resolved_ts or 0) + 1
        bounds = Bounds(resolved_before=self.changes.resolved_before, resolved_ts=resolved_ts, held_from=held_from)
        kept = self.context.kept(name)
        self.context.shared.retried(
            lambda: kept.keep(batch_id, self.changes.records, bounds), f"The kept records of {name}"
        )


def _has_key(frame: DataFrame, settings: TableConfig) -> bool | None:
    """Whether a table has a key; None if the micro-batch has only DDL for it, which does not tell."""
    metadata = [field.metadata or {} for field in frame.schema]
    if not any({TABLE, MYSQL_TYPE} & set(each) for each in metadata):
        return None
    return bool(settings.keys) or any(each.get(KEY) == "true" for each in metadata)


def _check_columns(status: TableStatus, columns: Collection[str], target: Target) -> None:
    """Refuse a target that is gone or has lost columns.

    Columns of a log may have been renamed, so that changes go into new ones. A target without rows may lack columns:
    the process was killed after it had dropped them, and before it added them again.
    """
    if not columns:
        raise TargetError(f"The target {status.target} no longer exists. {_again(status)}")
    known = {name.lower() for name in columns}
    missing = [name for name in status.columns if name.lower() not in known]
    if missing and status.kind != "log" and target.frame().head(1):
        raise TargetError(
            f"The target {status.target} has lost these columns: {', '.join(missing)}. Somebody dropped or renamed "
            f"them. {_again(status)}"
        )


def _check_own(target: Target, status: TableStatus) -> None:
    """Refuse a table that somebody has created in place of the target."""
    if TABLE_PROPERTY not in target.properties():
        raise TargetError(
            f"The target {status.target} has no property {TABLE_PROPERTY}: it is not the table that the sync wrote, or "
            f"somebody has removed its properties. {_again(status)}"
        )


def _again(status: TableStatus) -> str:
    return (
        f"Restore the target, and resume {status.table_name}. Or load the table again with [tidb]: stop the sync, drop "
        f"the target, delete the row of {status.table_name} from the table _ticdc_sync, and start the sync again"
    )
