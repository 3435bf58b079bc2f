"""What a table has missed while it was set aside or loading, written from its kept records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

from pyspark.sql import SparkSession

from ticdc_lakehouse.syncs.completeness import newest_ts
from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.failures import Shared, is_fault, text_of
from ticdc_lakehouse.syncs.kept_records import KeptBatches, KeptRecords
from ticdc_lakehouse.syncs.lake_mark import LakeMarks
from ticdc_lakehouse.syncs.micro_batch import MicroBatch, Outcome, summed
from ticdc_lakehouse.syncs.quarantine import Quarantine
from ticdc_lakehouse.syncs.redaction import Redaction
from ticdc_lakehouse.syncs.status import TableStatus
from ticdc_lakehouse.targets.opening import existing_target
from ticdc_lakehouse.targets.target import CommitFacts, Target
from ticdc_source import SyncState, Tables
from ticdc_source.developer_api import DDLEvent, TableName, parse_table, replayed, warn

__all__ = ["Resuming"]

Statuses = Mapping[str, TableStatus]


class Resuming:
    """The kept records of a sync's tables, and how they are written.

    Args:
        spark: the session.
        config: what is copied, and how.
        state: what `tables` remembers of the stream.
        quarantine: the table of bad records.
        shared: tells errors of one table from those of all.
        redaction: hides secrets in reasons.
        known_ddl: returns the DDL that is known from elsewhere than the topics.
        micro_batch: makes a micro-batch of changes whose records are kept already.
        marks: what the checkpoint says of the lake: its numbers of micro-batches, and which targets lack some.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: SyncConfig,
        *,
        state: SyncState,
        quarantine: Quarantine,
        shared: Shared,
        redaction: Redaction,
        known_ddl: Callable[[], Mapping[str, Sequence[DDLEvent]]],
        micro_batch: Callable[[Tables, CommitFacts, Statuses], MicroBatch],
        marks: LakeMarks,
    ) -> None:
        self._spark, self._config, self._layout = spark, config, config.layout
        self._state, self._quarantine = state, quarantine
        self._shared, self._redaction = shared, redaction
        self._known_ddl, self._micro_batch = known_ddl, micro_batch
        self._marks = marks
        self._written: set[str] = set()

    def kept(self, name: str) -> KeptRecords:
        """Return where the records of a table are kept."""
        folder = blake2b(name.lower().encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()  # of any name
        return KeptRecords(self._spark, f"{self._config.checkpoint}/aside/{folder}")

    def write_missed(self, name: str, statuses: Statuses, last: int, writer: str) -> Outcome:
        """Write the kept micro-batches of a table. If that fails, it stays set aside, and keeps all its records.

        Each part is committed under the number of its last micro-batch. So the target says how far it has come, and a
        resume that was killed continues there.

        Args:
            name: the table.
            statuses: the statuses of all tables.
            last: the last micro-batch that Spark has committed, or is about to.
            writer: the id of the streaming query.
        """
        aside = statuses[name]
        if name in self._marks.lacking:
            return Outcome(replace(aside, reason=self._marks.lacking[name], is_retried=False))
        since, outcomes = aside.set_aside_batch, [Outcome(aside.resumed())]
        try:
            parts: Sequence[KeptBatches] = ()
            if since is not None and since <= last:  # otherwise nothing is kept, or Spark repeats that micro-batch
                first = max(since, self._last_written(aside, writer) + 1)
                if first > since:
                    outcomes = [Outcome(self._as_written(aside.resumed(), since, first - 1, writer))]
                parts = self.kept(name).between(first, last, begins=first == since)
            for part in parts:
                facts = CommitFacts(part.bounds.resolved_ts, writer, part.last)
                outcomes.append(self._replay(part, last, facts, statuses, outcomes[-1].status))
                now = outcomes[-1].status
                if now.state == "set aside":
                    status = replace(aside, reason=now.reason, waits_for_ddl=now.waits_for_ddl, heals=now.heals,
                                     is_retried=now.is_retried)  # fmt: skip
                    return replace(summed(outcomes), status=status)
        except Exception as error:
            if self._shared.stops_all(error):
                raise
            status = replace(aside, reason=self._redaction.text(text_of(error)), is_retried=is_fault(error))
            return replace(summed(outcomes), status=status)
        self.forget(name)
        done = summed(outcomes)
        reason = aside.reason or "changes were kept while it was loading"
        return replace(done, status=done.status.after_pause(aside, reason))

    def forget(self, name: str) -> None:
        """Let the kept records of a table go, once the status table says that it follows."""
        self._written.add(name)

    def explained(
        self, candidates: Sequence[TableStatus], statuses: Statuses, batch_id: int, writer: str
    ) -> dict[str, Outcome]:
        """Write what tables have missed that wait for DDL, and now have some.

        Args:
            candidates: tables with DDL in this micro-batch.
            statuses: the statuses of all tables.
            batch_id: this micro-batch.
            writer: the id of the streaming query.

        Returns:
            What became of those that wait, by name.
        """
        return {
            each.table_name: self.write_missed(each.table_name, statuses, batch_id, writer)
            for each in candidates
            if each.waits_for_ddl and each.state == "set aside" and each.set_aside_batch != batch_id
        }

    def forget_written(self, statuses: Statuses) -> None:
        """Remove the kept records of tables that follow, once the status table says so."""
        while self._written:
            name = self._written.pop()
            if statuses[name].state != "following":  # its next resume needs them
                continue
            try:
                self.kept(name).remove()
            except Exception as error:  # noqa: BLE001 (of any store; nobody reads them any more)
                warn(f"The kept records of {name} stay in the checkpoint: {self._redaction.text(text_of(error))}")

    def _as_written(self, status: TableStatus, first: int, last: int, writer: str) -> TableStatus:
        """Return the status of a table whose target has micro-batches that the status does not know: it was killed."""
        table = parse_table(status.table_name)
        targets = self._targets(table)
        facts = [commit.facts for target in targets if target is not None for commit in target.commits()]
        written = [one.resolved_ts for one in facts if one.app_id == writer and (one.batch_id or 0) <= last]
        resolved_ts = max((ts for ts in [status.resolved_ts, *written] if ts is not None), default=None)
        status = replace(status, resolved_ts=resolved_ts)
        if status.kind is None:
            status = replace(status, kind="log" if targets[0] is None else "table")
        bad_records = self._quarantine.count_of(self._spark, status.table_name, first, last)
        if not bad_records:
            return status
        bad_records = max(status.bad_records, bad_records)
        return replace(status.with_bad_records(bad_records, newest_ts()), complete_since=None)

    def _last_written(self, status: TableStatus, writer: str) -> int:
        """Return the last micro-batch that the target of a table has, and its log if it has both; -1 if it has none."""
        table = parse_table(status.table_name)
        batches = [None if target is None else target.last_batch(writer) for target in self._targets(table)]
        numbers = [-1 if each is None else each.number for each in batches]
        has_both = self._config.of_table(table).history and status.kind != "log"
        return min(numbers) if has_both else max(numbers)

    def _targets(self, table: TableName) -> tuple[Target | None, Target | None]:
        """Return the target of a table and its log; None for one that does not exist."""
        return (
            existing_target(self._spark, self._layout.target(table)),
            existing_target(self._spark, self._layout.target(table, "__log")),
        )

    def _replay(
        self, part: KeptBatches, last: int, facts: CommitFacts, statuses: Statuses, status: TableStatus
    ) -> Outcome:
        config, name = self._config, status.table_name
        with replayed(
            part.records,
            state=self._state,
            batch_id=last + 1 - self._marks.shift,
            resolved_before=part.bounds.resolved_before,
            held_from=part.bounds.held_from,
            table_options=config.table_options(),
            known_ddl=self._known_ddl(),
            **{**config.decode_options(), "tables": name},
        ) as changes:
            names = [each for each in sorted({*changes, *changes.errors}) if each.lower() == name.lower()]
            outcomes = self._micro_batch(changes, facts, {**statuses, name: status}).apply(names)
            return next(iter(outcomes), Outcome(status))  # none if only DDL of other tables came
