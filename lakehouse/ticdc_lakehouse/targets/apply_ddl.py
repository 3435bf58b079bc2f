"""The DDL of a table → statements on its target, and changes older than a DDL event → the values that TiDB has now.

Every step is idempotent, so a micro-batch that failed in between is repeated as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DataType

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets.changelog import Changelog, Images
from ticdc_lakehouse.targets.ddl_state import Assignment, DDLPlaces, DDLState, Misfit
from ticdc_lakehouse.targets.followed_ddl import DDLReader, DestructiveDDL, by_hand
from ticdc_lakehouse.targets.target import CommitFacts, Target
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_source.developer_api import DDLEvent

_ROWS = ("insert", "update_postimage")
_UPDATE = "#ddl-"  # in the app_id of a commit that applies DDL to rows; a commit-ts and the columns follow


@dataclass(frozen=True, slots=True)
class OldRows:
    """What DDL has done to the rows of a table, and what of it the target does not have yet."""

    target: Target
    remembered: Mapping[str, str]
    before: DDLState
    state: DDLState  # the state after the DDL events of the micro-batch
    sequence: str  # the column with the place of a row's last change
    time_zone: str = "UTC"
    is_undone: bool = False  # whether somebody has undone changes of rows, and the properties do not say so

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
        places: DDLPlaces,
        sequence: str,
        deleted: str | None,
        time_zone: str,
    ) -> OldRows:
        """Read the DDL events of a micro-batch, oldest first, as `DDLReader` does; nothing is written.

        `remembered` are the properties of the target, None if it does not exist. `places` are those of these events and
        of earlier ones, and `changes` are the changes of the same micro-batch.
        """
        known = None if remembered is None else DDLState.of_properties(remembered)
        has_done = known is not None and (known.assignments or known.truncated_ts is not None)
        before = known.without(_updates(target.undone())) if known is not None and has_done else known
        state = DDLState() if known is None or before is None else replace(before, truncated_ts=known.truncated_ts)
        columns = None if known is None else {name.lower(): type_ for name, type_ in target.columns().items()}
        row_ts = places.row_ts(sequence)
        own = {sequence.lower()} if deleted is None else {sequence.lower(), deleted.lower()}
        is_target = columns is not None and own <= columns.keys()  # otherwise the merge fails
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
        places = places.since(new_state.truncated_ts or 0)
        new_state = replace(new_state, places=places)
        return cls(target, remembered or {}, before or DDLState(), new_state, sequence, time_zone, before != known)

    @property
    def row_ts(self) -> str:
        """The SQL expression of a row's commit-ts."""
        return self.state.places.row_ts(self.sequence)

    def is_emptied(self) -> bool:
        """Whether DDL has removed all rows of the target."""
        until = self.state.truncated_ts
        return until is not None and not _target_has(self.target, f"{self.row_ts} > {until}")

    def properties(self, columns: Sequence[str]) -> dict[str, str]:
        return self.state.filled(columns).as_properties()

    def keys(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the key columns of the target by their present names."""
        new = tuple(one for one in self.state.assignments if replace(one, filled=False) not in self._past)
        return replace(self.state, assignments=new).renamed(keys)

    @property
    def _past(self) -> frozenset[Assignment]:
        """The assignments that the keys in the properties have; DDL that came alone waits for its columns."""
        return frozenset(replace(one, filled=False) for one in self.before.assignments if one.filled)

    def in_changes(self, changes: Changelog, columns: Mapping[str, DataType], keys: Sequence[str]) -> Changelog:
        """Return the changes after the DDL: without those that DDL removed, and with its values in older ones.

        Of a delete only the key is changed, as it may have no other values.
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

    def check_rows(self, columns: Mapping[str, DataType]) -> None:
        """Refuse DDL if rows of the target, which exists, cannot get the values that `in_target` sets."""
        misfit = next(iter(self.state.misfits_of_rows(columns, self.target.columns())), None)
        if misfit is None or self.is_emptied():
            return
        renamed_ts = max(one.commit_ts for one in self.state.assignments if one.column == misfit.column.lower())
        raise TargetError(f"{_renamed(misfit)} in {self.target.name}. {by_hand(renamed_ts, self.target.name)}")

    def check_changes(self, changes: Changelog, columns: Mapping[str, DataType], images: Images) -> None:
        """Refuse DDL if changes cannot get the values that `in_changes` gives them.

        Only the newest image of each key counts.
        """
        given = {field.name: field.dataType for field in changes.columns}
        sequence = f"{changes.prefix}sequence"
        row_ts = self.state.places.row_ts(sequence)
        for misfit in self.state.misfits_of_changes(self._types_in(given, columns), given, row_ts):
            rows = changes.frame.where(misfit.where)
            if misfit.column.lower() not in {name.lower() for name in images.keys}:
                rows = rows.where(F.col(quoted(f"{changes.prefix}change_type")).isin(*_ROWS))
            if rows.join(images.frame.select("seq"), F.col(quoted(sequence)) == F.col("seq"), "left_semi").head(1):
                raise TargetError(
                    f"{_renamed(misfit)} in changes of {changes.table or 'the table'} for {self.target.name}: only "
                    "TiDB knows the values now. Read the table again from TiDB, into another target"
                )

    def _types_in(self, types: Mapping[str, DataType], columns: Mapping[str, DataType]) -> dict[str, DataType]:
        there = {name.lower(): type_ for name, type_ in columns.items()}
        by_name = {name.lower(): type_ for name, type_ in types.items()}
        # If DDL exchanged two names, and all changes are older, the columns have each other's types.
        own = {name: self.state.wide_enough(name.lower(), type_, types) or there.get(name.lower(), type_)
               for name, type_ in types.items()}  # fmt: skip
        assigned = {one.column for one in self.state.assignments}
        absent = {name: type_ for name, type_ in columns.items() if name.lower() in assigned - by_name.keys()}
        replaced = self.state.replaced(there.keys(), by_name.keys())
        new = {name: there.get(source, by_name[source]) for name, source in replaced.items()}
        return {**own, **absent, **new}

    def renamed_columns(self, names: Iterable[str]) -> list[str]:
        """Return the columns, in lower case, that `in_changes` adds to changes with these `names`."""
        have = {name.lower() for name in names}
        columns = {name.lower() for name in self.target.columns()} if self.remembered else set()
        return [one.column for one in self.state.assignments if one.source and one.column in columns - have]

    def in_tombstones(self, tombstones: Target, keys: Sequence[str], facts: CommitFacts) -> None:
        """Rename the keys in the table of deleted keys like those of the target, before the target is changed."""
        lower = {name.lower() for name in keys}
        columns = {name: type_ for name, type_ in tombstones.columns().items() if name != self.sequence}
        values = self.state.on_rows(columns, self.row_ts, time_zone=self.time_zone)
        values = {name: value for name, value in values.items() if name.lower() in lower}
        if values:
            self._assign_once(tombstones, values, self.state.pending_ts(lower), facts)

    def _assign_once(self, table: Target, values: Mapping[str, str], pending_ts: int, facts: CommitFacts) -> None:
        """Set columns of older rows, once: a repetition would exchange two exchanged columns back."""
        writer = f"{facts.app_id or ''}{_UPDATE}{pending_ts}-{','.join(sorted(values))}"
        if all(commit.facts.app_id != writer for commit in table.commits()):
            table.update_rows(values, f"{self.row_ts} <= {pending_ts}", CommitFacts(app_id=writer))

    def in_target(self, deleted: str | None, facts: CommitFacts, more: Mapping[str, str] | None = None) -> None:
        """Apply the DDL to the rows of the target, and record that and `more` in its properties."""
        columns = self.target.columns()
        state, truncated_ts = self.state, self.state.truncated_ts
        if self.is_undone:  # after the next commit, it could not be noticed any more
            self.target.set_properties(state.as_properties())
        if truncated_ts is not None and truncated_ts != self.before.truncated_ts:
            self._empty(f"{self.row_ts} <= {truncated_ts}", deleted, facts)
        values = state.on_rows(columns, self.row_ts, time_zone=self.time_zone)
        if values:
            self._assign_once(self.target, values, state.pending_ts(columns), facts)
        properties = {**state.filled(columns).as_properties(), **(more or {})}
        if any(self.remembered.get(name) != value for name, value in properties.items()):
            self.target.set_properties(properties)

    def _empty(self, where: str, deleted: str | None, facts: CommitFacts) -> None:
        """Remove the rows of an emptied table, which is then complete up to the commit-ts of the event."""
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
    for facts in commits:
        _, is_update, what = (facts.app_id or "").rpartition(_UPDATE)
        ts, _, columns = what.partition("-")
        if is_update and ts.isdecimal():
            yield int(ts), [name for name in columns.lower().split(",") if name]


def _target_has(target: Target, where: str) -> bool:
    return bool(target.frame().where(where).head(1))


def _has_rows(changes: Changelog, places: DDLPlaces, after: int, until: int | None) -> bool:
    """Whether there are changes after a commit-ts, and up to another one unless it is None."""
    row_ts = places.row_ts(f"{changes.prefix}sequence")
    newer = changes.frame.where(f"{row_ts} > {after}")
    return bool((newer if until is None else newer.where(f"{row_ts} <= {until}")).head(1))


def _renamed(misfit: Misfit) -> str:
    column, type_, source, source_type, _ = misfit
    return (
        f"DDL renamed column {source} to {column}, whose type {type_.simpleString()} does not hold the "
        f"{source_type.simpleString()} values of {source}"
    )
