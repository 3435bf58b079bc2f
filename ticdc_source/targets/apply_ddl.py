"""The DDL of a table → statements on its target, and changes that are older than a DDL event → what TiDB has now.

Every step does nothing the second time, so a micro-batch that failed in between is repeated as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DataType

from ticdc_source.errors import TargetError, warn
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.table_name import TableName
from ticdc_source.targets.changelog import Changelog, Images
from ticdc_source.targets.ddl_events import DestructiveDDL, after_ddl
from ticdc_source.targets.ddl_places import NO_PLACES, DDLPlaces
from ticdc_source.targets.retyping import natural_type
from ticdc_source.targets.target import CommitFacts, Target, quoted
from ticdc_source.targets.target_ddl import HANDLED_TS, Assignment, DDLState, Doubt
from ticdc_source.targets.widening import common_type, takes

__all__ = ["OldRows"]

_ROWS = ("insert", "update_postimage")
_UPDATE = "#ddl-"  # in the writer of a commit that does to rows what DDL has done; then a commit-ts, and the columns


@dataclass(frozen=True, slots=True)
class OldRows:
    """What DDL has done to the rows of a target, and what of it the target does not have yet.

    Attributes:
        target: the target.
        remembered: its properties.
        before: the state in them.
        state: the state after the DDL events of the micro-batch.
        time_zone: the zone of TIMESTAMP defaults.
        is_undone: whether somebody has undone what was done to rows, and the properties do not know it.
    """

    target: Target
    remembered: Mapping[str, str]
    before: DDLState
    state: DDLState
    time_zone: str = "UTC"
    is_undone: bool = False

    @classmethod
    def after(
        cls,
        target: Target,
        remembered: Mapping[str, str] | None,
        events: Sequence[DDLEvent],
        policy: DestructiveDDL,
        time_zone: str = "UTC",
        doubts: Callable[[str], None] = warn,
        places: DDLPlaces = NO_PLACES,
    ) -> OldRows:
        """Read the DDL events of a micro-batch; nothing is written.

        Args:
            target: the target.
            remembered: its properties; None if it does not exist.
            events: the DDL events of its table, oldest first.
            policy: what is done about events that remove rows.
            time_zone: the zone of TIMESTAMP defaults.
            doubts: is told what an event does to older rows that only TiDB knows; it may raise an error.
            places: the places of the events, and of those before.

        Raises:
            SchemaError: an event removes rows, and the policy does not allow it, or which rows is not known.
        """
        known = None if remembered is None else DDLState.of_properties(remembered)
        has_done = known is not None and (known.assignments or known.truncated_ts is not None)
        before = known.without(_updates(target.undone())) if known is not None and has_done else known
        state = known if known is None or before is None else replace(before, truncated_ts=known.truncated_ts)
        table = events[-1].table if events else TableName("", "")
        new_state = after_ddl(state, events, table, target.name, policy=policy, doubts=doubts)
        places = places.since(new_state.truncated_ts or 0)
        new_state = replace(new_state, places=places)
        return cls(target, remembered or {}, before or DDLState(), new_state, time_zone, before != known)

    def properties(self, columns: Sequence[str]) -> dict[str, str]:
        """Return the properties of a new target with these columns: it has no rows to fill."""
        return self.state.filled(columns).as_properties()

    def keys(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the key columns that the target remembers by the names that they have now."""
        new = tuple(one for one in self.state.assignments if replace(one, filled=False) not in self._past)
        return replace(self.state, assignments=new).renamed(keys)

    def check_types(self, columns: Mapping[str, DataType]) -> None:
        """Check that columns of the target can have the values of those that DDL has renamed to them.

        Args:
            columns: the columns of the target.

        Raises:
            TargetError: a value might not be of the type.
        """
        types = {name.lower(): type_ for name, type_ in columns.items()}
        for one in self.state.assignments:
            if one.filled or one.source not in types or one.column not in types:
                continue
            old, new = types[one.source], types[one.column]
            if not takes(new, old):
                name = self.target.name
                msg = (
                    f"A RENAME COLUMN gave column {one.source} the name {one.column}, and {name} has both: "
                    f"{one.column} is {new.simpleString()}, and the values are {old.simpleString()}. Rename the "
                    f"columns of {name} as TiDB did, so that {one.column} has these values, say so with ALTER TABLE "
                    f"{name} SET TBLPROPERTIES ('{HANDLED_TS}' = '{one.commit_ts}'), and start again"
                )
                raise TargetError(msg)

    @property
    def _past(self) -> frozenset[Assignment]:
        """What the keys in the properties have been through; DDL that came alone waits for changes with its columns."""
        return frozenset(replace(one, filled=False) for one in self.before.assignments if one.filled)

    def in_changes(self, changes: Changelog, columns: Mapping[str, DataType], keys: Sequence[str]) -> Changelog:
        """Return the changes as TiDB has them now: those that DDL removed are gone, and older ones have its values.

        An image without a row, of a delete, keeps what it has beside its key: a delete may have nothing but its key.

        Args:
            changes: the changes.
            columns: the columns of the target.
            keys: the key columns.
        """
        commit_ts = self.state.places.row_ts(f"{changes.prefix}sequence")
        if self.state.truncated_ts is not None:
            changes = replace(changes, frame=changes.frame.where(f"{commit_ts} > {self.state.truncated_ts}"))
        types = {field.name: field.dataType for field in changes.columns}
        now = self._types_in(types, columns)
        of_rows = f"CASE WHEN {quoted(f'{changes.prefix}change_type')} IN {_ROWS} THEN {commit_ts} END"
        of_keys = self.state.on_changes(now, types, commit_ts, time_zone=self.time_zone)
        values = self.state.on_changes(now, types, of_rows, time_zone=self.time_zone)
        lower = {name.lower() for name in keys}
        values |= {name: value for name, value in of_keys.items() if name.lower() in lower}
        if not values:
            return changes
        metadata = {field.name: field.metadata or {} for field in changes.columns}
        own = [changes.column(name) for name in changes.frame.columns if name not in values]
        set_ = [F.expr(value).alias(name, metadata=metadata.get(name, {})) for name, value in values.items()]
        frame = changes.frame.select(*own, *set_)
        fields = tuple(field for field in frame.schema if field.name in {**types, **values})
        return replace(changes, frame=frame, columns=fields)

    def _renamed_types(self, types: Mapping[str, DataType], columns: Mapping[str, DataType]) -> dict[str, DataType]:
        """Return the types that columns of changes have under their new names.

        If all rows of a sample are older than DDL that exchanges names, the columns have each other's types.

        Args:
            types: the types of the changes.
            columns: the columns of the target.
        """
        given = {name.lower(): type_ for name, type_ in types.items()}
        wanted = {name.lower(): type_ for name, type_ in columns.items()}
        now = dict(given)
        for one in self.state.assignments:
            if one.source in given and one.column in given and one.column in wanted:
                old, there = given[one.source], wanted[one.column]
                fits = one.source in wanted and common_type(old, wanted[one.source]) is not None
                if not fits and common_type(given[one.column], there) is None and common_type(old, there) is not None:
                    now[one.column] = old
        return {name: now[name.lower()] for name in types}

    def check_rows(
        self,
        columns: Mapping[str, DataType],
        existing: Mapping[str, DataType],
        rows: Callable[[], DataFrame],
        sequence: str,
        *,
        moved: Mapping[str, Sequence[tuple[int, str]]],
        waits: Collection[str],
    ) -> None:
        """Check that rows of the target can get what `in_target` sets.

        Args:
            columns: the columns that the target will have.
            existing: the columns that it has.
            rows: returns the rows that keep their values.
            sequence: the column with the place of a row's last change.
            moved: as for `in_target`.
            waits: as for `in_target`.

        Raises:
            TargetError: only TiDB knows what a value becomes.
        """
        names = {name.lower(): name for name in existing}
        now = {  # a column that is yet to move has its old name
            column: [(until, aside if aside in existing else names.get(column, aside)) for until, aside in its]
            for column, its in moved.items()
        }
        row_ts = self.state.places.row_ts(sequence)
        for doubt in self.state.doubts_of_rows(columns, existing, row_ts, moved=now, waits=waits):
            remedy = "Set them in the target to what TiDB has now, or to NULL, and start again"
            _check(doubt, rows(), f"rows of {self.target.name}", remedy)

    def check_changes(self, changes: Changelog, columns: Mapping[str, DataType], images: Images) -> None:
        """Check that changes can become what `in_changes` makes of them.

        Args:
            changes: the changes, as they came.
            columns: the columns of the target.
            images: the newest image of each key; an older change does not count.

        Raises:
            TargetError: only TiDB knows what a value becomes.
        """
        given = {field.name: field.dataType for field in changes.columns}
        sequence = quoted(f"{changes.prefix}sequence")
        row_ts = self.state.places.row_ts(f"{changes.prefix}sequence")
        doubts = self.state.doubts_of_changes(self._types_in(given, columns), given, row_ts)
        for doubt in doubts:
            rows = changes.frame
            if doubt.column.lower() not in {name.lower() for name in images.keys}:
                rows = rows.where(F.col(quoted(f"{changes.prefix}change_type")).isin(*_ROWS))
            rows = rows.join(images.frame.select("seq"), F.col(sequence) == F.col("seq"), "left_semi")
            _check(doubt, rows, "changes from before", "Read the table from a new snapshot into another target")

    def _types_in(self, types: Mapping[str, DataType], columns: Mapping[str, DataType]) -> dict[str, DataType]:
        """Return the types of the columns that changes have after `in_changes`.

        Args:
            types: the types of the changes.
            columns: the columns of the target.
        """
        by_name = {name.lower(): type_ for name, type_ in types.items()}
        names = {*by_name}
        assigned = {one.column for one in self.state.assignments}
        absent = {name: type_ for name, type_ in columns.items() if name.lower() in assigned - names}
        replaced = self.state.replaced({name.lower() for name in columns}, names)
        there = {name.lower(): type_ for name, type_ in columns.items()}
        new = {name: there.get(source, by_name[source]) for name, source in replaced.items()}
        return {**self._renamed_types(types, columns), **absent, **new}

    def renamed_columns(self, names: Iterable[str]) -> list[str]:
        """Return the columns of the target that `in_changes` adds to changes with these columns, in lower case."""
        have = {name.lower() for name in names}
        columns = {name.lower() for name in self.target.columns()} if self.remembered else set()
        return [one.column for one in self.state.assignments if one.source and one.column in columns - have]

    def of_another_type(self, columns: Mapping[str, DataType], changed: Iterable[str]) -> set[str]:
        """Return the columns that begin anew with another type, and wait for the first change that has them.

        Args:
            columns: the columns of the target.
            changed: the columns of the changes.
        """
        types = {name.lower(): type_ for name, type_ in columns.items()}
        new = {one.column: one.type for one in self.state.assignments if one.type and not one.filled}
        there = (new.keys() & types.keys()) - {name.lower() for name in changed}
        return {name for name in there if types[name] != natural_type(self.target, new[name])}

    def begins_anew(self, column: str) -> bool:
        """Return whether the rows of the target get other values in a column than those that it has there."""
        return any(one.column == column.lower() and not one.filled for one in self.state.assignments)

    def in_tombstones(self, tombstones: Target, keys: Sequence[str], sequence: str, facts: CommitFacts) -> None:
        """Rename the keys of deleted rows as those of the target will be, before the target is touched.

        Args:
            tombstones: the table of deleted keys, which has all columns.
            keys: the key columns.
            sequence: the column with the place of the delete.
            facts: the facts of the micro-batch.
        """
        lower = {name.lower() for name in keys}
        columns = {name: type_ for name, type_ in tombstones.columns().items() if name != sequence}
        commit_ts = self.state.places.row_ts(sequence)
        values = self.state.on_rows(columns, commit_ts, time_zone=self.time_zone)
        values = {name: value for name, value in values.items() if name.lower() in lower}
        if values:
            self._assign_once(tombstones, values, commit_ts, self.state.pending_ts(lower), facts)

    def _assign_once(
        self, table: Target, values: Mapping[str, str], commit_ts: str, pending_ts: int, facts: CommitFacts
    ) -> None:
        """Set columns of older rows; not again. The names of two columns may be exchanged."""
        writer = f"{facts.app_id or ''}{_UPDATE}{pending_ts}-{','.join(sorted(values))}"
        if all(commit.facts.app_id != writer for commit in table.commits()):
            table.update_rows(values, f"{commit_ts} <= {pending_ts}", CommitFacts(app_id=writer))

    def in_target(
        self,
        sequence: str,
        deleted: str | None,
        facts: CommitFacts,
        more: Mapping[str, str] | None = None,
        *,
        moved: Mapping[str, Sequence[tuple[int, str]]],
        waits: Collection[str],
    ) -> None:
        """Do to the rows of the target what DDL has done to those of TiDB, and remember it.

        Args:
            sequence: the column with the place of a row's last change.
            deleted: the column that says that a row is deleted; None if deleted rows are removed.
            facts: the facts of the micro-batch.
            more: other properties that the target must have.
            moved: the columns that moved aside, as for `DDLState.on_rows`.
            waits: the columns that are to stay as they are for now.
        """
        columns = self.target.columns()
        commit_ts = self.state.places.row_ts(sequence)
        state, truncated_ts = self.state, self.state.truncated_ts
        if self.is_undone:  # the next commit hides that
            self.target.set_properties(state.as_properties())
        if truncated_ts is not None and truncated_ts != self.before.truncated_ts:
            self._empty(f"{commit_ts} <= {truncated_ts}", deleted, facts)
        values = state.on_rows(columns, commit_ts, time_zone=self.time_zone, moved=moved, waits=waits)
        if values:
            self._assign_once(self.target, values, commit_ts, state.pending_ts(columns, waits), facts)
        properties = {**state.filled(columns, waits).as_properties(), **(more or {})}
        if any(self.remembered.get(name) != value for name, value in properties.items()):
            self.target.set_properties(properties)

    def _empty(self, where: str, deleted: str | None, facts: CommitFacts) -> None:
        """Remove the rows of an emptied table. It is complete then up to the commit-ts of the event."""
        truncated_ts, resolved_ts = self.state.truncated_ts or 0, facts.resolved_ts
        done = CommitFacts(
            resolved_ts=truncated_ts if resolved_ts is not None and truncated_ts <= resolved_ts else None,
            app_id=f"{facts.app_id or ''}{_UPDATE}{truncated_ts}-",
        )
        if deleted is None:
            self.target.delete_rows(where, done)
        else:
            self.target.update_rows({deleted: "true"}, f"{where} AND NOT {quoted(deleted)}", done)


def _updates(commits: Iterable[CommitFacts]) -> Iterator[tuple[int, list[str]]]:
    """Yield up to which commit-ts, and in which columns, commits have done to rows what DDL does."""
    for facts in commits:
        _, is_update, what = (facts.app_id or "").rpartition(_UPDATE)
        ts, _, columns = what.partition("-")
        if is_update and ts.isdecimal():
            yield int(ts), [name for name in columns.lower().split(",") if name]


def _check(doubt: Doubt, rows: DataFrame, whose: str, remedy: str) -> None:
    lost = rows.where(doubt.where).select(quoted(doubt.source)).head(1)
    if lost:
        msg = (
            f"DDL gave column {doubt.source} the name {doubt.column} and another type, and {whose} have values such "
            f"as {str(lost[0][0])[:50]!r} in it, of which only TiDB knows what they are as "
            f"{doubt.type.simpleString()}. {remedy}"
        )
        raise TargetError(msg)
