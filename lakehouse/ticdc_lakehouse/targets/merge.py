"""`merge_into`: changes of a table → a Delta or Iceberg table that stays equal to it.

Everything is checked before anything is written. Then, in this order: the target is created or its columns are changed;
the DDL is applied; keys of hard deletes are written to the table of deleted keys; the rows are merged, in one commit
that records `ticdc.resolved_ts`. Each step is idempotent, so a micro-batch that failed anywhere can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import BooleanType, DataType, TimestampType

from ticdc_lakehouse.errors import TargetError, UnexplainedChangeError
from ticdc_lakehouse.targets.apply_ddl import OldRows
from ticdc_lakehouse.targets.changelog import (
    Changelog,
    Images,
    comment_of,
    committed_at,
    computed_images,
    keys_as_text,
    newest_images,
    read_changelog,
    time_property,
    with_time_as,
)
from ticdc_lakehouse.targets.column_types import common_type
from ticdc_lakehouse.targets.data_layout import DataLayout, WriteSettings
from ticdc_lakehouse.targets.ddl_state import DDLPlaces, types_as_property
from ticdc_lakehouse.targets.followed_ddl import DestructiveDDL, doubts_of
from ticdc_lakehouse.targets.opening import check_table, in_own_session, is_same, last_batch, open_target
from ticdc_lakehouse.targets.sessions import frame_in, shuffling, with_verbatim_sql
from ticdc_lakehouse.targets.target import CommitFacts, Merged, NewColumn, Target, Upsert
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_source.developer_api import DDLEvent, loads
from ticdc_source.errors import OptionError, SchemaError

# Properties of a target.
TABLE, KEYS, DELETES, PREFIX = "ticdc.table", "ticdc.keys", "ticdc.deletes", "ticdc.column_prefix"
COMMIT_TIME = "ticdc.commit_time"  # its column `_committed_at` is filled
COMPLETE = "ticdc.complete"  # the TSO since which it has every row
_OWN = "ticdc."  # the prefix of their names
_SOFT, _HARD = "soft", "hard"


class OwnColumns(NamedTuple):
    """The columns that a target has in addition to those of its table."""

    sequence: str  # the `_sequence` of a row's last change
    deleted: str | None  # whether a row is deleted; None if deleted rows are removed
    committed_at: str | None  # the time of a row's last commit

    @classmethod
    def named(cls, prefix: str, *, soft: bool, commit_time: bool) -> OwnColumns:
        deleted, committed_at = f"{prefix}is_deleted", f"{prefix}committed_at"
        return cls(f"{prefix}sequence", deleted if soft else None, committed_at if commit_time else None)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> OwnColumns:
        soft, commit_time = properties.get(DELETES) == _SOFT, COMMIT_TIME in properties
        return cls.named(properties.get(PREFIX, "_"), soft=soft, commit_time=commit_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeReport:
    """What `merge_into` did."""

    target: str  # the name of the target
    created: bool = False  # whether it was created
    added: tuple[str, ...] = ()  # the columns that were added
    widened: tuple[str, ...] = ()  # the columns whose type was widened
    # columns not added yet, because they have had only NULLs, so their type is unknown
    undecided: tuple[str, ...] = ()
    images: int = 0  # how many keys the changes have
    rows: int | None = None  # how many rows of the target were changed; None if the engine does not report it
    repeated: bool = False  # whether the merge was skipped, because the target already has this micro-batch
    content: str | None = None  # what the target's commit records about this micro-batch; None if there is no commit


@with_verbatim_sql
def merge_into(
    changes: DataFrame,
    target: str,
    *,
    keys: Sequence[str] | None = None,
    deletes: Literal["soft", "hard"] | None = None,
    format: str | None = None,  # noqa: A002 (Spark's word)
    app_id: str | None = None,
    batch_id: int | None = None,
    after_batch: int | None = None,
    resolved_ts: int | None = None,
    ddl: Sequence[DDLEvent] = (),
    on_destructive_ddl: Literal["apply", "fail", "warn", "ignore"] = "warn",
    on_doubtful_ddl: Literal["fail", "warn"] = "warn",
    properties: Mapping[str, str] | None = None,
    column_prefix: str | None = None,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    time_zone: str = "UTC",
    commit_time: bool = False,
    time_as: Literal["micros", "text"] | None = None,
) -> MergeReport:
    """Merge the changes of one table into a Delta or Iceberg table.

    The target has the columns of the table and `_sequence`, the position of the row's last change in the order of
    changes. Older changes that arrive late or again are ignored. With soft deletes, the target also has `_is_deleted`,
    which marks deleted rows. (`_commit_version` and `_commit_timestamp` are not stored, because Delta's change data
    feed uses these names. `_sequence.commit_ts` has the value of `_commit_version`.)

    Args:
        changes: a changelog frame of one table: `outputFormat=changelog`, not a stream. Any `metadataColumnPrefix` will
            do. Rows whose change type is NULL are bad records, and are left out.
        target: the name of the table in SQL: `lake.shop.orders`, or ``delta.`/data/orders` ``. If it does not exist, it
            is created, with its namespace.
        keys: the columns that identify a row; by default the handle key from the field metadata of the columns, or the
            key that the target has recorded. Spark compares keys byte by byte: `a` and `A` are different keys, even if
            the MySQL collation treats them as equal. NULL equals NULL.
        deletes: `soft`, the default, keeps a deleted row with `_is_deleted = true`. `hard` removes the row, and keeps
            its key and `_sequence` in the table `<target>__deleted`, so that a late insert does not bring the row back.
        format: `delta` or `iceberg`. Needed if the target does not exist and its catalog does not determine the format.
        app_id: the name of the writer, different for each stream. If `batch_id` is given too, and this writer's last
            micro-batch arrives again with the same changes, it is skipped. Any other micro-batch is merged, whatever
            its number: `_sequence` prevents wrong rows. After a RESTORE (Iceberg: a rollback), a number larger than one
            that was undone is an error, because rows would be missing: read again from before that version.
        batch_id: the number of the micro-batch, as `foreachBatch` passes it.
        after_batch: a micro-batch of this writer that the target must already have. If the target lacks it, the target
            is an older version, and nothing is written.
        resolved_ts: the commit-ts up to and including which the changes are complete. The commit of the rows records it
            (`resolved_ts_of`); without changes, there is no commit.
        ddl: the DDL events of the table in these changes, oldest first.
        on_destructive_ddl: what to do at DDL that removes rows without delete events, with the values of the option
            `onDestructiveDDL`: `fail` raises an error, `warn` leaves the target as it is and warns, and `ignore` does
            not even warn. In addition, `apply` removes the rows from the target.
        on_doubtful_ddl: what to do at DDL whose effect on older rows only TiDB knows, such as a new column with a
            default that TiDB computes, or a MODIFY COLUMN that may have changed values. `fail` raises an error, as does
            `on_destructive_ddl="fail"`. `warn` warns: older rows get NULL in a new column, and keep their old values in
            a changed one. If DDL gives a column a type to which the target cannot widen it, that is always an error.
        properties: table properties for a new target.
        column_prefix: the prefix of `sequence`, `is_deleted` and `committed_at`; `_` by default.
        partition_by: the columns by which a new target is partitioned; in Iceberg also `days(created_at)`,
            `bucket(16, id)` and other transforms. Partitioning and clustering cannot be changed later.
        cluster_by: the columns of liquid clustering, for a new target in Delta.
        time_zone: the time zone of TIMESTAMP defaults in DDL, which do not name one. Pass the `timeZone` with which
            changes are read.
        commit_time: whether the target gets a column `_committed_at`, the time of the commit that changed the row last.
            A target that has the column keeps it.
        time_as: how a new target stores TIME, as Delta and Iceberg lack the type: `micros`, the default, is a bigint,
            and `text` is TiDB's text, such as `-12:30:00`. It cannot be changed later.

    Example:
        ```python
        from ticdc_lakehouse import merge_into

        report = merge_into(changes, "lake.shop.orders", format="delta", app_id="orders-1", batch_id=batch_id)
        print(report.created, report.images)
        ```

    Raises:
        OptionError: `deletes`, `on_destructive_ddl`, `on_doubtful_ddl` or `time_as` has an unknown value, or Delta or
            Iceberg does not support the layout.
        SchemaError: the frame is not a changelog or has no key, or `on_destructive_ddl` or `on_doubtful_ddl` refuses
            DDL.
        TargetError: the target cannot take the changes. Nothing has been written.
    """
    settings = WriteSettings(
        format=format,
        keys=None if keys is None else tuple(keys),
        deletes=deletes,
        column_prefix=column_prefix,
        time_zone=time_zone,
        time_as=time_as,
        commit_time=commit_time,
        layout=DataLayout(tuple(partition_by), tuple(cluster_by)),
    )
    return merge_changes(
        changes,
        target,
        settings,
        CommitFacts(resolved_ts, app_id, batch_id),
        after_batch=after_batch,
        ddl=ddl,
        on_destructive_ddl=on_destructive_ddl,
        on_doubtful_ddl=on_doubtful_ddl,
        properties=properties,
    )


@with_verbatim_sql
def merge_changes(
    changes: DataFrame,
    target: str,
    settings: WriteSettings,
    facts: CommitFacts,
    *,
    after_batch: int | None = None,
    ddl: Sequence[DDLEvent] = (),
    on_destructive_ddl: str = "warn",
    on_doubtful_ddl: str = "warn",
    properties: Mapping[str, str] | None = None,
) -> MergeReport:
    """Merge changes like `merge_into`, with its arguments in groups."""
    with target_of(read_changelog(changes), target, settings.format) as (changelog, opened):
        timed = with_time_as(changelog, opened, settings.time_as)
        if settings.deletes not in (None, _SOFT, _HARD):
            raise OptionError(f"deletes={settings.deletes!r}: it must be 'soft' or 'hard'")
        policy = DestructiveDDL.of(on_destructive_ddl)
        return _Merge(
            changes=timed,
            target=opened,
            settings=settings,
            facts=facts,
            after_batch=after_batch,
            properties=dict(properties or {}),
            ddl=tuple(ddl),
            on_destructive_ddl=policy,
            doubts=doubts_of(on_doubtful_ddl, policy),
        ).run()


@contextmanager
def target_of(changes: Changelog, name: str, engine: str | None) -> Iterator[tuple[Changelog, Target]]:
    """Open a target in a session of its own, with the changes as a frame of that session."""
    given = changes.frame.sparkSession
    if "." not in name:  # a temporary view, which is no target, is only in the user's session
        open_target(given, name, engine)
    with in_own_session(given, lambda own: open_target(own, name, engine)) as target:
        yield replace(changes, frame=frame_in(changes.frame, target.spark)), target


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a merge will do to the columns of the target."""

    columns: Mapping[str, tuple[str, DataType]]  # after the merge, by lower-case name: name and type
    add: tuple[NewColumn, ...]  # for a new table all columns
    widen: tuple[tuple[str, DataType], ...]  # with their new types
    own: OwnColumns
    drop: tuple[str, ...] = ()  # columns to drop before they are added with another type; the target has no rows

    def upsert(self, images: Images, tombstones: Target | None) -> Upsert:
        return Upsert(
            images=images.frame,
            keys=self._names(images.keys),
            values=self._names(images.others),
            sequence=self.own.sequence,
            committed_at=self.own.committed_at,
            deleted=self.own.deleted,
            removes=self.own.deleted is None,
            tombstones=tombstones,
        )

    def rows(self, images: Images) -> DataFrame:
        """Return the images as the rows of an empty target."""
        own = {self.own.sequence: "seq"} | ({} if self.own.deleted is None else {self.own.deleted: "gone"})
        keys = {name: f"k{number}" for number, name in enumerate(self._names(images.keys))}
        values = {name: f"c{number}" for number, name in enumerate(self._names(images.others))}
        chosen = images.frame.where("NOT gone") if self.own.deleted is None else images.frame
        rows = chosen.select(*(F.col(old).alias(new) for new, old in {**keys, **values, **own}.items()))
        if self.own.committed_at is None:
            return rows
        return rows.withColumn(self.own.committed_at, committed_at(F.col(quoted(self.own.sequence))))

    def burial(self, images: Images) -> Upsert:
        """Return what deletes among the images do to the table of deleted keys."""
        gone = images.frame.where("gone")
        return Upsert(images=gone, keys=self._names(images.keys), values=(), sequence=self.own.sequence)

    def _names(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(self.columns[name.lower()][0] for name in names)


@dataclass(frozen=True, kw_only=True)
class _Merge:
    """One call of `merge_into`.

    Its cached properties are those of the target before the merge: `run` reads them before anything is written.
    """

    changes: Changelog
    target: Target
    settings: WriteSettings
    facts: CommitFacts
    after_batch: int | None
    properties: dict[str, str]
    ddl: tuple[DDLEvent, ...]
    on_destructive_ddl: DestructiveDDL
    doubts: Callable[[str], None]

    @property
    def _what(self) -> str:
        return f"{self.changes.table or 'the table'} into {self.target.name}"

    @cached_property
    def _exists(self) -> bool:
        return self.target.exists()

    @cached_property
    def _remembered(self) -> Mapping[str, str]:
        return self.target.properties() if self._exists else {}

    @cached_property
    def _columns(self) -> Mapping[str, DataType]:
        return self.target.columns() if self._exists else {}

    @cached_property
    def _places(self) -> DDLPlaces:
        return DDLPlaces.of_properties(self._remembered).after(self.ddl)

    @cached_property
    def _only_had_ddl(self) -> bool:
        """Whether the target was created for DDL alone, and has no rows and no columns of the table yet."""
        if DELETES not in self._remembered or KEYS in self._remembered:
            return False
        return {*self._columns} <= {f"{self._prefix}sequence", f"{self._prefix}is_deleted"}

    @cached_property
    def _events(self) -> tuple[DDLEvent, ...]:
        return tuple(map(self._places.numbered, self.ddl))

    @cached_property
    def _prefix(self) -> str:
        return self._kept("column_prefix", PREFIX, self.settings.column_prefix, "_")

    @cached_property
    def _deletes(self) -> str:
        return self._kept("deletes", DELETES, self.settings.deletes, _SOFT)

    def _kept(self, argument: str, remembered_as: str, given: str | None, default: str) -> str:
        """Return an argument that a target keeps from its first merge."""
        before = self._remembered.get(remembered_as)
        if before is not None and given not in (None, before):
            raise TargetError(
                f"Cannot merge {self._what}, which was created with {argument}={before!r}: {argument}={given!r} was "
                f"requested. Leave {argument} out, or use another target"
            )
        return next((one for one in (before, given) if one is not None), default)

    @cached_property
    def _own(self) -> OwnColumns:
        commit_time = self.settings.commit_time or COMMIT_TIME in self._remembered
        return OwnColumns.named(self._prefix, soft=self._deletes == _SOFT, commit_time=commit_time)

    @cached_property
    def _old_rows(self) -> OldRows:
        return OldRows.after(
            self.target,
            self._remembered if self._exists else None,
            self._events,
            self.changes,
            policy=self.on_destructive_ddl,
            doubts=self.doubts,
            places=self._places,
            sequence=self._own.sequence,
            deleted=self._own.deleted,
            time_zone=self.settings.time_zone,
        )

    def run(self) -> MergeReport:
        exists, remembered = self._exists, self._remembered
        self.target.check_layout(self.settings.layout, self.target.name)
        if exists and not self._only_had_ddl:
            self.settings.layout.check_target(self.target.name, remembered)
        last = last_batch(self.target, self.facts, self.after_batch) if exists else None
        old_rows = self._old_rows
        check_table(self.target, old_rows.state.table, self.changes.table)
        if exists:
            old_rows.check_rows(self._columns)
        if not self.changes.columns:
            return self._only_ddl(last)
        if old_rows.state.key_dropped_ts and not (self.settings.keys or self.changes.keys):
            raise SchemaError(
                f"Cannot merge {self._what}: DDL dropped the primary key at commit-ts {old_rows.state.key_dropped_ts}, "
                "so it is unknown which row a change is about. If columns still identify a row, pass them: "
                f"keys=['id']. Otherwise rename or drop {self.target.name}, and write the changes with append_log, "
                "from a new snapshot"
            )
        keys = self._keys()
        return self._merge(keys, old_rows.in_changes(self.changes, self._columns, keys), last)

    def _merge(self, keys: tuple[str, ...], changes: Changelog, last: CommitFacts | None) -> MergeReport:
        """Merge the changes as they are after the DDL; `last` is what the writer's last commit records."""
        old_rows, exists, remembered, existing = self._old_rows, self._exists, self._remembered, self._columns
        newest = newest_images(changes, keys)
        images, count, gone, content, decided = computed_images(newest, changes, existing, self._what)
        facts = replace(self.facts, content=content)
        repeated = is_same(last, facts)
        plan = self._plan(images, changes, decided)
        old_rows.check_changes(self.changes, existing, images)
        if exists:
            old_rows.check_rows(dict(plan.columns.values()))
        images = images.settled(decided)
        types = types_as_property(old_rows.state.types, changes.columns, decided)
        tombstones, buried = self._tombstones(images, plan) if self._own.deleted is None else (None, False)
        if exists:
            if plan.drop or (KEYS in remembered and not _are_same(old_rows.keys(loads(remembered[KEYS])), keys)):
                self._forget_rows(self.target)
            if self.settings.layout and self._only_had_ddl:
                own = {name: value for name, value in remembered.items() if name.startswith(_OWN)}
                columns = [*(NewColumn(name, type_) for name, type_ in existing.items()), *plan.add]
                self._create(self.target, columns, {KEYS: keys_as_text(keys), **own}, replaces=True)
            else:
                if plan.drop:
                    self.target.drop_columns(plan.drop)
                if plan.add:
                    self.target.add_columns(plan.add)
                for name, type_ in plan.widen:
                    self.target.widen_column(name, type_)
            committed = self._own.committed_at
            if committed is not None and COMMIT_TIME not in remembered:  # it is new, or was not filled
                commit_time = f"timestamp_millis(shiftright({quoted(self._own.sequence)}.commit_ts, 18))"
                self.target.update_rows({committed: commit_time}, f"{quoted(committed)} IS NULL", CommitFacts())
            more = {KEYS: keys_as_text(keys), **types}
            more |= {COMMIT_TIME: "true"} if committed else {}
            if self.changes.table and not old_rows.state.table:  # it has had DDL only
                more[TABLE] = self.changes.table
            old_rows.in_target(self._own.deleted, self.facts, more)
        else:
            filled = {**old_rows.properties([column.name for column in plan.add]), **types}
            filled |= {COMMIT_TIME: "true"} if self._own.committed_at else {}
            self._create(self.target, plan.add, {KEYS: keys_as_text(keys), **filled})
        merged = Merged(0)
        with shuffling(self.target.spark, count):
            if tombstones is not None and gone and not repeated:
                tombstones.merge(plan.burial(images), facts)
            if count and not repeated and (exists or buried):
                merged = self.target.merge(plan.upsert(images, tombstones), facts)
            elif count and not repeated:  # the target has no rows and no deleted keys, so there is nothing to compare
                self.target.append(plan.rows(images), facts)
                merged = Merged(count if self._own.deleted else count - gone, is_commit=True)
            if exists and self.ddl and not repeated and not merged.is_commit:
                merged = replace(merged, is_commit=self._mark(facts))
        return MergeReport(
            target=self.target.name,
            created=not exists,
            added=tuple(column.name for column in plan.add) if exists else (),
            widened=tuple(name for name, _ in plan.widen),
            undecided=tuple(name for name, type_ in decided.items() if type_ is None),
            images=count,
            rows=merged.rows,
            repeated=repeated,
            content=content if repeated or merged.is_commit else None,
        )

    def _mark(self, facts: CommitFacts) -> bool:
        """Commit without rows, after DDL that has changed existing ones; return whether the commit records the facts.

        So a restore of an older version is noticed.
        """
        if facts.batch_id is None or facts.app_id is None:
            return False
        self.target.append(self.target.frame().where("false"), facts)
        last = self.target.last_batch(facts.app_id)  # an engine may leave out a commit without rows
        return last is not None and last.facts == facts

    def _only_ddl(self, last: CommitFacts | None) -> MergeReport:
        """Apply DDL that came without changes; a missing target is created to record it, without columns."""
        old_rows, exists = self._old_rows, self._exists
        properties = old_rows.properties(())
        content = None
        types = types_as_property(old_rows.state.types)
        if exists:
            old_rows.in_target(self._own.deleted, self.facts, types)
            facts = replace(self.facts, content=f"ddl {','.join(str(one.commit_ts) for one in self._events)}")
            content = facts.content if is_same(last, facts) or self._mark(facts) else None
        elif properties:
            own = [NewColumn(old_rows.sequence, self.changes.frame.schema[f"{self.changes.prefix}sequence"].dataType)]
            own += [NewColumn(self._own.deleted, BooleanType())] if self._own.deleted else []
            self._create(self.target, own, {**properties, **types})
        return MergeReport(target=self.target.name, created=not exists and self.target.exists(), content=content)

    def _keys(self) -> tuple[str, ...]:
        """Return the key columns, by their names in the changes."""
        old_rows, remembered = self._old_rows, self._remembered
        before = old_rows.keys(loads(remembered[KEYS])) if KEYS in remembered else None
        # If older and newer rows come together, the field metadata marks the old name too.
        wanted = self.settings.keys or tuple(dict.fromkeys(old_rows.state.renamed(self.changes.keys))) or before
        if not wanted:
            raise SchemaError(
                f"Cannot merge {self._what}: no column is marked as a key ({_names(self.changes)}). If the table has "
                "one, pass it: keys=['id']. (The mark is in the field metadata of the columns, `ticdc.key`; select and "
                "where keep it, other transformations may lose it.) A table without a key cannot be merged: write "
                "its changes with append_log"
            )
        names = {field.name.lower(): field.name for field in self.changes.columns}
        names |= {name: name for name in old_rows.renamed_columns(names)}
        missing = [name for name in wanted if name.lower() not in names]
        if missing:
            raise SchemaError(
                f"Cannot merge {self._what}: the changes lack the key column {', '.join(missing)} (they have "
                f"{_names(self.changes)}). Read the column too, or pass other keys"
            )
        if before is not None and not _are_same(before, wanted) and not old_rows.is_emptied():
            raise UnexplainedChangeError(
                f"Cannot merge {self._what}: the key of the target is {', '.join(before)}, and that of the changes is "
                f"{', '.join(wanted)}. If the key of the table has changed, write into another target, from a new "
                "snapshot. Otherwise pass the key of the target as keys"
            )
        return tuple(names[name.lower()] for name in wanted)

    def _plan(self, images: Images, changes: Changelog, decided: Mapping[str, DataType | None]) -> _Plan:
        existing, old_rows = self._columns, self._old_rows
        own = [name for name in self._own if name is not None]
        for field in changes.columns:
            if field.name.lower() in {name.lower() for name in own}:
                raise TargetError(
                    f"Cannot merge {self._what}: the table has a column {field.name}, which is also a column that "
                    "merge_into adds. Use another column_prefix, for example column_prefix='_ticdc_'"
                )
        fields = {field.name: field for field in changes.columns if field.name not in decided}
        stored = {name: self.target.stored(field.dataType) for name, field in fields.items()}
        types = {**stored, self._own.sequence: images.frame.schema["seq"].dataType}
        if self._own.deleted is not None:
            types[self._own.deleted] = BooleanType()
        if self._own.committed_at is not None:
            types[self._own.committed_at] = TimestampType()
        if existing:
            self._check_own(existing, [name for name in own if name != self._own.committed_at])
        columns = {name.lower(): (name, type_) for name, type_ in existing.items()}
        add, widen = [], []
        drop: list[str] = []
        for name, type_ in types.items():
            old = columns.get(name.lower())
            comment = comment_of(changes, fields[name]) if name in fields else None
            if old is None:
                self.target.check_new(name, type_, self.properties)
                new = old_rows.state.wide_enough(name.lower(), type_, existing) or type_
                add.append(NewColumn(name, new, comment))
                columns[name.lower()] = (name, new)
            elif old[1] != type_ and name not in own:
                wide = self.target.widened(old[1], type_)
                if wide is None and (drop or old_rows.is_emptied()):  # the column is dropped and added again
                    self.target.check_new(name, type_, self.properties)
                    drop.append(old[0])
                    add.append(NewColumn(old[0], type_, comment))
                    wide = type_
                elif wide is None:
                    raise self._misfit(*old, type_)
                elif wide != old[1]:
                    widen.append((old[0], wide))
                columns[name.lower()] = (old[0], wide)
        if drop:  # before any rows are removed
            self.target.check_drop(drop)
        return _Plan(columns, tuple(add), tuple(widen), self._own, tuple(drop))

    def _check_own(self, existing: Mapping[str, DataType], own: Sequence[str]) -> None:
        missing = [name for name in own if name.lower() not in {one.lower() for one in existing}]
        if missing:
            raise TargetError(
                f"Cannot merge {self._what}: the target has no column {' and no column '.join(missing)}, which "
                "merge_into needs to order changes. Use a target that does not exist yet. If these columns have "
                "another prefix, pass it as column_prefix"
            )

    def _misfit(self, name: str, old: DataType, new: DataType) -> UnexplainedChangeError:
        wide = common_type(old, new)
        widening = "" if wide is None else f", and {self.target.engine} cannot widen it to {wide.simpleString()}"
        advice = f"{self.target.to_widen}. Or read" if wide is not None and self.target.to_widen else "Read"
        return UnexplainedChangeError(
            f"Cannot merge {self._what}: column {name} is {old.simpleString()} in the target and {new.simpleString()} "
            f"in the changes{widening}. {advice} the column as the target has it: "
            f'schemaHints="{name} {old.simpleString()}". Or write into another target, from a new snapshot'
        )

    def _create(
        self, target: Target, columns: Sequence[NewColumn], more: Mapping[str, str], *, replaces: bool = False
    ) -> None:
        facts = {TABLE: self.changes.table, DELETES: self._deletes, PREFIX: self._prefix, **more}
        facts |= time_property(self.changes.time_as)
        layout = self.settings.layout if target is self.target and KEYS in more else DataLayout()
        clause = layout.in_sql(target.name, [column.name for column in columns])
        settings = {**facts, **layout.as_properties(), **self.properties}
        target.create(columns, settings, layout=clause, replaces=replaces)

    def _forget_rows(self, target: Target) -> None:
        """Remove the rows of a dropped table, as several may have one key by the key of the new table."""
        old_rows = self._old_rows
        target.delete_rows(f"{old_rows.row_ts} <= {old_rows.state.truncated_ts or 0}", CommitFacts())

    def _tombstones(self, images: Images, plan: _Plan) -> tuple[Target, bool]:
        """Return the table of deleted keys, whose keys have the target's names and types, and whether it existed."""
        tombstones = self.target.deleted_keys()
        names = (*images.keys, self._own.sequence)
        wanted = [NewColumn(*plan.columns[name.lower()]) for name in names]
        if not tombstones.exists():
            self._create(tombstones, wanted, {KEYS: keys_as_text(images.keys)})
            return tombstones, False
        types = {name.lower(): (name, type_) for name, type_ in tombstones.columns().items()}
        others = [column for column in wanted if types.get(column.name.lower(), ("", column.type))[1] != column.type]
        widen = [column for column in others if tombstones.can_widen(types[column.name.lower()][1], column.type)]
        drop = [types[column.name.lower()][0] for column in others if column not in widen]
        if drop:  # the table was created again with this key: older changes are left out even without deleted keys
            tombstones.check_drop(drop)
            self._forget_rows(tombstones)
            tombstones.drop_columns(drop)
        for column in widen:
            tombstones.widen_column(types[column.name.lower()][0], column.type)
        new = [column for column in wanted if column.name.lower() not in types or types[column.name.lower()][0] in drop]
        if new:
            tombstones.add_columns(new)
        self._old_rows.in_tombstones(tombstones, images.keys, self.facts)
        return tombstones, True


def _are_same(columns: Iterable[str], others: Iterable[str]) -> bool:
    return {name.lower() for name in columns} == {name.lower() for name in others}


def _names(changes: Changelog) -> str:
    return ", ".join(field.name for field in changes.columns)
