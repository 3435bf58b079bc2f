"""Column types from DDL texts. It needs sqlglot (the extra `ddl`), only on the driver."""

from ticdc_source.schema.mysql_ddl.history import versions_of, versions_of_tables
from ticdc_source.schema.mysql_ddl.table_ddl import declared_tables
from ticdc_source.schema.mysql_ddl.tokens import available

__all__ = ["available", "declared_tables", "versions_of", "versions_of_tables"]
