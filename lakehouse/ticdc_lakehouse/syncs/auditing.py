"""`audit` compares a target with TiDB, and `audit_sync` the targets of a sync."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pyspark.sql import SparkSession

from ticdc_lakehouse.audits.report import AuditReport, TableAudit
from ticdc_lakehouse.audits.table_audit import audit_table
from ticdc_lakehouse.common.tidb import TiDBConfig
from ticdc_lakehouse.common.verbatim import with_verbatim_sql
from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.redaction import Redaction
from ticdc_lakehouse.syncs.status import TableStatus, statuses_of
from ticdc_lakehouse.syncs.time_travel import selected
from ticdc_lakehouse.targets.merge_sessions import in_thread
from ticdc_source.errors import OptionError


@with_verbatim_sql
def audit(
    spark: SparkSession,
    target: str,
    *,
    tidb: TiDBConfig,
    at: int | None = None,
    complete: int | None = None,
    repair: bool = False,
    sample: int = 20,
) -> AuditReport:
    """Compare a target of `merge_into` with its table in TiDB, at one TSO.

    TiDB computes a number of rows and a checksum for each of 4,096 buckets of keys, and Spark does the same. Rows are
    read from TiDB only if their bucket differs.

    Args:
        spark: the session.
        target: the name of the target, as `merge_into` takes it.
        tidb: where TiDB is.
        at: the TSO; by default the newest one up to which the target is known to be complete.
        complete: a TSO up to which the caller knows that the target is complete, if its commits record an older one: a
            table without changes has no commits.
        repair: whether the rows that differ get TiDB's values as of the TSO, in one commit. They are compared again
            then, so the state is that of the repaired target.
        sample: how many rows that differ the report has at most.

    Returns:
        What was found. A target that equals TiDB gets the property `ticdc.verified_ts`.

    Example:
        ```python
        from ticdc_lakehouse import TiDBConfig, audit

        tidb = TiDBConfig(url="tidb:4000", user="reader", password="…")
        report = audit(spark, "lake.shop.orders", tidb=tidb)
        print(report.equal, report.tables[0].rows)
        ```

    Raises:
        OptionError: `at` is no TSO.
    """
    found = audit_table(spark, target, tidb=tidb, at=at, complete=complete, repair=repair, sample=sample)
    return AuditReport(tables=(found,))


@with_verbatim_sql
def audit_sync(
    spark: SparkSession,
    config: SyncConfig,
    *,
    tables: Sequence[str] = (),
    at: int | None = None,
    repair: bool = False,
    sample: int = 20,
    on_table: Callable[[TableAudit], None] = lambda _: None,
) -> AuditReport:
    """Compare the targets of a sync with their tables in TiDB, each at the newest TSO up to which it is complete.

    `tables` are patterns, such as `shop.*`, empty for all; `at` is one TSO for all of them.
    """
    if config.tidb is None:
        msg = "An audit asks TiDB: write [tidb] with its url into sync.toml"
        raise OptionError(msg)
    chosen = selected(statuses_of(spark, config), tables, with_left_out=True)
    tidb = config.tidb
    redaction = Redaction(config.source, {**config.spark, **tidb.options()}, config.secret_spark)

    def one(status: TableStatus) -> TableAudit:
        found = audit_table(
            spark, status.target, tidb=tidb, at=at, complete=status.resolved_ts, repair=repair, sample=sample
        )
        reason = None if found.reason is None else redaction.text(found.reason)
        found = replace(found, table=found.table or status.table_name, reason=reason)
        on_table(found)
        return found

    with ThreadPoolExecutor(config.parallel, thread_name_prefix="audit") as threads:
        return AuditReport(tables=tuple(threads.map(in_thread(spark, one), chosen)))
