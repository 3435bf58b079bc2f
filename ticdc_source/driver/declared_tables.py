"""A table without rows: its columns, as definitions, DDL events or the option `tableDDL` declare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ticdc_source.events import TableName
from ticdc_source.pipeline.context import lower_case
from ticdc_source.schema.ddl import table_ddl_types
from ticdc_source.schema.model import Column, TableSchema
from ticdc_source.schema.mysql_ddl import present_types
from ticdc_source.schema.types import ColumnType

if TYPE_CHECKING:
    from ticdc_source.driver.inference import Sample

__all__ = ["declared_table"]


def declared_table(sample: Sample) -> TableSchema | None:
    """Return the one wanted table of a sample without its rows; None if there is none, or nothing declares it."""
    table = sample.tables.exact
    if table is None:
        names = {*(event.table for event in sample.ddl if event.table.table), *(name for name, _ in sample.definitions)}
        wanted = {lower_case(name): name for name in sorted(names) if sample.tables.matches(name)}
        if len(wanted) != 1:
            return None
        (table,) = wanted.values()
    versions = {number: columns for (name, number), columns in sample.definitions.items() if name.is_same(table)}
    if versions:
        return TableSchema(table, versions[max(versions)])
    types = _types(sample, table)
    return TableSchema(table, tuple(Column(name, type_) for name, type_ in types.items())) if types else None


def _types(sample: Sample, table: TableName) -> Mapping[str, ColumnType]:
    """Return the types that `tableDDL` gives the columns of a table, or else DDL events, if all of them are known."""
    of_option = table_ddl_types(sample.table_ddl)
    types = of_option.get(lower_case(table)) or of_option.get(TableName("", table.table.lower()))
    if types or not sample.whole:
        return types or {}
    types_in_ddl = sample.decoder.facts.types_in_ddl
    in_form = {} if types_in_ddl is None else types_in_ddl(table, sample.ddl)
    return {name: versions[-1][1] for name, versions in in_form.items()} or present_types(sample.ddl, table)
