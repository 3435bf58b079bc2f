"""Open the target of a name: in Delta or Iceberg, in any catalog of the session, there already or not yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from ticdc_lakehouse.common.errors import TargetError
from ticdc_lakehouse.common.verbatim import run_sql
from ticdc_lakehouse.targets.delta import DeltaTarget
from ticdc_lakehouse.targets.iceberg import IcebergTarget
from ticdc_lakehouse.targets.merge_sessions import own_session
from ticdc_lakehouse.targets.target import REMEMBERED, Target, schema_of
from ticdc_lakehouse.targets.target_names import catalog_of, check_name, is_path

ENGINES: dict[str, type[DeltaTarget | IcebergTarget]] = {one.engine: one for one in (DeltaTarget, IcebergTarget)}


def open_target(spark: SparkSession, name: str, engine: str | None = None) -> Target:
    """Return the target of a name; the table need not exist yet.

    Args:
        name: a name as SQL has it, or ``delta.`/path` `` for a Delta table without a catalog.
        engine: `delta` or `iceberg`; None to ask the table, or the catalog of a table that does not exist.
    """
    if engine is not None and engine not in ENGINES:
        msg = f"format={engine!r}: it must be one of {', '.join(ENGINES)}"
        raise TargetError(msg)
    existing = existing_target(spark, name)
    if existing is not None:
        if engine in (None, existing.engine):
            return existing
        msg = (
            f"The target {name} is in {existing.engine}, and format={engine!r} was given: leave it out, or give "
            "another name"
        )
        raise TargetError(msg)
    engine = engine or _engine_of_catalog(spark, name)
    if engine is None:
        msg = (
            f"The target {name} does not exist, and its catalog does not say whether tables in it are Delta or "
            "Iceberg: give format='delta' or format='iceberg'"
        )
        raise TargetError(msg)
    return ENGINES[engine](spark, name)


def existing_target(spark: SparkSession, name: str) -> Target | None:
    """Return the target of a name if there is such a table; None if there is none."""
    check_name(name)
    schema = schema_of(spark, name)
    if schema is None:
        REMEMBERED.put_engine(spark, name, None)
        return None
    provider = REMEMBERED.engine(spark, name) or _provider_of(spark, name)
    if provider in ENGINES:
        if "." in name:  # a view of the session may hide the others
            REMEMBERED.put_engine(spark, name, provider)
        found = ENGINES[provider](spark, name, schema)
        found.renew()
        return found if found.exists() else None
    what = f"a table of {provider}" if provider else "a view, or a table of an unknown format"
    msg = (
        f"{name} is {what}: only tables in Delta and Iceberg have the MERGE and the commits that are needed. Give "
        "another name, or write the changes with append_log"
    )
    raise TargetError(msg)


@contextmanager
def in_own_session(spark: SparkSession, opened: Callable[[SparkSession], Target]) -> Iterator[Target]:
    """Open a target in a session of its own. The given one sees afterwards what was written, even if not all was."""
    with own_session(spark) as own:
        target = opened(own)
        try:
            yield target
        finally:
            target.refresh(spark)


def _provider_of(spark: SparkSession, name: str) -> str:
    """Return Spark's word for the format of a table; "" for a view."""
    described = run_sql(spark, f"DESCRIBE TABLE EXTENDED {name}").collect()
    return next((row["data_type"].lower() for row in reversed(described) if row["col_name"] == "Provider"), "")


def _engine_of_catalog(spark: SparkSession, name: str) -> str | None:
    if is_path(name):
        return "delta"
    kind = spark.conf.get(f"spark.sql.catalog.{catalog_of(spark, name)}", None)
    return next((engine for engine in ENGINES if engine in (kind or "").lower()), None)
