"""The types that a table's columns have had, and what else DDL says: DDL events in the order in which they happened."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from ticdc_source.events import START, DDLEvent, Moment, TableName
from ticdc_source.schema.ddl_kinds import LONGEST_TEXT
from ticdc_source.schema.model import NO_FACTS, ColumnFacts, Key, TypeVersions, handle_key
from ticdc_source.schema.mysql_ddl.statements import (
    Add,
    AddKey,
    Create,
    Describe,
    Drop,
    DropConstraint,
    DropKey,
    DropTable,
    Fill,
    Forget,
    Like,
    Rename,
    RenameIndex,
    RenameKey,
    RenameTable,
    SetDefault,
    Step,
    steps,
)
from ticdc_source.schema.types import TYPES, ColumnType

__all__ = [
    "drops_primary_key",
    "facts_of",
    "handle_key_of",
    "handle_key_of_create",
    "present_types",
    "versions_of",
    "versions_of_tables",
]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _History:
    """The types of one table's columns, by lower-case column name.

    Attributes:
        columns: the present types.
        versions: all types so far, each with the moment after which it began.
        facts: what is known beside the types; of a column that ended, what was known last.
        others: what is known of columns that no text has named.
        keys: its indexes, the oldest first; None if not all of them are known.
        ended: the columns that ended before a text named their type.
    """

    columns: dict[str, ColumnType] = field(default_factory=dict)
    versions: dict[str, list[tuple[Moment, ColumnType]]] = field(default_factory=dict)
    facts: dict[str, ColumnFacts] = field(default_factory=dict)
    others: ColumnFacts = NO_FACTS
    keys: list[Key] | None = None
    ended: set[str] = field(default_factory=set)

    def set(self, column: str, type_: ColumnType, moment: Moment, *, new: bool) -> None:
        """Set a column's type. A new column has no older rows, so rows with the DDL's own commit-ts have its type."""
        if type_.name not in TYPES:
            self.drop(column)
            return
        self.columns[column] = type_
        versions = self.versions.setdefault(column, [])
        if not versions:
            versions.append((Moment(moment.commit_ts - 1) if new else moment, type_))
        elif versions[-1][1] != type_:
            versions.append((moment, type_))

    def describe(self, column: str, facts: ColumnFacts, *, defines: bool) -> None:
        """Add what a definition or a key says about a column."""
        before = self.facts.get(column, self.others)
        if defines:
            before = ColumnFacts(primary_key=before.primary_key, unique_key=before.unique_key)
        merged = facts.or_else(before)
        self.facts[column] = replace(merged, nullable=False) if merged.primary_key else merged

    def begin_column(self, column: str) -> None:
        """Begin a new column. Indexes of an earlier one of its name ended with it.

        If the earlier one is still there, the two exchange names, or there was no new one: the indexes are not known.
        """
        self.facts.pop(column, None)
        if column in self.columns:
            self.keys = None
        if self.keys is not None:
            self.keys = [key for key in self.keys if column not in key.columns]

    def add_keys(self, keys: Iterable[Key]) -> None:
        """Add indexes; those without a name get the one that TiDB gives them, and those of a name twice are not new."""
        if self.keys is not None:
            existing = [key for key in self.keys if self.columns.keys() >= {*key.columns} - {""}]
            names = {key.name for key in existing}
            self.keys = [*existing, *_named([key for key in keys if key.name not in names], existing)]

    def rename_in_keys(self, column: str, to: str) -> None:
        """Let indexes have the new name of a column. Those of two columns that exchange names are not known then."""
        if self.keys is not None and any(to in key.columns for key in self.keys):
            self.keys = None
        if self.keys is not None:
            self.keys = [
                key._replace(columns=tuple(to if name == column else name for name in key.columns)) for key in self.keys
            ]

    def drop_key(self, name: str, *, primary: bool) -> None:
        """End the primary key, or an index: of which columns, its name alone does not say."""
        if self.keys is not None and (primary or name):
            kept = [key for key in self.keys if not (key.primary if primary else key.name == name)]
            self.keys = kept if len(kept) < len(self.keys) else None  # an index of which nothing was known
        if primary:
            self.facts = {name: replace(facts, primary_key=False) for name, facts in self.facts.items()}
            self.others = ColumnFacts(primary_key=False)
        else:
            self.facts = {
                name: replace(facts, unique_key=None) if facts.unique_key else facts
                for name, facts in self.facts.items()
            }

    def begin_at_once(self, column: str) -> None:
        """Let a column that is added have its type from the start: no other column had its name before."""
        versions = self.versions.get(column, ())
        if len(versions) == 1 and column not in self.ended:
            self.versions[column] = [(START, versions[0][1])]

    def drop(self, column: str) -> None:
        """End a column; its old rows keep their types."""
        self.columns.pop(column, None)
        if column not in self.versions:
            self.ended.add(column)

    def handle_key(self, sent: Collection[str]) -> frozenset[str] | None:
        """Return the columns of the handle key; None if it is not known.

        Args:
            sent: the columns that messages have. A generated column that they lack is virtual.
        """
        if self.keys is None:
            return None
        keys = [key for key in self.keys if all(name in self.columns or not name for name in key.columns)]
        unfit = {
            name
            for name in self.columns
            if (facts := self.facts.get(name, NO_FACTS)).nullable is not False or (facts.generated and name not in sent)
        }
        return handle_key(keys, unfit)


def _named(keys: Sequence[Key], existing: Iterable[Key]) -> list[Key]:
    """Return new indexes with their names: that of the first column, with a number if it is taken.

    Source: pingcap/tidb, `setEmptyConstraintName` in pkg/ddl.
    """
    taken = {key.name for key in (*existing, *keys)}
    named = []
    for key in keys:
        first = "expression_index" if "" in key.columns else "".join(key.columns[:1])
        name, number = key.name or first, 2
        while not key.name and (name in taken or name == "primary"):
            name, number = f"{first}_{number}", number + 1
        taken.add(name)
        named.append(key._replace(name=name))
    return named


class _Histories:
    """The histories of all tables."""

    def __init__(self) -> None:
        self._tables: dict[TableName, _History] = {}

    def of(self, table: TableName) -> _History:
        return self._tables.setdefault(table.folded, _History())

    def known(self, table: TableName) -> _History:
        """Return the history of a table, and an empty one if there is none; nothing is changed."""
        return self._tables.get(table.folded) or _History()

    def take(self, step: Step, moment: Moment) -> None:
        history = self.of(step.table)
        match step:
            case Create(_, columns, facts, keys):
                self._begin(history, columns, facts, _named(keys, ()), moment)
            case Like(_, source):
                columns = dict(self.of(source).columns)
                if columns:
                    self._begin(history, columns, self.of(source).facts, self.of(source).keys, moment)
                else:
                    self.forget(step.table)
            case Add(_, column, type_, new):
                if new:
                    history.begin_column(column)
                history.set(column, type_, moment, new=new)
            case Fill(_, column):
                history.begin_at_once(column)
            case Describe(_, column, facts, defines):
                history.describe(column, facts, defines=defines)
            case SetDefault(_, column, default):
                history.facts[column] = replace(history.facts.get(column, history.others), default=default)
            case AddKey(_, key):
                history.add_keys([key])
            case DropKey(_, primary, name):
                history.drop_key(name, primary=primary)
            case DropConstraint(_, name):
                is_index = any(key.name == name for key in history.keys or ())
                history.drop_key(name if is_index else "", primary=False)
            case RenameIndex(_, name, to):
                if history.keys is not None:
                    history.keys = [key._replace(name=to) if key.name == name else key for key in history.keys]
            case Drop(_, column):
                history.drop(column)
            case Rename(_, column, to):
                column_facts = history.facts.get(column)
                if to in history.columns:  # the two exchange names
                    history.keys = None
                renamed = history.columns.pop(column, None)
                if renamed is not None:
                    history.set(to, renamed, moment, new=True)
                else:
                    history.versions.pop(to, None)
                history.facts.pop(to, None)
                history.rename_in_keys(column, to)
                if column_facts is not None:
                    history.facts[to] = column_facts
            case RenameKey(_, column, to):
                dropped = history.facts.get(column, NO_FACTS)
                history.facts[to] = ColumnFacts(primary_key=dropped.primary_key, unique_key=dropped.unique_key)
                history.rename_in_keys(column, to)
            case RenameTable(_, to):
                if not history.columns:
                    self.forget(to)
                else:
                    self._begin(self.of(to), dict(history.columns), history.facts, history.keys, moment)
                    history.columns.clear()
                    history.keys = None
            case DropTable():
                history.columns.clear()
                history.keys = None
            case Forget():
                self.forget(step.table)

    @staticmethod
    def _begin(
        history: _History,
        columns: dict[str, ColumnType],
        facts: Mapping[str, ColumnFacts],
        keys: Iterable[Key] | None,
        moment: Moment,
    ) -> None:
        history.columns.clear()
        history.facts, history.others = dict(facts), NO_FACTS
        history.keys = None if keys is None else [*keys]
        for column, type_ in columns.items():
            history.set(column, type_, moment, new=True)

    def forget(self, table: TableName) -> None:
        self._tables.pop(table.folded, None)

    def versions(self) -> dict[TableName, dict[str, TypeVersions]]:
        return {table: self.versions_of(table) for table in self._tables}

    def versions_of(self, table: TableName) -> dict[str, TypeVersions]:
        return {name: tuple(versions) for name, versions in self.known(table).versions.items()}


def versions_of(events: Iterable[DDLEvent], table: TableName) -> dict[str, TypeVersions]:
    """Return, by lower-case name, the types that DDL texts gave a table's columns: (moment, type), oldest first.

    A row has the last type whose moment is before its own. TiCDC may send a DDL more than once; it counts once. A text
    that cannot be parsed is skipped and logged, and so is one that is too long. It may have changed the table, so all
    types of its table so far are dropped with it.
    """
    return _histories(events, logging.WARNING).versions_of(table)


def versions_of_tables(events: Iterable[DDLEvent]) -> dict[TableName, dict[str, TypeVersions]]:
    """Return what `versions_of` returns for each table that DDL texts name; names of tables are in lower case."""
    return _histories(events, logging.WARNING).versions()


def present_types(events: Iterable[DDLEvent], table: TableName) -> Mapping[str, ColumnType]:
    """Return the types of a table's columns after the last of the DDL texts; none if no text creates the table."""
    history = _histories(events, logging.DEBUG).known(table)
    return {} if history.keys is None else history.columns


def facts_of(events: Iterable[DDLEvent], table: TableName, columns: Iterable[str]) -> Mapping[str, ColumnFacts]:
    """Return what DDL texts say of a table's columns beside the types, after the last of them.

    Args:
        events: DDL events of any table.
        table: the table.
        columns: the columns, in lower case.
    """
    history = _histories(events, logging.DEBUG).known(table)
    return {name: history.facts.get(name, history.others) for name in columns}


def drops_primary_key(events: Iterable[DDLEvent], table: TableName) -> bool:
    """Return whether a DDL text drops the primary key that a table had before, so that messages of before name it."""
    return _histories(events, logging.DEBUG).known(table).others.primary_key is False


def handle_key_of(events: Iterable[DDLEvent], table: TableName, sent: Collection[str]) -> frozenset[str] | None:
    """Return the columns of a table's handle key after DDL texts; None if they do not tell all of its indexes.

    Args:
        events: DDL events of any table.
        table: the table.
        sent: the columns that messages have, in lower case.
    """
    return _histories(events, logging.DEBUG).known(table).handle_key(sent)


def handle_key_of_create(create: Create, sent: Collection[str]) -> frozenset[str] | None:
    """Return the columns of the handle key of a table that a `CREATE TABLE` creates."""
    return _History(create.columns, facts=create.facts, keys=[*create.keys]).handle_key(sent)


def _histories(events: Iterable[DDLEvent], level: int) -> _Histories:
    """Return the histories of all tables; a text that cannot be parsed is logged on this level."""
    once = dict.fromkeys(_Text(event.moment, event.table, event.query) for event in events if event.query)
    ordered = tuple(_without_repeats(sorted(once, key=lambda text: text.moment)))
    return _parsed(ordered) or _folded(ordered, level)


class _Text(NamedTuple):
    """What of a DDL event makes histories."""

    moment: Moment
    table: TableName
    query: str


def _without_repeats(ordered: Iterable[_Text]) -> Iterator[_Text]:
    """Leave out a text that comes again at the same time: the place of each copy is another one.

    The same statement cannot succeed twice in a row, or it changes nothing.
    """
    last: dict[TableName, tuple[int, str]] = {}
    for text in ordered:
        what = text.moment.commit_ts, text.query
        if last.get(text.table) != what:
            yield text
        last[text.table] = what


def _folded(texts: Iterable[_Text], level: int | None) -> _Histories:
    """Return the histories that DDL texts make, oldest first.

    Raises:
        ValueError: a text cannot be parsed, and there is no level on which to log it.
    """
    histories = _Histories()
    for text in texts:
        if len(text.query) > LONGEST_TEXT:  # the sample has said so
            histories.forget(text.table)
            continue
        try:
            statement = _steps(text.query, text.table.database)
        except ValueError as error:
            if level is None:
                raise
            _log.log(level, "A DDL text of %s is passed over: %s: %.200s", text.table, error, text.query)
            histories.forget(text.table)
            continue
        for step in statement:
            histories.take(_routed(step, text.table), text.moment)
    return histories


# Each table of a micro-batch asks several times for the histories that all DDL so far makes.
@lru_cache(maxsize=4)
def _parsed(texts: tuple[_Text, ...]) -> _Histories | None:
    """Return the histories that DDL texts make; None if a text cannot be parsed, which each caller logs."""
    try:
        return _folded(texts, None)
    except ValueError:
        return None


# A stream parses its DDL texts again whenever one is added.
_steps = lru_cache(maxsize=1024)(steps)


def _routed(step: Step, table: TableName) -> Step:
    """Return a step with the table that its event names: the text may lack the database."""
    if isinstance(step, (RenameTable, DropTable)) or not table.table:
        return step
    return step._replace(table=table)
