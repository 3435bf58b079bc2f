"""Column types, keys, defaults and comments from DDL texts."""

from ticdc_source.schema.mysql_ddl.history import (
    drops_primary_key,
    facts_of,
    handle_key_of,
    handle_key_of_create,
    present_types,
    versions_of,
    versions_of_tables,
)
from ticdc_source.schema.mysql_ddl.statements import Create, Step, steps

__all__ = [
    "Create",
    "Step",
    "drops_primary_key",
    "facts_of",
    "handle_key_of",
    "handle_key_of_create",
    "present_types",
    "steps",
    "versions_of",
    "versions_of_tables",
]
