"""`append_log`: all changes of a table → a log in Delta or Iceberg. `scd2_view`: a log → every version of every row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DataType, StringType, StructField, TimestampType

from ticdc_lakehouse.errors import LogTypeError, TargetError
from ticdc_lakehouse.targets.changelog import (
    Changelog,
    as_decided,
    comment_of,
    committed_at,
    given_to_target,
    keys_as_text,
    lost_values,
    read_changelog,
    rows_without,
    stored_column,
    time_property,
    with_time_as,
)
from ticdc_lakehouse.targets.data_layout import DataLayout, WriteSettings
from ticdc_lakehouse.targets.ddl_state import DDLState, types_as_property
from ticdc_lakehouse.targets.followed_ddl import EMPTIES, DDLReader, DestructiveDDL
from ticdc_lakehouse.targets.merge import KEYS, PREFIX, TABLE, target_of
from ticdc_lakehouse.targets.opening import check_table, existing_target, is_same, last_batch, open_target
from ticdc_lakehouse.targets.sessions import run_sql, with_verbatim_sql
from ticdc_lakehouse.targets.target import CommitFacts, NewColumn, Target
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_source.developer_api import EMPTYING_RANK, PLACED_RANK, DDLEvent, ddl_kind, loads
from ticdc_source.errors import SchemaError

LOG, LATER_KEYS = "ticdc.log", "ticdc.later_keys"
CHANGE, COMMITTED_AT, SEQUENCE = "change", "committed_at", "sequence"
EMPTIED = "truncate"  # the change of a row that stands for TRUNCATE TABLE or DROP TABLE
IMAGES = ("insert", "update_postimage", "delete")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """What `append_log` did."""

    target: str  # the name of the log
    created: bool = False  # whether it was created
    added: tuple[str, ...] = ()  # the columns that were added
    widened: tuple[str, ...] = ()  # the columns whose type was widened
    # columns not added yet, because they have had only NULLs, so their type is unknown
    undecided: tuple[str, ...] = ()
    missing: bool = False  # whether nothing was done, because the log does not exist and there was only DDL
    content: str | None = None  # what the log's commit records about this micro-batch; None if there is no such commit


@with_verbatim_sql
def append_log(
    changes: DataFrame,
    target: str,
    *,
    format: str | None = None,  # noqa: A002 (Spark's word)
    app_id: str | None = None,
    batch_id: int | None = None,
    after_batch: int | None = None,
    resolved_ts: int | None = None,
    ddl: Sequence[DDLEvent] = (),
    properties: Mapping[str, str] | None = None,
    column_prefix: str | None = None,
    time_as: Literal["micros", "text"] | None = None,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
) -> LogReport:
    """Append the changes of one table, with or without a key, to a log in Delta or Iceberg: the table's history.

    The log has the columns of the table, and `_change` (`insert`, `update_postimage`, `delete`), `_committed_at` and
    `_sequence`, whose field `commit_ts` is the commit-ts. (The names `_change_type`, `_commit_version` and
    `_commit_timestamp` of the changes are not used: Delta reserves them if its change data feed is on.) A row whose
    `_change` is `truncate` stands for a TRUNCATE TABLE or DROP TABLE.

    TiCDC repeats changes when it restarts, and the log then has them more than once. `scd2_view` shows each once.

    Args:
        changes: a changelog frame of one table, not a stream.
        target: the name of the log, as in `merge_into`. It is created if it does not exist; new columns are added.
        format: `delta` or `iceberg`. Needed if the log does not exist and its catalog does not determine the format.
        app_id: the name of the writer, different for each stream. If `batch_id` is given too, a Kafka record whose
            changes this writer has already appended adds nothing, whatever the number of its micro-batch.
        batch_id: the number of the micro-batch, as `foreachBatch` gives it.
        after_batch: a micro-batch of this writer that the log must already have, as in `merge_into`.
        resolved_ts: the commit-ts up to and including which the changes are complete. The commit records it.
        ddl: the DDL events of the table in these changes.
        properties: table properties for a new log.
        column_prefix: the prefix of `change`, `committed_at` and `sequence`; `_` by default.
        time_as: how a new log stores TIME, as in `merge_into`.
        partition_by: the columns by which a new log is partitioned, as in `merge_into`.
        cluster_by: the columns of liquid clustering, for a new log in Delta.

    Example:
        ```python
        from ticdc_lakehouse import append_log

        append_log(changes, "lake.shop.orders__log", format="delta", app_id="orders-1", batch_id=batch_id)
        ```

    Raises:
        OptionError: Delta or Iceberg does not support the layout.
        SchemaError: the frame is not a changelog.
        TargetError: the log cannot take the changes. Nothing has been written.
    """
    layout = DataLayout(tuple(partition_by), tuple(cluster_by))
    settings = WriteSettings(format=format, column_prefix=column_prefix, time_as=time_as, layout=layout)
    facts = CommitFacts(resolved_ts, app_id, batch_id)
    return append_changes(changes, target, settings, facts, after_batch=after_batch, ddl=ddl, properties=properties)


@with_verbatim_sql
def append_changes(
    changes: DataFrame,
    target: str,
    settings: WriteSettings,
    facts: CommitFacts,
    *,
    after_batch: int | None = None,
    ddl: Sequence[DDLEvent] = (),
    properties: Mapping[str, str] | None = None,
) -> LogReport:
    """Append changes like `append_log`, with its arguments in groups."""
    with target_of(read_changelog(changes), target, settings.format) as (given, log):
        changelog = with_time_as(given, log, settings.time_as)
        exists, last = log.exists(), None
        remembered = log.properties() if exists else {}
        log.check_layout(settings.layout, log.name)
        if exists:
            settings.layout.check_target(log.name, remembered)
        if exists and LOG not in remembered:
            raise TargetError(
                f"{log.name} is not a log that append_log created. Use the name of a table that does not exist"
            )
        prefix = remembered.get(PREFIX, "_" if settings.column_prefix is None else settings.column_prefix)
        if not exists and not changelog.columns:
            return LogReport(target=log.name, missing=True)
        if exists:
            check_table(log, remembered.get(TABLE, ""), changelog.table)
            last = last_batch(log, facts, after_batch)
        existing = log.columns() if exists else {}
        state = DDLState.of_properties(remembered)
        now = _checked_ddl(log, existing, state, ddl)
        changelog, undecided = _settled(changelog, log, existing)
        wanted = _wanted(changelog, log, prefix)
        add, widen = _to_change(changelog.table, log, wanted, existing)
        types, altered = types_as_property(now.types, changelog.columns), DDLState(altered=now.altered)
        remembers = {**_keys_now(changelog, remembered), **types, **altered.as_properties()}
        if exists:
            if add:
                log.add_columns(add)
            for name, type_ in widen:
                log.widen_column(name, type_)
            if any(remembered.get(name) != value for name, value in remembers.items()):
                log.set_properties(remembers)
        else:
            own = {LOG: "true", TABLE: changelog.table, PREFIX: prefix, **time_property(changelog.time_as)}
            clause = settings.layout.in_sql(log.name, [column.name for column in add])
            created = {**own, **remembers, **settings.layout.as_properties(), **(properties or {})}
            log.create(add, created, layout=clause)
        rows = _rows(changelog, wanted, ddl)
        appended = _append_new(rows, log, facts, last, prefix, exists=exists)
        return LogReport(
            target=log.name,
            created=not exists,
            added=tuple(column.name for column in add) if exists else (),
            widened=tuple(name for name, _ in widen),
            undecided=undecided,
            content=None if appended is None else appended.identity,
        )


def _checked_ddl(log: Target, existing: Mapping[str, DataType], state: DDLState, ddl: Sequence[DDLEvent]) -> DDLState:
    """Return the state after DDL, whose effects on older rows a log ignores.

    A `LogTypeError` is raised if a column gets a type that the log cannot have.
    """
    if not existing:
        return state
    columns = {name.lower(): type_ for name, type_ in existing.items()}
    reader = DDLReader(target=log, columns=columns, policy=DestructiveDDL.IGNORE, doubts=lambda _: None, is_log=True)
    return reader.after(state, ddl)


def _append_new(
    rows: DataFrame, log: Target, facts: CommitFacts, last: CommitFacts | None, prefix: str, *, exists: bool
) -> CommitFacts | None:
    """Append the rows that the log lacks; return what the commit records, None if there is no commit.

    A row is identified by its Kafka record. The writer's last commit records the offsets up to which it has written,
    and the log is read only if some rows are not after them. Rows of a snapshot go by the number of their part.
    """
    if facts.app_id is None or facts.batch_id is None:
        log.append(rows, facts)
        return facts
    change, sequence = quoted(f"{prefix}{CHANGE}"), quoted(f"{prefix}{SEQUENCE}")
    rows = rows.persist()
    try:
        partition = F.col(f"{sequence}.partition")
        unplaced = (F.col(change) == EMPTIED) & (partition < 0)
        told = rows.groupBy(partition.alias("partition"), unplaced.alias("emptied")).agg(
            F.min(f"{sequence}.offset").alias("first"),
            F.max(f"{sequence}.offset").alias("last"),
            F.min(f"{sequence}.commit_ts").alias("since"),
        )
        parts = told.collect()
        ends = {} if last is None or last.ends is None else loads(last.ends)
        is_known = last is not None and last.ends is not None
        placed = {str(part["partition"]): part for part in parts if (part["partition"] or 0) >= 0}
        if any(part["partition"] is not None and part["partition"] < 0 and not part["emptied"] for part in parts):
            if is_same(last, facts):
                return last
        elif exists and parts:
            has_old = any(part["first"] is None or part["first"] <= ends.get(name, -1) for name, part in placed.items())
            if not is_known or has_old or len(placed) < len(parts):
                logged, since = log.frame(), [part["since"] for part in parts]
                if None not in since:
                    logged = logged.where(F.col(f"{sequence}.commit_ts") >= min(since))  # so that files are skipped
                place = [f"{sequence}.{name}" for name in ("commit_ts", "partition", "offset", "index")]
                rows = rows_without(rows, logged, [*place, change])
                if rows.isEmpty():
                    return None
        now = {name: part["last"] for name, part in placed.items() if part["last"] is not None}
        ends |= {name: max(end, ends.get(name, -1)) for name, end in now.items()}
        facts = replace(facts, ends=json.dumps(ends, separators=(",", ":")))
        log.append(rows, facts)
        return facts
    finally:
        rows.unpersist()


def _keys_now(changelog: Changelog, remembered: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of the key to set. If the key has changed, `KEYS` stays that of the first rows."""
    if not changelog.keys:
        return {}
    now = keys_as_text(changelog.keys)
    if KEYS not in remembered:
        return {KEYS: now}
    before = {name.lower() for name in loads(remembered[KEYS])}
    return {} if before == {name.lower() for name in changelog.keys} else {LATER_KEYS: now}


@with_verbatim_sql
def is_merged(changes: DataFrame, target: str, log: str) -> bool:
    """Return whether changes of a table belong in `merge_into`; those of a table without a key belong in `append_log`.

    Args:
        changes: a changelog frame of one table.
        target: the name of the target.
        log: the name of the log.

    Example:
        ```python
        from ticdc_lakehouse import is_merged

        print(is_merged(changes, "lake.shop.orders", "lake.shop.orders__log"))
        ```

    Raises:
        SchemaError: the frame is not a changelog.
        TargetError: the table has lost or gained a key, so its earlier rows are in the log or the target, respectively.
    """
    changelog, spark = read_changelog(changes), changes.sparkSession
    if not changelog.columns:  # DDL alone
        return existing_target(spark, log) is None or existing_target(spark, target) is not None
    check_key(changes, target, log)
    return bool(changelog.keys)


@with_verbatim_sql
def check_key(changes: DataFrame, target: str, log: str) -> None:
    """Raise a `TargetError` if a table has lost its key, or has got one, since its rows were written."""
    changelog, spark = read_changelog(changes), changes.sparkSession
    merged = existing_target(spark, target)
    logged = existing_target(spark, log)
    what = changelog.table or "the table"
    if changelog.keys and merged is None and logged is not None:
        raise TargetError(
            f"{what} has a key now, and its earlier rows are in {log}, where a repeated change cannot be told from a "
            f"second, equal row. Read {what} from a new snapshot into {target}, and start again"
        )
    if not changelog.keys and merged is not None and KEYS in merged.properties():
        raise TargetError(
            f"{what} no longer has a key, so it is unknown which row of {target} a change is about. Rename or drop "
            f"{target}, and later changes go to {log}"
        )


def _settled(changelog: Changelog, log: Target, existing: Mapping[str, DataType]) -> tuple[Changelog, tuple[str, ...]]:
    """Return the changes with the types that the log decides, without undecided columns that it does not get yet.

    The log decides like a target of `merge_into`. A pass over the changes finds out whether such columns have values.
    """
    types = {name.lower(): type_ for name, type_ in existing.items()}
    given = given_to_target(changelog.columns, types)
    wanted = {name: types.get(name.lower()) for name in given}
    wanted = {name: type_ for name, type_ in wanted.items() if type_ != log.stored(given[name])}
    if not wanted:
        return changelog, ()
    counts = (lost_values(quoted(name), given[name], type_).alias(name) for name, type_ in wanted.items())
    row = changelog.frame.agg(*counts).collect()[0]
    decided = {name: type_ for (name, type_), lost in zip(wanted.items(), row, strict=True) if not lost}
    cast = {
        name: as_decided(changelog.column(name), given[name], type_)
        for name, type_ in decided.items()
        if type_ is not None
    }
    left_out = tuple(name for name, type_ in decided.items() if type_ is None)
    frame = changelog.frame.withColumns(cast)
    fields = tuple(
        StructField(field.name, decided.get(field.name) or field.dataType, metadata=field.metadata)
        for field in changelog.columns
        if field.name not in left_out
    )
    return replace(changelog, frame=frame, columns=fields), left_out


def _wanted(changelog: Changelog, log: Target, prefix: str) -> list[NewColumn]:
    sequence = changelog.frame.schema[f"{changelog.prefix}sequence"].dataType
    own = [(CHANGE, StringType()), (COMMITTED_AT, TimestampType()), (SEQUENCE, sequence)]
    names = {f"{prefix}{name}".lower() for name, _ in own}
    for field in changelog.columns:
        if field.name.lower() in names:
            raise TargetError(
                f"Table {changelog.table} has a column {field.name}, which is also a column that the log adds. Use "
                "another column_prefix, for example column_prefix='_ticdc_'"
            )
    return [
        *(NewColumn(f"{prefix}{name}", type_) for name, type_ in own),
        *(
            NewColumn(field.name, log.stored(field.dataType), comment_of(changelog, field))
            for field in changelog.columns
        ),
    ]


def _to_change(
    table: str, log: Target, wanted: Sequence[NewColumn], existing: Mapping[str, DataType]
) -> tuple[list[NewColumn], list[tuple[str, DataType]]]:
    """Return the columns to add and those to widen; a `LogTypeError` is raised if one cannot be widened."""
    columns = {name.lower(): (name, type_) for name, type_ in existing.items()}
    add, widen = [], []
    for column in wanted:
        name, type_ = columns.get(column.name.lower(), (column.name, None))
        if type_ is None:
            add.append(column)
            continue
        wide = log.widened(type_, column.type)
        if wide is None:
            raise LogTypeError(
                f"Cannot append {table or 'the changes'} to {log.name}: column {name} is {type_.simpleString()} in the "
                f"log and {column.type.simpleString()} in the changes. Read it as the log has it: "
                f'schemaHints="{name} {type_.simpleString()}". Or rename column {name} of {log.name}, so that the '
                "changes get a new column; or append to another log"
            )
        if wide != type_:
            widen.append((name, wide))
    return add, widen


def _rows(changelog: Changelog, wanted: Sequence[NewColumn], ddl: Sequence[DDLEvent]) -> DataFrame:
    change_type = changelog.column(f"{changelog.prefix}change_type")
    sequence = changelog.column(f"{changelog.prefix}sequence")
    names = [column.name for column in wanted]
    values = [change_type, committed_at(sequence), sequence]
    values += [stored_column(changelog, field) for field in changelog.columns]
    chosen = changelog.frame.where(change_type.isin(*IMAGES))
    rows = chosen.select(*(value.alias(name) for value, name in zip(values, names, strict=True)))
    # Rows at the same commit-ts are older; if it is only a time, the place in Kafka tells.
    emptied = sorted(
        {(one.commit_ts, EMPTYING_RANK if one.place is None else PLACED_RANK, *(one.place or (-1, -1))) for one in ddl
         if one.commit_ts is not None and ddl_kind(one) in EMPTIES}
    )  # fmt: skip
    if not emptied:
        return rows
    each = (
        f"named_struct('commit_ts', {commit_ts}L, 'rank', {rank}, 'partition', {partition}, 'offset', {offset}L, "
        f"'index', {min(rank, 0)})"
        for commit_ts, rank, partition, offset in emptied
    )
    marks = changelog.frame.sparkSession.range(1).select(F.expr(f"explode(array({', '.join(each)}))").alias("place"))
    marks = marks.select(
        F.lit(EMPTIED).alias(names[0]),
        committed_at(F.col("place")).alias(names[1]),
        F.col("place").cast(wanted[2].type).alias(names[2]),
    )
    return rows.unionByName(marks, allowMissingColumns=True)


_SOURCE = "\0"  # a text that no query has


@with_verbatim_sql
def scd2_view(
    spark: SparkSession, log: str, view_name: str | None = None, *, keys: Sequence[str] | None = None
) -> DataFrame:
    """Return every version of every row, from a log that `append_log` writes. Repeated changes appear once.

    The frame has the columns of the table, and `_valid_from_ts` and `_valid_to_ts`, the commit-ts of the version and of
    its successor (or of the delete, or of TRUNCATE TABLE); `_valid_from` and `_valid_to`, the same as times; and
    `_is_current`. At a commit-ts `t`, a row in TiDB was the version with `_valid_from_ts <= t` and `_valid_to_ts` above
    `t` or NULL.

    Args:
        spark: the session.
        log: the name of the log.
        view_name: also create a temporary view with this name.
        keys: the columns that identify a row; by default those that the log has recorded.

    Example:
        ```python
        from ticdc_lakehouse import scd2_view

        versions = scd2_view(spark, "lake.shop.orders__log")
        versions.where("_is_current").show()
        ```

    Raises:
        SchemaError: the table has no key, so a repeated change looks like another row's; or its key columns were
            renamed or replaced.
        TargetError: `log` is not a log.
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
    """Return the query for the versions of rows, which reads `source`; the log has the properties `remembered`."""
    if LOG not in remembered:
        raise TargetError(f"{log} is not a log that append_log created")
    names = list(keys or loads(remembered.get(KEYS, "[]")))
    if not names:
        raise SchemaError(
            f"{log} is of a table without a key, so a repeated change cannot be told from a second, equal row. If "
            "columns identify a row, pass them: keys=['id']"
        )
    if LATER_KEYS in remembered and not keys:
        later = ", ".join(loads(remembered[LATER_KEYS]))
        raise SchemaError(
            f"The key of {log} has changed from {', '.join(names)} to {later}. If columns identify a row in all of its "
            "changes, pass them: keys=['id']. Otherwise begin another log"
        )
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
    # which the table was emptied: rows at the same commit-ts are older.
    older = (
        f"ddl.commit_ts > __from OR (ddl.commit_ts = __from AND (ddl.rank = {EMPTYING_RANK} OR "
        f"ddl.partition > {sequence}.partition OR "
        f"(ddl.partition = {sequence}.partition AND ddl.offset > {sequence}.offset)))"
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
