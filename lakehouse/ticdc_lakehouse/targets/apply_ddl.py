"""The DDL of a table → statements on its target, and changes that are older than a DDL event → what TiDB has now.

Every step does nothing the second time, so a micro-batch that failed in between is repeated as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DataType

from ticdc_lakehouse.targets.changelog import Changelog
from ticdc_lakehouse.targets.ddl_state import DDLPlaces, DDLState
from ticdc_lakehouse.targets.followed_ddl import DDLReader, DestructiveDDL
from ticdc_lakehouse.targets.target import CommitFacts, NewColumn, Target
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_source.developer_api import DDLEvent

_ROWS = ("insert", "update_postimage")
_UPDATE = "#ddl-"  # in the writer of a commit that does to rows what DDL has done; then a commit-ts, and the columns


@dataclass(frozen=True, slots=True)
class OldRows:
    """What DDL has done to the rows of a target, and what of it the target does not have yet.

    Attributes:
        remembered: the properties of the target; empty if it does not exist.
        state: the state after the DDL events of the micro-batch.
        sequence: the column with the place of a row's last change.
        is_undone: whether somebody has undone what was done to rows, and the properties do not know it.
    """

    target: Target
    remembered: Mapping[str, str]
    before: DDLState
    state: DDLState
    sequence: str
    time_zone: str
    is_undone: bool

    @classmethod
    def after(
        cls,
        target: Target,
        remembered: Mapping[str, str] | None,
        events: Sequence[DDLEvent],
        changes: Changelog,
        *,
        policy: DestructiveDDL,
        doubts: Callable[[str], None],
        sequence: str,
        deleted: str | None,
        time_zone: str,
        places: DDLPlaces,
    ) -> OldRows:
        """Read the DDL events of a micro-batch; nothing is written.

        Args:
            remembered: its properties; None if it does not exist.
            events: the DDL events of its table, oldest first.
            changes: the changes that come with the events.
            policy: what is done about events that remove rows.
            doubts: is told what an event does to older rows that only TiDB knows; it may raise an error.
            deleted: the column that says that a row is deleted; None if deleted rows are removed.
            time_zone: the zone of TIMESTAMP defaults.
            places: the places of the events, and of those before.

        Raises:
            SchemaError: an event removes rows, and the policy does not allow it, or which rows is not known.
            TargetError: a column gets a type that the target cannot give it.
        """
        known = None if remembered is None else DDLState.of_properties(remembered)
        has_done = known is not None and (known.assignments or known.truncated_ts is not None)
        before = known.without(_updates(target.undone())) if known is not None and has_done else known
        state = DDLState() if known is None or before is None else replace(before, truncated_ts=known.truncated_ts)
        columns = None if known is None else _lower(target.columns())
        row_ts = places.row_ts(sequence)
        own = {sequence.lower()} if deleted is None else {sequence.lower(), deleted.lower()}
        is_target = columns is not None and own <= columns.keys()  # if not, the merge says so
        is_live = "true" if deleted is None else f"NOT {quoted(deleted)}"
        reader = DDLReader(
            target=target,
            columns=columns,
            policy=policy,
            doubts=doubts,
            is_emptied=lambda ts: not _target_has(target, f"{row_ts} > {ts}"),
            has_rows=lambda after, until: (
                is_target and _target_has(target, f"{is_live} AND {row_ts} > {after} AND {row_ts} <= {until}")
            ),
            has_older=lambda *bounds: _has_rows(changes, places, *bounds),
        )
        new_state = reader.after(state, events)
        new_state = replace(new_state, places=places.since(new_state.truncated_ts or 0))
        return cls(target, remembered or {}, before or DDLState(), new_state, sequence, time_zone, before != known)

    @property
    def row_ts(self) -> str:
        return self.state.places.row_ts(self.sequence)

    def is_emptied(self) -> bool:
        """Return whether DDL has removed all rows of the target: the table of its name has been created again."""
        until = self.state.truncated_ts
        return until is not None and not _target_has(self.target, f"{self.row_ts} > {until}")

    def keys(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the key columns that the target remembers by the names that they have now."""
        done = {replace(one, filled=False) for one in self.before.assignments if one.filled}
        new = tuple(one for one in self.state.assignments if replace(one, filled=False) not in done)
        return replace(self.state, assignments=new).renamed(keys)

    # Columns

    def renamed_columns(self) -> list[NewColumn]:
        """Return the columns that the target gets, or that become wider, because DDL has renamed others to them."""
        if not self.remembered:
            return []
        columns = self.target.columns()
        types = _lower(columns)
        wide = self.state.pending.with_renamed(types, self._has_rows_until)
        names = {one.column: one.name or one.column for one in self.state.assignments} | _names(columns)
        return [NewColumn(names[name], type_) for name, type_ in wide.items() if types.get(name) != type_]

    def _has_rows_until(self, commit_ts: int) -> bool:
        return not self.is_emptied() and _target_has(self.target, f"{self.row_ts} <= {commit_ts}")

    def columns_of(self, changes: Changelog) -> dict[str, DataType]:
        """Return the types of the columns that changes have after `in_changes`, by lower-case name."""
        types = {field.name.lower(): field.dataType for field in changes.columns}
        return self.state.with_renamed(types, lambda ts: _has_rows(changes, self.state.places, 0, ts))

    # Rows

    def in_changes(self, changes: Changelog, columns: Mapping[str, DataType], keys: Sequence[str]) -> Changelog:
        """Return the changes as TiDB has them now: those that DDL removed are gone, and older ones have its values.

        An image without a row, of a delete, keeps what it has beside its key: a delete may have nothing but its key.

        Args:
            columns: the columns of the target.
        """
        commit_ts = self.state.places.row_ts(f"{changes.prefix}sequence")
        if self.state.truncated_ts is not None:
            changes = replace(changes, frame=changes.frame.where(f"{commit_ts} > {self.state.truncated_ts}"))
        given = {field.name: field for field in changes.columns}
        names = {one.column: one.name or one.column for one in self.state.assignments} | _names(columns) | _names(given)
        now = {names[name]: type_ for name, type_ in self.columns_of(changes).items()}
        assigned = {one.column for one in self.state.assignments} - {name.lower() for name in now}
        now |= {name: type_ for name, type_ in columns.items() if name.lower() in assigned}
        types = {name: field.dataType for name, field in given.items()}
        of_rows = f"CASE WHEN {quoted(f'{changes.prefix}change_type')} IN {_ROWS} THEN {commit_ts} END"
        values = self.state.expressions(now, types, of_rows, time_zone=self.time_zone)
        of_keys = {name: type_ for name, type_ in now.items() if name.lower() in {key.lower() for key in keys}}
        values |= self.state.expressions(of_keys, types, commit_ts, time_zone=self.time_zone)
        if not values:
            return changes
        sources = {one.column: one.source for one in self.state.assignments if one.source}
        fields = {name.lower(): field for name, field in given.items()}

        def metadata_of(name: str) -> dict[str, str]:
            field = fields.get(name.lower()) or fields.get(sources.get(name.lower(), ""))
            return (field.metadata or {}) if field is not None else {}

        own = [changes.column(name) for name in changes.frame.columns if name not in values]
        set_ = [F.expr(value).alias(name, metadata=metadata_of(name)) for name, value in values.items()]
        frame = changes.frame.select(*own, *set_)
        return replace(
            changes, frame=frame, columns=tuple(one for one in frame.schema if one.name in {**types, **values})
        )

    def in_tombstones(self, tombstones: Target, keys: Sequence[str], facts: CommitFacts) -> None:
        """Rename the keys of deleted rows as those of the target will be, before the target is touched."""
        lower = {name.lower() for name in keys}
        self._assign_once(tombstones, {name: type_ for name, type_ in tombstones.columns().items()
                                       if name.lower() in lower}, facts)  # fmt: skip

    def _assign_once(self, table: Target, columns: Mapping[str, DataType], facts: CommitFacts) -> None:
        """Set columns of older rows; not again. The names of two columns may be exchanged."""
        pending, names = self.state.pending, {name.lower() for name in columns}
        values = pending.expressions(columns, table.columns(), self.row_ts, time_zone=self.time_zone)
        if not values:
            return
        until = max(one.commit_ts for one in pending.assignments if one.column in names)
        writer = f"{facts.app_id or ''}{_UPDATE}{until}-{','.join(sorted(values))}"
        if all(commit.facts.app_id != writer for commit in table.commits()):
            table.update_rows(values, f"{self.row_ts} <= {until}", CommitFacts(app_id=writer))

    def in_target(self, deleted: str | None, facts: CommitFacts, more: Mapping[str, str]) -> None:
        """Do to the rows of the target what DDL has done to those of TiDB, and remember it.

        Args:
            deleted: the column that says that a row is deleted; None if deleted rows are removed.
            facts: the facts of the micro-batch.
            more: other properties that the target must have.
        """
        columns = self.target.columns()
        state, truncated_ts = self.state, self.state.truncated_ts
        if self.is_undone:  # the next commit hides that
            self.target.set_properties(state.as_properties())
        if truncated_ts is not None and truncated_ts != self.before.truncated_ts:
            self._empty(f"{self.row_ts} <= {truncated_ts}", deleted, facts)
        self._assign_once(self.target, columns, facts)
        properties = {**state.filled(columns).as_properties(), **more}
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


def _lower(columns: Mapping[str, DataType]) -> dict[str, DataType]:
    return {name.lower(): type_ for name, type_ in columns.items()}


def _names(columns: Iterable[str]) -> dict[str, str]:
    return {name.lower(): name for name in columns}


def _target_has(target: Target, where: str) -> bool:
    return bool(target.frame().where(where).head(1))


def _has_rows(changes: Changelog, places: DDLPlaces, after: int, until: int | None) -> bool:
    """Return whether there are changes after a commit-ts and up to another one; None for any."""
    row_ts = places.row_ts(f"{changes.prefix}sequence")
    newer = changes.frame.where(f"{row_ts} > {after}")
    return bool((newer if until is None else newer.where(f"{row_ts} <= {until}")).head(1))
