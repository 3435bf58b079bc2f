"""scd2_view: a log that `append_log` keeps → every version of every row; and the same as a query for a stored view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.spark_sql.verbatim import run_sql, with_verbatim_sql
from ticdc_lakehouse.targets.log import CHANGE, COMMITTED_AT, EMPTIED, IMAGES, LATER_KEYS, LOG, SEQUENCE
from ticdc_lakehouse.targets.merge import KEYS, PREFIX
from ticdc_lakehouse.targets.opening import open_target
from ticdc_lakehouse.targets.target import quoted
from ticdc_source.developer_api import loads
from ticdc_source.errors import SchemaError

__all__ = ["history_query", "scd2_view"]

_SOURCE = "\0"  # what no query has


@with_verbatim_sql
def scd2_view(
    spark: SparkSession, log: str, view_name: str | None = None, *, keys: Sequence[str] | None = None
) -> DataFrame:
    """Return every version that every row has had, by a log that `append_log` keeps; each change once.

    Beside the columns of the table there are `_valid_from_ts` and `_valid_to_ts`, the commit-ts of the version and of
    the next one (or of the delete, or of TRUNCATE TABLE); `_valid_from` and `_valid_to`, the same as times; and
    `_is_current`. The row of TiDB at a commit-ts `t` is the version with `_valid_from_ts <= t`, and `_valid_to_ts`
    above `t` or NULL.

    Args:
        spark: the session.
        log: the name of the log.
        view_name: the name of a temporary view to create too.
        keys: the columns that identify a row; by default those that the log remembers.

    Example:
        ```python
        from ticdc_lakehouse import scd2_view

        versions = scd2_view(spark, "lake.shop.orders__log")
        versions.where("_is_current").show()
        ```

    Raises:
        SchemaError: the table has no key: nothing tells a repeated change from another row's. Or its key columns were
            renamed or replaced.
        TargetError: it is no log.
    """
    target = open_target(spark, log)
    remembered = target.properties() if target.exists() else {}
    frame = target.frame() if target.exists() else spark.range(0)
    query = history_query(_SOURCE, log, remembered, frame.columns, keys=keys)
    query = query.replace("{", "{{").replace("}", "}}").replace(_SOURCE, "{source}")
    view = run_sql(spark, query, source=frame)
    if view_name is not None:
        view.createOrReplaceTempView(view_name)
    return view


def history_query(
    source: str, log: str, remembered: Mapping[str, str], columns: Iterable[str], *, keys: Sequence[str] | None = None
) -> str:
    """Return the query of the versions of rows.

    Args:
        source: what it reads, as SQL names it.
        log: the name of the log.
        remembered: the properties of the log.
        columns: the columns of the log.
        keys: the columns that identify a row; by default those that the log remembers.

    Raises:
        SchemaError: the table has no key, or its key columns were renamed or replaced.
        TargetError: it is no log.
    """
    if LOG not in remembered:
        msg = f"{log} is not a log that append_log created"
        raise TargetError(msg)
    names = list(keys or loads(remembered.get(KEYS, "[]")))
    if not names:
        msg = (
            f"{log} is of a table without a key: nothing tells a change that TiCDC sent again from another row's. "
            "If columns identify a row, give them: keys=['id']"
        )
        raise SchemaError(msg)
    if LATER_KEYS in remembered and not keys:
        later = ", ".join(loads(remembered[LATER_KEYS]))
        msg = (
            f"The key of {log} was {', '.join(names)}, and later {later}: which of its columns identify a row has "
            "changed. If columns do that in all its rows, give them: keys=['id']; otherwise begin another log"
        )
        raise SchemaError(msg)
    prefix = remembered[PREFIX]
    change, sequence = quoted(f"{prefix}{CHANGE}"), quoted(f"{prefix}{SEQUENCE}")
    own = {f"{prefix}{name}" for name in (CHANGE, COMMITTED_AT, SEQUENCE)}
    of_table = ", ".join(quoted(name) for name in columns if name not in own)
    key, kinds = ", ".join(map(quoted, names)), ", ".join(f"'{kind}'" for kind in IMAGES)
    versions = {
        "valid_from_ts": "__from",
        "valid_to_ts": "__until",
        "valid_from": "timestamp_millis(shiftright(__from, 18))",
        "valid_to": "timestamp_millis(shiftright(__until, 18))",
        "is_current": "__until IS NULL",
    }
    shown = ", ".join(f"{value} AS {quoted(f'{prefix}{name}')}" for name, value in versions.items())
    # A change that came twice, or was undone at once, is a version without duration. `__emptied` has the places at
    # which the table was emptied: rank -1 is that of a commit-ts, and every row of it is older.
    older = (
        f"ddl.commit_ts > __from OR (ddl.commit_ts = __from AND (ddl.rank < 0 OR ddl.partition > {sequence}.partition "
        f"OR (ddl.partition = {sequence}.partition AND ddl.offset > {sequence}.offset)))"
    )
    return f"""
        WITH followed AS (
            SELECT *, {sequence}.commit_ts AS __from,
                lead({sequence}.commit_ts) OVER (PARTITION BY {key} ORDER BY {sequence}) AS __to
            FROM {source} WHERE {change} IN ({kinds})
        ), marks AS (
            SELECT collect_set({sequence}) AS __emptied FROM {source} WHERE {change} = '{EMPTIED}'
        ), versions AS (
            SELECT *, least(__to, array_min(filter(__emptied, ddl -> {older})).commit_ts) AS __until
            FROM followed CROSS JOIN marks WHERE {change} <> 'delete'
        )
        SELECT {of_table}, {shown} FROM versions WHERE __until IS NULL OR __until > __from"""  # noqa: S608
