"""Column types out of DDL texts; needs sqlglot (the extra `ddl`), on the driver only."""

from ticdc_source.schema.mysql_ddl.history import versions_of
from ticdc_source.schema.mysql_ddl.option import declared_tables
from ticdc_source.schema.mysql_ddl.tokens import available

__all__ = ["available", "declared_tables", "versions_of"]
