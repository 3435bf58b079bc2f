"""A micro-batch of a sync: its tables are written side by side, and one that cannot go on is set aside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from ticdc_lakehouse.audits.repair import rows_of_keys
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.checkpoint import FOR_EVER, newest_ts
from ticdc_lakehouse.syncs.config import SyncConfig, TableConfig
from ticdc_lakehouse.syncs.failures import Shared, shared_cause, text_of, why_of
from ticdc_lakehouse.syncs.joining import Joining
from ticdc_lakehouse.syncs.kept_records import Bounds, KeptRecords, Quarantine
from ticdc_lakehouse.syncs.status import Following, Kind, TableStatus, now_text
from ticdc_lakehouse.syncs.steps import BadRecords, Changed, Effect, Event, Failed, Rules, Step, step
from ticdc_lakehouse.syncs.views import Views
from ticdc_lakehouse.targets.data_layout import DataLayout
from ticdc_lakehouse.targets.log import append_changes, check_key
from ticdc_lakehouse.targets.merge import COMPLETE, merge_changes
from ticdc_lakehouse.targets.merge import TABLE as TABLE_PROPERTY
from ticdc_lakehouse.targets.opening import open_target
from ticdc_lakehouse.targets.sessions import in_thread
from ticdc_lakehouse.targets.target import CommitFacts, Target
from ticdc_source import Tables, decode
from ticdc_source.developer_api import KEY, MYSQL_TYPE, PROTOCOLS, TABLE, Options, ddl_kind, is_of_messages, parse_table
from ticdc_source.errors import TiCDCSourceError

_CORRUPT = Options(given=frozenset(), kafka={}).column_name_of_corrupt_record
_METADATA_COLUMNS = 4  # all that the changes of a table have in a micro-batch that has only DDL for it

_LONGEST_REASON = 2000  # characters


@dataclass(slots=True, kw_only=True)
class SyncContext:
    """What is copied, where to, and what this process has found out about it."""

    spark: SparkSession
    config: SyncConfig
    shared: Shared
    joining: Joining
    quarantine: Quarantine = field(init=False)
    views: Views = field(init=False)
    # The topics may have lost changes up to this commit-ts: only a later table is complete without a load.
    lost_until: int | None = None
    checked: set[str] = field(default_factory=set)  # whose targets are the sync's own

    def __post_init__(self) -> None:
        """Make what it shares."""
        self.quarantine, self.views = Quarantine(self.config), Views(self.config)

    def step(self, status: TableStatus, event: Event) -> Step:
        return step(status, event, Rules.of(self.config, status), now_text())

    def kept(self, table: str) -> KeptRecords:
        return KeptRecords(self.spark, self.config.checkpoint, table)

    def reason(self, error: Exception) -> str:
        return self.config.redact(text_of(error))[:_LONGEST_REASON]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a table in a micro-batch."""

    status: TableStatus
    images: int = 0  # how many keys it changes in a table, or how many changes a log gets; also if the target has them
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
    """The changes of a micro-batch, and where they go."""

    context: SyncContext
    changes: Tables
    facts: CommitFacts
    statuses: Mapping[str, TableStatus]  # before it
    is_replay: bool = False  # the records are kept already

    @property
    def _config(self) -> SyncConfig:
        return self.context.config

    def quarantine_without_table(self) -> int:
        """Put bad records whose table is not known into quarantine, or raise their error; return how many there are."""
        if self.changes.bad_record_error is None or self.changes.records is None:
            return 0
        if self._config.bad_records == "fail":
            raise self.changes.bad_record_error
        bad = self.changes.records.where(F.array_contains("_event_types", "corrupt") & (F.size("_tables") == 0))
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
        spark = None if self.changes.records is None else self.changes.records.sparkSession
        runs = [
            in_thread(spark, partial(self._apply_one, name, refused.get(parse_table(name))))
            for name in names
            if self._config.selects(parse_table(name))
        ]
        with ThreadPoolExecutor(self._config.parallel, thread_name_prefix="ticdc-sync") as pool:
            return [each.result() for each in [pool.submit(run) for run in runs]]

    def _apply_one(self, name: str, refused: TiCDCSourceError | None) -> Outcome:
        """Write the changes of a table, or set it aside; what would stop every table is raised."""
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
            return self._retried(name, lambda: self._write(status, self.changes[name]))
        except Exception as error:  # of Spark, Py4J, a catalog or a store: each has its own
            if not follows or self.context.shared.stops_all(error):
                raise
            return self._write_readable(status, error)

    def _needs_load(self, status: TableStatus) -> bool:
        """Whether a table must be loaded before its changes are written.

        It need not, if it is known, if its CREATE TABLE or nothing but DDL is in this micro-batch, or if TiDB has no
        such table.
        """
        name = status.table_name
        ddl = self.changes.ddl.get(name, ())
        is_known = status.kind is not None or status.complete_since is not None
        is_new = any(ddl_kind(one) == "create_table" for one in ddl)
        if self.is_replay or is_known or is_new or len(self.changes[name].columns) <= _METADATA_COLUMNS:
            return False
        return self.context.joining.has(parse_table(name))

    def _write_readable(self, status: TableStatus, error: Exception) -> Outcome:
        """Write what can be read of a table, if bad records are what is wrong; otherwise set it aside."""
        has_no_rows = len(self.changes[status.table_name].columns) <= _METADATA_COLUMNS
        if self._config.bad_records == "fail" or isinstance(error, TargetError) or has_no_rows:
            return self._failed(status, error)
        lacking = status
        try:
            asked = self._write_key_only(status)
            if asked is not None:
                return asked
            rows = self.changes.persist(self.changes.tolerant(status.table_name))
            writer = f"{self.facts.app_id}/{status.table_name}"
            facts = replace(self.facts, app_id=writer)
            quarantine = self.context.quarantine
            count = self.context.shared.retried(lambda: quarantine.add(rows, _CORRUPT, facts), quarantine.name)
            if count == 0:
                return self._failed(status, error)
            readable = rows.where(F.col(_CORRUPT).isNull()).drop(_CORRUPT)
            is_repeated = self._is_counted(status)
            lacking = status if is_repeated else status.with_bad_records(status.bad_records + count, newest_ts())
            outcome = self._retried(status.table_name, lambda: self._write(lacking, readable, whole=False))
            written = replace(outcome, bad_records=count)
            if is_repeated:
                return written
            bad = BadRecords(f"{count} bad records are in {quarantine.name}", status.complete_since)
            return replace(written, status=self.context.step(written.status, bad)[0])
        except Exception as second:
            if self.context.shared.stops_all(second):
                raise
            # Not with their number: it is counted when the micro-batch comes again.
            return self._failed(status if lacking is status else replace(status, complete_since=None), second)

    def _write_key_only(self, status: TableStatus) -> Outcome | None:
        """Write the changes of a table whose only bad records have nothing but keys: TiDB is asked for those rows.

        None if it has other bad records, or needs more than those rows: with a history, or with DDL beside them.
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
        if not readable.isEmpty():  # in a commit of its own, which does not say up to when the target is complete
            alone = replace(self, facts=replace(self.facts, app_id=f"{self.facts.app_id}/readable", resolved_ts=None))
            before = replace(status, target_batch=None)
            self._retried(name, lambda: alone._write(before, readable))  # noqa: SLF001 (its own class)
        return self._retried(name, lambda: self._write(status, rows))

    def _retried(self, name: str, write: Callable[[], Outcome]) -> Outcome:
        return self.context.shared.retried(write, name)

    def _write(self, status: TableStatus, frame: DataFrame, *, whole: bool = True) -> Outcome:
        """Merge the changes of a table into its target, or append them to its log.

        If they are not `whole`, as bad records are left out of them, a CREATE TABLE clears no bad record.
        """
        name, table = status.table_name, parse_table(status.table_name)
        settings, ddl = self._config.of_table(table), self.changes.ddl.get(name, ())
        written = self._config.write_settings(table)
        history, history_ddl = frame, ddl  # all of them, also those that a load has
        if status.loaded_ts is not None:  # the load has all changes and DDL up to it
            frame = frame.where(F.col(f"{self._config.column_prefix}commit_version") > status.loaded_ts)
            ddl = [one for one in ddl if one.commit_ts is None or one.commit_ts > status.loaded_ts]
            has_nothing = status.batch_id < 0 and not ddl and not settings.history and frame.isEmpty()
            if has_nothing:  # nor may these bring back columns dropped since
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
                f"log = true, and {name} has a merged table already: {status.target}. Remove log = true; or stop the "
                f"sync, rename or drop that table, and delete the row of {name} from the status table"
            )
        after = -1 if status.target_batch is None else status.target_batch
        opened = open_target(spark, target, engine)
        columns = tuple(opened.columns()) if opened.exists() else ()
        if status.kind is not None:
            _check_columns(status, columns, opened)
            if name not in self.context.checked:  # once in a process, as it reads the properties
                _check_own(opened, status)
                if settings.history and kind == "table":
                    self._check_history(open_target(spark, log_target, engine), status)
                self.context.checked.add(name)
        if not settings.log and has_key is not None and has_key != (kind == "table"):
            check_key(frame, merged_target, log_target)
        properties = {} if complete_since is None else {COMPLETE: str(complete_since)}
        facts = self.facts
        if status.loaded_ts is not None:  # the rows of the load are complete up to its own TSO
            facts = replace(facts, resolved_ts=max(facts.resolved_ts or 0, status.loaded_ts))
        facts = replace(facts, resolved_ts=None) if status.bad_records else facts
        if columns and complete_since is None:
            was_complete = status.complete_since is not None or (status.bad_records and COMPLETE in opened.properties())
            if was_complete:
                opened.remove_properties([COMPLETE])  # before the commit that makes it untrue
        if kind == "log":
            frame = self.changes.persist(frame)
            change_type = F.col(f"{self._config.column_prefix}change_type")
            images = frame.where(change_type.isin("insert", "update_postimage", "delete")).count()
            log = append_changes(frame, target, written, facts, after_batch=after, ddl=ddl, properties=properties)
            created, kind, content = log.created, None if log.missing else kind, log.content
        else:
            merged = merge_changes(
                frame, target, written, facts, after_batch=after, ddl=ddl, properties=properties,
                on_destructive_ddl="apply", on_doubtful_ddl="fail" if self._config.heal else "warn",
            )  # fmt: skip
            created, images = merged.created, merged.images
            content = merged.content
            if settings.history:  # after the merge: a table that it sets aside brings these changes again
                beside = replace(written, layout=DataLayout())  # the layout is that of the table
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
        """Whether a status has this micro-batch: Spark repeats it, because the command was killed after it."""
        return self.facts.batch_id is not None and status.batch_id >= self.facts.batch_id

    def _check_history(self, log: Target, status: TableStatus) -> None:
        """Refuse a log that is behind the table beside it."""
        last = log.last_batch(self.facts.app_id or "") if log.exists() else None
        held = None if last is None else last.number
        if held is not None and held < status.batch_id:
            raise TargetError(
                f"{log.name} ends with micro-batch {held}, and {status.target} has micro-batch "
                f"{status.batch_id}: the log lacks the changes between them, because history was off. Rename or drop "
                f"{log.name}, so that a new log begins, and resume {status.table_name}; or remove history = true"
            )

    def _complete_since(self, status: TableStatus, created_ts: int | None) -> int | None:
        """Return from which commit-ts on the copy has all rows, as far as that can be known.

        It has, if the stream has the table's CREATE and every change after it: no topic partition has lost changes that
        are as new as it, and none of the table's records is bad.
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
        records = self.changes.records
        if self.is_replay or records is None:
            return
        resolved_ts, batch_id = self.changes.resolved_ts, self.facts.batch_id or 0
        held_from = None if self._config.consistency == "latest" else (resolved_ts or 0) + 1
        bounds = Bounds(resolved_before=self.changes.resolved_before, resolved_ts=resolved_ts, held_from=held_from)
        kept = self.context.kept(name)
        self.context.shared.retried(lambda: kept.keep(batch_id, records, bounds), f"What is kept of {name}")


def _has_key(frame: DataFrame, settings: TableConfig) -> bool | None:
    """Whether a table has a key; None if the micro-batch has only DDL for it, which does not say it."""
    metadata = [field.metadata or {} for field in frame.schema]
    if not any({TABLE, MYSQL_TYPE} & set(each) for each in metadata):
        return None
    return bool(settings.keys) or any(each.get(KEY) == "true" for each in metadata)


def _check_columns(status: TableStatus, columns: Collection[str], target: Target) -> None:
    """Refuse a target that is gone or lacks columns.

    Columns of a log may be renamed, so that its changes begin others. A target without rows may have been left between
    two statements, when its columns began anew.
    """
    if not columns:
        raise TargetError(f"The target {status.target} is gone. {_again(status)}")
    known = {name.lower() for name in columns}
    missing = [name for name in status.columns if name.lower() not in known]
    if missing and status.kind != "log" and target.frame().head(1):
        raise TargetError(
            f"The target {status.target} lacks columns that it had: {', '.join(missing)}. Somebody has dropped or "
            f"renamed them. {_again(status)}"
        )


def _check_own(target: Target, status: TableStatus) -> None:
    """Refuse a table that somebody has put in the place of a target."""
    if TABLE_PROPERTY not in target.properties():
        raise TargetError(
            f"The target {status.target} is another table than the one that the sync has written, or somebody has "
            f"removed its properties ticdc.… {_again(status)}"
        )


def _again(status: TableStatus) -> str:
    return (
        f"Restore the target, and resume {status.table_name}. Or stop the sync, drop the target, delete the row of "
        f"{status.table_name} from the status table, and start again with [tidb], which loads the table"
    )
