"""Column types, keys, defaults and comments from DDL texts."""

from ticdc_source.schema.mysql_ddl.history import TableHistory, history_of, versions_of_tables
from ticdc_source.schema.mysql_ddl.statements import Create, Step, steps

__all__ = ["Create", "Step", "TableHistory", "history_of", "steps", "versions_of_tables"]
