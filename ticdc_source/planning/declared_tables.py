"""A table without rows: its columns, as definitions, DDL events or the option `tableDDL` declare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ticdc_source.options.topics import TableFilter
from ticdc_source.protocols.base import Decoder
from ticdc_source.schema.ddl import table_ddl_types
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.model import Column, Definitions, TableSchema
from ticdc_source.schema.mysql_ddl import history_of
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import ColumnType

__all__ = ["declared_table"]


def declared_table(
    decoder: Decoder, tables: TableFilter, ddl: Sequence[DDLEvent], definitions: Definitions, table_ddl: str | None
) -> TableSchema | None:
    """Return the one wanted table of records without its rows; None if there is none, or nothing declares it.

    Args:
        decoder: the decoder of the protocol.
        tables: which tables are wanted.
        ddl: all DDL events of the range; none if some of them may be missing.
        definitions: the versions of tables that DDL and BOOTSTRAP events define.
        table_ddl: the option `tableDDL`, which takes precedence over DDL events.
    """
    table = tables.exact
    if table is None:
        names = {*(event.table for event in ddl if event.table.table), *(name for name, _ in definitions)}
        wanted = {name.folded: name for name in sorted(names) if tables.matches(name)}
        if len(wanted) != 1:
            return None
        (table,) = wanted.values()
    versions = {number: columns for (name, number), columns in definitions.items() if name.is_same(table)}
    if versions:
        return TableSchema(table, versions[max(versions)])
    types = _types(decoder, table, ddl, table_ddl)
    return TableSchema(table, tuple(Column(name, type_) for name, type_ in types.items())) if types else None


def _types(
    decoder: Decoder, table: TableName, ddl: Sequence[DDLEvent], table_ddl: str | None
) -> Mapping[str, ColumnType]:
    of_option = table_ddl_types(table_ddl)
    types = of_option.get(table.folded) or of_option.get(TableName("", table.table).folded)
    if types:
        return types
    in_form = {} if decoder.facts.types_in_ddl is None else decoder.facts.types_in_ddl(table, ddl)
    if in_form:
        return {name: versions[-1][1] for name, versions in in_form.items()}
    history = history_of(ddl, table)
    return history.columns if history.has_all_keys else {}  # a text has created it
