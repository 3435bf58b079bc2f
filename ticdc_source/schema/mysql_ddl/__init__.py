"""Column types, keys, defaults and comments from DDL texts. It needs sqlglot (the extra `ddl`), only on the driver."""

from ticdc_source.schema.mysql_ddl.history import facts_of, versions_of, versions_of_tables
from ticdc_source.schema.mysql_ddl.statements import Create
from ticdc_source.schema.mysql_ddl.table_ddl import declared_tables
from ticdc_source.schema.mysql_ddl.tokens import available

__all__ = ["Create", "available", "declared_tables", "facts_of", "versions_of", "versions_of_tables"]
