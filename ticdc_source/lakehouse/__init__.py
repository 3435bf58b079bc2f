"""Changes → tables in Delta and Iceberg that stay equal to TiDB's."""
