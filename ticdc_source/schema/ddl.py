"""Types and other facts from DDL for a sample's columns: from DDL events, then from the option `tableDDL`.

Types in messages take precedence over DDL events. `tableDDL` takes precedence over messages, but must not contradict
them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from ticdc_source.errors import OptionError, SchemaError
from ticdc_source.schema.ddl_event import DDLEvent, Moment
from ticdc_source.schema.model import Column, ColumnFacts, TableSchema, TypeVersions, without_key
from ticdc_source.schema.mysql_ddl.history import TableHistory, history_of, versions_of_tables
from ticdc_source.schema.mysql_ddl.statements import Create, Step, steps
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import MAY_BE_UNSIGNED, TYPES, ColumnType, merge_types

_log = logging.getLogger(__name__)
_LABELLED = frozenset({"enum", "set"})
_STRINGS = frozenset({"text", "binary"})


def lack_types(columns: Iterable[Column]) -> bool:
    return any(
        column.type is None
        or column.is_open
        or column.type.is_unspecified
        or (column.type.family in _LABELLED and column.type.labels is None)
        or (column.type.name == "bit" and column.type.length is None)
        for column in columns
    )


# DDL events


def ddl_types_of_tables(ddl: Iterable[DDLEvent], *, whole: bool) -> Mapping[TableName, Mapping[str, TypeVersions]]:
    """Return the column types in DDL events, by lower-case table and column name.

    Args:
        ddl: DDL events of any table.
        whole: whether `ddl` has every DDL event of the range. If not, the result is empty: a missing `ALTER` may have
            changed a type, so that a number would be read as the wrong label.
    """
    ddl = [event for event in ddl if event.query]
    if ddl and not whole:
        _log.info(
            "DDL events are not used for types, because not all of the range was scanned for them. Raise "
            "inferSchema.maxScannedRecords or inferSchema.timeoutMs, or set tableDDL"
        )
    return versions_of_tables(ddl) if ddl and whole else {}


def with_ddl_facts(schema: TableSchema, ddl: Iterable[DDLEvent], *, whole: bool) -> TableSchema:
    """Add the facts in DDL texts, beside types, to a table's columns.

    Unless `ddl` has all DDL events of the range (`whole`), nothing is added, as the last relevant one may be missing.
    """
    ddl = [event for event in ddl if event.query]
    if not ddl or not whole:
        return schema
    history = history_of(ddl, schema.table)
    facts = {name: history.facts_of(name) for name in (column.name.lower() for column in schema.columns)}
    columns: Iterable[Column] = schema.columns
    stated = [(column, facts[column.name.lower()]) for column in columns]
    other = any(_is_other_key(column.facts, of_ddl) and column.key != of_ddl.primary_key for column, of_ddl in stated)
    known = other or history.handle_key(facts) is not None
    if known and history.drops_primary_key:  # earlier messages name the table's former key
        columns = without_key(columns)
    return replace(schema, columns=tuple(_described(column, facts[column.name.lower()]) for column in columns))


def _is_other_key(messages: ColumnFacts, stated: ColumnFacts) -> bool:
    """Whether DDL or `tableDDL` has another primary key than messages, so that the handle key may differ, too."""
    return None not in (messages.primary_key, stated.primary_key) and messages.primary_key != stated.primary_key


def _described(column: Column, facts: ColumnFacts) -> Column:
    """Add DDL's facts to a column. A definition without default or comment means that there is none."""
    messages = column.facts
    if facts.nullable is not None:
        messages = replace(messages, default=None, comment=None)
    if _is_other_key(messages, facts):
        messages = replace(messages, handle_key=None)
    return replace(column, facts=facts.or_else(messages))


def version_at(versions: TypeVersions, moment: Moment) -> ColumnType | None:
    """Return the type of a row at a moment; before all versions, only labels, if any."""
    before = [type_ for start, type_ in versions if start < moment]
    if before:
        return before[-1]
    return versions[0][1] if versions and versions[0][1].family in _LABELLED else None


def completed(column: Column, exact: ColumnType) -> Column:
    """Complete what messages leave open about a column by `exact`, the type in a DDL event."""
    type_ = column.type
    if type_ is None:
        return replace(column, type=exact, json_type=None)
    if column.vague and _may_be(column, exact):
        return _decided(column, exact)
    if column.is_open or (exact.name, exact.unsigned) != (type_.name, type_.unsigned):
        return column
    if type_.is_unspecified:
        return replace(column, type=exact) if _prints(exact, type_) else column
    return replace(column, type=type_.refined_by(exact))


def _decided(column: Column, exact: ColumnType) -> Column:
    return replace(column, type=exact, vague=False, behind=frozenset(), coded=False)


def _may_be(column: Column, exact: ColumnType) -> bool:
    """Whether `exact` may be the type that messages leave open."""
    vague = column.type
    if vague is None:
        return True
    if column.behind:
        fits = not vague.is_unspecified or exact.name != "decimal" or _prints(exact, vague)
        return exact.name in column.behind and fits
    return (
        exact.family == vague.family
        or {exact.family, vague.family} <= _STRINGS
        or (column.may_be_decimal and exact.name == "decimal")
    )


def _prints(exact: ColumnType, shown: ColumnType) -> bool:
    """Whether values of a decimal type look as in a sample, as MySQL prints each with its column's scale."""
    return shown.scale in (None, exact.scale) and _holds(exact, shown)


def _holds(exact: ColumnType, shown: ColumnType) -> bool:
    scale = exact.scale or 0
    return (shown.scale or 0) <= scale and (shown.whole or 0) <= (exact.length or 0) - scale


# The option tableDDL


@lru_cache(maxsize=16)
def declared_tables(text: str) -> Mapping[TableName, Create]:
    """Parse `CREATE TABLE` texts; a database may be "".

    Raises:
        OptionError: the text has anything but `CREATE TABLE` statements, or an impossible DECIMAL.
    """
    try:
        statements = _declared_steps(text)
    except ValueError as error:
        raise OptionError(f"Option 'tableDDL': not a CREATE TABLE as SHOW CREATE TABLE prints it: {error}") from None
    tables = {step.table: step for step in statements if isinstance(step, Create)}
    if not tables or len(tables) < len(statements):
        raise OptionError(
            "Option 'tableDDL': expected CREATE TABLE statements as SHOW CREATE TABLE prints them, and nothing else; "
            f"it begins {text.strip()[:40]!r}"
        )
    for table, created in tables.items():
        for name, type_ in created.columns.items():
            if type_.name == "decimal" and not type_.is_supported:
                raise OptionError(
                    f"Option 'tableDDL': column {name} of {table.table}: no column has the type {type_}. Paste what "
                    "SHOW CREATE TABLE prints"
                )
    return tables


def _declared_steps(text: str) -> list[Step]:
    """Parse the texts as TiDB prints them, else as SQL written by hand.

    `SHOW CREATE TABLE` doubles a label's quotes, but does not escape backslashes (corpus of TiCDC's encoders, table
    `c_enum`).
    """
    try:
        return steps(text, "", printed=True)
    except ValueError:
        return steps(text, "")


def table_ddl_types(text: str | None) -> Mapping[TableName, Mapping[str, ColumnType]]:
    """Return the columns in the option `tableDDL`, by lower-case table and column name.

    A database may be "", which stands for any.
    """
    tables = declared_tables(text) if text else {}
    return {name.folded: table.columns for name, table in tables.items()}


def creates(text: str | None, table: TableName) -> bool:
    return bool(text) and _created(declared_tables(text or ""), table) is not None


def with_table_ddl(schema: TableSchema, text: str | None, *, required: bool = True) -> TableSchema:
    """Apply the types of the option `tableDDL` to a table; columns that the option lacks are unchanged.

    Raises:
        OptionError: the option does not create this table.
        SchemaError: the messages contradict the option.
    """
    if not text:
        return schema
    tables = declared_tables(text)
    declared = _created(tables, schema.table)
    if declared is None and not required:
        return schema
    if declared is None:
        names = ", ".join(name.table if not name.database else str(name) for name in tables)
        raise OptionError(f"Option 'tableDDL' creates {names}, but the read is of {schema.table}: add its CREATE TABLE")
    return TableSchema(schema.table, tuple(_declared(column, declared, schema.table) for column in schema.columns))


def _created(tables: Mapping[TableName, Create], table: TableName) -> Create | None:
    wanted = (table.folded, TableName("", table.table).folded)
    return next((created for name, created in tables.items() if name.folded in wanted), None)


def _declared(column: Column, declared: Create, table: TableName) -> Column:
    name = column.name.lower()
    exact = declared.columns.get(name)
    if exact is None:
        return column
    column = _described(column, declared.facts[name])
    typed = _as_declared(column, exact)
    if typed is None:
        seen = "types of different kinds" if column.conflict else seen_type(column)
        raise SchemaError(
            f"Column {column.name} of {table}: option 'tableDDL' says {exact}, but the messages {seen}, which does not "
            "fit. Set the option to the table's current SHOW CREATE TABLE, or leave the column out of it"
        )
    return replace(typed, coded=False)


def seen_type(column: Column) -> str:
    """Describe a column's type in messages, or all possible types."""
    if not column.is_open:
        return str(column.type)
    names = sorted(column.behind, key=lambda name: (TYPES[name].family, TYPES[name].rank))
    unsigned = not MAY_BE_UNSIGNED.isdisjoint(names)
    listed = " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"{listed}, signed or unsigned" if unsigned else listed


def _as_declared(column: Column, exact: ColumnType) -> Column | None:
    """Return the column as the user declares it; None if that type cannot hold the messages' values.

    The declared type may be wider, as the table may have been altered since.
    """
    type_ = column.type
    if type_ is None:
        return replace(column, type=exact, json_type=None)
    if column.conflict:
        return column if exact.arrow == pa.string() else None
    if column.is_open:
        return _decided(column, exact) if _may_be_now(column, exact) else None
    if column.vague:
        return replace(column, type=exact, vague=False) if _may_be(column, exact) else None
    if type_.is_unspecified and exact.name == "decimal":
        return replace(column, type=exact) if _holds(exact, type_) else None
    if type_.labels is not None and exact.labels is not None:  # a message may escape backslashes, or not
        labels = {label.replace("\\", "") for label in exact.labels}
        return column if {label.replace("\\", "") for label in type_.labels} <= labels else None
    if type_.name == exact.name == "bit" and type_.length is None:
        return replace(column, type=exact)
    merged = merge_types(type_, exact)
    if merged is None or merged.arrow != exact.arrow or _is_narrower(exact, merged):
        return column if type_.arrow == exact.arrow == pa.string() else None
    return replace(column, type=exact)


def _may_be_now(column: Column, exact: ColumnType) -> bool:
    """Whether a column of open type may be `exact` now, maybe altered to be wider."""
    names = column.behind
    if exact.name in names and exact.name != "decimal":
        return True
    if exact.family in _STRINGS:
        return any(TYPES[name].family == exact.family for name in names)
    readings = (ColumnType(name, unsigned=unsigned) for name in names for unsigned in (False, True))
    if column.type is not None and column.type.name == "decimal" and exact.name == "decimal":
        return _holds(exact, column.type)
    return any(
        merged is not None and merged.arrow == exact.arrow and not _is_narrower(exact, merged)
        for merged in (merge_types(reading, exact) for reading in readings)
    )


def _is_narrower(exact: ColumnType, merged: ColumnType) -> bool:
    return (
        merged.name != "decimal"
        and (exact.family, exact.unsigned, exact.name) != (merged.family, merged.unsigned, merged.name)
        and exact.family == "number"
    )


# The handle key


def tells_no_key(columns: Iterable[Column]) -> bool:
    return all(column.facts.handle_key is None and not column.key for column in columns)


def with_handle_key(schema: TableSchema, ddl: Iterable[DDLEvent], text: str | None, *, whole: bool) -> TableSchema:
    """Mark the handle key from DDL, if messages leave it open.

    A key is not marked if messages lack one of its columns: the rest does not identify rows.

    Args:
        ddl: DDL events of any table.
        text: the option `tableDDL`, which takes precedence.
        whole: whether these are all DDL events of the range; otherwise one that changes the key may be missing.
    """
    if not tells_no_key(schema.columns):
        return schema
    names = {column.name.lower() for column in schema.columns}
    created = _created(declared_tables(text), schema.table) if text else None
    if created is not None:
        key = TableHistory.of_create(created).handle_key(names)
    else:
        key = history_of(ddl, schema.table).handle_key(names) if whole else None
    if key is None or not key <= names:
        return schema
    return replace(
        schema, columns=tuple(_with_key(column, is_key=column.name.lower() in key) for column in schema.columns)
    )


def _with_key(column: Column, *, is_key: bool) -> Column:
    return replace(column, key=is_key, facts=replace(column.facts, handle_key=is_key))
