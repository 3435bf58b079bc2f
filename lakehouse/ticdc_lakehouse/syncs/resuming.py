"""Writes the changes that a table has missed while it was set aside or loading, from its kept records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ticdc_lakehouse.syncs.checkpoint import LakeMarks, newest_ts
from ticdc_lakehouse.syncs.failures import text_of, why_of
from ticdc_lakehouse.syncs.kept_records import KeptBatches
from ticdc_lakehouse.syncs.micro_batch import MicroBatch, Outcome, SyncContext, summed
from ticdc_lakehouse.syncs.status import Following, SetAside, TableStatus, now_text
from ticdc_lakehouse.syncs.steps import Failed, TargetLacks
from ticdc_lakehouse.targets.opening import existing_target
from ticdc_lakehouse.targets.target import CommitFacts, Target
from ticdc_source import SyncState
from ticdc_source.developer_api import TableName, parse_table, replayed, warn

Statuses = Mapping[str, TableStatus]
_KEPT = "changes were kept while it was loading"


class Resuming:
    """Writes the kept records of tables into their targets."""

    def __init__(self, context: SyncContext, state: SyncState, marks: LakeMarks) -> None:
        self._context, self._state, self._marks = context, state, marks
        self._spark, self._layout = context.spark, context.config.layout
        self._written: set[str] = set()

    def write_missed(self, name: str, statuses: Statuses, last: int, writer: str) -> Outcome:
        """Write the kept micro-batches of a table. If that fails, it stays set aside, and all its records are kept.

        Each part is committed with the number of its last micro-batch, so that a resume that was killed continues from
        what the target has. `last` is the last micro-batch that Spark has committed, or is about to commit.
        """
        aside = statuses[name]
        phase = aside.phase
        if not isinstance(phase, SetAside):
            return Outcome(aside)
        if name in self._marks.lacking:
            return Outcome(self._context.step(aside, TargetLacks(self._marks.lacking[name]))[0])
        follows = Following(lacks=phase.lacks, complete_before=phase.complete_before)
        outcomes = [Outcome(replace(aside, phase=follows, last_error=phase.reason or None))]
        try:
            parts: Sequence[KeptBatches] = ()
            since = phase.kept_from
            if since is not None and since <= last:  # otherwise nothing is kept, or Spark repeats the micro-batch
                first = max(since, self._last_written(aside, writer) + 1)
                if first > since:
                    outcomes = [Outcome(self._as_written(outcomes[0].status, since, first - 1, writer))]
                parts = self._context.kept(name).between(first, last, begins=first == since)
            for part in parts:
                outcomes.append(self._replay(part, last, writer, statuses, outcomes[-1].status))
                failed = outcomes[-1].status.phase
                if isinstance(failed, SetAside):
                    still = replace(failed, since=phase.since, kept_from=phase.kept_from)
                    return replace(summed(outcomes), status=replace(aside, phase=still))
        except Exception as error:
            if self._context.shared.stops_all(error):
                raise
            failure = Failed(self._context.reason(error), why_of(error))
            return replace(summed(outcomes), status=self._context.step(aside, failure)[0])
        self.forget(name)
        done = summed(outcomes)
        return replace(done, status=done.status.after_pause(aside, phase.reason or _KEPT, now_text()))

    def forget(self, name: str) -> None:
        """Mark the kept records of a table for removal, once the status table says that it follows."""
        self._written.add(name)

    def forget_written(self, statuses: Statuses) -> None:
        """Remove the kept records that are marked, now that the status table is written."""
        while self._written:
            name = self._written.pop()
            if not isinstance(statuses[name].phase, Following):  # its next resume needs them
                continue
            try:
                self._context.kept(name).remove()
            except Exception as error:  # noqa: BLE001 (of any store; nobody reads them any more)
                why = self._context.config.redact(text_of(error))
                warn(f"The kept records of {name} cannot be removed, but are no longer needed: {why}")

    def _as_written(self, status: TableStatus, first: int, last: int, writer: str) -> TableStatus:
        """Return the status with the micro-batches that the target got before a resume was killed."""
        targets = self._targets(parse_table(status.table_name))
        facts = [commit.facts for target in targets if target is not None for commit in target.commits()]
        written = [one.resolved_ts for one in facts if one.app_id == writer and (one.batch_id or 0) <= last]
        resolved_ts = max((ts for ts in [status.resolved_ts, *written] if ts is not None), default=None)
        status = replace(status, resolved_ts=resolved_ts)
        if status.kind is None:
            status = replace(status, kind="log" if targets[0] is None else "table")
        bad_records = self._context.quarantine.count_of(self._spark, status.table_name, first, last)
        if not bad_records:
            return status
        bad_records = max(status.bad_records, bad_records)
        return replace(status.with_bad_records(bad_records, newest_ts()), complete_since=None)

    def _last_written(self, status: TableStatus, writer: str) -> int:
        """Return the last micro-batch that the target has, and its log too if it has a history; -1 if there is none."""
        table = parse_table(status.table_name)
        batches = [None if target is None else target.last_batch(writer) for target in self._targets(table)]
        numbers = [-1 if each is None else each.number for each in batches]
        has_both = self._context.config.of_table(table).history and status.kind != "log"
        return min(numbers) if has_both else max(numbers)

    def _targets(self, table: TableName) -> tuple[Target | None, Target | None]:
        return (
            existing_target(self._spark, self._layout.target(table)),
            existing_target(self._spark, self._layout.target(table, "__log")),
        )

    def _replay(self, part: KeptBatches, last: int, writer: str, statuses: Statuses, status: TableStatus) -> Outcome:
        config, name = self._context.config, status.table_name
        with replayed(
            part.records,
            state=self._state,
            batch_id=last + 1 - self._marks.shift,
            resolved_before=part.bounds.resolved_before,
            held_from=part.bounds.held_from,
            table_options=config.table_options(),
            known_ddl={each: known.known_ddl for each, known in statuses.items()},
            **{**config.decode_options(), "tables": name},
        ) as changes:
            names = [each for each in sorted({*changes, *changes.errors}) if each.lower() == name.lower()]
            batch = MicroBatch(
                context=self._context,
                changes=changes,
                facts=CommitFacts(part.bounds.resolved_ts, writer, part.last),
                statuses={**statuses, name: status},
                is_replay=True,
            )
            return next(iter(batch.apply(names)), Outcome(status))  # none if only DDL of other tables came
