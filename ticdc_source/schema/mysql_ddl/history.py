"""The history of a table's columns, from DDL events in order: types and other facts."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from ticdc_source.schema.ddl_event import LONGEST_TEXT, START, DDLEvent, Moment
from ticdc_source.schema.model import NO_FACTS, ColumnFacts, Key, TypeVersions, handle_key
from ticdc_source.schema.mysql_ddl.statements import (
    AddKey,
    Change,
    Create,
    Define,
    Drop,
    DropKey,
    DropTable,
    Forget,
    Like,
    Rename,
    RenameIndex,
    RenameTable,
    SetDefault,
    Step,
    steps,
)
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import TYPES, ColumnType

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class TableHistory:
    """The state of one table after DDL, by lower-case column name. Histories are shared: do not change one.

    Attributes:
        versions: all types so far, including those of dropped columns.
        others: what is known about columns that no text has named.
        has_all_keys: whether `keys` has every index.
        untyped: columns dropped before a text named their type.
    """

    columns: dict[str, ColumnType] = field(default_factory=dict)
    versions: dict[str, TypeVersions] = field(default_factory=dict)
    facts: dict[str, ColumnFacts] = field(default_factory=dict)
    others: ColumnFacts = NO_FACTS
    keys: list[Key] = field(default_factory=list)
    has_all_keys: bool = False
    untyped: set[str] = field(default_factory=set)

    @classmethod
    def of_create(cls, create: Create) -> TableHistory:
        return cls(create.columns, facts=create.facts, keys=_named(create.keys, ()), has_all_keys=True)

    @property
    def drops_primary_key(self) -> bool:
        """Whether a text drops the primary key, which earlier messages name."""
        return self.others.primary_key is False

    def facts_of(self, column: str) -> ColumnFacts:
        return self.facts.get(column, self.others)

    def handle_key(self, sent: Collection[str]) -> frozenset[str] | None:
        """Return the columns of the handle key; None if not all indexes are known.

        Args:
            sent: the columns in messages, which lack virtual generated columns.
        """
        if not self.has_all_keys:
            return None
        facts = {name: self.facts_of(name) for name in self.columns}
        unfit = {name for name, of in facts.items() if of.nullable is not False or (of.generated and name not in sent)}
        return handle_key(self._present_keys(), unfit)

    def _present_keys(self) -> list[Key]:
        return [key for key in self.keys if self.columns.keys() >= {*key.columns} - {""}]

    def begin(self, definition: TableHistory, moment: Moment) -> None:
        """Begin with the current columns and indexes of another table; earlier versions stay."""
        types, self.columns = definition.columns, {}
        self.facts, self.others = dict(definition.facts), NO_FACTS
        self.keys, self.has_all_keys = definition.keys, definition.has_all_keys
        for column, type_ in types.items():
            self._set_type(column, type_, moment, new=True)

    def end(self) -> None:
        """Drop the table; a later table with its name keeps its versions."""
        self.columns, self.has_all_keys = {}, False

    def _set_type(self, column: str, type_: ColumnType, moment: Moment, *, new: bool) -> None:
        if type_.name not in TYPES:
            self._drop(column)
            return
        self.columns[column] = type_
        versions = self.versions.get(column, ())
        if not versions or versions[-1][1] != type_:
            # A new column has no older rows, so rows with the DDL's commit-ts have its type.
            since = Moment(moment.commit_ts - 1) if new and not versions else moment
            self.versions[column] = (*versions, (since, type_))

    def _drop(self, column: str) -> None:
        self.columns.pop(column, None)
        if column not in self.versions:
            self.untyped.add(column)

    def take(self, step: Step, moment: Moment) -> None:
        match step:
            case Define(_, column, type_, facts):
                self._forget_earlier(column)
                self._set_type(column, type_, moment, new=True)
                versions = self.versions.get(column, ())
                # Older rows have the default, so the type holds from the start if the name is new.
                if len(versions) == 1 and column not in self.untyped:
                    self.versions[column] = ((START, versions[0][1]),)
                self._describe(column, facts.or_else(_of_keys(self.others)))
            case Change(_, column, to, type_, facts):
                keys = _of_keys(self.facts_of(column) if column == to else self.facts.get(column, NO_FACTS))
                if column != to:
                    self._drop(column)
                    self._forget_earlier(to)
                    self._rename_in_keys(column, to)
                self._set_type(to, type_, moment, new=column != to)
                self._describe(to, facts.or_else(keys))
            case SetDefault(_, column, default):
                self.facts[column] = replace(self.facts_of(column), default=default)
            case Drop(_, column):
                self._drop(column)
            case Rename(_, column, to):
                self._rename(column, to, moment)
            case AddKey(_, key):
                for column in filter(None, key.columns if key.unique else ()):
                    self._describe(column, key.facts.or_else(self.facts_of(column)))
                present = self._present_keys()
                is_repeated = any(each.name == key.name for each in present)
                self.keys = present if is_repeated else [*present, *_named([key], present)]
            case DropKey(_, name, primary, constraint):
                is_other = constraint and all(key.name != name for key in self.keys)
                self._drop_key("" if is_other else name, primary=primary)
            case RenameIndex(_, name, to):
                self.keys = [key._replace(name=to) if key.name == name else key for key in self.keys]

    def _describe(self, column: str, facts: ColumnFacts) -> None:
        self.facts[column] = replace(facts, nullable=False) if facts.primary_key else facts

    def _forget_earlier(self, column: str) -> None:
        """Forget an earlier column of this name, whose indexes were dropped with it.

        If it still exists, two columns exchange names, or none was added, so that the indexes' columns are unknown.
        """
        self.facts.pop(column, None)
        self.has_all_keys &= column not in self.columns
        self.keys = [key for key in self.keys if column not in key.columns]

    def _rename(self, column: str, to: str, moment: Moment) -> None:
        self.has_all_keys &= to not in self.columns  # the two exchange names
        type_ = self.columns.pop(column, None)
        if type_ is not None:
            self._set_type(to, type_, moment, new=True)
        else:
            self.versions.pop(to, None)
        self._rename_in_keys(column, to)
        self.facts.pop(to, None)
        if column in self.facts:
            self.facts[to] = self.facts[column]

    def _rename_in_keys(self, column: str, to: str) -> None:
        self.has_all_keys &= all(to not in key.columns for key in self.keys)  # the two exchange names
        self.keys = [
            key._replace(columns=tuple(to if name == column else name for name in key.columns)) for key in self.keys
        ]

    def _drop_key(self, name: str, *, primary: bool) -> None:
        """Drop the primary key, or an index; "" if its name is unknown."""
        if primary or name:
            kept = [key for key in self.keys if not (key.primary if primary else key.name == name)]
            self.has_all_keys &= len(kept) < len(self.keys)
            self.keys = kept
        if primary:
            self.facts = {column: replace(facts, primary_key=False) for column, facts in self.facts.items()}
            self.others = ColumnFacts(primary_key=False)
        else:  # a column may be part of another unique key
            self.facts = {
                column: replace(facts, unique_key=None) if facts.unique_key else facts
                for column, facts in self.facts.items()
            }


def _of_keys(facts: ColumnFacts) -> ColumnFacts:
    """Return the facts about keys, which a new definition of the column does not change."""
    return ColumnFacts(primary_key=facts.primary_key, unique_key=facts.unique_key)


def _named(keys: Sequence[Key], existing: Iterable[Key]) -> list[Key]:
    """Name new indexes: after the first column, with a number if that is taken.

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
    """The histories of all tables.

    Attributes:
        tables: by lower-case name.
        unreadable: for each unparsable text, a table, the error and the text.
    """

    def __init__(self) -> None:
        self.tables: dict[TableName, TableHistory] = {}
        self.unreadable: list[tuple[TableName, ValueError, str]] = []

    def read(self, text: _Text) -> None:
        """Apply a DDL text; after an unparsable one, nothing is known about its table."""
        steps_of_text: Sequence[Step] = (Forget(text.table),)
        if len(text.query) <= LONGEST_TEXT:  # otherwise the sample has said so
            try:
                steps_of_text = _steps(text.query, text.table.database)
            except ValueError as error:
                self.unreadable.append((text.table, error, text.query))
        for step in steps_of_text:
            if text.table.table and not isinstance(step, (RenameTable, DropTable)):
                self._take(step._replace(table=text.table), text.moment)  # the text may lack the database
            else:
                self._take(step, text.moment)

    def _take(self, step: Step, moment: Moment) -> None:
        history = self._of(step.table)
        match step:
            case Create():
                history.begin(TableHistory.of_create(step), moment)
            case Like(table, source):
                self._copy(self._of(source), table, moment)
            case RenameTable(_, to):
                self._copy(history, to, moment)
                history.end()
            case DropTable():
                history.end()
            case Forget(table):
                self.tables.pop(table.folded)
            case _:
                history.take(step, moment)

    def _copy(self, source: TableHistory, to: TableName, moment: Moment) -> None:
        if source.columns:
            self._of(to).begin(source, moment)
        else:
            self.tables.pop(to.folded, None)

    def _of(self, table: TableName) -> TableHistory:
        return self.tables.setdefault(table.folded, TableHistory())


def history_of(events: Iterable[DDLEvent], table: TableName) -> TableHistory:
    return _histories(_texts(events)).tables.get(table.folded) or TableHistory()


def versions_of_tables(events: Iterable[DDLEvent]) -> dict[TableName, Mapping[str, TypeVersions]]:
    """Return the column types in DDL texts, by lower-case table and column name.

    DDL that TiCDC sends again is used once. A text that is too long or cannot be parsed is logged, and its table's
    types so far are dropped, because it may have changed them.
    """
    histories = _histories(_texts(events))
    for table, error, query in histories.unreadable:
        _log.warning("A DDL text of %s is ignored: %s: %.200s", table, error, query)
    return {table: history.versions for table, history in histories.tables.items()}


class _Text(NamedTuple):
    moment: Moment
    table: TableName
    query: str


def _texts(events: Iterable[DDLEvent]) -> tuple[_Text, ...]:
    """Return DDL texts, oldest first, each once.

    Copies of an event with a place differ in it. But the same statement twice in a row fails, or changes nothing the
    second time.
    """
    once = dict.fromkeys(_Text(event.moment, event.table, event.query) for event in events if event.query)
    last: dict[TableName, tuple[int, str]] = {}
    texts = []
    for text in sorted(once, key=lambda text: text.moment):
        statement = text.moment.commit_ts, text.query
        if last.get(text.table) != statement:
            texts.append(text)
        last[text.table] = statement
    return tuple(texts)


# Each table of a micro-batch needs the histories of all DDL so far, several times.
@lru_cache(maxsize=4)
def _histories(texts: tuple[_Text, ...]) -> _Histories:
    histories = _Histories()
    for text in texts:
        histories.read(text)
    return histories


# A stream parses all its DDL texts again whenever one is added.
_steps = lru_cache(maxsize=1024)(steps)
