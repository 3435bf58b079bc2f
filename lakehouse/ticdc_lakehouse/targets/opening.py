"""Opens the target of a name, in any catalog of the session, whether it exists or not; and repeated writes.

The number of a micro-batch does not identify it, as a stream whose checkpoint was restored uses the number again for
other changes. So a micro-batch is skipped only if its changes are those of the last commit. Any other one is merged.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pyspark.sql import SparkSession

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets.delta import DeltaTarget
from ticdc_lakehouse.targets.iceberg import IcebergTarget
from ticdc_lakehouse.targets.sessions import origin, own_session, run_sql
from ticdc_lakehouse.targets.target import KNOWN_ENGINES, CommitFacts, Target, schema_of
from ticdc_lakehouse.targets.target_names import catalog_of, check_name, is_path
from ticdc_source.errors import TiCDCSourceError

ENGINES: dict[str, type[Target]] = {one.engine: one for one in (DeltaTarget, IcebergTarget)}


def open_target(spark: SparkSession, name: str, engine: str | None = None) -> Target:
    """Return the target of a name in SQL, or of ``delta.`/path` ``; the table need not exist yet.

    Without `engine`, it is that of the table or, if the table does not exist, of its catalog.
    """
    if engine is not None and engine not in ENGINES:
        raise TargetError(f"format={engine!r}: it must be one of {', '.join(ENGINES)}")
    existing = existing_target(spark, name)
    if existing is not None:
        if engine in (None, existing.engine):
            return existing
        raise TargetError(
            f"The target {name} is in {existing.engine}, and format={engine!r} was requested. Leave format out, or use "
            "the name of another target"
        )
    engine = engine or _engine_of_catalog(spark, name)
    if engine is None:
        raise TargetError(
            f"The target {name} does not exist, and its catalog does not say whether tables in it are Delta or "
            f"Iceberg. Pass {' or '.join(f'format={one!r}' for one in ENGINES)}"
        )
    return ENGINES[engine](spark, name)


def existing_target(spark: SparkSession, name: str) -> Target | None:
    check_name(name)
    schema = schema_of(spark, name)
    place = (origin(spark), spark.catalog.currentCatalog(), name)  # a name may not have the catalog
    if schema is None:
        KNOWN_ENGINES.pop(place, None)
        return None
    provider = KNOWN_ENGINES.get(place) or _provider_of(spark, name)
    if provider in ENGINES:
        if "." in name:  # a temporary view may hide a table of a name without a dot
            KNOWN_ENGINES[place] = provider
        found = ENGINES[provider](spark, name, schema)
        found.renew()
        return found if found.exists() else None
    what = f"a table of {provider}" if provider else "a view, or a table of an unknown format"
    raise TargetError(
        f"{name} is {what}, and a target must be a table in Delta or Iceberg. Use the name of such a table, or of one "
        "that does not exist yet"
    )


@contextmanager
def in_own_session(spark: SparkSession, opened: Callable[[SparkSession], Target]) -> Iterator[Target]:
    """Open a target in a session of its own. Then the given session sees what was written, even after a failure."""
    with own_session(spark) as own:
        target = opened(own)
        try:
            yield target
        finally:
            target.renew(spark)


def _provider_of(spark: SparkSession, name: str) -> str:
    """Return Spark's word for the format of a table; "" for a view."""
    described = run_sql(spark, f"DESCRIBE TABLE EXTENDED {name}").collect()
    return next((row["data_type"].lower() for row in reversed(described) if row["col_name"] == "Provider"), "")


def _engine_of_catalog(spark: SparkSession, name: str) -> str | None:
    if is_path(name):
        return "delta"
    kind = spark.conf.get(f"spark.sql.catalog.{catalog_of(spark, name)}", None)
    return next((engine for engine in ENGINES if engine in (kind or "").lower()), None)


def same_table(one: str, other: str) -> bool:
    """Whether two texts name one table; like TiDB, this ignores case."""
    return one.replace("`", "").lower() == other.replace("`", "").lower()


def check_table(target: Target, before: str, now: str) -> None:
    """Refuse the changes of one table in the target of another; unknown names are not compared."""
    if not before or not now or same_table(before, now):
        return
    raise TargetError(
        f"Cannot write {now} into {target.name}, the target of {before}. Give each table a target of its own. Or, if "
        f"{before} was renamed to {now}, and the target has its rows, confirm it with ALTER TABLE {target.name} SET "
        f"TBLPROPERTIES ('ticdc.table' = '{now}')"
    )


def last_batch(target: Target, facts: CommitFacts, after_batch: int | None = None) -> CommitFacts | None:
    """Return what the writer's last commit records; None if there is none.

    The target must have the micro-batch `after_batch` of this writer, or a later one. It is -1 if none is needed, and
    None if that is not known: then only the commits tell whether a restore has undone some.
    """
    if facts.app_id is None or facts.batch_id is None:
        return None
    last = target.last_batch(facts.app_id)
    if last is None:
        return None
    if after_batch is not None and last.number < after_batch:
        ends = "has none" if last.number < 0 else f"ends with micro-batch {last.number}"
        raise TargetError(
            f"{target.name} had micro-batch {after_batch} of this writer, and {ends} now: it was restored to an older "
            "version, without the changes in between. Restore the newest version. Or load the table again from a "
            "snapshot"
        )
    if after_batch is None and last.undone is not None and facts.batch_id > last.undone:
        raise TargetError(
            f"Cannot write micro-batch {facts.batch_id} of app_id={facts.app_id!r} into {target.name}: it was restored "
            f"to an older version, without the rows of micro-batch {last.undone} of this writer. Restore the newest "
            "version. Or pass a new app_id, and read again from before the restored version: repeated changes have no "
            "effect"
        )
    return last.facts


def is_same(last: CommitFacts | None, facts: CommitFacts) -> bool:
    return last is not None and (last.batch_id, last.content) == (facts.batch_id, facts.content)


Result = TypeVar("Result")

# Errors of Delta and Iceberg if two writers commit at once, or the answer to a commit was lost. A repeated write finds
# its own commit by its number, so it is safe in each case.
_CONFLICT = re.compile(
    r"DELTA_CONCURRENT_|DELTA_METADATA_CHANGED|DELTA_PROTOCOL_CHANGED"
    r"|\b(?:Concurrent\w+|MetadataChanged|ProtocolChanged|CommitFailed|CommitStateUnknown)Exception\b"
    r"|Found conflicting files|Cannot commit,? .*(?:stale|concurrent|conflict)"
)
_PAUSES_S = (0.5, 1.0, 2.0, 4.0)  # before each further attempt


def is_conflict(error: Exception) -> bool:
    """Whether another writer has committed at the same time, so that the same write may succeed if repeated."""
    return not isinstance(error, TiCDCSourceError) and _CONFLICT.search(str(error)) is not None


def retried(
    write: Callable[[], Result],
    sleep: Callable[[float], object] = time.sleep,
    *,
    again: Callable[[Exception, float], bool] = lambda error, _: is_conflict(error),
) -> Result:
    """Call an idempotent `write`, and again after an error that may go away, up to four times, with longer pauses.

    `again` decides that, given the error and the next pause; by default, conflicts of commits are such errors.
    """
    for pause in _PAUSES_S:
        try:
            return write()
        except Exception as error:  # each engine has its own
            if not again(error, pause):
                raise
            sleep(pause)
    return write()
