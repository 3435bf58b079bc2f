"""Writes that come again: which micro-batch a target had last from a writer, and what is retried after a conflict.

The number alone does not identify a micro-batch: a stream whose checkpoint was restored uses the same number again for
other changes. So a micro-batch is skipped only if its changes are those of the last commit; anything else is merged.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TypeVar

from ticdc_lakehouse.common.errors import TargetError
from ticdc_lakehouse.targets.target import CommitFacts, Target
from ticdc_source.errors import TiCDCSourceError


def same_table(one: str, other: str) -> bool:
    """Return whether two texts name one table: TiDB compares names without case."""
    return one.replace("`", "").lower() == other.replace("`", "").lower()


def check_table(target: Target, before: str, now: str) -> None:
    """Refuse the changes of one table in the target of another; a name that is not known is not compared."""
    if not before or not now or same_table(before, now):
        return
    msg = (
        f"Cannot write {now} into {target.name}: it belongs to {before}. Give each table a target of its own; or, if "
        f"{before} is called {now} now and the target has its rows, say so with ALTER TABLE {target.name} SET "
        f"TBLPROPERTIES ('ticdc.table' = '{now}')"
    )
    raise TargetError(msg)


def last_batch(target: Target, facts: CommitFacts, after_batch: int | None = None) -> CommitFacts | None:
    """Return what the last commit of the writer recorded; None if there is none.

    Args:
        facts: the facts of the micro-batch that is to be written.
        after_batch: a micro-batch of this writer that the target must have, or a later one, -1 for none; None if that
            is not known, so that the commits alone tell whether some are missing.
    """
    if facts.app_id is None or facts.batch_id is None:
        return None
    last = target.last_batch(facts.app_id)
    if last is None:
        return None
    if after_batch is not None and last.number < after_batch:
        ends = "has none" if last.number < 0 else f"ends with micro-batch {last.number}"
        msg = (
            f"{target.name} has had micro-batch {after_batch} of this writer, and {ends} now: it is an older version, "
            "without the changes in between. Restore the newest version; or load the table again from a snapshot"
        )
        raise TargetError(msg)
    if after_batch is None and last.undone is not None and facts.batch_id > last.undone:
        msg = (
            f"Cannot write micro-batch {facts.batch_id} of app_id={facts.app_id!r} into {target.name}: it was restored "
            f"to an older version, without the rows of micro-batch {last.undone} of this writer. Restore the newest "
            "version; or give a new app_id, and read again from before the restored version (changes that come again "
            "have no effect)"
        )
        raise TargetError(msg)
    return last.facts


def is_same(last: CommitFacts | None, facts: CommitFacts) -> bool:
    """Return whether the last commit of a writer has recorded a micro-batch with the same changes."""
    return last is not None and (last.batch_id, last.content) == (facts.batch_id, facts.content)


Result = TypeVar("Result")

# Delta's and Iceberg's errors of two writers that commit at once, and of a commit whose answer was lost. A repeated
# write finds what it has committed by its number, so it is safe in each case.
_CONFLICT = re.compile(
    r"DELTA_CONCURRENT_|DELTA_METADATA_CHANGED|DELTA_PROTOCOL_CHANGED"
    r"|\b(?:Concurrent\w+|MetadataChanged|ProtocolChanged|CommitFailed|CommitStateUnknown)Exception\b"
    r"|Found conflicting files|Cannot commit,? .*(?:stale|concurrent|conflict)"
)
_PAUSES_S = (0.5, 1.0, 2.0, 4.0)  # before each further attempt


def is_conflict(error: Exception) -> bool:
    """Return whether another writer has committed at the same time, so that the same write may succeed now."""
    return not isinstance(error, TiCDCSourceError) and _CONFLICT.search(str(error)) is not None


def retried(
    write: Callable[[], Result],
    sleep: Callable[[float], object] = time.sleep,
    *,
    again: Callable[[Exception, float], bool] = lambda error, _: is_conflict(error),
) -> Result:
    """Write, and again after an error that may go away: four times, with longer pauses.

    Args:
        write: writes what it has not written yet.
        sleep: waits for so many seconds.
        again: returns whether an error may go away; it gets the pause, too. By default it is a commit of another
            writer at the same time.
    """
    for pause in _PAUSES_S:
        try:
            return write()
        except Exception as error:  # each engine has its own
            if not again(error, pause):
                raise
            sleep(pause)
    return write()
