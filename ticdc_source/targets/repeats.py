"""Which micro-batch a target had last from a writer, and of which table it is: before anything is written.

A stream repeats only the micro-batch in which it ended. So a number that is smaller than the last one is not a repeat:
the rows are new, and to skip them would lose them.
"""

from __future__ import annotations

from ticdc_source.errors import TargetError
from ticdc_source.targets.target import CommitFacts, Merged, Target

__all__ = ["check_table", "has_batch", "same_table", "was_skipped"]


def same_table(one: str, other: str) -> bool:
    """Return whether two texts name one table: TiDB compares names without case."""
    return one.replace("`", "").lower() == other.replace("`", "").lower()


def check_table(target: Target, before: str, now: str) -> None:
    """Refuse the changes of one table in the target of another; a name that is not known is not compared.

    Args:
        target: the target.
        before: the table whose changes it has.
        now: the table of the changes.

    Raises:
        TargetError: they are of another table.
    """
    if not before or not now or same_table(before, now):
        return
    msg = (
        f"Cannot write {now} into {target.name}: it belongs to {before}. Give each table a target of its own; or, if "
        f"{before} is called {now} now and the target has its rows, say so with ALTER TABLE {target.name} SET "
        f"TBLPROPERTIES ('ticdc.table' = '{now}')"
    )
    raise TargetError(msg)


def has_batch(target: Target, facts: CommitFacts, *, remembers: bool = False, after_batch: int | None = None) -> bool:
    """Return whether a target has a micro-batch already: whether it is the last one of its writer.

    Args:
        target: the target.
        facts: the facts of the micro-batch.
        remembers: whether what this process has committed will do, because `was_skipped` asks again after the commit.
        after_batch: a micro-batch of this writer that the target must have, or a later one; None if that is not known.

    Raises:
        TargetError: the last one has a larger number, or somebody has restored the table since.
    """
    if facts.app_id is None or facts.batch_id is None:
        return False
    last = target.last_batch(facts.app_id, facts.batch_id if remembers else None)
    held = None if last is None else last.held
    if held is not None and after_batch is not None and held < after_batch:
        ends = "has none" if held < 0 else f"ends with micro-batch {held}"
        msg = (
            f"{target.name} has had micro-batch {after_batch} of this writer, and {ends} now: it is an older version, "
            "without the changes in between. Put back the newest version; or read the table again from a snapshot"
        )
        raise TargetError(msg)
    if last is None or last.number < facts.batch_id:
        return False
    if last.number == facts.batch_id and not last.restored:
        return True
    reason = "it was restored to an older version after" if last.restored else "it has"
    raise TargetError(_refusal(target, facts, f"{reason} micro-batch {last.number} of this writer"))


def was_skipped(target: Target, facts: CommitFacts, merged: Merged) -> bool:
    """Return whether the engine has skipped a micro-batch because another process has committed it meanwhile.

    Raises:
        TargetError: the rows that it has skipped are new, as far as the commits tell that it still knows.
    """
    if not merged.skipped:
        return False
    if has_batch(target, facts):
        return True
    reason = "it has this micro-batch of this writer or a later one, and does not know the commit any more"
    raise TargetError(_refusal(target, facts, reason))


def _refusal(target: Target, facts: CommitFacts, reason: str) -> str:
    return (
        f"Cannot write micro-batch {facts.batch_id} of app_id={facts.app_id!r} into {target.name}: {reason}, so the "
        "rows would be skipped. Either the stream has a new or older checkpoint: give it an app_id of its own, or a "
        "new target. Or two streams have the same app_id: give each another. Or the table was restored: give a new "
        "app_id, and read again from before the version to which it was restored (what comes again changes nothing)"
    )
